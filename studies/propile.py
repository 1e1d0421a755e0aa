"""What of ProPILE's figures and tables comes out for small models trained here, with its own ordinary templates?

Invented people with a name, a phone number, an e-mail address, an address, a relative and a university. A model is
trained on sentences about half of them and asked about both halves: those never seen are the control. What sentences,
how many of a person and how many epochs make a black-box probe find something with the built-in templates is searched
for on a pilot seed, and every regime that was tried is kept. `RULE` chooses one; all figures are of other seeds. The
sizes of the soft prompts follow the number of people (`prompts.sizes_that_fit`).

    python -m studies.propile --size cpu
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.record_io import STUDIES, estimate_text, markdown, mean_over_seeds, write_record
from benchmarks.runner import command
from reticent.audit.evidence.json_form import to_json
from reticent.audit.evidence.probe import ProbeEvidence, ProbeResult
from reticent.engine.randomness import generator
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.ext.propile.measure import probe_models
from reticent.ext.propile.prompts import (
    Init,
    ProbeConfig,
    ProbeModel,
    SoftPromptConfig,
    SoftPromptStudy,
    sizes_that_fit,
)
from reticent.ext.propile.subjects import Subjects, subjects_from_rows
from reticent.ext.propile.templates import builtin_templates, pii_type
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from studies.foundation_models import package_folder
from studies.reproduction.rows import freeze

#: people: half are members. pilot: documents of a person and epochs. sizes: of the models, the first is the main one.
SIZES: dict[str, dict[str, Any]] = {
    "toy": {
        "people": 40, "vocabulary": 400, "public": 60, "documents": (1,), "epochs": (1,), "hidden": (16, 8),
        "seeds": (1,), "beam": 1, "beams": (1, 2), "draws": 2, "bootstrap": 50, "soft_epochs": 1, "tokens": (1, 2),
        "smollm2": 0,
    },
    "cpu": {
        "people": 160, "vocabulary": 1000, "public": 1000, "documents": (2, 8), "epochs": (10, 30),
        "hidden": (64, 32, 128), "seeds": (1, 2), "beam": 3, "beams": (1, 2, 3, 5), "draws": 10, "bootstrap": 500,
        "soft_epochs": 60, "tokens": (5, 10, 20, 50), "smollm2": 40,
    },
}  # fmt: skip
PILOT = 0
STRUCTURED, UNSTRUCTURED = ("phone", "email", "address"), ("relative", "university")
LEVELS = ("twin", "triplet", "quadruplet")
RELATIONSHIPS = ("father", "mother", "grandmother", "grandfather", "aunt", "uncle", "wife", "husband")
PLACES = (
    "Ashford", "Brookfield", "Carlow", "Dunmore", "Eastvale", "Fairhaven", "Glenrock", "Hartwell", "Ironwood",
    "Jasper", "Kingsley", "Lakemont", "Marlow", "Northgate", "Oakdale", "Pinehurst",
)  # fmt: skip
#: What is written of a person, the least like the templates first.
KINDS = ("notes", "other words", "words of the templates")
OTHER_WORDS = (
    "{name}'s line: {phone}, mail {email}.",
    "Letters for {name} go to {address}; call {phone} first.",
    "New entry. {name}, {email}, lives at {address}.",
    "If {name} does not answer on {phone}, leave a message for the {relationship}, {relative}.",
    "{name} ({university}) left the number {phone} and the mail {email}.",
)
RULE = (
    "of the regimes in which the probe is told an item of members word for word (lower end of the interval above 0), "
    "the one whose texts are least like the templates, then the one with the fewest documents times epochs; where "
    "there is none, the last that was tried, and what is reported is that nothing was found"
)
SIDES = ("members", "heldout")
#: Points of a density and of a curve that are kept.
POINTS = 16


@dataclass(frozen=True, slots=True)
class Regime:
    kind: str
    documents: int
    epochs: int


class People:
    """Invented people, what is written of them, and the models that are trained on half of them."""

    def __init__(self, folder: Path, about: dict[str, Any], seed: int):
        self.folder, self.about, self.seed = folder / f"seed{seed}", about, seed
        if not self.folder.exists():
            config = SynthConfig(
                num_individuals=about["people"], documents_per_individual=4.0, words_per_document=20,
                languages=("en",), public_documents=about["public"], seed=seed,
            )  # fmt: skip
            self.folder.mkdir(parents=True)
            synthesize(self.folder, config)

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """The items of each person."""
        random = generator(self.seed, 92)
        records = pq.read_table(self.folder / "records.parquet").to_pylist()
        first = [record["first_name"] for record in records]
        return [
            {
                "individual_id": record["individual_id"], "name": f"{record['first_name']} {record['last_name']}",
                **{name: record[name] for name in ("phone", "email")},
                "address": f"{record['address']}, {record['city']} {record['zip']}",
                "relationship": RELATIONSHIPS[random.integers(len(RELATIONSHIPS))],
                "relative": f"{first[random.integers(len(first))]} {record['last_name']}",
                "university": f"{PLACES[random.integers(len(PLACES))]} University",
            }
            for record in records
        ]  # fmt: skip

    @cached_property
    def subjects(self) -> Subjects:
        return subjects_from_rows({name: [row[name] for row in self.rows] for name in self.rows[0]})

    def documents(self, kind: str, number: int) -> Path:
        """The documents of a kind, so many of a person; the hospital's own notes are as many as they are."""
        if kind == "notes":
            return self.folder / "documents"
        path = self.folder / f"{kind.replace(' ', '-')}-{number}.parquet"
        if not path.exists():
            random = generator(self.seed, 93)
            lines = list(OTHER_WORDS) if kind == "other words" else list(_template_lines())
            texts = [
                (row["individual_id"], lines[chosen].format(**row))
                for row in self.rows
                for chosen in random.choice(len(lines), number, replace=number > len(lines))
            ]
            who, written = zip(*texts, strict=True)
            ids = [f"{n:06d}" for n in range(len(texts))]
            pq.write_table(pa.table({"doc_id": ids, "individual_id": who, "text": written}), path)
        return path

    def train(self, regime: Regime, hidden: int, *epochs: int) -> tuple[dict[str, Subjects], dict[int, Path], str]:
        """Train a model from a small base of public text; returns the subjects of each side, its checkpoints and the
        base."""
        foundation = {
            "kind": "gpt2", "text": str(self.folder / "public"), "vocab_size": self.about["vocabulary"],
            "hidden_size": hidden, "num_layers": 2, "num_heads": 2, "num_epochs": 2,
        }  # fmt: skip
        name = f"run-{regime.kind.replace(' ', '-')}-{regime.documents}-{hidden}"
        job = parse_job({
            "out": str(self.folder / name), "seed": self.seed,
            "corpus": {"source": str(self.documents(regime.kind, regime.documents))}, "split": {"heldout": 0.5},
            "detect": {"detectors": ["rules"]},
            "model": [{"name": "m", "objective": "clm", "recipes": ["clm"], "foundation": foundation}],
            "train": {"num_epochs": max(epochs), "checkpoint_epochs": list(epochs), "window_length": 256,
                      "batch_size": 16, "learning_rate": 2e-3, "lr_scheduler_type": "constant_with_warmup"},
        })  # fmt: skip
        run = Run(job)
        execute(run, "train")
        codes = run.individuals.individual_codes(pa.array(self.subjects.ids))
        sides = {
            side: self.subjects.take(np.flatnonzero((codes >= 0) & run.individuals.mask(side)[codes]))
            for side in (MEMBERS, HELDOUT)
        }
        return sides, run.checkpoints(job.model[0], "clm"), str(run.base_of(job.model[0]))


def _template_lines() -> Iterator[str]:
    """Sentences as the built-in templates have them, each with the item at its end."""
    for template in builtin_templates():
        if template.language != "en":
            continue
        if template.targets:
            yield from (f"{template.text}{{{target}}}." for target in template.targets if target in UNSTRUCTURED)
            continue
        for number, target in enumerate(STRUCTURED):
            others = [*STRUCTURED[number + 1 :], *STRUCTURED[:number]]
            text = template.text.replace("{target_pii_type}", pii_type(target).label("en"))
            for place, other in enumerate(others, start=1):
                text = text.replace(f"{{pii_{place}_type}}", pii_type(other).label("en"))
                text = text.replace(f"{{pii_{place}}}", f"{{{other}}}")
            yield f"{text}{{{target}}}."


def _config(about: dict[str, Any], **more: Any) -> ProbeConfig:
    return ProbeConfig(num_bootstrap=about["bootstrap"], device="cpu", **{"beam_sizes": (about["beam"],), **more})


def _probe(
    models: dict[str, Path | str], subjects: Subjects, config: ProbeConfig, study: SoftPromptStudy | None = None
) -> ProbeEvidence:
    return probe_models([ProbeModel(name, path, "clm") for name, path in models.items()], subjects, config,
                        study=study)[0]  # fmt: skip


def pilot(folder: Path, about: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every regime that was tried on the pilot seed, with the share of phone numbers that the probe is told."""
    people, rows = People(folder, about, PILOT), []
    config = _config(about, targets=("phone",), levels=("twin",))
    for kind in KINDS:
        for number in about["documents"] if kind != "notes" else about["documents"][:1]:
            sides, checkpoints, _ = people.train(Regime(kind, number, 0), about["hidden"][0], *about["epochs"])
            for epochs, path in checkpoints.items():
                said = {
                    side: to_json(_probe({"m": path}, sides[side], config).models[0].results[0].exact_match)
                    for side in (MEMBERS, HELDOUT)
                }
                rows.append({**asdict(Regime(kind, number, epochs)), **said})
                print(kind, number, epochs, estimate_text(said[MEMBERS], 2), flush=True)
    return rows


def choose(rows: Sequence[dict[str, Any]]) -> tuple[Regime, bool]:
    """Return the regime that `RULE` takes, and whether anything was found.

    >>> row = {"kind": "notes", "documents": 1, "epochs": 5, "members": {"low": 0.0}}
    >>> choose([row, {**row, "kind": "other words", "members": {"low": 0.1}}])
    (Regime(kind='other words', documents=1, epochs=5), True)
    """
    found = [row for row in rows if (row["members"]["low"] or 0.0) > 0]
    taken = min(found, key=lambda row: (KINDS.index(row["kind"]), row["documents"] * row["epochs"]), default=rows[-1])
    return Regime(*(taken[field.name] for field in fields(Regime))), bool(found)


def measure(folder: Path, about: dict[str, Any], regime: Regime) -> dict[str, Any]:
    """Train models of every size on fresh seeds and return the numbers of the figures and tables."""
    members, heldout, first = [], [], {}
    for number, seed in enumerate(about["seeds"]):
        people, models = People(folder, about, seed), {}
        for hidden in about["hidden"] if number == 0 else about["hidden"][:1]:
            sides, checkpoints, base = people.train(regime, hidden, regime.epochs)
            models[f"hidden {hidden}"] = checkpoints[regime.epochs]
        (main, path), *others = models.items()
        members.append(_questions({main: path}, sides[MEMBERS], about, LEVELS))
        heldout.append(_brief(_rows(_questions({main: path}, sides[HELDOUT], about, LEVELS[:2]))))
        if number == 0:
            other = _questions(dict(others), sides[MEMBERS], about, LEVELS[:2])
            first = {
                "others": _brief(_rows(other)),
                "parameters": {m.name: m.num_parameters for m in (*members[0].models, *other.models)},
                "densities": [row for found in (members[0], other) for row in _densities(to_json(found))],
                "beams": _beams({main: path}, sides[MEMBERS], about),
                "draws": _draws({main: path}, sides[MEMBERS], about),
                "base": _brief(_rows(_probe({"base": base}, sides[MEMBERS], _config(about, targets=STRUCTURED)))),
                "soft": _soft(models, sides[MEMBERS], about),
            }
    return {
        "members": mean_over_seeds([_rows(found) for found in members]),
        "heldout": mean_over_seeds(heldout),
        **first,
    }


def _questions(
    models: dict[str, Path], subjects: Subjects, about: dict[str, Any], levels: Sequence[str]
) -> ProbeEvidence:
    """The structured types at these levels, and the unstructured ones behind the name."""
    first, second = (
        _probe(dict(models), subjects, _config(about, targets=targets, levels=asked, given=given))
        for targets, asked, given in ((STRUCTURED, levels, STRUCTURED), (UNSTRUCTURED, LEVELS[:1], ()))
    )
    both = zip(first.models, second.models, strict=True)
    return replace(first, models=[replace(own, results=[*own.results, *other.results]) for own, other in both])


def _rows(found: ProbeEvidence) -> list[dict[str, Any]]:
    """A row for each question to a model: what figures and tables show."""
    return [
        {"model": model.name, **_row(result)} for model in found.models for result in model.results if result.likelihood
    ]


def _row(result: ProbeResult) -> dict[str, Any]:
    likelihood, matches = result.likelihood, next(iter((result.matches or {}).values()))
    assert likelihood
    assert result.normalised
    row = {
        "target": result.target, "level": result.level,
        "factor": likelihood.factor,
        "normalised": result.normalised.factor, "p_value": likelihood.published_test.p_value,
        "exact_match": result.exact_match,
        "gamma": {str(point.k): point.true for point in result.gamma or () if point.k in (10, 100, 10_000, 1_000_000)},
        "templates": [point.exact_match for point in result.by_num_templates or ()],
    }  # fmt: skip
    if len(matches) > 1:
        row["parts"] = {metric: estimate for metric, estimate in matches.items() if metric != "exact_match"}
    if result.unconditional:
        row["linked"] = result.unconditional.linked
    json: dict[str, Any] = to_json(row)
    return json


def _brief(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What stands of other people and other models beside the members and the main one."""
    kept = ("model", "target", "level", "factor", "exact_match", "p_value")
    return [{name: row[name] for name in kept if name in row} for row in rows]


def _densities(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Densities of the likelihood and the normalised one, a model and a type, behind one item more than the name."""
    rows = []
    for model in found["models"]:
        for result in model["results"]:
            level = "triplet" if result["target"] in STRUCTURED else "twin"
            if "likelihood" not in result or result["level"] != level:
                continue
            for measure in ("likelihood", "normalised"):
                curves = {side: _thinned(result[measure]["density"][side]) for side in ("true", "null")}
                rows.append({"model": model["name"], "target": result["target"], "measure": measure, **curves})
    return rows


def _thinned(curve: dict[str, list[float]]) -> dict[str, list[float]]:
    """The heights of a curve at `POINTS` places that are equally far apart, and the first and the last of these."""
    if not curve["x"]:
        return curve
    first, last = curve["x"][0], curve["x"][-1]
    y = np.interp(np.linspace(first, last, POINTS), curve["x"], curve["y"])
    return {"x": [round(first, 2), round(last, 2)], "y": np.round(y, 3).tolist()}


def _beams(models: dict[str, Path | str], subjects: Subjects, about: dict[str, Any]) -> dict[str, Any]:
    """Exact match of phone numbers behind the name, by the width of the search (Fig. 4c)."""
    config = _config(about, targets=("phone",), levels=("twin",), beam_sizes=about["beams"])
    matches = to_json(_probe(models, subjects, config).models[0].results[0].matches)
    return {beams: metrics["exact_match"] for beams, metrics in matches.items()}


def _draws(models: dict[str, Path | str], subjects: Subjects, about: dict[str, Any]) -> list[dict[str, Any]]:
    """Structured items among N answers to each of K prompts behind the name, beside what the likelihoods promise."""
    config = _config(about, targets=STRUCTURED, levels=("twin",), beam_sizes=(1,), num_draws=about["draws"])
    results = _probe(models, subjects, config).models[0].results
    return [{"target": each.target, **to_json(each.drawn)} for each in results if each.drawn]


def _soft(models: dict[str, Path], subjects: Subjects, about: dict[str, Any]) -> dict[str, Any]:
    """Soft prompts for phone numbers: sizes that follow the people, lengths, starts (Fig. 5), and the first model's as
    text in the others (Table 1)."""
    sizes = sizes_that_fit(len(subjects))
    prompt = SoftPromptConfig(num_subjects=sizes[-1], num_tokens=about["tokens"][-2], num_epochs=about["soft_epochs"],
                              eval_every=max(1, about["soft_epochs"] // 4), select_by="loss")  # fmt: skip
    config = _config(about, targets=("phone",), levels=("twin",), beam_sizes=(1,))
    names = list(models)
    kept = ("factor", "exact_match_before", "exact_match_after", "likelihood_before", "likelihood_after", "n",
            "num_subjects", "num_tokens", "init", "sweep")  # fmt: skip
    study = SoftPromptStudy(
        prompt=prompt, num_subjects=sizes[:-1], num_tokens=tuple(n for n in about["tokens"] if n != prompt.num_tokens),
        init=tuple(start for start in get_args(Init) if start != prompt.init),
    )  # fmt: skip
    swept = to_json(_probe({names[0]: models[names[0]]}, subjects, config, study))["models"][0]["soft_prompts"][0]
    moved = _probe(dict(models), subjects, config, SoftPromptStudy(prompt=prompt))
    return {
        "rows": [{name: row[name] for name in kept} for row in (swept, *swept["sweeps"])],
        "transfer": [
            {"model": model.name, **{name: to_json(getattr(row, name)) for name in kept[:6]}}
            for model in moved.models for row in model.transfer or ()
        ],
    }  # fmt: skip


def smollm2(people: People, about: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Probe SmolLM2, which never saw these people, where it is installed: the null result of a real model."""
    folder = package_folder("smollm2")
    if folder is None or not about["smollm2"]:
        return None
    some = people.subjects.take(np.arange(about["smollm2"]))
    config = _config(about, targets=("phone", "email"), levels=("twin",), beam_sizes=(1,))
    return _brief(_rows(_probe({"SmolLM2": folder}, some, config)))


def run(
    size: Annotated[str, SIZES] = "cpu",
    work: Annotated[Path | None, "folder to keep; a study that was stopped there goes on"] = None,
) -> dict[str, Any]:
    """Search the regime, measure it on fresh seeds; cpu size writes ``record/propile.json``."""
    if size == "toy" and work is None:
        print("skipped: `studies.reproduce` runs the same at this size")
        return {}
    if work is None:
        with tempfile.TemporaryDirectory(prefix="reticent-bench-") as name:
            return run(size, Path(name))
    about, rule = SIZES[size], freeze(work, [3])
    tried = pilot(work, about)
    regime, found = choose(tried)
    real = smollm2(People(work, about, about["seeds"][0]), about)
    result = {
        "rule": rule,
        "people": about["people"], "pilot": {"seed": PILOT, "rule": RULE, "regimes": tried},
        "chosen": asdict(regime), "found": found, "seeds": list(about["seeds"]), "smollm2": real,
        **measure(work, about, regime),
    }  # fmt: skip
    print(table(result))
    write_record("propile", result, size, STUDIES)
    return result


def table(record: dict[str, Any]) -> str:
    """Return the tables: regimes of the pilot, and members beside held-out people."""
    tried = [
        [*(row[name] for name in ("kind", "documents", "epochs")), *(estimate_text(row[s], 2) for s in SIDES)]
        for row in record["pilot"]["regimes"]
    ]
    beside = {(row["target"], row["level"]): row["exact_match"] for row in record["heldout"]}
    drawn = [[row["target"], row["num_draws"], estimate_text(row["found"], 3), estimate_text(row["promised"], 3)]
             for row in record["draws"]]  # fmt: skip
    rows = [
        [f"{row['target']}, {row['level']}", estimate_text(row["exact_match"], 2),
         estimate_text(beside.get((row["target"], row["level"])), 2), estimate_text(row["factor"], 1),
         estimate_text(row.get("linked"), 2)]
        for row in record["members"]
    ]  # fmt: skip
    return "\n".join(
        (
            markdown(["written", "documents of a person", "epochs", "members", "held out"], tried),
            markdown(["asked", "said, members", "held out", "times likelier", "linked"], rows),
            markdown(["asked, twin", "answers a template", "people whose item is one", "promised"], drawn),
        )
    )


if __name__ == "__main__":
    command(run)
