"""Does the recall that annotators of a sample give hold for the corpus, and how many documents must they read?

``tab`` and ``meddocan`` with their gold marks as the annotator. A sample is drawn again and again, the recall of our
detectors is weighted back from it, and its intervals are compared with the truth, which is known here: recall of all
categories together and of each, and the number of identifiers that stay unprotected. Recall near one is made by a
detector that misses a few of all marks, alone or crowded in few documents. Where few individuals hold most misses is
simulated (:mod:`benchmarks.sampled_crowded`).

    python -m benchmarks.sampled_recall [--corpus tab] [--size toy|cpu]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.detection_corpora import read_case
from benchmarks.figure import Dot, Dots
from benchmarks.record_io import DATA, machine, machine_line, markdown, write_record
from benchmarks.sampled_crowded import check_simulated, mean_and_worst, simulate, simulated_table

#: Corpus -> documents of a sample; ``tab`` has 92.
SAMPLES = {"tab": (10, 20, 40), "meddocan": (20, 40, 100, 200)}
REPETITIONS = {"toy": 20, "cpu": 500}
#: Share of the draws in which a 95 % interval must hold the truth.
GOAL = 0.95
#: Detectors that miss a few marks: share of the marks, and whether half of them in twice that share of documents.
NEAR_ONE = {
    "misses 1 in 100": (0.01, False),
    "misses 1 in 100, crowded": (0.01, True),
    "misses 3 in 1000": (0.003, False),
}

Counts = Mapping[str, tuple[np.ndarray, np.ndarray]]


def measure(name: str, size: str) -> dict[str, Any]:
    """Draw samples of a corpus and compare what they say with what is so."""
    from reticent.engine.corpus import open_corpus
    from reticent.engine.detect import detect_spans, make_detectors
    from reticent.engine.detect.marks import gather_marks
    from reticent.ext.annotate.recall import mention_counts

    case = read_case(name)
    assert case.gold is not None
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as place:
        folder = Path(place)
        plain = case.documents.drop_columns([case.gold])
        pq.write_table(plain, folder / "d.parquet")
        options: dict[str, Any] = {"rules": {}}
        if case.records is not None:
            pq.write_table(case.records, folder / "records.parquet")
            options["records"] = {"table": str(folder / "records.parquet")}
        corpus = open_corpus(folder / "d.parquet")
        detect_spans(corpus, make_detectors(list(options), options), folder)
        spans = pq.read_table(folder / "spans.parquet")
        columns = case.documents.select(["individual_id", "text", case.gold])
        marks = gather_marks(columns.to_batches(max_chunksize=512), spans)
        found = mention_counts(marks)
        sets: dict[str, Counts] = {"+".join(options): found}
        sets |= {label: _thinned(found, *how) for label, how in NEAR_ONE.items()}
        sizes = SAMPLES[name][-1:] if size == "toy" else SAMPLES[name]
        return {
            "documents": len(case.documents),
            "individuals": marks.num_individuals,
            "repetitions": REPETITIONS[size],
            "samples": {
                str(num): _drawn(corpus, folder, marks.individual, sets, num, REPETITIONS[size]) for num in sizes
            },
        }


def _thinned(counts: Counts, share: float, crowded: bool) -> Counts:
    """All marks together, found but for a share of them."""
    marked = sum(own[1] for own in counts.values())
    assert isinstance(marked, np.ndarray)
    random = np.random.default_rng(8)
    bad = random.random(len(marked)) < 2 * share
    missed = random.binomial(marked.astype(int), np.where(bad, 0.5, 0.0) if crowded else share)
    return {"all": (marked - missed, marked)}


def _drawn(
    corpus: Any, folder: Path, individual: np.ndarray, sets: Mapping[str, Counts], num: int, repetitions: int
) -> dict[str, Any]:
    """How often the intervals of samples of one size hold the truth, and how wide they are."""
    from reticent.audit.stats.sampled import Drawn
    from reticent.ext.annotate.recall import weighted_identifiers
    from reticent.ext.annotate.sample import draw_sample

    rows: dict[str, dict[str, list[tuple[float, ...]]]] = {label: {} for label in sets}
    for seed in range(repetitions):
        sample = draw_sample(corpus, folder, num, seed=seed)
        chosen = np.array([document.row for document in sample.documents])
        stratum = np.array([document.stratum for document in sample.documents])
        own = np.unique(individual[chosen], return_inverse=True)[1]
        drawn = Drawn(own, stratum, np.array(sample.strata))
        for label, counts in sets.items():
            here = {name: (found[chosen], marked[chosen]) for name, (found, marked) in counts.items()}
            result = weighted_identifiers(drawn, here)
            for name, row in {"overall": result["overall"], **result["categories"]}.items():
                recall, left = row.recall, row.unprotected
                numbers = (recall.value, recall.low, recall.high, left.value, left.low, left.high)
                known = tuple(np.nan if number is None else number for number in numbers)
                rows[label].setdefault(name, []).append(known)
    return {
        label: {name: _compared(np.array(values), _truth(sets[label], name)) for name, values in of.items()}
        for label, of in rows.items()
    }


def _truth(counts: Counts, name: str) -> tuple[float, float]:
    own = list(counts.values()) if name == "overall" else [counts[name]]
    found, marked = (sum(float(each[side].sum()) for each in own) for side in (0, 1))
    return found / marked, marked - found


def _compared(rows: np.ndarray, truth: tuple[float, float]) -> dict[str, Any]:
    """Share of the samples whose interval holds the truth; of recall, of those that have a mark of the category."""
    recall, left = truth
    has = ~np.isnan(rows[:, 0])
    width = rows[has, 2] - rows[has, 1]
    return {
        "recall": recall,
        "unprotected": left,
        "samples_with_marks": int(has.sum()),
        "recall_held": _share((rows[has, 1] <= recall + 1e-9) & (recall - 1e-9 <= rows[has, 2])),
        "recall_mean": float(rows[has, 0].mean()) if has.any() else None,
        "recall_width": float(np.median(width)) if has.any() else None,
        "unprotected_held": _share((rows[:, 4] <= left) & (left <= rows[:, 5])),
        "unprotected_mean": float(rows[:, 3].mean()),
        "unprotected_high": float(np.median(rows[:, 5])),
    }


def _share(held: np.ndarray) -> float | None:
    return float(held.mean()) if len(held) else None


def check(result: Mapping[str, Any], goal: float = GOAL) -> None:
    """Raise `AssertionError` where the intervals of all categories together hold the truth too seldom."""
    for num, sets in result["samples"].items():
        for label, of in sets.items():
            for what in ("recall_held", "unprotected_held"):
                assert of["overall"][what] >= goal, f"{num} documents, {label}: {what} in {of['overall'][what]}"


def sampled_recall_tables(record: Mapping[str, Any]) -> str:
    """Return the tables of the page: all categories together, then each category of the largest sample."""
    heads = ("corpus", "sample", "detection", "recall", "held", "width", "unprotected", "held", "bound (median)")
    rows: list[Sequence[Any]] = []
    single: list[Sequence[Any]] = []
    for corpus, result in record["corpora"].items():
        for num, sets in result["samples"].items():
            for label, of in sets.items():
                rows.append((corpus, num, label, *_cells(of["overall"])))
        num, sets = list(result["samples"].items())[-1]
        label, of = next(iter(sets.items()))
        single += [(corpus, num, name, *_cells(row)) for name, row in of.items() if name != "overall"]
    by_category = (*heads[:2], "category", *heads[3:])
    repetitions = next(iter(record["corpora"].values()))["repetitions"]
    about = (
        f"{repetitions} draws each. *Held*: share of the draws whose interval contains the true value, for recall and "
        "for the number that stays unprotected. *Misses*: detectors that miss a share of all marks at random, either "
        f"single marks or half of the marks of a few documents. {machine_line(record)}"
    )
    return (
        f"{about}\n\n{markdown(heads, rows)}\nOur detectors by category, in the largest sample:\n\n"
        f"{markdown(by_category, single)}\n{simulated_table(record['simulated'])}"
    )


def recall_answer(record: Mapping[str, Any]) -> str:
    """Return the answer in words."""
    least, bounds = 1.0, []
    for corpus, result in record["corpora"].items():
        for sets in result["samples"].values():
            least = min(
                least, *(of["overall"][what] for of in sets.values() for what in ("recall_held", "unprotected_held"))
            )
        num, sets = list(result["samples"].items())[-1]
        row = next(iter(sets.values()))["overall"]
        bounds.append(
            f"{num} of the {result['documents']:,} documents of `{corpus}` bound the number of identifiers that stay "
            f"unprotected by {row['unprotected_high']:,.0f} (true number: {row['unprotected']:,.0f})"
        )
    repetitions = next(iter(record["corpora"].values()))["repetitions"]
    simulated = record["simulated"]
    mean, worst = mean_and_worst(simulated)
    return (
        f"The intervals contain the true value in at least {100 * least:.1f} of 100 draws ({repetitions} draws, two "
        f"corpora, recall from .53 to .997). In the median draw, {'; '.join(bounds)}. Over "
        f"{len(simulated['settings'])} simulated settings, from independent misses to four fifths of them in 3 of 100 "
        f"individuals, the ends that guard miss in {100 * mean:.1f} of 100 draws, in {100 * worst:.1f} in the worst "
        f"({simulated['draws']} draws each; asked: 2.5)."
    )


def recall_figure(record: Mapping[str, Any]) -> Dots:
    """Return the figure: how often the intervals hold."""
    rows = [
        Dot(f"{corpus}, {num} documents: {label}", of["overall"]["recall_held"])
        for corpus, result in record["corpora"].items()
        for num, sets in result["samples"].items()
        for label, of in sets.items()
    ]
    return Dots(
        rows=rows, axis="share of draws whose interval contains the true recall", nothing=record["goal"], digits=3
    )


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['recall']:.3f}",
        f"{row['recall_held']:.3f}",
        f"{row['recall_width']:.3f}",
        f"{row['unprotected']:,.0f}",
        f"{row['unprotected_held']:.3f}",
        f"{row['unprotected_high']:,.0f}",
    )


def run(size: str = "cpu", chosen: Sequence[str] = ()) -> dict[str, Any]:
    """Measure the corpora that are there; their record is kept."""
    corpora = {}
    for name in chosen or SAMPLES:
        if not (DATA / name).exists():
            print(f"{name}: not there (RETICENT_DATA)")
            continue
        corpora[name] = measure(name, size)
        if size != "toy":
            check(corpora[name])
    simulated = simulate(size)
    if size != "toy":
        check_simulated(simulated)
    result = {"goal": GOAL, "corpora": corpora, "simulated": simulated}
    if corpora and not chosen:
        write_record("sampled_recall", result, size)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=sorted(REPETITIONS), default="cpu")
    parser.add_argument("--corpus", choices=sorted(SAMPLES), action="append", default=[])
    options = parser.parse_args(arguments)
    sys.stdout.write(sampled_recall_tables({"machine": machine(), **run(options.size, options.corpus)}))


if __name__ == "__main__":
    main()
