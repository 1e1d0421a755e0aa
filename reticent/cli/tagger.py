"""The commands on taggers: ``reticent tagger train``, ``tagger attack`` and ``tagger thesis``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from reticent.audit.evidence.json_form import to_json
from reticent.cli.help import example_of
from reticent.cli.options import (
    AsJson,
    Quiet,
    Set,
    is_job,
    job_from_source,
    job_of,
    new_progress,
    read_job,
    refuse_given,
)
from reticent.cli.show import print_classification
from reticent.core.artifact import fingerprint, require_kind
from reticent.core.device import check_device
from reticent.core.errors import PolicyError
from reticent.core.progress import log
from reticent.ext.classify.stage import read_results
from reticent.ext.tagger.prompts import FRENCH_PROMPTS, PROMPTS, Prompt, person_labels, read_prompts
from reticent.ext.tagger.sets import (
    AttackSet,
    Mentions,
    build_attack_set,
    names_of_corpus,
    read_conll,
    read_names,
    read_pairs,
)
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.trainer.config import TagConfig

tagger_app = typer.Typer(
    no_args_is_help=True,
    help="""Train taggers of identifiers, and ask which names a tagger was trained on, by what it says of names.

    Names of the training data are paired with names that are absent from it; whoever tells them apart by the tagger's
    scores, better than by the names alone, has learned who was in the data.""",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Options for the choice of pairs, as in `build_attack_set`."""

    max_pairs: int | None
    fewer: bool
    listed: bool
    match: bool
    seed: int


Bf16 = Annotated[str, typer.Option(metavar="auto|on|off", help="bfloat16; auto is on for CUDA.")]


@tagger_app.command(epilog=example_of("tagger train"))
def train(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A run folder or job file (.toml), whose base models and checkpoints are taken."
        ),
    ],
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train taggers on base models and checkpoints, and print strict F1 on held-out individuals.

    They learn where the run's detectors find identifiers, and read surrogates in their place: --set tag.text=keep
    reads the identifiers themselves. --set tag.save_model=true keeps the taggers.
    """
    if not is_job(source):
        raise PolicyError("tagger train: expected a run folder or a job file; `reticent new-job` writes one")
    job = job_from_source(source, None, settings=settings)
    run = Run(job if job.tag is not None else job.changed(tag=TagConfig()), new_progress(quiet))
    execute(run, "classify")
    print_classification([result for result in read_results(run) if result.task == "tags"], as_json)


@tagger_app.command(epilog=example_of("tagger attack"))
def attack(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Folder of the tagger, or a name on the hub.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the result; private to you.")],
    train: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="CoNLL file the tagger was trained on (BIO, IOB1, BIOES); may be repeated."),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(metavar="LIST", help="Names that are not in it: one a line, or a folder of US Census lists."),
    ] = None,
    heldout: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Names that are not in it: a CoNLL file the tagger was not trained on."),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead of these given pairs: a CSV with the columns pair, name, label (1: trained on, 0: not), and "
            "perhaps side (dev, test), as a file of published scores has them.",
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Instead of these a run folder: annotated names, of members and held-out."),
    ] = None,
    prompts: Annotated[
        str,
        typer.Option(
            metavar="en|fr|FILE",
            help="English or French prompts, or a file: a prompt with [MASK] a line, then after tabs none, assertion, "
            "question or negation, and alone, subject or object.",
        ),
    ] = "en",
    label: Annotated[
        list[str] | None, typer.Option(metavar="TYPE", help="Label of a person in the model and the files.")
    ] = None,
    max_pairs: Annotated[int | None, typer.Option(min=2, metavar="<int>", help="Attack so many pairs.")] = None,
    fewer: Annotated[bool, typer.Option("--fewer", help="Where absent names are too few, attack fewer pairs.")] = False,
    listed: Annotated[
        bool, typer.Option("--listed", help="Only training names that the list holds too, as Nußbaumer (2023) did.")
    ] = False,
    match: Annotated[
        bool, typer.Option("--match/--no-match", help="Choose absent names that look like the training names.")
    ] = True,
    encoding: Annotated[str, typer.Option(metavar="NAME", help="Encoding of CoNLL files, e.g. cp1252.")] = "utf-8",
    seed: Annotated[int, typer.Option(min=0, metavar="<int>", help="Equal seeds give equal pairs.")] = 0,
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda, cuda:1 and so on.")] = "auto",
    bf16: Bf16 = "auto",
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Secret key of the hashes in scores.parquet (default: thrown away)."),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Attack a tagger, and write numbers, scores (of hashed names) and a page with figures."""
    if bf16 not in ("auto", "on", "off"):
        raise PolicyError(f"--bf16: expected auto, on or off, got {bf16!r}")
    if run is not None:
        refuse_given(context, "has no effect with --run: its names come from no file", "encoding")
        refuse_given(context, "has no effect with --run: as many pairs are attacked as there are", "fewer")
    if pairs is not None:
        refuse_given(
            context, "has no effect with --pairs: they are attacked as they are", "encoding", "max_pairs", "fewer",
            "listed", "match",
        )  # fmt: skip
    check_device(device)
    secret, asked, labels = _read_key(key), _load_prompts(prompts), label or ["PER"]
    if (known := _read_labels(model)) is not None:
        person_labels(known, labels)
    progress = new_progress(quiet)
    files = [*(train or []), *(file for file in (names, heldout, pairs) if file is not None)]
    choice = Choice(max_pairs=max_pairs, fewer=fewer, listed=listed, match=match, seed=seed)
    if run is not None:
        if files:
            raise PolicyError(
                "--run: the names come from its documents; leave out --train, --names, --heldout and --pairs"
            )
        attack_set, inputs = _attack_set_of_run(run, choice)
    elif pairs is not None:
        if len(files) > 1:
            raise PolicyError("--pairs: has both names of every pair; leave out --train, --names and --heldout")
        attack_set, inputs = read_pairs(pairs, seed=seed), {str(pairs): fingerprint(pairs)}
    else:
        attack_set = _attack_set_of_files(train or [], names, heldout, labels, encoding, choice)
        inputs = {str(file): fingerprint(file) for file in files}
    from reticent.ext.tagger.plots import tagger_panels
    from reticent.ext.tagger.result import evaluate_attack, score_table, write_tagger_audit
    from reticent.ext.tagger.scores import open_tagger, score_names  # torch: all that can be checked without it is

    tagger, tokenizer = open_tagger(model, device)
    person_labels(tagger.config.id2label or {}, labels)
    _log_counts(progress, attack_set)
    with progress.task("tagger", 2 * len(attack_set.positives) * len(asked), "texts") as advance:
        scores = score_names(
            tagger, tokenizer, attack_set.names, asked, labels=labels, device=device, bf16=bf16, progress=advance  # type: ignore[arg-type]
        )  # fmt: skip
    result = evaluate_attack(scores, attack_set, asked, seed=seed)
    if Path(model).is_dir():
        inputs["model"] = fingerprint(model)
    config = {**asdict(choice), "model": str(model), "labels": labels, "bf16": bf16}
    table = score_table(scores, attack_set, key=secret)
    write_tagger_audit(out, result, table, tagger_panels(result, scores), config=config, inputs=inputs)
    if as_json:
        print(json.dumps(to_json(result)))
    else:
        print("\n".join([*result.reading, f"{out}: tagger.html, tagger.json, scores.parquet"]))


@tagger_app.command(epilog=example_of("tagger thesis"))
def thesis(
    scores: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=FILE...",
            help="Scores of a model: a CSV with the columns pair, name, label (1: trained on), prompt, score (or ND), "
            "and perhaps side (dev, test); others are ignored. Give base=FILE large=FILE for Nußbaumer's two models.",
        ),
    ],
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT=COLUMN", help="Name of a column where it differs, e.g. score=mu; repeat for several."
        ),
    ] = None,
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs/--no-pairs",
            help="Without pairs the column is not looked at, and only the tables of the whole list are made.",
        ),
    ] = True,
    skip_incomplete: Annotated[
        bool,
        typer.Option(
            "--skip-incomplete",
            help="Leave out pairs that lack a score or have one twice, and say how many; else they are an error.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, metavar="<int>", help="Draws the coins of A4.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Print Tables 4.1 to 4.9 and A.1 to A.4 of Nußbaumer (2023) from published scores."""
    from reticent.ext.tagger.tables import read_scores, thesis_tables

    if skip_incomplete and not pairs:
        raise PolicyError("--skip-incomplete: is about pairs, and --no-pairs leaves them all out")
    named = dict(item.partition("=")[::2] for item in columns or [])
    if not all(named.values()):
        raise PolicyError("--columns: expected WHAT=COLUMN, e.g. score=mu")
    models = {}
    for item in scores:
        name, equals, file = item.partition("=")
        if not equals:
            name, file = Path(item).stem, item
        if name in models:
            raise PolicyError(f"tagger thesis: two files are called {name}; give NAME=FILE")
        models[name] = read_scores(file, columns=named, paired=pairs, only_whole=skip_incomplete)
        if left_out := models[name].num_left_out:
            log(f"{name}: {left_out:,} pairs are left out: they lack a score or have one twice", level="warning")
    tables = thesis_tables(models, seed=seed)
    print(json.dumps([asdict(table) for table in tables]) if as_json else "\n".join(map(str, tables)))


def _read_labels(model: str) -> dict[str, str] | None:
    """Return the label names (id -> name) in the config of a model folder; None if there is none, and the model must be
    loaded to know them."""
    try:
        labels = json.loads((Path(model) / "config.json").read_bytes())["id2label"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return labels if isinstance(labels, dict) and all(isinstance(name, str) for name in labels.values()) else None


def _load_prompts(prompts: str) -> tuple[Prompt, ...]:
    """Return the prompts of a language (en, fr) or of a file."""
    return {"en": PROMPTS, "fr": FRENCH_PROMPTS}.get(prompts) or read_prompts(prompts)


def _read_key(file: Path | None) -> bytes | None:
    """Return the key in a file; None without a file. Raise `PolicyError` if it cannot be read or has fewer than 16
    bytes."""
    if file is None:
        return None
    try:
        content = file.read_bytes()
    except OSError as error:
        raise PolicyError(f"{file}: cannot be read ({error.strerror})") from None
    if len(content) < 16:
        raise PolicyError(f"{file}: expected a key of at least 16 bytes, got {len(content)}")
    return content


def _attack_set_of_files(
    train: list[Path], names: Path | None, heldout: Path | None, labels: list[str], encoding: str, choice: Choice
) -> AttackSet:
    """Return the attack set of names in a tagger's training files (CoNLL), each paired with a name that is absent from
    them. The absent names come from a list or from a held-out CoNLL file."""
    if not train or (names is None) == (heldout is None):
        raise PolicyError("tagger attack: give --train FILE and either --names LIST or --heldout FILE, or --run RUN")
    read = [read_conll(file, labels=labels, encoding=encoding) for file in train]
    training = Mentions([n for part in read for n in part.names], [t for part in read for t in part.texts])
    if names is not None:
        candidates = read_names(names, seed=choice.seed)
    else:
        assert heldout is not None
        candidates = list(dict.fromkeys(read_conll(heldout, labels=labels, encoding=encoding).names))
    return build_attack_set(training, candidates, **asdict(choice))


def _attack_set_of_run(run: Path, choice: Choice) -> tuple[AttackSet, dict[str, str]]:
    """Return the attack set from a run's annotated names of members and held-out individuals, and fingerprints of the
    inputs."""
    opened = Run(job_of(read_job(run), None))
    require_kind(opened.folder / "split", "split")
    training, candidates = names_of_corpus(opened.corpus, opened.individuals, seed=choice.seed)
    # Members and held-out are as many as they are.
    as_many = replace(choice, fewer=True)
    attack_set = build_attack_set(training, candidates, **asdict(as_many), unit="pairs of individuals")
    return attack_set, {"corpus": opened.corpus.fingerprint(), "split": fingerprint(opened.folder / "split")}


def _log_counts(progress: Any, attack_set: AttackSet) -> None:
    """Log the counts of names in an attack set, with a warning for unmatched pairs."""
    counts = attack_set.counts
    shown = {name.replace("_", " "): number for name, number in counts.items() if number}
    if not progress.quiet:
        progress.say("names: " + ", ".join(f"{name} {number:,}" for name, number in shown.items()))
    if loose := counts.get("matched_in_none", 0):
        progress.warn(f"{loose:,} names of the training data found no name like them in the list; see the blind result")
