"""The table of each page, from its records; `tools.pages` writes the pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks import training
from benchmarks.attacks import attack_table
from benchmarks.detection import detection_tables
from benchmarks.detection_speed import speed_tables
from benchmarks.engine import goal_table, run_table, shape_rows
from benchmarks.learned import learned_tables
from benchmarks.protection import protection_table
from benchmarks.record_io import estimate_text, machine_line, markdown
from benchmarks.spark import GROWING
from studies import canary_lab, dp_baseline, egress, foundation_models, inversion, private_recipe, probes, taggers
from studies.escapes import escape_tables
from studies.sampled_recall import sampled_recall_tables

__all__ = ["TABLES", "TB", "ends_text", "megabytes"]

Record = Mapping[str, Any]
TB = 1e12


def megabytes(num_bytes: float) -> str:
    """Return a number of bytes in MB."""
    return f"{num_bytes / 1e6:,.0f}"


def ends_text(ends: list[float], digits: int = 1) -> str:
    """Two ends, in words: ``1.2 to 3.4``."""
    low, high = (f"{end:,.{digits}f}" for end in ends)
    return low if low == high else f"{low} to {high}"


def _demo(record: dict[str, Any]) -> str:
    rows = [
        (
            row["recipe"] if row["recipe"] != "base" else f"base ({row['objective']})",
            row["epoch"] or "-",
            *(estimate_text(row[key]) for key in ("utility", "utility_all")),
            estimate_text(row["privacy"]["types"]),
            estimate_text(row["excess"]["excess"]),
            estimate_text(row["loss_auc"]),
        )
        for row in record["table"]
    ]
    seconds = ", ".join(f"{stage} {value:,.1f}" for stage, value in record["seconds_per_stage"].items() if value >= 1)
    heads = ("recipe", "epochs", "utility", "over all words", "privacy", "excess", "AUC of the loss")
    return (
        f"{machine_line(record)}\n\n{markdown(heads, rows)}\nSeconds of the stages that take one or more: {seconds}.\n"
    )


def _identifiers(*given: dict[str, Any]) -> str:
    records = dict(zip(CORPORA, given, strict=True))
    found = {name: record["identifiers"] for name, record in records.items()}
    rows = [("individuals", *(f"{i['individuals']:,}" for i in found.values()))]
    rows += [("words", *(f"{i['words']:,}" for i in found.values()))]
    rows += [("distinct words", *(f"{i['distinct_words']:,}" for i in found.values()))]
    for k in (2, 5, 11):
        for what in ("types", "occurrences"):
            shares = (i["identifying_share"][f"k={k}"][what] for i in found.values())
            rows += [(f"used by fewer than {k}: share of {what}", *(f"{share:.1%}" for share in shares))]
    rows += [
        (f"retention, policy {policy}, k = {k}, n = {n}", *(f"{i['retention'][key]:.3f}" for i in found.values()))
        for policy in ("all", "last", "cover", "paper")
        for k in (2, 5, 11)
        for n in (1, 2, 3)
        for key in (f"k={k} n={n} {policy}",)
    ]
    stages = next(iter(found.values()))["seconds"]
    rows += [(f"seconds: {stage}", *(f"{i['seconds'][stage]:.3f}" for i in found.values())) for stage in stages]
    for key, what in (("peak_mib_engine", "the identifiers"), ("peak_mib", "the whole job")):
        rows += [(f"peak memory of {what}, MiB", *(f"{record[key]:,}" for record in records.values()))]
    return markdown(("", *records), rows)


def _leak_table(record: dict[str, Any]) -> str:
    split = record["split"]
    rows = [
        (
            row["recipe"],
            row["epoch"] or "-",
            estimate_text(row["utility_heldout"]),
            estimate_text(row["privacy"]["both"]["types"]),
            estimate_text(row["privacy"]["both"]["occurrences"]),
            estimate_text(row["excess"]["excess"]),
            estimate_text(row["membership_auc"].get("loss")),
            estimate_text(row["membership_auc"].get("reference")),
        )
        for row in record["leak_table"]
    ]
    seconds = ", ".join(f"{stage} {value:,.1f}" for stage, value in record["seconds_per_stage"].items() if value >= 0.1)
    heads = ("recipe", "epoch", "utility", "privacy", "of occurrences", "excess", "AUC loss", "AUC reference")
    return (
        f"{split['members']} members, {split['heldout']} held-out individuals, "
        f"{split['reference']} in the reference. {machine_line(record)}\n\n"
        + markdown(heads, rows)
        + f"\nSeconds: {seconds}.\n"
    )


def _classes(record: dict[str, Any]) -> str:
    rows, sizes = [], next(iter(record["models"].values()))
    for model, found in record["models"].items():
        for row in found["rows"]:
            if row["setting"] is None and model != next(iter(record["models"])):
                continue  # what needs no model stands there once
            seeds = row["macro_f1_over_seeds"]
            rows.append(
                (
                    f"{model}, {row['start']}" if row["setting"] else row["start"],
                    row["epoch"] or "-",
                    row["setting"] or "-",
                    estimate_text(row["macro_f1"]),
                    f"{seeds['low']:.3f} to {seeds['high']:.3f}" if seeds["n"] > 1 else "-",
                    estimate_text(row["micro_f1"]),
                    estimate_text(row.get("macro_f1_less_base")),
                )
            )
    heads = ("start", "epoch", "setting", "macro F1", "over seeds", "micro F1", "macro F1 less base")
    return (
        f"{sizes['classes']} classes, {sizes['train']['documents']:,} documents of "
        f"{sizes['train']['individuals']:,} members, {sizes['heldout']['documents']:,} of "
        f"{sizes['heldout']['individuals']:,} held-out individuals; {record['num_seeds']} seeds, intervals of the "
        f"first. {machine_line(record)}\n\n" + markdown(heads, rows)
    )


def _engine(record: dict[str, Any]) -> str:
    made = "made by reticent synth" if record["generated"] else "of a given corpus"
    return (
        f"{record['documents']:,} documents {made}, {record['num_bytes'] / 1e6:,.0f} MB; median of "
        f"{record['rounds']}. {machine_line(record)}\n\n"
        + "\n".join(
            [
                markdown(*goal_table(record)),
                markdown(*run_table(record)),
                markdown(("shape", "here", "published"), shape_rows(record["shape"])),
            ]
        )
    )


def _large(record: dict[str, Any]) -> str:
    machine, runs = record["machine"], {name: record[name] for name in ("pilot", "large")}
    rows = [
        (
            f"{run['documents']:,}",
            f"{run['num_bytes'] / 1e9:.2f}",
            *(f"{run[key]:,.1f}" for key in ("seconds", "cpu_seconds")),
            *("-" if run[key] is None else f"{run[key] / 1e9:.2f}" for key in ("memory_limit", "peak_bytes")),
            f"{run['spill_bytes'] / 1e9:.2f}",
        )
        for run in runs.values()
    ]
    told = ""
    if "extrapolated" in record:
        far = record["extrapolated"]
        told = f"\nExtrapolated to {far['documents']:,}: {far['seconds']:,.0f} s. Basis: {far['basis']}.\n"
        rows.append((f"{far['documents']:,}", "-", f"{far['seconds']:,.1f}", f"{far['cpu_seconds']:,.1f}", *"---"))
    heads = ("documents", "GB of text", "seconds", "CPU seconds", "memory limit, GB", "at its peak, GB", "spill, GB")
    return (
        f"n = 1..3. {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_mib']:,} MiB, commit {machine['commit']}.\n\n" + markdown(heads, rows) + told
    )


def _kernels(record: dict[str, Any]) -> str:
    machine = record["machine"]
    rows = [
        (
            name,
            f"{row['entries'] / 1e6:.1f}",
            f"{row['numba']['median']:.3f}",
            f"{row['numpy']['median']:.3f}",
            f"{row['numpy']['median'] / row['numba']['median']:.1f}",
        )
        for name, row in record["rows"].items()
    ]
    return (
        f"{record['num_tokens'] / 1e6:.1f} M tokens; processor seconds, median of "
        f"{next(iter(record['rows'].values()))['numba']['n']}. {machine['cpu']}, one thread, "
        f"commit {machine['commit']}.\n\n" + markdown(("", "M entries", "Numba", "NumPy", "NumPy / Numba"), rows)
    )


def _kill(record: dict[str, Any]) -> str:
    outcomes = ("trials", "already done", "got by without", "wrong")
    rows = [
        (how, row, *(counts.get(outcome, 0) for outcome in outcomes))
        for how, table in record["tables"].items()
        for row, counts in table.items()
    ]
    machine = record["machine"]
    return f"{machine['cpu']}, commit {machine['commit']}.\n\n" + markdown(("", "case", *outcomes), rows)


def _dedup(record: dict[str, Any]) -> str:
    checked, timed, machine = record["checked"], record["timed"], record["machine"]
    recall, cpu = checked["datasketch_recall"], timed["datasketch_cpu_seconds"]
    wrong = checked["datasketch_wrong_pairs"]
    rows = [
        ("reticent", f"{checked['recall']:.3f}", 0, f"{timed['collect_and_near_cpu_seconds']:.2f}"),
        ("datasketch", *("-" if value is None else value for value in (recall and f"{recall:.3f}", wrong)), "-"),
    ]
    if cpu is not None:
        rows[1] = (*rows[1][:3], f"{cpu:.2f}")
    return (
        f"Near duplicates at threshold {record['threshold']}: pairs found of the {checked['true_pairs']:,} true pairs "
        f"of {checked['documents']:,} documents, and wrong pairs; CPU seconds for {timed['documents']:,} documents, "
        f"{timed['text_bytes'] / 1e6:.0f} MB. {machine['cpu']}, commit "
        f"{machine['commit']}.\n\n" + markdown(("", "pairs found", "wrong pairs", "CPU seconds"), rows)
    )


def _scrub(record: dict[str, Any]) -> str:
    wall, cpu = record["mb_per_second"], record["mb_per_core_second"]
    rows = [(name, *(f"{speed[name]['median']:.0f}" for speed in (wall, cpu))) for name in wall]
    return (
        f"{record['documents']:,} documents, {record['bytes'] / 1e6:.0f} MB, {record['spans']:,} "
        f"spans; median of {next(iter(wall.values()))['n']}. {machine_line(record)}\n\n"
        + markdown(("", "MB/s", "MB a core second"), rows)
    )


def _formats(record: dict[str, Any]) -> str:
    rows = []
    for name, own in record["formats"].items():
        lost = (own["words"], own["words_lost"], own["characters_lost"])
        speeds = (f"{own[key]['median']:.1f}" for key in ("mb_per_second", "mb_per_core_second"))
        beside = ("-", "-")
        if peer := own.get("peer"):
            beside = (f"{peer['name']}: {peer['words_lost']:,}", f"{peer['mb_per_core_second']:.1f}")
        size = (f"{own['documents']:,}", f"{own['bytes'] / 1e6:.1f}")
        rows.append((name, *size, *(f"{count:,}" for count in lost), *speeds, *beside))
    heads = ("", "documents", "MB", "words", "words lost", "characters lost", "MB/s", "MB a core second")
    more = ("words lost by another reader", "its MB a core second")
    rounds = next(iter(record["formats"].values()))["mb_per_second"]["n"]
    return (
        f"MB of the files; median of {rounds}; {record['load_before']:.1f} processes ran beside it (load). "
        f"{machine_line(record)}\n\n" + markdown((*heads, *more), rows)
    )


def _guard(record: dict[str, Any]) -> str:
    machine, added = record["machine"], record["cpu_microseconds_per_token"]
    rows = [(name, f"{row['median']:,.0f}", f"{row['low']:,.0f} to {row['high']:,.0f}") for name, row in added.items()]
    return (
        f"{record['text_bytes'] / 1e6:.0f} MB of text, {record['bytes_per_byte']:.2f} bytes of "
        f"index a byte, built at {record['build_mb_per_cpu_second']['median']:.0f} MB a CPU second. Blocked by "
        f"mistake: {record['unrelated_texts_blocked']:.2%} of unrelated texts, {record['copies_of_49_blocked']:.2%} of "
        f"copies of 49 characters. A model of {record['parameters'] / 1e6:.1f} M parameters, {record['batch']} texts "
        f'of {record["tokens"]} tokens; "added": within a round. {machine["cpu"]}, commit {machine["commit"]}.\n\n'
        + markdown(("generation", "CPU µs a token", "range"), rows)
    )


def _all_leaks(*records: dict[str, Any]) -> str:
    named = zip(CORPORA, records, strict=True)
    return "\n".join(f"**{name}**\n\n{_leak_table(record)}" for name, record in named)


def _all_classes(*records: dict[str, Any]) -> str:
    named = zip(LABELLED, records, strict=True)
    return "\n".join(f"**{name}**\n\n{_classes(record)}" for name, record in named)


def _training(record: dict[str, Any]) -> str:
    parts = [training.tables(kind, found) for kind, found in record["models"].items()]
    return f"{machine_line(record)}\n\n" + "\n".join(parts)


def _scoring(record: dict[str, Any]) -> str:
    rows = [(way, f"{speed['median']:,.0f}") for way, speed in record["tokens_per_second"].items()]
    rows += [(f"{goal['what']} (P12)", f"{goal['value']['median']:.2f}") for goal in record["goals"]]
    return (
        f"{record['texts']:,} texts, {record['tokens']:,} tokens, {record['precision']} on "
        f"{record['device']}; tokens per second, median of {record['goals'][0]['value']['n']}. "
        f"{machine_line(record)}\n\n" + markdown(("way", "tokens/s, or ratio"), rows)
    )


def _tagging(record: dict[str, Any]) -> str:
    rows = [
        (way, f"{speed['median']:.2f}", f"{speed['low']:.2f} to {speed['high']:.2f}")
        for way, speed in record["mb_per_second"].items()
    ]
    return (
        f"{record['model']['reports']:,} reports, {record['characters']:,} characters, of which both mark "
        f"{record['agreement']:.2%} alike; windows of 512 tokens, bfloat16. {machine_line(record)}\n\n"
        + markdown(("way", "MB/s, median", f"range of {len(record['seconds']['detector transformers'])}"), rows)
    )


def _dp(record: dict[str, Any]) -> str:
    return (
        f"{record['individuals']} individuals, {len(record['seeds'])} seeds: median, "
        f"minimum to maximum. {machine_line(record)}\n\n" + dp_baseline.table(record)
    )


def _private_recipe(record: dict[str, Any]) -> str:
    parts = [machine_line(record)]
    for name, cell in record["cells"].items():
        rows = cell["rows"]
        parts.append(
            f"{name}: {rows[0]['members']:,} members and {rows[0]['others']:,} individuals held out in the attacks; "
            f"plain and protected models of epoch {cell['plain_epoch']}, and plain gains {rows[0]['gain']:.2f} nats a "
            f"token.\n\n{private_recipe.table(rows)}"
        )
    return "\n\n".join(parts)


def _foundation(record: dict[str, Any]) -> str:
    people = record["individuals"]
    seconds = ", ".join(f"{name} {value:,.0f}" for name, value in record["seconds_per_stage"].items() if value >= 60)
    return (
        f"{people['members']} members, {people['heldout']} held-out individuals; "
        f"{record['cut']}. {machine_line(record)}\n\n{foundation_models.table(record)}\n"
        f"{attack_table(record['attacks'])}\nDuration of the longest stages in seconds: {seconds}.\n"
    )


def _egress(record: dict[str, Any]) -> str:
    return f"{machine_line(record)}\n\n{egress.tables(record)}"


def _attacks(record: dict[str, Any]) -> str:
    people = record["individuals"]
    epochs = ", ".join(f"{name} {number}" for name, number in record["epochs"].items())
    return (
        f"{people['members']} members, {people['heldout']} "
        f"held-out individuals; {record['cut']}; epochs: {epochs}; {record['num_shadows']} shadow models. "
        f"{machine_line(record)}\n\n" + attack_table(record["rows"])
    )


def _inversion(record: dict[str, Any]) -> str:
    people = record["num_individuals"]
    return (
        f"{people['members']} members, {people['heldout']} held-out individuals; "
        f"{record['settings']['decoys']} decoys. {machine_line(record)}\n\n" + inversion.table(record)
    )


def _canaries(record: dict[str, Any]) -> str:
    return (
        f"{record['people']} people, half of them trained on; {record['canaries']} canaries, likewise. The regime was "
        f"taken from the pilot: {record['pilot']['rule']}. Copies and layers: on the first fresh seed alone. "
        f"{machine_line(record)}\n\n" + canary_lab.table(record)
    )


def _learned(record: dict[str, Any]) -> str:
    return f"{machine_line(record)}\n\n" + learned_tables(record)


def _taggers(record: dict[str, Any]) -> str:
    rows = [taggers.cells(row) for row in record["rows"]]
    return f"{machine_line(record)}\n\n" + markdown(taggers.HEADS, rows)


def _experiment(record: dict[str, Any]) -> str:
    epochs = sorted({row["epoch"] for row in record["rows"] if row["epoch"]})
    shown = []
    for recipe in dict.fromkeys(row["recipe"] for row in record["rows"]):
        of = {row["epoch"]: row for row in record["rows"] if row["recipe"] == recipe}
        last = of[max(of)]
        cells = [of.get(epoch) or (of.get(0) if epoch == epochs[0] else None) for epoch in epochs]
        shown.append(
            [
                recipe,
                *(f"{c['utility']['value']:.2f} / {c['privacy']['value']:.3f}" if c else "-" for c in cells),
                estimate_text(last["privacy"], 3),
                estimate_text(last["loss_auc"], 2),
            ]
        )
    heads = ["utility / Privacy", *(f"{epoch} epochs" for epoch in epochs), "Privacy at the end", "AUC of the loss"]
    people, num_seeds = record["individuals"], len(record["seeds"])
    seeds = "one seed" if num_seeds == 1 else f"means over {num_seeds} seeds"
    return (
        f"Generated hospital, {people['members']} members, {people['heldout']} "
        f"held-out individuals, {record['documents']:,} documents; {seeds}. Utility: "
        "share of ordinary words of held-out individuals predicted right; Privacy: share of the members' identifiers "
        f"that are predicted nowhere. {machine_line(record)}\n\n" + markdown(heads, shown)
    )


def warehouse_tables(record: Record) -> str:
    """Return the tables."""
    readers = [(name, *_timed(own), megabytes(own["memory_bytes"])) for name, own in record["readers"].items()]
    staging = [
        (name, *_timed(own), megabytes(own["peak_bytes"]), f"{own['texts_fetched']:,}")
        for name, own in record["staging"].items()
    ]
    corpora = [(name, f"{own['rows']:,}", f"{own['text_bytes'] / 1e6:.1f}") for name, own in record["corpora"].items()]
    return (
        f"{machine_line(record)}\n\n{record['hospital']['rows']:,} notes of a generated hospital, as OMOP.\n\n"
        + markdown(("reader", "MB/s", "CPU seconds", "MB of memory beyond the start"), readers)
        + "\n"
        + markdown(("staging", "MB/s", "CPU seconds", "peak, MB", "texts moved"), staging)
        + "\nCorpora whose index from the database is that of their files, byte for byte:\n\n"
        + markdown(("corpus", "notes", "MB"), corpora)
    )


def _timed(own: Record) -> tuple[str, str]:
    return estimate_text(own["mb_per_second"], 0), f"{own['cpu_seconds']['median']:.2f}"


def spark_tables(record: Record) -> str:
    """Return the tables."""
    rows = [
        (
            f"{row['corpus']}, {row['notes']:,} notes, {row['text_bytes'] / 1e6:,.1f} MB",
            way,
            *(
                f"{own[f'{kind}_cpu_seconds']:,.1f}" if f"{kind}_cpu_seconds" in own else "-"
                for kind in ("python", "jvm")
            ),
            f"{own['shuffled_bytes'] / 1e6:,.1f}" if "shuffled_bytes" in own else "-",
        )
        for row in record["corpora"]
        for way, own in row["ways"].items()
    ]
    names = list(record["exponents"])
    measured = [name for name in GROWING if name in record["exponents"][names[0]]]
    slopes = [(name, *(f"{record['exponents'][own][name]:.2f}" for own in names)) for name in measured]
    return (
        f"{machine_line(record)}\n\n"
        + markdown(("corpus", "way", "CPU s, Python and core", "CPU s, JVM", "MB shuffled"), rows)
        + "\nExponents: each quantity grows as the number of words to this power.\n\n"
        + markdown(("quantity", *names), slopes)
        + "\n"
        + "\n".join(
            markdown((f"{found['notes']:,} notes as large as the hospital's, not from a run", ""), _larger(found))
            for found in record["larger"]
        )
    )


def _larger(found: Record) -> list[tuple[str, str]]:
    return [
        ("text", f"{found['text_bytes'] / TB:,.1f} TB"),
        ("text that is shuffled, once", f"{found['shuffled_bytes_of_text'] / TB:,.1f} TB"),
        ("tables that are shuffled", f"{ends_text([end / TB for end in found['shuffled_bytes_of_tables']])} TB"),
        *(
            (f"rows of parts that are grouped, n = {n}", f"{ends_text([end / 1e9 for end in own])} thousand million")
            for n, own in found.get("rows_of_parts", {}).items()
        ),
        ("processors", f"{ends_text(found['core_hours'], 0)} core-hours"),
        ("nodes of 16 cores", f"{ends_text(found['node_hours_of_16_cores'], 0)} node-hours"),
        ("price, at 0.05 a core-hour", ends_text(found["price"], 0)),
        ("the same by `explode`, n to 2", f"{found['core_hours_of_explode']:,.0f} core-hours"),
        (
            "its shuffle",
            f"{ends_text([end / TB for end in found['shuffled_bytes_of_explode']])} TB",
        ),
        ("the core alone, on one machine", f"{found['core_hours_of_one_machine']:,.0f} core-hours"),
    ]


CORPORA = ("mtsamples", "tab", "meddocan")
LABELLED = ("mtsamples", "mts_dialog")
#: Page -> its table, from the page's records.
TABLES: Mapping[str, Callable[..., str]] = {
    "demo": _demo,
    "identifiers": _identifiers,
    "leaks": _all_leaks,
    "engine": _engine,
    "protection": lambda record: f"{machine_line(record)}\n\n{protection_table(record)}",
    "large": _large,
    "kernels": _kernels,
    "kill": _kill,
    "detection": detection_tables,
    "learned": _learned,
    "detection-speed": speed_tables,
    "sampled-recall": sampled_recall_tables,
    "spark": spark_tables,
    "warehouse": warehouse_tables,
    "duplicates": _dedup,
    "formats": _formats,
    "scrub": _scrub,
    "guard": _guard,
    "escapes": escape_tables,
    "classification": _all_classes,
    "experiment": _experiment,
    "training": _training,
    "dp-sgd": _dp,
    "private-recipe": _private_recipe,
    "foundation-models": _foundation,
    "attacks": _attacks,
    "egress": _egress,
    "inversion": _inversion,
    "canaries": _canaries,
    "probes": probes.probe_tables,
    "taggers": _taggers,
    "scoring": _scoring,
    "tagging-speed": _tagging,
}
