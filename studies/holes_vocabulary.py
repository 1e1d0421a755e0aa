"""How many words stay targets, by the rule that chooses them, and what does the rule tell of who takes part?

No model is trained. For growing numbers of individuals each rule chooses the words that are targets: support, a noisy
threshold, public lists, and a vocabulary that is private for an individual. Retention is the share of the occurrences
of words that stay targets. *Told* is the share of individuals whose leaving turns a word of others from a target into a
protected word, by a fixed rule; a rule that draws has an epsilon instead.

Texts are MTSamples (RETICENT_DATA), a report an individual: some reports make the public lists, and where all are asked
for there is no list. Then a generated hospital, where there are many individuals, and a vocabulary that is none of a
language.

    python -m studies.holes_vocabulary [--size toy|cpu] [--record]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from benchmarks.engine_workers import make_corpus
from benchmarks.record_io import DATA, STUDIES, markdown, write_record
from benchmarks.runner import command
from reticent.engine.corpus import open_corpus
from reticent.engine.index import IndexConfig, build_index
from reticent.engine.noisy_threshold import Noise, noisy_index
from reticent.engine.split import split_individuals
from studies.holes import (
    CORPORA,
    common_words,
    distinct_reports,
    individuals_of,
    listed_index,
    open_texts,
    voters_of,
    words_of_users,
)

SIZES: dict[str, dict[str, Any]] = {
    "toy": {"individuals": [60], "public": 60, "characters": 400, "generated": None},
    "cpu": {"individuals": [100, 300, 592, None], "public": 600, "characters": None, "generated": 50_000},
}
#: Epsilon of an individual for all words together -> the most words of theirs that vote.
PRIVATE = [(1.0, 50), (4.0, 200), (8.0, 50), (8.0, 100), (8.0, 200)]
KEY = bytes(range(32))


def measured(corpus: Any, individuals: Any, public: set[str] | None, loose: set[str] | None) -> list[dict[str, Any]]:
    """Return a row for each rule; lists may be missing."""
    index = build_index(corpus, individuals, config=IndexConfig(max_n=1))
    user, place = words_of_users(corpus, individuals, index)
    supports = np.asarray(index.words().column("support").to_numpy())

    def row(rule: str, least: int, own: Any, **more: Any) -> dict[str, Any]:
        target = np.asarray(own.words().column("support").to_numpy()) >= least
        found = {"rule": rule, "retention": float(target[place].mean()), "targets": int(target.sum()), **more}
        if not more:
            decides = target & (supports == least)
            found["told"] = len(np.unique(user[decides[place]])) / len(np.unique(user))
        return found

    num = len(np.unique(user))
    delta = 10.0 ** -(1 + int(np.ceil(np.log10(num))))
    rows = [row(f"k = {k}", k, index) for k in (2, 5, 10)]
    noisy = noisy_index(index, 2, Noise(1.0, 0.05), KEY)
    rows.append(row("noisy, \u03b5 = 1 and \u03b4 = .05 for each word", 2, noisy, epsilon=None))
    names = [f"public list, {what}" for what in ("loose, alone", "strict, alone", "strict, and k = 2")]
    if public is None or loose is None:
        rows += [{"rule": name, "retention": None, "epsilon": 0.0} for name in names]
    else:
        rows.append(row(names[0], 1, _alone(index, loose), epsilon=0.0))
        rows.append(row(names[1], 1, _alone(index, public), epsilon=0.0))
        rows.append(row(names[2], 2, listed_index(index, public)))
    for epsilon, most in PRIVATE:
        noise = Noise(epsilon, delta, most)
        own = noisy_index(index, 2, noise, KEY, voters=voters_of(user, place, index, noise, KEY))
        name = f"private, {most} words"
        rows.append(row(name, 2, own, epsilon=epsilon, delta=delta))
    return rows


def _alone(index: Any, listed: set[str]) -> Any:
    """An index by which listed words have one user, and the others none."""
    return index.with_supports(np.array([word in listed for word in index.words().column("word").to_pylist()]))


def grid(size: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows for each number of individuals."""
    distinct = distinct_reports(CORPORA["mtsamples"], size["characters"])
    public, rest = distinct[: size["public"]], distinct[size["public"] :]

    with tempfile.TemporaryDirectory() as scratch:

        def opened(name: str, chosen: list[str]) -> tuple[Any, Any]:
            return open_texts(Path(scratch) / name, chosen), individuals_of(np.zeros(len(chosen), dtype=np.int8))

        of_public = build_index(*opened("public", public), config=IndexConfig(max_n=1))
        strict, loose = (common_words(of_public, least) for least in (max(5, len(public) // 100), 2))
        found = {}
        for num in size["individuals"]:
            if num is None:
                found[str(len(distinct))] = measured(*opened("all", distinct), None, None)
            else:
                found[str(num)] = measured(*opened(str(num), rest[:num]), strict, loose)
        if size["generated"]:
            (place := Path(scratch) / "generated").mkdir()
            make_corpus(place, size["generated"])
            corpus = open_corpus(place / "documents")
            individuals = split_individuals(corpus)
            found[f"{int(individuals.mask('members').sum())} generated"] = measured(corpus, individuals, None, None)
        return found


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    heads = ["rule", *(f"{num} individuals" for num in found), *(f"told, {num}" for num in found)]
    rows = []
    for same in zip(*found.values(), strict=True):
        told = ["\u2013" if row.get("told") is None else f"{row['told']:.2f}" for row in same]
        name = same[0]["rule"] + (f", \u03b5 = {same[0]['epsilon']:g}" if same[0].get("delta") else "")
        kept = ["\u2013" if row["retention"] is None else f"{row['retention']:.3f}" for row in same]
        rows.append([name, *kept, *told])
    return markdown(heads, rows)


def run(
    size: Annotated[str, SIZES] = "toy", record: Annotated[bool, "keep the result under studies/record"] = False
) -> None:
    """Print the table; nothing where the corpus is not there."""
    if not (DATA / "mtsamples").exists():
        print(f"skipped: no mtsamples under {DATA} (RETICENT_DATA)", file=sys.stderr)
        return
    found = grid(SIZES[size])
    print(table(found))
    for rows in found.values():
        kept = {row["rule"]: row["retention"] for row in rows}
        assert kept["k = 2"] >= kept["k = 5"] >= kept["k = 10"]
        if kept["public list, loose, alone"] is not None:
            assert kept["public list, strict, alone"] <= kept["public list, loose, alone"]
    if record:
        write_record("holes_vocabulary", {"settings": SIZES[size], "results": found}, size, STUDIES)


if __name__ == "__main__":
    command(run)
