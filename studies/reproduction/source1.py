"""The method (Boutet et al. 2025): the whole experiment of one job file, on generated notes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record_io import DATA
from reticent.audit.evidence.audit import AuditEvidence
from reticent.audit.evidence.corpus import CorpusEvidence, Curve, WordCurve
from reticent.audit.evidence.json_form import from_json, to_json
from reticent.audit.report.selectors import all_utility, ordinary_utility
from reticent.audit.stats.seeds import average_over_seeds, classification_over_seeds
from reticent.job.config import load_kept_job
from reticent.job.experiment import HOSPITAL, SIZES
from reticent.job.run import Run
from reticent.job.stages.audit import corpus_section
from reticent.job.status import job_status
from studies.reproduction.chart import Bars, Line, Panel, bars_of, draw, line_of
from studies.reproduction.rows import Anchor, Measured, Ours, Part, Row, less, over

ABOUT = (
    "On i2b2's discharge summaries, which nobody may pass on, with BERT-base and GPT-2. Ours: all recipes of one job "
    "file (`reticent new-job`), small models that are pre-trained here first. Figures 1 to 4 are schemes."
)
#: The two sets of i2b2 2006, of who has them.
N2C2 = DATA / "n2c2"
RESAMPLES = 1000
EPOCHS = (4, 8, 16, 32, 64)
#: The recipes of a picture, in the published order.
MLM, CLM = (tuple(stem.format(o) for stem in ("{}", "{}a", "dpp{}", "ipp{}", "pp{}")) for o in ("mlm", "clm"))
CLM = (*CLM, "dp-clm")
EXPERIMENT, FEWER, OLDER, CORPUS = "s1-experiment", "s1-first", "s1-record", "s1-corpus"
#: The recipes that most figures need.
FIRST = tuple(stem.format(o) for o in ("mlm", "clm") for stem in ("{}", "{}a", "pp{}"))


# ----------------------------------------------------------------------------------------------------------- evidence


def make_experiment(size: str, folder: Path) -> dict[str, Any]:
    """Run what is not done of the job of `reticent new-job`, in ``folder``; returns what the figures need.

    Sizes toy and cpu take one of the job's seeds; size base the user's own i2b2 2006, where it is.
    """
    text, one = _prepared(size, folder)
    _reticent(folder, "run", "job.toml", "--until", "audit", *one)
    return {"text": text, **evidence_of(folder / "run")}


def make_first(size: str, folder: Path) -> dict[str, Any]:
    """The same of the recipes that most figures need, on a hospital of a third of the people: it is done first."""
    people = re.sub(r"--individuals (\d+)", lambda found: f"--individuals {int(found[1]) // 3}", SIZES[size].synth)
    text, one = _prepared(size, folder, FIRST, SIZES[size].synth if size == "toy" else people)
    _reticent(folder, "run", "job.toml", "--until", "audit", *one)
    return {"text": text, **evidence_of(folder / "run")}


def make_corpus(size: str, folder: Path) -> dict[str, Any]:
    """What the figures of the documents need: an index, and no model."""
    text, one = _prepared(size, folder)
    _reticent(folder, "run", "job.toml", "--until", "index", *one)
    run = Run(load_kept_job(folder / "run" / "job.json"))
    return {"text": text, "trainings": 0, **of_corpus(run, corpus_section(run))}


def _prepared(
    size: str, folder: Path, recipes: Sequence[str] = (), synth: str | None = None
) -> tuple[str, tuple[str, ...]]:
    """Write documents and job into the folder; returns what the documents are, and settings of the run."""
    own = size == "base" and N2C2.is_dir()
    if not own and not (folder / HOSPITAL).is_dir():
        _reticent(folder, "synth", HOSPITAL, *(synth or SIZES[size].synth).split())
    source = (str(N2C2), "--set", "corpus.format=i2b2-2006", "--set", "corpus.label=label") if own else ()
    job = _reticent(folder, "new-job", *source, "--size", size, stdout=subprocess.PIPE)
    (folder / "job.toml").write_text(with_recipes(job, recipes) if recipes else job)
    one = ("--set", "train.seeds=[0]") if size != "base" else ()
    return "i2b2 2006" if own else "a generated hospital", one


def with_recipes(job: str, recipes: Sequence[str]) -> str:
    """The job with these built-in recipes alone, without differential privacy and without recipes of its own."""
    names = (re.match(r'  "(.*?)",', line) for line in job.splitlines())
    kept = [line for line, name in zip(job.splitlines(), names, strict=True) if name is None or name[1] in recipes]
    return re.sub(r"^\[(train\.dp|recipes\..*)\]\n(.+\n)+", "", "\n".join(kept) + "\n", flags=re.MULTILINE)


def of_record(record: dict[str, Any]) -> dict[str, Any]:
    """The record ``experiment``, older than this part, as evidence: fewer measures, all recipes."""
    names = {"utility": "ordinary", "privacy": "both", "loss_auc": "loss"}
    rows = [{names.get(key, key): value for key, value in row.items()} for row in record["rows"]]
    return {
        "text": "a generated hospital",
        "members": record["individuals"]["members"],
        "documents": record["documents"],
        "trainings": len(record["seeds"]),
        "rows": rows,
    }


def _reticent(folder: Path, *arguments: str, stdout: int | None = None) -> str:
    command = [sys.executable, "-m", "reticent", *arguments]
    return subprocess.run(command, cwd=folder, check=True, stdout=stdout, text=True).stdout or ""


def evidence_of(folder: Path) -> dict[str, Any]:
    """What the figures need of a finished run."""
    run = Run(load_kept_job(folder / "job.json"))
    audit = from_json(AuditEvidence, json.loads((folder / "audit" / "audit.json").read_text()), "audit.json")
    rows = []
    for model in average_over_seeds(audit.models):
        last = model.epoch == max(other.epoch for other in audit.models if other.recipe == model.recipe)
        row: dict[str, Any] = {
            "recipe": model.recipe if model.epoch else f"base ({model.objective})",
            "epoch": model.epoch,
            "ordinary": ordinary_utility(model.utility.heldout, model.objective),
            "words": model.utility.members and all_utility(model.utility.members, model.objective),
            **{part: model.privacy[part].types for part in ("both", "direct", "indirect")},
        }
        if model.low_cost is not None:
            graph = model.low_cost.training_graph or model.low_cost
            row["f1"] = graph.f1
            row |= {"precision": graph.precision, "recall": graph.recall, "of_all": model.low_cost.f1} if last else {}
        if model.generated is not None and model.generated.members is not None:
            row |= {"bleu": model.generated.members.bleu, "rouge": model.generated.members.rouge_l}
        if last and (loss := model.membership.get("loss")) is not None:
            row["loss"] = loss.auc
            row |= {"roc": thinned(loss.roc.fpr, loss.roc.tpr)} if model.recipe in WITH_ROC else {}
            row["tpr"] = (loss.tpr_at_fpr or {}).get("0.01")
        if last:
            row["by_n"] = {
                n: [own, own.num_leaked, own.num_identifiers] for n, own in (model.privacy_by_n or {}).items()
            }
        rows.append(row)
    classified = [
        {"recipe": start.recipe, "epoch": start.epoch, "f1": start.macro_f1}
        for result in audit.classification or ()
        for start in classification_over_seeds(result).results
    ]
    seconds = {each["name"]: each["seconds"] for each in job_status(run)["artifacts"]}
    evidence = {
        **of_corpus(run, audit.corpus),
        "trainings": max(model.num_trainings or 1 for model in average_over_seeds(audit.models)),
        "rows": rows,
        "classified": classified,
        "seconds": {
            "all": round(sum(taken for taken in seconds.values() if taken)),
            "index": sum(taken for name, taken in seconds.items() if taken and name.startswith("index")),
            "ner": seconds.get("spans"),
            "trainings": sum(taken for name, taken in seconds.items() if taken and name.startswith("models/")),
            "training": {
                name: taken for name, taken in seconds.items() if taken and re.match("models/.*/pp.lm($|/)", name)
            },
        },
    }
    found: dict[str, Any] = json.loads(json.dumps(evidence, default=lambda value: short(to_json(value))))
    return found


def of_corpus(run: Any, corpus: CorpusEvidence) -> dict[str, Any]:
    """What the figures need of the documents of a run that has its index."""
    by_word, rows = corpus.individuals_per_word, corpus.identifiers_by_n or ()
    kinds = {
        kind: {str(row.n): own.per_individual for row in rows if (own := getattr(row, kind)).per_individual}
        for kind in ("all", "minimal")
    }
    return {
        "members": corpus.num_individuals.members,
        "documents": corpus.num_documents,
        "protected": blacklist(run),
        "counts": {part: points_of(curve) for part, curve in (corpus.identifiers_per_individual or {}).items()},
        "words": points_of(corpus.words_per_individual),
        "users": {name: points_of(getattr(by_word, name)) for name in ("distinct", "occurrences")} if by_word else {},
        "by_n": {kind: {n: points_of(curve) for n, curve in own.items()} for kind, own in kinds.items()}
        | {"cut": cut_ngrams(run)},
    }


#: Recipes whose ROC is drawn (Fig. 11).
WITH_ROC = ("mlm", "mlma", "ppmlm")
#: What a record keeps of an estimate, in this order: it has hundreds.
KEPT = ("value", "low", "high", "n")


def short(estimate: Mapping[str, Any]) -> list[Any]:
    """Return `KEPT` of an estimate, in few digits."""
    values = [estimate.get(key) for key in KEPT]
    return [float(f"{value:.4g}") if isinstance(value, float) else value for value in values]


def with_estimates(values: Any) -> Any:
    """Return JSON with each list of four that `short` made as an estimate again.

    >>> with_estimates({"f1": [0.5, 0.25, 0.75, 9], "roc": [[0.0, 0.0], [1.0, 1.0]]})
    {'f1': {'value': 0.5, 'low': 0.25, 'high': 0.75, 'n': 9}, 'roc': [[0.0, 0.0], [1.0, 1.0]]}
    """
    if isinstance(values, dict):
        return {key: with_estimates(value) for key, value in values.items()}
    if not isinstance(values, list):
        return values
    if len(values) == len(KEPT) and not any(isinstance(value, list | dict | str) for value in values):
        return dict(zip(KEPT, values, strict=True))
    return [with_estimates(value) for value in values]


def thinned(x: Sequence[float], y: Sequence[float], most: int = 30) -> list[list[float]]:
    """At most so many points of a curve, evenly, with both ends."""
    chosen = (
        sorted({round(number * (len(x) - 1) / (most - 1)) for number in range(most)})
        if len(x) > most
        else range(len(x))
    )
    return [[round(x[number], 4), round(y[number], 4)] for number in chosen]


def points_of(curve: Curve | WordCurve | None) -> list[list[float]]:
    """The points of a cumulative distribution, as many as a record takes."""
    return [] if curve is None else thinned(curve.x, curve.y)


def cut_ngrams(run: Any, least: int = 2) -> dict[str, list[list[float]]]:
    """Distinct n-grams of each member that nobody else uses, if they stand in ``least`` documents or more: the
    document-frequency cut with which a corpus has no more 3-grams than words.
    """
    own: dict[int, dict[tuple[str, ...], Counter[int]]] = {n: defaultdict(Counter) for n in (1, 2, 3)}
    people = set()
    for whose, text, _ in _texts(run):
        people.add(whose)
        words = re.findall(r"\w+", text.lower())
        for n, found in own.items():
            for ngram in set(zip(*(words[start:] for start in range(n)), strict=False)):
                found[ngram][whose] += 1
    result = {}
    for n, found in own.items():
        of_person = Counter(next(iter(users)) for users in found.values() if len(users) == 1 and users.total() >= least)
        values = sorted(of_person[whose] for whose in people)
        steps = sorted(set(values))
        result[str(n)] = thinned(steps, [sum(value <= step for value in values) / len(values) for step in steps])
    return result


def blacklist(run: Any) -> dict[str, float]:
    """Percent of the members' words that are protected where they were found, as here, and of those that are an
    identifier anywhere, as a blacklist of words protects them.
    """
    users: dict[str, set[int]] = defaultdict(set)
    direct: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for whose, text, spans in _texts(run):
        for found in re.finditer(r"\w+", text.lower()):
            word = found[0]
            users[word].add(whose)
            words[word] += 1
            direct[word] += any(span["start"] < found.end() and found.start() < span["end"] for span in spans or ())
    indirect = {word for word, own in users.items() if len(own) == 1}
    here = sum(words[word] if word in indirect else direct[word] for word in words)
    anywhere = sum(number for word, number in words.items() if word in indirect or direct[word])
    return {"here": round(100 * here / words.total(), 1), "anywhere": round(100 * anywhere / words.total(), 1)}


def _texts(run: Any) -> Iterator[tuple[int, str, list[dict[str, Any]]]]:
    """Member, text and marks of each document."""
    is_member = run.individuals.mask("members")
    for batch in run.corpus.batches(columns=("individual_id", "text", "spans")):
        codes = run.individuals.individual_codes(batch.column("individual_id"))
        texts, spans = (batch.column(name).to_pylist() for name in ("text", "spans"))
        for code, text, own in zip(codes.tolist(), texts, spans, strict=True):
            if is_member[code]:
                yield code, text, own


# ------------------------------------------------------------------------------------------------------- our numbers


def rows_by(evidence: Measured) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of the models by recipe and epoch."""
    return {(row["recipe"], row["epoch"]): row for row in evidence["rows"]}


def at_the_end(evidence: Measured) -> dict[str, dict[str, Any]]:
    """The rows of the last epoch by recipe."""
    rows = rows_by(evidence)
    last = max(epoch for _, epoch in rows)
    return {recipe: row for (recipe, epoch), row in rows.items() if epoch == last}


def measured(evidence: Measured, wanted: Mapping[str, tuple[str, str, int]]) -> dict[str, Measured | None]:
    """Key -> (what, recipe, epoch), an epoch of -1 the last: the estimates that are there."""
    rows = rows_by(evidence)
    last = max(epoch for _, epoch in rows)
    return {
        key: rows.get((recipe, last if epoch < 0 else epoch), {}).get(what)
        for key, (what, recipe, epoch) in wanted.items()
    }


def _values(points: Sequence[Sequence[float]], n: int) -> list[float]:
    """The values of n people behind the points of a cumulative distribution."""
    values: list[float] = []
    for x, y in points:
        values += [x] * (round(y * n) - len(values))
    return values


def figure5(evidence: Measured) -> Ours:
    n = evidence["members"]
    indirect, direct = (_values(evidence["counts"].get(part, []), n) for part in ("indirect", "direct"))
    if not indirect or not direct:
        return {}
    return {
        "median.indirect": resampled(lambda own: _median(own[0]), [indirect]),
        "three": resampled(lambda own: sum(value >= 3 for value in own[0]) / len(own[0]), [indirect]),
        "direct.by.indirect": resampled(
            lambda own: sum(own[0]) * len(own[1]) / (len(own[0]) * sum(own[1])), [direct, indirect]
        ),
    }


def _median(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def resampled(of: Callable[[list[list[float]]], float], sides: list[list[float]]) -> Measured:
    """A number of the values of people, with the interval of a bootstrap over people, each side by itself."""
    rng = np.random.default_rng(0)
    drawn = [
        of([[side[i] for i in rng.integers(len(side), size=len(side))] for side in sides]) for _ in range(RESAMPLES)
    ]
    low, high = (float(end) for end in np.quantile(drawn, [0.025, 0.975]))
    return {"value": float(of(sides)), "low": low, "high": high, "n": len(sides[0])}


def _users(evidence: Measured, name: str) -> float | None:
    return next((y for x, y in evidence["users"].get(name, ()) if x == 1), None)


def figure6(evidence: Measured) -> Ours:
    found = {name: _users(evidence, name) for name in ("distinct", "occurrences")}
    return {
        name: None if value is None else {"value": value, "low": None, "high": None, "n": evidence["members"]}
        for name, value in found.items()
    }


def figure7(evidence: Measured) -> Ours:
    return measured(
        evidence,
        {f"privacy.{name}.{epoch}": ("both", name, epoch) for name in MLM for epoch in (4, 64)}
        | {f"utility.{name}.64": ("words", name, 64) for name in MLM},
    )


def figure8(evidence: Measured) -> Ours:
    of = {(row["recipe"], row["epoch"]): row["f1"] for row in evidence["classified"]}
    found = {f"f1.{name}.8": of.get((name, 8)) for name in ("mlm", "ppmlm")}
    known = [row for (name, epoch), row in of.items() if epoch == 8 and name in MLM]
    best, worst = (pick(known, key=lambda row: row["value"], default=None) for pick in (max, min))
    return found | {"f1.spread.8": less(best, worst)}


def figure9(evidence: Measured) -> Ours:
    found = measured(
        evidence,
        {f"privacy.{name}.{epoch}": ("both", name, epoch) for name in CLM for epoch in (4, 64)}
        | {f"tokens.{name}.64": ("words", name, 64) for name in CLM},
    )
    found["privacy.ippclm.clm"] = less(found["privacy.ippclm.64"], found["privacy.clm.64"])
    found["privacy.ppclm.dppclm"] = less(found["privacy.ppclm.64"], found["privacy.dppclm.64"])
    return found


def figure10(evidence: Measured) -> Ours:
    found = measured(evidence, {f"{what}.{name}": (what, name, 32) for what in ("bleu", "rouge") for name in CLM[:5]})
    gains = {f"{what}.gain.32": over(found[f"{what}.clm"], found[f"{what}.ppclm"], 1.0) for what in ("bleu", "rouge")}
    return gains | {"bleu.clma.32": less(found["bleu.clma"], found["bleu.ppclm"])}


def figure11(evidence: Measured) -> Ours:
    names = ("mlm", "mlma", "ppmlm")
    areas = measured(evidence, {f"auc.{name}": ("loss", name, -1) for name in names})
    return areas | measured(evidence, {f"tpr.{name}": ("tpr", name, -1) for name in names})


def figure12(evidence: Measured) -> Ours:
    return measured(evidence, {f"recall.{name}": ("recall", name, -1) for name in ("mlm", "ppmlm")})


def figure13(evidence: Measured) -> Ours:
    found = measured(
        evidence, {f"f1.{name}.{epoch}": ("f1", name, epoch) for name in ("mlm", "ppmlm") for epoch in (4, 64)}
    )
    return found | {"f1.ppmlm.change": less(found["f1.ppmlm.64"], found["f1.ppmlm.4"])}


def _means(evidence: Measured, kind: str) -> list[float]:
    """Mean number of identifying n-grams of a person, of up to 1, 2, 3 words."""
    of = evidence["by_n"].get(kind, {})
    totals, total = [], 0.0
    for n in sorted(of):
        values = _values(of[n], evidence["members"])
        total += sum(values) / max(len(values), 1)
        totals.append(total)
    return totals


def figure14(evidence: Measured) -> Ours:
    sides = [_values(points, evidence["members"]) for _, points in sorted(evidence["by_n"].get("all", {}).items())]
    if len(sides) < 3 or not sum(sides[0]):
        return {}
    means = [lambda own, n=n: sum(sum(side) / len(side) for side in own[:n]) for n in (1, 2, 3)]
    return {
        "two.by.one": resampled(lambda own: means[1](own) / means[0](own), sides),
        "three.by.two": resampled(lambda own: means[2](own) / means[1](own), sides),
    }


def _predicted(row: Mapping[str, Any], n: int) -> Measured | None:
    """How many identifying n-grams of one length are predicted, of how many, with the interval of the share."""
    if str(n) not in row.get("by_n", {}):
        return None
    share, _, total = row["by_n"][str(n)]
    if share["value"] is None or not total:
        return None
    low, high = (None if share[end] is None else (1 - share[end]) * total for end in ("high", "low"))
    return {"value": (1 - share["value"]) * total, "low": low, "high": high, "n": share["n"]}


def predicted_up_to(row: Mapping[str, Any], n: int) -> Measured | None:
    """The same of all lengths up to n; the ends are the sums of ends, which is wide enough."""
    parts = [found for length in range(1, n + 1) if (found := _predicted(row, length)) is not None]
    if len(parts) < n:
        return None
    ends = {
        end: sum(part[end] for part in parts) if all(part[end] is not None for part in parts) else None
        for end in ("low", "high")
    }
    return {"value": sum(part["value"] for part in parts), **ends, "n": parts[0]["n"]}


def figure15(evidence: Measured) -> Ours:
    rows = at_the_end(evidence)
    clm, pp, n3 = (rows.get(name, {}) for name in ("clm", "ppclm", "ppclm-n3"))
    shares = {
        f"{name}.two": None
        if (found := row.get("by_n", {}).get("2")) is None
        else less({"value": 1.0, "low": 1.0, "high": 1.0, "n": found[0]["n"]}, found[0])
        for name, row in (("ppclm", pp), ("ppclm-n3", n3))
    }
    return shares | {
        "clm.two.by.one": over(predicted_up_to(clm, 2), predicted_up_to(clm, 1)),
        "ppclm-n3.three.by.one": over(predicted_up_to(n3, 3), predicted_up_to(n3, 1)),
    }


def _apart(names: tuple[str, str, str, str], evidence: Measured) -> dict[str, Measured | None]:
    return measured(
        evidence, {f"{part}.{name}.64": (part, name, 64) for part in ("direct", "indirect") for name in names}
    )


def figure16(evidence: Measured) -> Ours:
    found = _apart(("mlm", "dppmlm", "ippmlm", "ppmlm"), evidence)
    return found | {"direct.ippmlm.mlm": less(found["direct.ippmlm.64"], found["direct.mlm.64"])}


def figure17(evidence: Measured) -> Ours:
    return _apart(("clm", "dppclm", "ippclm", "ppclm"), evidence)


def section7(evidence: Measured) -> Ours:
    taken = evidence["seconds"]
    whole = sum(taken["training"].values())
    if not whole or taken["ner"] is None:
        return {}
    return {
        name: {"value": taken[name] / whole, "low": None, "high": None, "n": evidence["documents"], "unit": "documents"}
        for name in ("index", "ner")
    }


# ---------------------------------------------------------------------------------------------------------- pictures


Anchors = Mapping[str, Anchor]


def draw5(evidence: Measured, anchors: Anchors) -> str:
    """Cumulative distributions over people: identifiers, and words."""
    lines = [
        Line(part, _points(evidence["counts"][part]), join="step")
        for part in ("direct", "indirect", "both")
        if part in evidence["counts"]
    ]
    level = anchors["median.indirect"].value if "median.indirect" in anchors else None
    published = [] if level is None else [(level, 0.5)]
    words = [Line("words", _points(evidence["words"]), join="step")]
    axis = "share of the people"
    return draw(
        [
            Panel(
                "Identifiers of a person",
                "identifiers at most",
                axis,
                lines=lines,
                published=published,
                limits_y=(0, 1),
            ),
            Panel("Words of a person", "words at most", axis, lines=words, limits_y=(0, 1)),
        ],
        "Cumulative distribution of identifiers and words per person",
    )


def _points(pairs: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in pairs]


def draw6(evidence: Measured, anchors: Anchors) -> str:
    """Cumulative distribution of the users of a word."""
    lines = [
        Line(name, _points(evidence["users"][key]), join="step")
        for key, name in (("distinct", "distinct words"), ("occurrences", "all words"))
        if key in evidence["users"]
    ]
    both = (anchors[key].value for key in ("distinct", "occurrences") if key in anchors)
    published = [(1.0, value) for value in both if value is not None]
    panel = Panel(
        "Who shares a word",
        "people who use it, at most",
        "share of the words",
        lines=lines,
        published=published,
        log_x=True,
        limits_y=(0, 1),
    )
    return draw([panel], "Cumulative distribution of the number of people who use a word")


def tradeoff(evidence: Measured, names: Sequence[str], x: str, y: str) -> list[Line]:
    """A line a recipe: y against x, a point a checkpoint."""
    rows = rows_by(evidence)
    lines = []
    for name in names:
        own = [rows[name, epoch] for epoch in sorted(epoch for recipe, epoch in rows if recipe == name)]
        own = [
            row
            for row in own
            if row.get(x) and row.get(y) and row[x]["value"] is not None and row[y]["value"] is not None
        ]
        if own:
            ends = [None if row[y]["low"] is None else (row[y]["low"], row[y]["high"]) for row in own]
            lines.append(Line(name, [(row[x]["value"], row[y]["value"]) for row in own], ends=ends))
    return lines


def planes(
    evidence: Measured, names: Sequence[str], parts: Mapping[str, str], about: str, more: Sequence[Panel] = ()
) -> str:
    """Privacy against utility on both axes: the ordinary words of held-out people, and all words of the members."""
    axes = {"ordinary": "ordinary words of held-out people", "words": "all words of the members, as published"}
    panels = [
        Panel(title, f"predicted right: {axis}", "Privacy", lines=tradeoff(evidence, names, x, part))
        for part, title in parts.items()
        for x, axis in axes.items()
    ]
    return draw([*(panel for panel in panels if panel.lines), *more] or panels, about)


def with_epochs(names: Sequence[str], kind: str) -> Callable[[Measured, Anchors], str]:
    """Utility and Privacy of a kind of models, and Privacy against the epochs with the published numbers."""

    def drawn(evidence: Measured, anchors: Anchors) -> str:
        published = [
            (float(key.split(".")[-1]), anchor.value)
            for key, anchor in anchors.items()
            if re.fullmatch(r"privacy\..*\.\d+", key) and anchor.value is not None
        ]
        more = Panel(
            "All identifiers, by epochs",
            "epochs",
            "Privacy",
            lines=by_epoch(evidence, names, "both"),
            published=published,
            log_x=True,
            ticks_x=_epochs(evidence),
        )
        about = f"Privacy of {kind} models against utility, a point a checkpoint, and against epochs"
        return planes(evidence, names, {"both": "All identifiers"}, about, [more])

    return drawn


def draw8(evidence: Measured, _: Anchors) -> str:
    """F1 of the classifiers by recipe, after 8 epochs and after 64."""
    names = [name for name in (*MLM, *CLM) if any(row["recipe"] == name for row in evidence["classified"])]
    of = {(row["recipe"], row["epoch"]): row["f1"] for row in evidence["classified"]}
    bars = [
        bars_of(f"from epoch {epoch}", [of.get((name, epoch)) for name in names])
        for epoch in sorted({epoch for _, epoch in of if epoch})
    ]
    panel = Panel("Classification", "recipe", "macro F1", bars=bars, categories=names, limits_y=(0, 1))
    return draw([panel], "F1 of classifiers by recipe")


def by_epoch(evidence: Measured, names: Sequence[str], what: str) -> list[Line]:
    """A line a recipe against the epochs."""
    rows = rows_by(evidence)
    of = {
        name: {epoch: row.get(what) for (recipe, epoch), row in sorted(rows.items()) if recipe == name}
        for name in names
    }
    return [line for name in names if (line := line_of(name, of[name])).points]


def _epochs(evidence: Measured) -> list[float]:
    return sorted({float(row["epoch"]) for row in evidence["rows"] if row["epoch"]})


def draw10(evidence: Measured, _: Anchors) -> str:
    """BLEU and ROUGE of what causal models write, over all checkpoints."""
    panels = [
        Panel(title, "epochs", title, lines=by_epoch(evidence, CLM, what), log_x=True, ticks_x=_epochs(evidence))
        for what, title in (("bleu", "BLEU"), ("rouge", "ROUGE-L"))
    ]
    return draw(panels, "BLEU and ROUGE-L of continuations of members' documents against epochs")


def draw11(evidence: Measured, anchors: Anchors) -> str:
    """Log-log ROC of the loss attack, with the published true positives at 1 % false ones."""
    rows, lines = at_the_end(evidence), []
    for name in WITH_ROC:
        points = rows.get(name, {}).get("roc") or []
        shown = [(x, y) for x, y in points if x > 0 and y > 0]
        if shown:
            lines.append(Line(name, shown, join="step"))
    published = [(0.01, anchor.value) for key, anchor in anchors.items() if key.startswith("tpr") and anchor.value]
    panel = Panel(
        "The loss attack",
        "false positives",
        "true positives",
        lines=lines,
        published=published,
        diagonal=True,
        log_x=True,
        log_y=True,
        limits_x=(0.005, 1.0),
        limits_y=(0.005, 1.0),
    )
    return draw([panel], "ROC of the loss attack on masked models, both axes logarithmic")


def draw12(evidence: Measured, anchors: Anchors) -> str:
    """Precision, recall and F1 of low-cost membership, for one who has the training documents."""
    rows = at_the_end(evidence)
    what, panels = ("precision", "recall", "f1"), []
    for title, names in (("Masked models", ("mlm", "mlma", "ppmlm")), ("Causal models", ("clm", "clma", "ppclm"))):
        found = {name: rows[name] for name in names if rows.get(name, {}).get("recall")}
        bars = [bars_of(name, [row.get(each) for each in what]) for name, row in found.items()]
        published = [(1.0, anchor.value) for anchor in anchors.values() if anchor.value is not None and "mlm" in names]
        panels.append(Panel(title, "", "share", bars=bars, categories=what, published=published, limits_y=(0, 1)))
    return draw(panels, "Precision, recall and F1 of low-cost membership by the training graph")


def draw13(evidence: Measured, _: Anchors) -> str:
    """F1 of low-cost membership against the epochs."""
    panels = [
        Panel(
            title,
            "epochs",
            "F1",
            lines=by_epoch(evidence, names, "f1"),
            log_x=True,
            ticks_x=_epochs(evidence),
            limits_y=(0, 1),
        )
        for title, names in (("Masked models", MLM), ("Causal models", CLM))
    ]
    return draw(panels, "F1 of low-cost membership against epochs")


def draw14(evidence: Measured, anchors: Anchors) -> str:
    """Identifying n-grams of a person by the longest n: all, the minimal ones, and those in two documents or more."""
    names = {"all": "all", "minimal": "minimal: no part of it identifies", "cut": "in two documents or more"}
    lines = [Line(name, list(enumerate(_means(evidence, kind), start=1))) for kind, name in names.items()]
    shares = [
        Line(line.name, [(n, value / line.points[0][1]) for n, value in line.points])
        for line in lines
        if line.points and line.points[0][1]
    ]
    at = [1.0, 2.0, 3.0]
    two, three = (anchors[key].value or 1.0 for key in ("two.by.one", "three.by.two"))
    return draw(
        [
            Panel("Identifying n-grams of a person", "up to n words", "mean number", lines=lines, ticks_x=at),
            Panel(
                "By those of one word",
                "up to n words",
                "times as many",
                lines=shares,
                ticks_x=at,
                published=[(2.0, two), (3.0, two * three)],
            ),
        ],
        "Identifying n-grams per person, by n",
    )


def draw15(evidence: Measured, _: Anchors) -> str:
    """Identifying n-grams that the last checkpoints predict, by the longest n."""
    rows, panels = at_the_end(evidence), []
    for title, names in (
        ("Masked models", ("mlm", "mlma", "ppmlm", "ppmlm-n3")),
        ("Causal models", ("clm", "clma", "ppclm", "ppclm-n3")),
    ):
        lines = [
            line_of(name, {n: predicted_up_to(rows[name], n) for n in (1, 2, 3)}) for name in names if name in rows
        ]
        panels.append(Panel(title, "up to n words", "identifiers predicted", lines=lines, ticks_x=[1.0, 2.0, 3.0]))
    return draw(panels, "Identifying n-grams that models predict, by n")


def apart(names: Sequence[str], kind: str) -> Callable[[Measured, Anchors], str]:
    """Privacy of direct and of indirect identifiers apart."""
    parts = {"direct": "Direct identifiers", "indirect": "Indirect identifiers"}
    return lambda evidence, _: planes(evidence, names, parts, f"Direct and indirect Privacy of {kind} models")


def draw_cost(evidence: Measured, anchors: Anchors) -> str:
    """The index and detection by the time of a fine-tuning, and all three as shares of the run's own time."""
    found, taken = section7(evidence), evidence["seconds"]
    names = [name for name in ("index", "ner") if found.get(name)]
    published = [(float(at), anchors[name].value or 0.0) for at, name in enumerate(names) if name in anchors]
    three = {"index": taken["index"], "ner": taken["ner"] or 0.0, "fine-tuning": taken["trainings"]}
    shares = [seconds / taken["all"] for seconds in three.values()]
    return draw(
        [
            Panel(
                "By the fine-tuning of the protected models",
                "",
                "share of its time",
                bars=[bars_of("ours", [found[name] for name in names])],
                categories=names,
                published=published,
            ),
            Panel(
                "Of the run's own time",
                "",
                "share",
                bars=[Bars("ours", shares)],
                categories=list(three),
                limits_y=(0, 1),
            ),
        ],
        "Time of index, detection and fine-tuning",
    )


# --------------------------------------------------------------------------------------- real text, of other records


def real6(evidence: Measured) -> Ours:
    found = evidence["identifiers"]
    shares = found["identifying_share"]["k=2"]
    own = {"distinct": shares["types"], "occurrences": shares["occurrences"]}
    return {key: {"value": value, "low": None, "high": None, "n": found["individuals"]} for key, value in own.items()}


def _real(evidence: Measured) -> dict[str, dict[str, Any]]:
    """The last row of each recipe of a record of real text."""
    return {row["recipe"]: row for row in evidence["leak_table"]}


def real_leaks(names: Sequence[str]) -> Callable[[Measured], Ours]:
    """Privacy of recipes on real text, under the keys of 64 epochs."""
    return lambda evidence: {f"privacy.{name}.64": _real(evidence)[name]["privacy"]["both"]["types"] for name in names}


def real12(evidence: Measured) -> Ours:
    return {f"recall.{name}": _real(evidence)[name]["low_cost"]["recall"] for name in ("mlm", "ppmlm")}


def real_models(evidence: Measured) -> Ours:
    """Privacy of two pre-trained models, under the keys of 64 epochs."""
    return {
        f"{key}.{row['recipe']}.64": row["privacy"][part]["types"]
        for row in evidence["recipes"]
        for key, part in (("privacy", "both"), ("direct", "direct"), ("indirect", "indirect"))
    }


def real8(evidence: Measured) -> Ours:
    rows = {
        row["start"]: row["macro_f1"] for row in evidence["models"]["bert"]["rows"] if row["setting"] == "small models"
    }
    found = {f"f1.{name}.8": rows[name] for name in ("mlm", "ppmlm")}
    best, worst = (pick(found.values(), key=lambda row: row["value"]) for pick in (max, min))
    return found | {"f1.spread.8": less(best, worst)}


# -------------------------------------------------------------------------------------------------------------- rows


_ON = "{text}: {members} members, {documents} notes; trainings of a recipe: {trainings}"
PARTS = (
    Part(
        name=CORPUS,
        make=make_corpus,
        on="{text}: {members} members, {documents} notes",
        minutes={"toy": 0.1, "cpu": 0.2, "base": 0.2},
    ),
    Part(
        name=FEWER,
        make=make_first,
        read=with_estimates,
        on=f"{_ON}; six of the recipes",
        minutes={"toy": 1, "cpu": 20, "base": 150},
    ),
    Part(name=EXPERIMENT, make=make_experiment, read=with_estimates, on=_ON, minutes={"cpu": 90, "base": 900}),
    Part(name=OLDER, record="experiment", read=of_record, on=f"{_ON}; an older record, of fewer measures"),
    Part(name="s1-mtsamples", record="real_corpora_mtsamples", on="MTSamples: 1,185 reports, models of 27 members"),
    Part(name="s1-meddocan", record="real_corpora_meddocan", on="MEDDOCAN: 750 Spanish notes, models of 37 members"),
    Part(
        name="s1-foundation",
        record="foundation_models",
        on="the first 48 words of MTSamples' reports: {individuals[members]} members, {individuals[heldout]} others",
    ),
    Part(name="s1-classes", record="classification_mtsamples", on="MTSamples: the specialty of 233 held-out reports"),
)


def _row(
    place: str,
    title: str,
    ours: Callable[[Measured], Ours],
    figure: Callable[[Measured, Anchors], str],
    how: str,
    note: str = "",
    instead: tuple[str, ...] = (FEWER,),
) -> Row:
    about = {"place": place, "title": title, "ours": ours, "figure": figure, "how": how, "note": note}
    return Row(source=1, part=EXPERIMENT, instead=instead, **about)  # type: ignore[arg-type]


_TEN = "the record of `studies.real_corpora`, 10 epochs in place of 64"
_LITTLE = "So small a masked model predicts next to no identifier after 10 epochs, protected or not."
ROWS = (
    _row(
        "Figure 5",
        "identifiers and words per patient",
        figure5,
        draw5,
        "identifiers of the index and of the detectors, per member",
        "The tolerance of the median, set beforehand, is wide: it takes half as many for the same.",
        instead=(CORPUS, FEWER),
    ),
    _row(
        "Figure 6",
        "patients who share a word",
        figure6,
        draw6,
        "the index over the members' notes",
        "Their blacklist is of words, wherever they stand: it would protect {protected[anywhere]} % of the words here. "
        "Here a direct identifier is protected where it was found: {protected[here]} %.",
        (CORPUS, FEWER),
    ),
    _row(
        "Figure 7",
        "utility and Privacy, masked models",
        figure7,
        with_epochs((*MLM, "ppmlm-n3"), "masked"),
        "Privacy is the share of identifiers predicted nowhere; the table's utility is that of all words of members",
        instead=(OLDER, FEWER),
    ),
    _row("Figure 8", "a downstream classification", figure8, draw8, "the group of conditions of a note; macro F1"),
    _row(
        "Figure 9",
        "utility and Privacy, causal models",
        figure9,
        with_epochs((*CLM, "ppclm-n3"), "causal"),
        "token accuracy is that of all words of the members, as published",
        instead=(OLDER, FEWER),
    ),
    _row(
        "Figure 10",
        "BLEU and ROUGE of generated text",
        figure10,
        draw10,
        "greedy continuations of 64 tokens after 16 of members' notes, at every checkpoint",
    ),
    _row(
        "Figure 11",
        "ROC of the loss attack",
        figure11,
        draw11,
        "the loss attack over people",
        "True positives at 1 % are given from 1,000 others on, and here there are fewer.",
        (FEWER, OLDER),
    ),
    _row("Figure 12", "low-cost membership", figure12, draw12, "the adversary has the training documents"),
    _row(
        "Figure 13", "low-cost membership against epochs", figure13, draw13, "the adversary has the training documents"
    ),
    _row(
        "Figure 14",
        "indirect identifiers by n",
        figure14,
        draw14,
        "n-grams of one member alone; beside them the minimal ones, and those in two notes or more",
        instead=(CORPUS, FEWER),
    ),
    _row(
        "Figure 15",
        "identifying n-grams predicted, by n",
        figure15,
        draw15,
        "with protection of single words, and of up to three",
    ),
    _row("Figure 16", "direct and indirect Privacy, masked models", figure16, apart(MLM, "masked"), "as Figure 7"),
    _row("Figure 17", "direct and indirect Privacy, causal models", figure17, apart(CLM, "causal"), "as Figure 9"),
    *(
        Row(source=1, place=place, title=title, text=text, part=part, ours=ours, how=how, note=note)
        for text, part in (("MTSamples", "s1-mtsamples"), ("MEDDOCAN", "s1-meddocan"))
        for place, title, ours, how, note in (
            ("Figure 6", "who shares a word", real6, "the record of `studies.real_corpora`", ""),
            ("Figure 7", "Privacy, masked models", real_leaks(("mlm", "ppmlm")), _TEN, _LITTLE),
            ("Figure 9", "Privacy, causal models", real_leaks(("clm", "clma")), _TEN, ""),
            ("Figure 12", "low-cost membership", real12, f"{_TEN}, the graph of all documents", _LITTLE),
        )
    ),
    *(
        Row(
            source=1,
            place=place,
            title="Privacy of a pre-trained model",
            text=f"MTSamples with {model}",
            part="s1-foundation",
            ours=real_models,
            how=f"the record of `studies.foundation_models`, {epochs} epochs in place of 64",
        )
        for place, model, epochs in (
            ("Figure 7", "MiniLM", 8),
            ("Figure 9", "SmolLM2", 3),
            ("Figure 16", "MiniLM", 8),
            ("Figure 17", "SmolLM2", 3),
        )
    ),
    Row(
        source=1,
        place="Figure 8",
        title="a downstream classification",
        text="MTSamples",
        part="s1-classes",
        ours=real8,
        how="the record of `studies.classification`: macro F1 after 6 epochs, 12 classes, the setting for small models",
    ),
    _row(
        "§7",
        "what the preparation costs",
        section7,
        draw_cost,
        "seconds of the run's own stages by those of its protected trainings",
    ),
)
