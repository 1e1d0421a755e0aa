"""The experiment of [@boutet2025] as a job file: every recipe, five training lengths, three seeds, at four sizes.

It has all that the figures need: also the recipe with n = 3, differential privacy, text that the causal models write,
and the classification of documents that have a class. The file is a job like any other, with a comment for each choice,
to be read and changed before it runs. Sizes differ in the models and in the time they take; ``small`` and ``base`` have
the published settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

from reticent.audit.config import DEFAULT_ATTACKS
from reticent.audit.judgement.rows import MIN_SHADOWS, PLAIN
from reticent.core.errors import PolicyError
from reticent.core.json_toml import parse_toml
from reticent.job.config import parse_job
from reticent.job.reach import expected_sides, membership_is_reachable, reach_lines
from reticent.trainer.recipes import RECIPES

#: Folder of the hospital that `reticent synth` makes for a job that names no documents.
HOSPITAL = "hospital"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The settings that differ between the sizes of the experiment.

    Attributes
    ----------
    bases : mapping, objective (mlm, clm) -> hub name of the base model; empty where a small one is pre-trained first
    foundation : mapping, settings of that pre-training (``[model.foundation]``)
    recipes : tuple of str, recipe names with {} for the objective; None: all, also with n = 3 and with DP-SGD
    classify : mapping, settings of the classification (``[classify]``); empty: as published
    synth : str, command-line options of `reticent synth` for a hospital of this size
    """

    about: str
    synth: str
    device: str
    window_length: int
    learning_rate: float
    epochs: tuple[int, ...] = (4, 8, 16, 32, 64)
    seeds: tuple[int, ...] = (0, 1, 2)
    num_bootstrap: int = 1000
    recipes: tuple[str, ...] | None = None
    bases: Mapping[str, str] = field(default_factory=dict)
    foundation: Mapping[str, int] = field(default_factory=dict)
    classify: Mapping[str, float] = field(default_factory=dict)


SIZES: Mapping[str, Size] = {
    "toy": Size(
        about="a minute on 2 CPU cores: it shows that everything works; the models learn nothing",
        synth="--individuals 24 --words-per-document 60 --public-documents 60 --language en",
        device="cpu", window_length=96, learning_rate=2e-3, epochs=(1, 2), seeds=(0, 1), num_bootstrap=100,
        recipes=("{}", "{}a", "pp{}"),
        foundation={"vocab_size": 800, "hidden_size": 16, "num_layers": 1, "num_heads": 2, "num_epochs": 1},
        classify={"min_individuals": 1},
    ),
    "cpu": Size(
        about="one to two hours on 2 CPU cores with the generated hospital; small models, pre-trained here first",
        synth="--individuals 120 --words-per-document 80 --public-documents 3000 --language en",
        device="cpu", window_length=160, learning_rate=2e-3,
        foundation={"vocab_size": 3000, "hidden_size": 128, "num_layers": 2, "num_heads": 4, "num_epochs": 4},
        classify={"learning_rate": 1e-3, "num_epochs": 10, "min_individuals": 1},
    ),
    "small": Size(
        about="one GPU: the published settings on models of half the size",
        synth="--individuals 500", device="cuda", window_length=512, learning_rate=1e-4,
        bases={"mlm": "distilbert/distilbert-base-uncased", "clm": "distilbert/distilgpt2"},
    ),
    "base": Size(
        about="one large GPU: BERT-base and GPT-2, the published settings",
        synth="--individuals 1000", device="cuda", window_length=512, learning_rate=1e-4,
        bases={"mlm": "google-bert/bert-base-uncased", "clm": "openai-community/gpt2"},
    ),
}  # fmt: skip


def experiment_job(
    size: str,
    *,
    out: str = "run",
    corpus: Mapping[str, Any] | None = None,
    detect: Mapping[str, Any] | None = None,
    bases: Mapping[str, str] | None = None,
    num_individuals: int | None = None,
) -> str:
    """Return the text of the job file (TOML) of the standard experiment, which compares protected with unprotected
    training, at a size of `SIZES`.

    Parameters
    ----------
    size : str, a key of `SIZES`
    out : str, run folder that the job will write
    corpus, detect : mapping, optional, the job's sections; None: the hospital that `reticent synth hospital` generates
    bases : mapping, optional, objective (mlm, clm) -> folder or hub name of the base model; only these objectives are
        trained. None: both, from the size's own models
    num_individuals : int, optional, number of individuals in the documents, where that is known

    Raises
    ------
    PolicyError
        The size is unknown, or the arguments make no valid job.
    """

    if size not in SIZES:
        raise PolicyError(f"unknown size {size!r}; one of {', '.join(SIZES)}")
    chosen, generated = SIZES[size], corpus is None
    if corpus is None:
        corpus = {"source": f"{HOSPITAL}/documents", "spans": "spans", "household_id": "household_id", "label": "label"}
        detect = {"detectors": ["gold", "rules", "records"], "records": f"{HOSPITAL}/records.parquet"}
    bases = bases or chosen.bases
    text = "\n".join(
        [
            *_header_lines(size, chosen, out, generated),
            *_corpus_lines(corpus, detect or {"detectors": ["rules"]}, reference=not bases and not generated),
            *_protection_lines(),
            *(
                line
                for objective in bases or ("mlm", "clm")
                for line in _model_lines(objective, chosen, bases, generated)
            ),
            *(() if chosen.recipes else _ngram_recipe_lines(bases or ("mlm", "clm"))),
            *_train_lines(chosen, private="clm" in (bases or ("clm",)) and not chosen.recipes),
            *(_classify_lines(chosen) if generated or corpus.get("label") else ()),
        ]
    )
    return _with_power_comments(text, _num_synthetic_individuals(chosen) if generated else num_individuals)


def minimal_job(
    *,
    out: str = "run",
    corpus: Mapping[str, Any] | None = None,
    detect: Mapping[str, Any] | None = None,
    bases: Mapping[str, str] | None = None,
    num_individuals: int | None = None,
) -> str:
    """Return the text of a short job file (TOML) with one protected model and its unprotected twin, on which the
    attacks should succeed.

    Parameters are those of `experiment_job`; without ``bases`` a small causal model is pre-trained first.

    Raises
    ------
    PolicyError
        The arguments make no valid job.
    """

    chosen, generated = SIZES["cpu"], corpus is None
    if corpus is None:
        corpus = {"source": f"{HOSPITAL}/documents", "spans": "spans"}
    lines = ["# A short job: `reticent run job.toml`. All settings: `reticent new-job` without --minimal."]
    lines += [f"# First: reticent synth {HOSPITAL} {chosen.synth}"] if generated else []
    lines += [f"out = {_toml_value(out)}", "", "[corpus]", *_table_lines(corpus, {}), "", "[detect]"]
    lines += [*_table_lines(detect or {"detectors": ["gold", "rules"] if generated else ["rules"]}, {}), ""]
    for objective in bases or ("clm",):
        lines += _minimal_model_lines(objective, chosen, bases or {}, "public" if generated else None)
    if not bases and not generated:
        lines += [
            "[split]",
            "reference = 0.2  # share of the individuals whose documents pre-train the small model",
            "",
        ]
    lines += ["[train]", "num_epochs = 8", 'device = "auto"']
    return _with_power_comments(
        "\n".join(lines) + "\n", _num_synthetic_individuals(chosen) if generated else num_individuals
    )


def _num_synthetic_individuals(size: Size) -> int:
    """Return the number of individuals that the `reticent synth` command of an experiment's size generates."""
    return int(size.synth.split("--individuals ")[1].split()[0])


def _with_power_comments(text: str, num_individuals: int | None) -> str:
    """Return a job file's text with comments on its statistical power at the top, and with shadow models if there are
    enough individuals to show a membership risk within its threshold."""
    job = parse_job(parse_toml(text))
    sides = None if num_individuals is None else expected_sides(job, num_individuals)
    recipes = [name for model in job.model for name in model.recipes if name.removeprefix("pp") in PLAIN]
    shadowed = (
        f"{text}\n[audit.shadow]  # without it no risk of membership is ever within\nrecipes = {_toml_value(recipes)}\n"
    )
    shadowed += f"num_shadows = {MIN_SHADOWS}  # the fewest that count\n"
    if sides is not None and membership_is_reachable(with_shadows := parse_job(parse_toml(shadowed)), sides):
        text, job = shadowed, with_shadows
    said = (wrap(f"{line}.", 114) for line in reach_lines(job, sides))
    about = [f"# {'  ' if number else ''}{part}" for lines in said for number, part in enumerate(lines)]
    head, body = text.split("\n", 1)
    return "\n".join([head, "#", *about, "#", body])


def _minimal_model_lines(objective: str, size: Size, bases: Mapping[str, str], public: str | None) -> list[str]:
    """Return the TOML lines of one model with two recipes, one without and one with protection; ``public`` names a
    folder of public text of the hospital.
    """
    name = "bert" if objective == "mlm" else "gpt2"
    head = ["[[model]]", f'name = "{name}"', f'objective = "{objective}"']
    head += [f"base = {_toml_value(bases[objective])}"] if bases else []
    head += [f'recipes = ["{objective}", "pp{objective}"]  # without protection, for comparison; and with it', ""]
    if not bases:
        text = f"{HOSPITAL}/{public}" if public else "reference"
        head += [
            f"[model.foundation]  # {_PRE_TRAINED[public is not None]}",
            f'kind = "{name}"',
            f"text = {_toml_value(text)}",
        ]
        head += [*_table_lines(size.foundation, {}), ""]
    return head


def _header_lines(size: str, chosen: Size, out: str, generated: bool) -> list[str]:
    """Return the first lines of the job file: comments on what it does and how to run it, ``out`` and ``seed``."""
    hospital = [f"#     reticent synth {HOSPITAL} {chosen.synth}", "#"] if generated else []
    return [
        f"# The experiment of Boutet et al. (2025) at size {size}:",
        f"# {chosen.about}.",
        "#",
        "# Every recipe is trained with every seed, every checkpoint is attacked, and one report compares them all.",
        "#",
        *(["# The documents are a hospital that does not exist. Generate it first:", "#"] if generated else []),
        *hospital,
        "# Then run the job, and again whenever it was stopped; results that exist are not made again:",
        "#",
        "#     reticent run job.toml",
        f"#     reticent status {out}      # results that exist, results to come, and the expected end",
        "",
        f"out = {_toml_value(out)}       # results; private, and as sensitive as the documents",
        "seed = 0          # of the split and of the audit; trainings have seeds of their own, below",
        "",
    ]


def _corpus_lines(corpus: Mapping[str, Any], detect: Mapping[str, Any], *, reference: bool) -> list[str]:
    """Return the TOML lines of the sections corpus, split and detect. If ``reference``, some individuals are set apart
    for pre-training.
    """
    return [
        "[corpus]",
        *_table_lines(corpus, {"individual_id": "whose document it is: everything is counted and split by individual"}),
        "",
        "[split]",
        "heldout = 0.4     # share of the individuals who are never trained on: the audit compares members with them",
        *(["reference = 0.2   # share whose documents pre-train the small models below"] if reference else []),
        "",
        "[detect]          # direct identifiers: names, dates, numbers. See `reticent detect --help`",
        *_table_lines(detect, {}),
        "",
    ]


def _protection_lines() -> list[str]:
    """Return the TOML lines of the sections index and protect."""
    return [
        "[index]",
        "max_n = 3         # n-grams are counted up to this length: the report has the leakage of longer ones too",
        "",
        "[protect]",
        "k = 2             # an indirect identifier is a word that fewer than k individuals use",
        "n = 1             # single words, as in most of their figures; up to max_n",
        'policy = "all"',
        "",
    ]


def _model_lines(objective: str, size: Size, bases: Mapping[str, str], generated: bool) -> list[str]:
    """Return the TOML lines of one model section, with all recipes of its objective that the size compares."""
    name, kind = ("bert", "bert") if objective == "mlm" else ("gpt2", "gpt2")
    head = ["[[model]]", f'name = "{name}"', f'objective = "{objective}"  # {_OBJECTIVES[objective]}']
    if bases:
        head += [
            f"base = {_toml_value(bases[objective])}  # a folder, or a name on the hub (HF_HUB_OFFLINE=0 downloads it)"
        ]
    head += ["recipes = ["]
    for recipe in RECIPES.values():
        if recipe.objective != objective:
            continue
        if recipe.words != "counted":
            head += [f'  # "{recipe.name}",  # one epsilon from documents to weights: needs protect.public_words']
        elif recipe.private:
            used = objective == "clm" and size.recipes is None
            head += [f'  {"" if used else "# "}"{recipe.name}",  # differential privacy, which needs [train.dp]']
        elif recipe.replaces_indirect:
            head += [f'  # "{recipe.name}",  # beyond the published experiment: identifiers are not read either']
        elif size.recipes is None or recipe.name in {stem.format(objective) for stem in size.recipes}:
            head += [f'  "{recipe.name}",']
    head += ["]"] if size.recipes else [f'  "pp{objective}-n3",  # [recipes] below', "]"]
    if not bases:
        text = f"{HOSPITAL}/public" if generated else "reference"
        head += [
            "",
            f'[model.foundation]  # {_PRE_TRAINED[generated]}; or say base = "FOLDER" above',
            f'kind = "{kind}"',
            f"text = {_toml_value(text)}",
            *_table_lines(size.foundation, {}),
        ]
    return [*head, ""]


#: By whether there is public text.
_PRE_TRAINED = {
    True: "a small model, pre-trained on text of no individual",
    False: "a small model, pre-trained on the reference individuals without protection: it must not leave",
}
_OBJECTIVES = {"mlm": "masked words, BERT-like", "clm": "the next token, GPT-like"}


def _ngram_recipe_lines(objectives: Iterable[str]) -> list[str]:
    """Return the TOML lines of the recipes that protect n-grams of up to three words, one for each objective (mlm,
    clm)."""
    lines = [[f"[recipes.pp{each}-n3]", f'base = "pp{each}"', "n = 3"] for each in objectives]
    return [*(line for recipe in lines for line in (*recipe, ""))]


def _classify_lines(size: Size) -> list[str]:
    """Return the TOML lines of the downstream task: classification of documents with heads on the trained models."""
    return [
        "[classify]        # documents by their class, from the last layer of the models of 8 epochs and of 64",
        *_table_lines(size.classify, {"learning_rate": "published: 2e-5; small models learn nothing with it"}),
        "",
    ]


def _train_lines(size: Size, *, private: bool) -> list[str]:
    """Return the TOML lines of the sections train and audit, with DP-SGD if ``private``."""
    steps = "falls linearly to 0" + ("" if size.bases else "; small models take larger steps")
    return [
        "[train]",
        "# Each recipe is trained once a seed: the order of the documents and the masks change, the members do not.",
        f"seeds = {list(size.seeds)}",
        "# The attacks: leaks and utility against the length of training.",
        f"num_epochs = {size.epochs[-1]}",
        f"checkpoint_epochs = {list(size.epochs)}",
        f"window_length = {size.window_length}      # tokens the model sees at once",
        "batch_size = 16",
        f"learning_rate = {size.learning_rate:g}   # {steps}",
        f'device = "{size.device}"'
        + ("         # refused at once where there is none" if size.device == "cuda" else ""),
        "",
        *(
            ["[train.dp]", "target_epsilon = 8.0  # of an individual, after all epochs; theirs is not published", ""]
            if private
            else ()
        ),
        "[audit]",
        f"attacks = {_toml_value(DEFAULT_ATTACKS)}",
        f"num_bootstrap = {size.num_bootstrap}     # resamples of the individuals behind each interval",
        "",
        "[audit.generation]  # what causal models write after the beginnings of documents: BLEU, ROUGE, identifiers",
        "temperature = 0.0   # the likeliest token",
        "",
    ]


def _table_lines(section: Mapping[str, Any], about: Mapping[str, str]) -> list[str]:
    """Return the TOML lines of one table, with the comments in ``about`` by key; a key with the value None is left out
    and has its default."""
    lines = [(name, f"{name} = {_toml_value(value)}") for name, value in section.items() if value is not None]
    return [f"{line}  # {about[name]}" if name in about else line for name, line in lines]


def _toml_value(value: Any) -> str:
    """Return a value as TOML text: JSON's strings, numbers and lists are TOML too."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_value(key)} = {_toml_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
