"""Does the recall that annotators of a sample give hold for the corpus, and how many documents must they read?

``tab`` and ``meddocan`` with their gold marks as the annotator. A sample is drawn again and again, the recall of our
detectors is weighted back from it, and its intervals are compared with the truth, which is known here: recall of all
categories together and of each, and the number of identifiers that stay unprotected. Recall near one is made by a
detector that misses a few of all marks, alone or crowded in few documents. Where few individuals hold most misses is
simulated (`simulate`).

    python -m studies.sampled_recall [--corpus tab] [--size toy|cpu]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from fixtures.corpora import read_case
from fixtures.sampling import GOAL, check_draws, drawn_ends, measure_draws

from benchmarks.record_io import DATA, STUDIES, machine, machine_line, markdown, write_record
from benchmarks.runner import command

#: Corpus -> documents of a sample; ``tab`` has 92.
SAMPLES = {"tab": (10, 20, 40), "meddocan": (20, 40, 100, 200)}
REPETITIONS = {"toy": 20, "cpu": 500}
#: Of the simulation: individuals drawn, recall, and how misses crowd (the correlation within individuals, or the share
#: of individuals who hold four fifths of them).
INDIVIDUALS = (10, 20, 40, 60, 100)
RECALLS = (0.8, 0.95, 0.99)
CORRELATED, FEW = (0.0, 0.05, 0.2, 0.5), (0.03, 0.1, 0.2)
DRAWS = {"toy": 20, "cpu": 400}
SIMULATED_CORPORA = 20
#: Share of the draws in which an end of a 95 % interval may miss.
TAIL = 0.025


def simulate(size: str) -> dict[str, Any]:
    """Return, of each setting, how often either end misses, and the mean width of the interval of recall."""
    random = np.random.default_rng(11)
    settings = []
    for num in INDIVIDUALS:
        for recall in RECALLS:
            for crowding in [*(f"correlation {own:g}" for own in CORRELATED), *(f"few {own:g}" for own in FEW)]:
                draws = [drawn_ends(random, num, recall, crowding, DRAWS[size] // SIMULATED_CORPORA)
                         for _ in range(SIMULATED_CORPORA)]  # fmt: skip
                over, under, width = np.concatenate(draws).mean(axis=0).tolist()
                row = {"individuals": num, "recall": recall, "misses": crowding}
                settings.append(row | {"recall_over": over, "bound_under": under, "width": width})
    return {"draws": DRAWS[size], "tail": TAIL, "settings": settings}


def check_simulated(result: Mapping[str, Any]) -> None:
    """Raise `AssertionError` where an end misses more often than asked, over all settings or in one of them: there by
    more than four standard errors of its draws, because the worst of a hundred is looked at."""
    most = TAIL + 4 * (TAIL * (1 - TAIL) / result["draws"]) ** 0.5
    for what in ("recall_over", "bound_under"):
        mean = float(np.mean([row[what] for row in result["settings"]]))
        assert mean <= TAIL, f"{what} in {mean}"
        for row in result["settings"]:
            assert row[what] <= most, f"{row}: {what}"


def mean_and_worst(result: Mapping[str, Any]) -> tuple[float, float]:
    """Return the share of draws in which an end misses: over all settings, and in the worst."""
    shares = [float(row[what]) for row in result["settings"] for what in ("recall_over", "bound_under")]
    return float(np.mean(shares)), max(shares)


def simulated_table(result: Mapping[str, Any]) -> str:
    """Return a table: a row for each number of individuals and recall, over all ways in which misses crowd."""
    heads = ("individuals", "recall", "lower end over", "worst", "bound under", "worst", "width")
    rows: list[Sequence[Any]] = []
    for num in INDIVIDUALS:
        for recall in RECALLS:
            own = [row for row in result["settings"] if (row["individuals"], row["recall"]) == (num, recall)]
            if not own:
                continue
            cells: list[str] = []
            for what in ("recall_over", "bound_under"):
                shares = [row[what] for row in own]
                cells += [f"{np.mean(shares):.3f}", f"{max(shares):.3f}"]
            rows.append((num, recall, *cells, f"{np.mean([row['width'] for row in own]):.3f}"))
    return (
        f"Simulated individuals, {result['draws']} draws of each of {len(result['settings'])} settings: misses that "
        "are independent, correlated within individuals, or four fifths of them in 3, 10 or 20 of 100 individuals. "
        "*Lower end over*: share of the draws in which the lower end of recall lies over the truth. *Bound under*: in "
        "which the bound of the number that stays unprotected lies under it. *Worst*: of the ways in which misses "
        f"crowd.\n\n{markdown(heads, rows)}"
    )


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


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['recall']:.3f}",
        f"{row['recall_held']:.3f}",
        f"{row['recall_width']:.3f}",
        f"{row['unprotected']:,.0f}",
        f"{row['unprotected_held']:.3f}",
        f"{row['unprotected_high']:,.0f}",
    )


def run(size: Annotated[str, REPETITIONS] = "cpu", corpus: Annotated[Sequence[str], SAMPLES] = ()) -> None:
    """Measure the corpora that are there; prints their tables, and keeps the record of all."""
    corpora = {}
    for name in corpus or SAMPLES:
        if not (DATA / name).exists():
            print(f"skipped {name}: not found under RETICENT_DATA ({DATA})", file=sys.stderr)
            continue
        samples = SAMPLES[name][-1:] if size == "toy" else SAMPLES[name]
        corpora[name] = measure_draws(read_case(name), samples, REPETITIONS[size])
        if size != "toy":
            check_draws(corpora[name])
    simulated = simulate(size)
    if size != "toy":
        check_simulated(simulated)
    result = {"goal": GOAL, "corpora": corpora, "simulated": simulated}
    if corpora and not corpus:
        kept = {name: recorded(found) for name, found in corpora.items()}
        write_record("sampled_recall", {**result, "corpora": kept}, size, STUDIES)
    print(sampled_recall_tables({"machine": machine(), **result}))


def recorded(result: dict[str, Any]) -> dict[str, Any]:
    """Return what the record keeps of a corpus: single categories of our detectors alone, and no means."""

    def row(own: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in own.items() if not key.endswith("_mean") and key != "samples_with_marks"}

    def kept(of: dict[str, Any], number: int) -> dict[str, Any]:
        return {name: row(own) for name, own in of.items() if number == 0 or name == "overall"}

    samples = {
        num: {label: kept(of, number) for number, (label, of) in enumerate(sets.items())}
        for num, sets in result["samples"].items()
    }
    return {**result, "samples": samples}


if __name__ == "__main__":
    command(run)
