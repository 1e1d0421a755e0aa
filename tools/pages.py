"""Write the pages of docs/benchmarks from the records, so that no figure there is typed by hand.

A page is a question, its answer with the interval, a figure, the table, and below it by hand how it was measured.

    python -m tools.pages            # writes them
    python -m tools.pages --check    # exit status 1 where a page is not what its records say
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.engine import TOKENIZERS, megabytes_per_second
from benchmarks.protection import fastest
from benchmarks.record_io import RECORD, estimate_text, record_path, spread
from benchmarks.spark import EXPLODE, INDEX, ONE, READ, cpu_of
from studies.reproduce import evidence_of_records
from studies.reproduction.page import QUESTION
from studies.reproduction.page import pages as reproduction
from studies.sampled_recall import mean_and_worst
from tools.figure import Dot, Dots, draw, draw_plane
from tools.tables import TABLES, TB, ends_text, megabytes

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "benchmarks"
#: The first line after what is written from the records; below it stands how it was measured, written by hand.
END = "<!-- above: written by tools.pages from the records -->"
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """A question, the answer in words, the rows of the figure, and the records that answer it: its own by default."""

    stem: str
    question: str
    answer: Callable[..., str]
    figure: Callable[..., Dots]
    others: tuple[str, ...] = ()

    @property
    def records(self) -> tuple[str, ...]:
        return self.others or (self.stem.replace("-", "_"),)


def _in(estimate: Record, digits: int = 2, percent: bool = False) -> str:
    """An estimate in a sentence: ``0.95 [0.90, 0.98]``."""
    return estimate_text(estimate, digits, percent)


def _row(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    return next(row for row in rows if all(row[key] == value for key, value in wanted.items()))


def _by_way(key: str, axis: str, digits: int = 0) -> Callable[[Record], Dots]:
    """A figure of the ways that a record measures under a name."""
    return lambda record: Dots(
        rows=[Dot.of(way, found, "") for way, found in record[key].items()], axis=axis, digits=digits
    )


def _last(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The last epoch of each recipe, in their order."""
    for recipe in dict.fromkeys(row["recipe"] for row in rows):
        yield max((row for row in rows if row["recipe"] == recipe), key=lambda row: row["epoch"] or 0)


# ------------------------------------------------------------------------------------ leaks and protection


def _demo(record: Record) -> str:
    table = {row["recipe"]: row for row in record["table"]}
    shares = {name: _in(table[name]["privacy"]["types"], 2) for name in ("clm", "ppclm", "mlm", "ppmlm")}
    return (
        f"Share of the members' identifiers that the model never predicts: `clm` {shares['clm']}, `ppclm` "
        f"{shares['ppclm']}; `mlm` {shares['mlm']}, `ppmlm` {shares['ppmlm']}. The whole demo takes "
        f"{record['seconds']:,.0f} seconds."
    )


def _demo_figure(record: Record) -> Dots:
    rows = [
        Dot.of(f"base ({row['objective']})" if row["recipe"] == "base" else row["recipe"], row["privacy"]["types"])
        for row in record["table"]
    ]
    return Dots(rows=rows, axis="share of the members' identifiers that the model predicts nowhere", digits=3)


def demo_plane(record: Record) -> tuple[list[tuple[Dot, Dot]], tuple[str, str]]:
    """Return the points of the README's figure, and its axes."""
    points = []
    for row in record["table"]:
        label = f"base ({row['objective']})" if row["recipe"] == "base" else row["recipe"]
        points.append((Dot.of(label, row["utility"]), Dot.of(label, row["privacy"]["types"])))
    return points, ("utility: ordinary words of held-out individuals predicted", "privacy: identifiers never predicted")


def _identifiers(*records: Record) -> str:
    shares = [record["identifiers"]["identifying_share"]["k=2"] for record in records]
    kept = [record["identifiers"]["retention"]["k=2 n=1 all"] for record in records]
    types, occurrences = [s["types"] for s in shares], [s["occurrences"] for s in shares]
    return (
        f"In three corpora, {min(types):.0%} to {max(types):.0%} of the distinct words belong to a single individual. "
        f"They make up {min(occurrences):.1%} to {max(occurrences):.1%} of the text. So with k = 2 and n = 1, "
        f"{min(kept):.1%} to {max(kept):.1%} of the words may still be a target. These are counts of whole corpora, "
        "without an interval."
    )


def _identifiers_figure(*records: Record) -> Dots:
    names = ("mtsamples", "tab", "meddocan")
    rows = [
        Dot(f"{name}, n = {n}, {policy}", record["identifiers"]["retention"][f"k=2 n={n} {policy}"])
        for name, record in zip(names, records, strict=True)
        for n, policy in ((1, "all"), (2, "cover"), (2, "all"), (3, "cover"), (3, "all"))
    ]
    return Dots(rows=rows, axis="share of the words that may still be a target, k = 2")


def _leaks(*records: Record) -> str:
    table = records[0]["leak_table"]
    excess = {name: _in(_row(table, recipe=name, epoch=10)["excess"]["excess"], 1, True) for name in ("clm", "ppclm")}
    aucs = [
        row["membership_auc"]["loss"]["value"] for r in records for row in r["leak_table"] if row["recipe"] != "base"
    ]
    return (
        f"On MTSamples `clm` predicts {excess['clm']} more identifiers of its members than of held-out individuals, "
        f"and `ppclm` {excess['ppclm']}. The loss attack finds the members of every recipe, protected or not (areas of "
        f"{min(aucs):.2f} to {max(aucs):.2f})."
    )


def _leaks_figure(*records: Record) -> Dots:
    rows = [
        Dot.of(f"{name}: {row['recipe']}", row["excess"]["excess"])
        for name, record in zip(("mtsamples", "tab", "meddocan"), records, strict=True)
        for row in record["leak_table"]
        if row["epoch"] == 10
    ]
    return Dots(
        rows=rows, axis="excess leakage: rate of members minus rate of held-out individuals", nothing=0, digits=3
    )


def _experiment(record: Record) -> str:
    last = {row["recipe"]: row for row in _last(record["rows"])}
    shown = ", ".join(
        f"`{name}` {_in(last[name]['privacy'])}" for name in ("clm", "clma", "ppclm", "mlm", "mlma", "ppmlm")
    )
    return f"Share of the members' identifiers that the model never predicts, after 64 epochs: {shown}."


def _experiment_figure(record: Record) -> Dots:
    rows = [Dot.of(row["recipe"], row["privacy"]) for row in _last(record["rows"])]
    return Dots(rows=rows, axis="Privacy after 64 epochs", digits=3)


def _foundation(record: Record) -> str:
    found = {
        row["recipe"]: _in(row["excess"]["excess"], 1, True) for row in record["recipes"] if row["recipe"] != "base"
    }
    return (
        f"Excess leakage of MiniLM: `mlm` {found['mlm']}, `ppmlm` {found['ppmlm']}. Excess leakage of SmolLM2 after "
        f"three epochs: `clm` {found['clm']}, `ppclm` {found['ppclm']}. An interval that contains 0 shows no leakage."
    )


def _foundation_figure(record: Record) -> Dots:
    rows = [Dot.of(f"{row['model']}: {row['recipe']}", row["excess"]["excess"]) for row in record["recipes"]]
    return Dots(rows=rows, axis="excess leakage", nothing=0, digits=3)


def _egress(record: Record) -> str:
    dealt, lists = record["relabelled"], record["relabelled"]["shifted"]
    counts = dealt["counts"]
    beyond, told = (counts.get(name, 0) for name in ("the verdict is beyond", "an attack is distinguishable"))
    answer = (
        f"Of {dealt['num']:,} lists of {dealt['individuals']} people whom nobody trained on, {beyond} were beyond, and "
        f"in {told} an attack told the two sides. Of {len(lists)} lists whose sides differ by themselves, "
        f"{sum(row['verdict'] == 'not shown' for row in lists)} were not shown."
    )
    if (own := record.get("outside")) is not None:
        true = own["true"]
        answer += (
            f" SmolLM2, fine-tuned elsewhere on half of {record['settings']['own']} reports, is {true['verdict']} by "
            f"the true list (area of the reference attack {_in(true['attacks']['reference']['auc'])}), and by lists of "
            f"other sides {', '.join(sorted({row['verdict'] for row in own['shifted']}))}."
        )
    if (rungs := record.get("told")) is not None:
        of_members, of_others = (rungs[name]["sensitive"]["fragment"]["told"] for name in ("members", "others"))
        answer += (
            f" A tiny GPT-2 that read the notes of half of {rungs['people']} people, which state a diagnosis, tells "
            f"sensitive ones of these from a fragment of a note (0: nothing): {_in(of_members)}; one that read as many "
            f"notes of others: {_in(of_others)}."
        )
    return answer


def _egress_figure(record: Record) -> Dots:
    rows = [
        Dot.of(f"nobody trained on, by {row['list']}: {name}", row["attacks"][name]["auc"])
        for row in record["relabelled"]["shifted"]
        for name in ("loss", "reference")
    ]
    if (own := record.get("outside")) is not None:
        rows += [Dot.of(f"the true list: {name}", one["auc"]) for name, one in own["true"]["attacks"].items()]
    return Dots(rows=rows, axis="area under the ROC curve", nothing=0.5, digits=2)


def _best(record: Record) -> Iterator[dict[str, Any]]:
    for recipe in dict.fromkeys(row["recipe"] for row in record["rows"]):
        rows = [r for r in record["rows"] if r["recipe"] == recipe and r["attack"] != "blind" and r.get("verdict")]
        rows = [row for row in rows if row["verdict"] != "invalid"]
        yield max(rows, key=lambda row: row["auc"]["value"])


def _attacks(record: Record) -> str:
    best = {row["recipe"]: row for row in _best(record)}
    shown = ", ".join(f"`{name}` {_in(best[name]['auc'])} (`{best[name]['attack']}`)" for name in ("clm", "ppclm"))
    trained = [row for row in best.values() if row["recipe"] != "base"]
    found = sum(row["auc"]["low"] > 0.5 for row in trained)
    return (
        f"Attacks find members under {found} of {len(trained)} recipes. Area of the most successful attack, with its "
        f"own interval: {shown}. Protection of identifiers does not hide membership, because models learn ordinary "
        "words."
    )


def _attacks_figure(record: Record) -> Dots:
    rows = [
        Dot.of(f"{row['model']}: {row['recipe']}", row["auc"])
        if row["recipe"] != "base"
        else Dot.of(f"base, {row['attack']}", row["auc"])
        for row in _best(record)
    ]
    return Dots(rows=rows, axis="area under the ROC curve of the most successful attack", nothing=0.5)


def _inversion(record: Record) -> str:
    found = {model["recipe"]: model["inversion"]["direct"]["ordinary"]["top1"]["excess"] for model in record["models"]}
    shown = ", ".join(f"`{name}` {_in(excess, 1, True)}" for name, excess in found.items())
    return (
        f"A direct identifier is ranked among {record['settings']['decoys']} decoys by the ordinary words around it. "
        f"It comes first more often for members than for held-out individuals, by: {shown}. An interval that contains "
        "0 shows no effect."
    )


def _inversion_figure(record: Record) -> Dots:
    rows = [
        Dot.of(f"{kind}: {model['recipe']}", model["inversion"][kind]["ordinary"]["top1"]["excess"], colour)
        for kind, colour in (("direct", "protected"), ("indirect", "plain"))
        for model in record["models"]
    ]
    return Dots(rows=rows, axis="ranked first among decoys by ordinary words: members minus held-out", nothing=0)


def _way(row: Record) -> str:
    return "without DP" if row["way"] == "none" else str(row["way"])


def _canaries(record: Record) -> str:
    shown = [f"{_way(row)} {_in(row['greedy']['in'], 0, percent=True)}" for row in record["rows"]]
    costs = [f"{_way(row)} {_in(row['perplexity'])}" for row in record["rows"]]
    regime, tried, seeds = record["chosen"], record["pilot"]["regimes"], len(record["seeds"])
    alone = ", ".join(_way(row) for row in record["rows"] if row["num_seeds"] < seeds)
    measured = f"{seeds} fresh seed{'s' * (seeds > 1)}" + f" ({alone} on the first alone)" * bool(alone)
    return (
        f"Canaries that greedy decoding gives back behind their prefix: {'; '.join(shown)}. Perplexity on people who "
        f"were never seen: {'; '.join(costs)}. Measured on {measured}, in one of {len(tried)} "
        f"regimes of a pilot: hidden size {regime['hidden']}, {regime['copies']} copies, {regime['epochs']} epochs."
    )


def _canaries_figure(record: Record) -> Dots:
    rows = [
        Dot.of(f"{_way(row)}: {name}", row["greedy"][side], kind)
        for row in record["rows"]
        for side, name, kind in (("in", "trained on", "plain"), ("out", "left out", "base"))
    ]
    return Dots(rows=rows, axis="share of the canaries given back", nothing=0)


def _probe_rows(record: Record) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for corpus in ("hospital", "meddocan"):
        for row in record[corpus]["rows"]:
            if row["side"] == "members" and row["factor"]["value"] is not None:
                yield corpus, row["recipe"], row


def _probes(record: Record) -> str:
    rates: dict[str, list[float]] = {}
    for _, recipe, row in _probe_rows(record):
        rates.setdefault(recipe, []).append(next(iter(row["matches"].values()))["exact_match"]["value"])
    shown = ", ".join(f"`{recipe}` {min(found):.0%} to {max(found):.0%}" for recipe, found in rates.items())
    return (
        f"Share of the members' items that a model generates word for word, over types and corpora: {shown}. The table "
        "has each share with its interval, beside that of held-out individuals."
    )


def _probes_figure(record: Record) -> Dots:
    rows = [
        Dot.of(
            f"{corpus}, {row['target']}, {row['level']}: {recipe}",
            next(iter(row["matches"].values()))["exact_match"],
        )
        for corpus, recipe, row in _probe_rows(record)
        if recipe in ("clm", "ppclm")
    ]
    return Dots(rows=rows, axis="share of the members' items that the model generates", nothing=0)


def _taggers(record: Record) -> str:
    last = {
        arm: max((r for r in record["rows"] if r["arm"] == arm), key=lambda r: r["epoch"])
        for arm in dict.fromkeys(row["arm"] for row in record["rows"])
    }
    shown = "; ".join(f"{arm}, {row['epoch']} epochs, {_in(row['advantage'])}" for arm, row in last.items())
    costs = "; ".join(
        f"{row['text']} {_in(row['micro_f1'])}, of names {_in(row['names_f1'])}" for row in record["strict_f1"]
    )
    return (
        f"Adversarial advantage (0 is chance, 1 is certainty) of the strategy chosen in advance: {shown}. Strict F1 of "
        f"all identifiers of held-out people of meddocan, by the text that a small tagger read: {costs}."
    )


def _taggers_figure(record: Record) -> Dots:
    rows = [Dot.of(f"{row['arm']}, epoch {row['epoch']}", row["advantage"], "") for row in record["rows"]]
    return Dots(rows=rows, axis="adversarial advantage", nothing=0)


#: Words behind the header of a note, the report in it, and a whole judgment.
_PLACES = ("after the header", "report", "all")


def _learned(record: Record) -> str:
    marked = record["marked"]["meddocan"]["100"]["after the header"]
    attack = record["names"]
    ruled, open_ = (attack["arms"][arm][f"{attack['k']} bearers"] for arm in ("k", "no rule"))
    worst, found = (
        max((way["gain"] for way in ways.values()), key=lambda gain: gain["high"]) for ways in (ruled, open_)
    )
    held = worst["high"] <= attack["bound"] and found["low"] > 0
    return (
        "Taught by 100 marked notes, the tagger finds "
        f"{_in(marked['recall'])} of the identifying words behind the header of notes that it has not seen, with a "
        f"precision of {_in(marked['precision'])}; a plain conditional random field {_in(marked['plain']['recall'])} "
        f"with {_in(marked['plain']['precision'])}. Names of exactly k = {attack['k']} individuals are told from names "
        f"of nobody by {_in(worst)} more than by chance (AUC), without the rule of k by {_in(found)}: the bound of "
        f"{attack['bound']} is {'kept' if held else 'not shown'}."
    )


def _learned_figure(record: Record) -> Dots:
    rows = [
        Dot.of(f"{name}, {num}{' marked' if num.isdigit() else ''}, {part}", scores[part]["recall"], "")
        for name, found in record["marked"].items()
        for num, scores in found.items()
        if num != "asked"
        for part in _PLACES
        if part in scores
    ]
    return Dots(rows=rows, axis="share of identifying words that are found")


def _dp(record: Record) -> str:
    shown = "; ".join(f"{name} {_in(way['accuracy'], 3)}" for name, way in record["ways"].items())
    naive = record["ways"]["naive DP"]["accuracy"]
    best = max(way["accuracy"]["median"] for name, way in record["ways"].items() if "DP" in name)
    return (
        f"{'No' if best > naive['high'] else 'Yes'}. Accuracy on held-out individuals, median and range of "
        f"{len(record['seeds'])} seeds, epsilon "
        f"{record['epsilon']}: {shown}; base model {_in(record['base'], 3)}."
    )


def _dp_figure(record: Record) -> Dots:
    rows = [Dot.of("base model", record["base"], "base")]
    rows += [
        Dot.of(name, way["accuracy"], "private" if "DP" in name else "plain") for name, way in record["ways"].items()
    ]
    return Dots(rows=rows, axis="accuracy on held-out individuals, median and range over seeds", digits=3)


def _private_recipe(record: Record) -> str:
    parts = []
    for name, cell in record["cells"].items():
        private = [row for row in cell["rows"] if row["guarantee"]]
        plain = next(row for row in cell["rows"] if row["recipe"] in ("mlm", "clm"))
        kept: dict[str, list[float]] = {}
        for row in private:
            kept.setdefault(row["recipe"].rpartition("-epsilon-")[2], []).append(row["gain_share"]["value"])
        shown = ", ".join(f"at epsilon {epsilon} {min(own):.2f} to {max(own):.2f}" for epsilon, own in kept.items())
        areas = [row["area"]["value"] for row in private]
        found = "" if cell["counts"] else " As attacks hardly find plain here, that says nothing."
        parts.append(
            f"{name}: of plain's gain on ordinary words of held-out individuals the recipes with a bound keep {shown}. "
            f"The best attack finds members of plain with an area of {_in(plain['area'], 3)}, of these with "
            f"{min(areas):.3f} to {max(areas):.3f}.{found}"
        )
    return " ".join(parts)


def _private_recipe_figure(record: Record) -> Dots:
    rows = [
        Dot.of(f"{name}, {row['recipe']}", row["gain_share"], "private" if row["guarantee"] else None)
        for name, cell in record["cells"].items()
        for row in cell["rows"]
    ]
    return Dots(rows=rows, axis="share of plain's gain on ordinary words of held-out individuals", digits=3, nothing=0)


def _classes(*records: Record) -> str:
    parts = []
    for name, record in zip(("MTSamples", "MTS-Dialog"), records, strict=True):
        rows = record["models"]["bert"]["rows"]
        shown = {start: _row(rows, start=start, epoch=6, setting="small models") for start in ("mlm", "ppmlm")}
        parts.append(
            f"{name}: "
            + ", ".join(f"`{s}` {_in(r['macro_f1'])}" for s, r in shown.items())
            + ", a bag of words "
            + _in(_row(rows, start="bag of words")["macro_f1"])
        )
    return f"Macro F1 on held-out individuals, {'; '.join(parts)}."


def _classes_figure(*records: Record) -> Dots:
    rows = []
    for name, record in zip(("mtsamples", "mts_dialog"), records, strict=True):
        for number, (model, found) in enumerate(record["models"].items()):
            for row in found["rows"]:
                if (row["setting"] is None and number == 0) or (row["setting"] == "small models" and row["epoch"] != 2):
                    shown = row["start"] if row["setting"] is None else f"{model} {row['start']}"
                    rows.append(Dot.of(f"{name}, {shown}", row["macro_f1"], ""))
    return Dots(rows=rows, axis="macro F1 on held-out individuals")


# ------------------------------------------------------------------------------------ detection


def _detection(record: Record) -> str:
    covered = {
        name: found["unions"]["all"]["covered"]["overall"]
        for name, found in record["corpora"].items()
        if "unions" in found
    }
    lowest, highest = (pick(covered, key=lambda name: covered[name]["value"]) for pick in (min, max))
    return (
        f"All detectors together cover between {_in(covered[lowest], 0, True)} of the mentions (in {lowest}) and "
        f"{_in(covered[highest], 0, True)} (in {highest}), over {len(covered)} corpora."
    )


def _detection_figure(record: Record) -> Dots:
    rows = [
        Dot.of(
            f"{name}: {'rules, records, lists' if union == 'ours' else 'all'}",
            found["unions"][union]["covered"]["overall"],
            "protected" if union == "all" else "",
        )
        for name, found in record["corpora"].items()
        if "unions" in found
        for union in ("ours", "all")
    ]
    return Dots(rows=rows, axis="share of the marked mentions whose every word is found")


def _speed(record: Record) -> str:
    rows, peers = record["throughput"]["rows"], record["peers"]
    beside = peers["Presidio, its patterns"]["ratio"]["rules, 1 thread"]
    return (
        f"Rules, records and gazetteer together read {_in(rows['rules + records + gazetteer']['mb_per_second'], 0)} "
        f"MB of text per second. On one thread the rules are {_in(beside, 0)} times as fast as Presidio's patterns on "
        "the same categories (median and range)."
    )


def _speed_figure(record: Record) -> Dots:
    rows = [Dot.of(name, row["mb_per_second"], "") for name, row in record["throughput"]["rows"].items()]
    return Dots(rows=rows, axis="MB of text per second, from Parquet to spans on disk", digits=0)


def _escapes(record: Record) -> str:
    ways = [way for ways in record["totals"].values() for way in ways.values()]
    total, escaped = sum(way["characters"] for way in ways), sum(row["characters"] for row in record["escapes"])
    bound = "" if escaped else f" (95 % bound if each were drawn at random: {3 / total:.1e})"
    return (
        f"{escaped:,} of {total:,} characters that the rule protects are targets{bound}, over {record['spellings']} "
        f"spellings and {len(record['kinds'])} tokenizers. Counting words cannot protect "
        f"{len(record['outside_the_rule'])} of the spellings; the table lists each."
    )


def _escapes_figure(record: Record) -> Dots:
    rows = [
        Dot(row["spelling"], max(row["targets"].values()) / row["characters"])
        for row in sorted(record["outside_the_rule"], key=lambda r: -max(r["targets"].values()) / r["characters"])
    ][::3]
    return Dots(rows=rows, axis="counted only: largest share of the characters that are targets (every third spelling)")


def _dedup(record: Record) -> str:
    checked, timed = record["checked"], record["timed"]
    return (
        f"Reticent finds {checked['recall']:.1%} of {checked['true_pairs']} true pairs and reports no wrong pair. "
        f"datasketch finds {checked['datasketch_recall']:.1%} and reports {checked['datasketch_wrong_pairs']} wrong "
        f"pairs. {timed['documents']:,} documents take {timed['collect_and_near_cpu_seconds']:.2f} CPU seconds, with "
        f"datasketch {timed['datasketch_cpu_seconds']:.2f}. One run each, no interval."
    )


def _dedup_figure(record: Record) -> Dots:
    timed = record["timed"]
    rows = [Dot("reticent", timed["collect_and_near_cpu_seconds"]), Dot("datasketch", timed["datasketch_cpu_seconds"])]
    return Dots(rows=rows, axis="CPU seconds")


# ------------------------------------------------------------------------------------ speed and safety


def _engine(record: Record) -> str:
    goals = {goal["what"]: goal["value"] for goal in record["goals"]}
    ours, *peers = sorted(
        megabytes_per_second(record, TOKENIZERS[0]).items(),
        key=lambda row: (not row[0].startswith("reticent"), -row[1]),
    )
    beside = f", {ours[1] / peers[0][1]:.2f} times what {peers[0][0]} makes of ids alone" if peers else ""
    return (
        f"From text to tokens with their words, flags and the index of single words: {ours[1]:.0f} MB a second with "
        f"{TOKENIZERS[0]}{beside}. "
        f"Counting all n-grams of n = 1..3 takes {_in(goals['n = 1..3, wall / wc -w'])} times as long as `wc -w`. "
        "The faster of Polars and DuckDB takes "
        f"{_in(goals['best of Polars and DuckDB min/max, end to end / ours, end to end'], 1)} times as long as "
        "Reticent, end to end (median and range)."
    )


def _engine_figure(record: Record) -> Dots:
    names = [name for name in record["runs"] if "1..3" in name and "a tenth" not in name and "growth" not in name]
    rows = [
        Dot.of(name, record["runs"][name]["seconds"], "protected" if name.startswith("reticent") else "")
        for name in ["wc -w", *names]
    ]
    return Dots(rows=rows, axis="seconds, median and range", log=True)


def _protection(record: Record) -> str:
    name, first = next(iter(record["trials"].items()))
    protect = first[0]["protect"]
    seconds = spread([found["protect"]["seconds"] for found in first])["median"]
    beside = []
    for vocabulary, rounds in record["trials"].items():
        if peer := fastest(rounds):
            ratios = [own["protect"]["seconds"] / own[peer]["seconds"] for own in rounds if peer in own]
            beside.append(f"{_in(spread(ratios))} times as long as {peer} alone with {vocabulary}")
    return (
        f"{protect['text_bytes'] / seconds / 1e6:.0f} MB of text a second become protected tokens on "
        f"{record['machine']['cores']} cores, with {name}: {protect['text_bytes'] / 1e6:,.0f} MB in {seconds:.1f} "
        f"seconds (median of {len(first)}), with detection, both indexes, tokens and both views, on disk. That takes "
        f"{', '.join(beside)}: the fastest tokeniser tried that makes these ids, from texts in memory to ids in memory "
        f"(median and range). The folder of the tokens holds {protect['tokens'] / protect['num_tokens']:.2f} "
        "bytes per token."
    )


def _protection_figure(record: Record) -> Dots:
    rows = [
        Dot.of(
            f"{'everything before training' if what == 'protect' else f'{what} alone'} ({name})",
            spread([found[what]["seconds"] for found in rounds if what in found]),
            "protected" if what == "protect" else "",
        )
        for name, rounds in record["trials"].items()
        for what in dict.fromkeys(what for found in rounds for what in found)
    ]
    return Dots(rows=rows, axis="seconds, median and range", log=True)


def _large(record: Record) -> str:
    run = record["large"]
    return (
        f"The index of {run['documents']:,} documents ({run['num_bytes'] / 1e9:.1f} GB of text) takes "
        f"{run['seconds']:,.0f} seconds on {record['machine']['cores']} cores, with {run['peak_bytes'] / 1e9:.1f} GB "
        f"of peak memory under a limit of {run['memory_limit'] / 1e9:.1f} GB. One run, no interval."
    )


def _large_figure(record: Record) -> Dots:
    rows = [Dot(f"{record[name]['documents']:,} documents", record[name]["seconds"]) for name in ("pilot", "large")]
    return Dots(rows=rows, axis="seconds", log=True, digits=1)


def _kernels(record: Record) -> str:
    ratios = {
        name: row["numpy"]["median"] / row["numba"]["median"]
        for name, row in record["rows"].items()
        if not name.startswith("stayed")
    }
    most = max(ratios, key=lambda name: ratios[name])
    return (
        f"The best NumPy form takes between {min(ratios.values()):.1f} and {ratios[most]:.1f} (`{most}`) times the "
        f"processor time of the kernel; medians of {next(iter(record['rows'].values()))['numba']['n']} runs."
    )


def _kernels_figure(record: Record) -> Dots:
    rows = [
        Dot(
            name.removeprefix("stayed in NumPy: "),
            row["numpy"]["median"] / row["numba"]["median"],
            kind="base" if name.startswith("stayed") else "",
        )
        for name, row in record["rows"].items()
    ]
    return Dots(rows=rows, axis="processor time of NumPy over Numba; grey: stayed in NumPy", nothing=1, log=True)


def _kill(record: Record) -> str:
    counts = [counts for table in record["tables"].values() for counts in table.values()]
    trials, wrong = sum(c["trials"] for c in counts), sum(c.get("wrong", 0) for c in counts)
    bound = "" if wrong else f" (95 % bound: {100 * (1 - 0.05 ** (1 / trials)):.2f} %)"
    said = f"{wrong} of {trials:,} runs that were killed, stopped or out of disk space left a fault{bound}"
    return f"{'No' if wrong else 'Yes'}: {said}."


def _kill_figure(record: Record) -> Dots:
    from reticent.audit.stats.intervals import clopper_pearson

    rows: list[Dot] = []
    for how, table in record["tables"].items():
        trials, wrong = (sum(counts.get(what, 0) for counts in table.values()) for what in ("trials", "wrong"))
        if trials:
            low, high = clopper_pearson(wrong, trials, one_sided=not wrong)
            rows.append(Dot(how, 100 * wrong / trials, 100 * low, 100 * high))
    return Dots(rows=rows, axis="% of runs that left a fault: observed, with the 95 % upper bound")


def _training(record: Record) -> str:
    ratios = {kind: found["ratios"]["ours, packed"]["Trainer"] for kind, found in record["models"].items()}
    shown = ", ".join(f"{kind} {_in(ratio)}" for kind, ratio in ratios.items())
    return f"With packing, tokens per second relative to the Trainer of transformers: {shown} (median and range)."


def _training_figure(record: Record) -> Dots:
    rows = [
        Dot.of(f"{kind}, {way}", ratios["Trainer"], "private" if "DP" in way else "protected")
        for kind, found in record["models"].items()
        for way, ratios in found["ratios"].items()
    ]
    return Dots(rows=rows, axis="tokens per second, relative to the Trainer", nothing=1)


def _tagging(record: Record) -> str:
    return (
        f"{_in(record['mb_per_second']['detector transformers'])} MB per second with BERT-base on {record['device']}, "
        f"{_in(record['ratio'])} times as fast as the pipeline of transformers (median and range)."
    )


def _scoring(record: Record) -> str:
    speed, goal = record["tokens_per_second"], record["goals"][0]["value"]
    return (
        f"{_in(speed['scoring pass'], 0)} tokens per second on {record['device']}, {_in(goal)} times as fast as "
        "scoring one text at a time (median and range)."
    )


def _scrub(record: Record) -> str:
    speed = record["mb_per_second"]
    return (
        f"Reticent writes tags at {_in(speed['reticent, tag'], 0)} MB per second and surrogates at "
        f"{_in(speed['reticent, surrogate'], 0)}. A loop over Python strings writes tags at "
        f"{_in(speed['Python loop, tag'], 0)} (median and range)."
    )


def _formats(record: Record) -> str:
    formats = record["formats"]
    words, lost = (sum(own[key] for own in formats.values()) for key in ("words", "words_lost"))
    speeds = ", ".join(f"{name} {_in(own['mb_per_core_second'], 0)}" for name, own in list(formats.items())[:4])
    return (
        f"Of {words:,} words in files of {len(formats)} kinds, {lost:,} are not read in their order. MB of files that "
        f"become staged documents in a second of one core: {speeds} (median and range)."
    )


def _formats_figure(record: Record) -> Dots:
    rows = [Dot.of(name, own["mb_per_core_second"], "") for name, own in record["formats"].items()]
    return Dots(rows=rows, axis="MB of files in a second of one core, median and range", log=True, digits=1)


def _guard(record: Record) -> str:
    added = record["cpu_microseconds_per_token"]["guarded, added"]
    return (
        f"The guard adds {_in(added, 0)} CPU µs per token to generation. It blocks "
        f"{record['unrelated_texts_blocked']:.2%} of unrelated texts, and {record['copies_of_49_blocked']:.2%} of "
        "copies that are one character too short to block."
    )


# ------------------------------------------------------------------------------------ samples, databases, Spark


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


def warehouse_answer(record: Record) -> str:
    """Return the answer in words."""
    ours, staging = next(iter(record["readers"].values())), record["staging"]
    one, refreshed = staging["one connection"], staging["the same, refreshed"]
    speed, memory = ours["mb_per_second"]["median"], megabytes(ours["memory_bytes"])
    size = megabytes(record["hospital"]["text_bytes"])
    staged, peak = one["mb_per_second"]["median"], megabytes(one["peak_bytes"])
    return (
        f"ADBC with batches of 1 MiB reads {speed:,.0f} MB of text a second and takes {memory} MB of memory for it. "
        f"Staging ({size} MB) does {staged:,.0f} MB/s, at a peak of {peak} MB of the whole process. Where one note in "
        f"a hundred changed, a refresh moves {refreshed['texts_fetched']:,} texts instead of {one['texts_fetched']:,}; "
        f"beside the server it takes {refreshed['seconds']['median']:.1f} seconds instead of "
        f"{one['seconds']['median']:.1f}."
    )


def warehouse_figure(record: Record) -> Dots:
    """Return the figure: throughput of each reader and of staging."""
    rows = [Dot.of(name, own["mb_per_second"], "") for name, own in record["readers"].items()]
    rows += [Dot.of(f"staging, {name}", own["mb_per_second"], "protected") for name, own in record["staging"].items()]
    return Dots(rows=rows, axis="MB of text per second, from PostgreSQL on the same machine", digits=0)


def spark_answer(record: Record) -> str:
    """Return the answer in words."""
    largest, larger = record["corpora"][-1], record["larger"][0]
    one, ours, other = cpu_of(largest, ONE), cpu_of(largest, READ, INDEX), cpu_of(largest, EXPLODE)
    moved = megabytes(sum(largest["ways"][way]["shuffled_bytes"] for way in (READ, INDEX)))
    exploded = megabytes(largest["ways"][EXPLODE]["shuffled_bytes"])
    start, tables = record["start_of_spark"]["jvm_cpu_seconds"], larger["shuffled_bytes_of_tables"]
    return (
        f"{largest['notes']:,} notes take {one:,.1f} CPU seconds on one machine, {ours:,.0f} on Spark (n = 1 to 3, its "
        f"start of {start:.0f} seconds aside), with equal supports, and {other:,.0f} by `explode` and "
        f"`countDistinct`, which go to n = 2 only. Spark shuffles {moved} MB, `explode` {exploded} MB. By the measured "
        f"exponents {larger['notes']:,} such notes would take {ends_text(larger['core_hours'], 0)} core-hours on "
        f"Spark, which would shuffle {ends_text([end / TB for end in tables])} TB of tables."
    )


def spark_figure(record: Record) -> Dots:
    """Return the figure: CPU seconds of each corpus in each way."""
    ways = {"one machine": (ONE,), "Spark": (READ, INDEX), "explode (n to 2)": (EXPLODE,)}
    kinds = dict(zip(ways, ("protected", "", "plain"), strict=True))
    rows = [
        Dot(f"{row['corpus']}, {row['notes']:,} notes: {name}", cpu_of(row, *own), kind=kinds[name])
        for row in record["corpora"]
        for name, own in ways.items()
    ]
    return Dots(rows=rows, axis="CPU seconds, without the start of Spark", log=True, digits=1)


CORPORA = tuple(f"real_corpora_{name}" for name in ("mtsamples", "tab", "meddocan"))
#: The pages in the order of their list.
PAGES = (
    Page("demo", "What does the demo show, and how long does it take?", _demo, _demo_figure),
    Page(
        "identifiers",
        "How much of real text is identifying, and how much may still be learned?",
        _identifiers,
        _identifiers_figure,
        CORPORA,
    ),
    Page("leaks", "What do small models leak of real text?", _leaks, _leaks_figure, CORPORA),
    Page("experiment", "What does the published experiment show?", _experiment, _experiment_figure),
    Page("foundation-models", "What do foundation models learn and leak?", _foundation, _foundation_figure),
    Page("egress", "Is a model that was trained elsewhere judged rightly?", _egress, _egress_figure),
    Page("attacks", "Which attacks find members, under which recipe?", _attacks, _attacks_figure),
    Page("inversion", "Can an identifier be inferred from the words around it?", _inversion, _inversion_figure),
    Page("canaries", "How many canaries does a model reproduce?", _canaries, _canaries_figure, ("canary_lab",)),
    Page("probes", "What do probes with individuals' own items find?", _probes, _probes_figure),
    Page("taggers", "Can an attack find the names that a tagger was trained on?", _taggers, _taggers_figure),
    Page("dp-sgd", "Is DP-SGD as weak as an untuned baseline?", _dp, _dp_figure, ("dp_baseline",)),
    Page(
        "private-recipe",
        "What does a recipe with a bound cost, and what do attacks find in it?",
        _private_recipe,
        _private_recipe_figure,
        ("private_recipe",),
    ),
    Page(
        "classification",
        "What is a protected model worth downstream?",
        _classes,
        _classes_figure,
        ("classification_mtsamples", "classification_mts_dialog"),
    ),
    Page("detection", "What does each detector find, and what do all of them miss?", _detection, _detection_figure),
    Page("learned", "How much does a tagger find that learned from marked notes?", _learned, _learned_figure),
    Page("detection-speed", "How fast are direct identifiers found?", _speed, _speed_figure),
    Page("sampled-recall", "Does a sample show how much detection misses?", recall_answer, recall_figure),
    Page("escapes", "Does an identifier escape by its spelling?", _escapes, _escapes_figure),
    Page("duplicates", "How fast are near copies found, and how many?", _dedup, _dedup_figure, ("dedup",)),
    Page("engine", "How fast is the engine compared with its peers?", _engine, _engine_figure),
    Page("protection", "How long from documents to protected tokens?", _protection, _protection_figure),
    Page("warehouse", "How fast do notes come out of a database?", warehouse_answer, warehouse_figure),
    Page("spark", "What does the index cost on Spark?", spark_answer, spark_figure),
    Page("large", "How much time and memory do ten million documents take?", _large, _large_figure),
    Page("kernels", "How much time do the Numba kernels save?", _kernels, _kernels_figure),
    Page("kill", "Is a run safe to kill?", _kill, _kill_figure),
    Page("training", "How fast does the loop train?", _training, _training_figure),
    Page(
        "tagging-speed",
        "How fast does a trained model find names on a GPU?",
        _tagging,
        _by_way("mb_per_second", "MB of text per second, median and range", 2),
        ("tagging_speed-gpu",),
    ),
    Page(
        "scoring",
        "How fast are texts scored?",
        _scoring,
        _by_way("tokens_per_second", "tokens per second, median and range"),
    ),
    Page("formats", "Are a hospital's formats read whole, and how fast?", _formats, _formats_figure),
    Page(
        "scrub",
        "How fast are identifiers replaced?",
        _scrub,
        _by_way("mb_per_second", "MB of text per second, median and range"),
    ),
    Page(
        "guard",
        "What does the output guard cost?",
        _guard,
        _by_way("cpu_microseconds_per_token", "CPU µs per token, median and range"),
    ),
)


def pages() -> Iterator[tuple[Path, str]]:
    """Yield (path, text) of every page, of its figure, of the README's figure, and of the list of pages.

    A page whose record is not made yet is left as it is.
    """
    recorded = [page for page in PAGES if all(record_path(name).exists() for name in page.records)]
    for page in recorded:
        records = [json.loads((record_path(name)).read_text()) for name in page.records]
        path = FOLDER / f"{page.stem}.md"
        kept = path.read_text(encoding="utf-8").partition(END)[2] if path.exists() else "\n"
        yield path, page_text(page, records) + END + kept
        yield FOLDER / f"{page.stem}.svg", draw(page.figure(*records))
    demo = json.loads((RECORD / "demo.json").read_text())
    yield FOLDER.parent / "assets" / "demo.svg", draw_plane(*demo_plane(demo))
    yield from ((FOLDER / name, text) for name, text in reproduction(evidence_of_records()))
    listed = f"- [{QUESTION}](reproduction.md)\n"
    listed += "".join(f"- [{page.question}]({page.stem}.md)\n" for page in recorded)
    path = FOLDER / "index.md"
    kept = path.read_text(encoding="utf-8").partition(END)[2] if path.exists() else "\n"
    yield (
        path,
        "# Benchmarks\n\nOne page for each question: the answer, a figure, the table, and the record.\n\n"
        f"{listed}\n{END}{kept}",
    )


def page_text(page: Page, records: list[dict[str, Any]]) -> str:
    """Return what the records say: the question, the answer, the figure, the folded table."""
    places = {name: record_path(name).relative_to(ROOT) for name in page.records}
    links = ", ".join(f"[{name}.json](../../{place})" for name, place in places.items())
    title = "Record" if len(page.records) == 1 else "Records"
    return (
        f"# {page.question}\n\n{page.answer(*records)}\n\n![{page.figure(*records).axis}]({page.stem}.svg)\n\n"
        '<details markdown="1">\n<summary>The '
        f"table</summary>\n\n{TABLES[page.stem](*records).strip()}\n\n</details>\n\n"
        f"{title}: {links}.\n\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    check, different = parser.parse_args().check, []
    for path, text in pages():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            different.append(str(path.relative_to(ROOT)))
            if not check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    print(*different, sep="\n")
    sys.exit(1 if check and different else 0)


if __name__ == "__main__":
    main()
