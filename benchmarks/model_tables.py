"""Records of trained and attacked models -> tables: training, privacy, foundation models, attacks, probes."""

from __future__ import annotations

from typing import Any

from benchmarks import canary_lab, dp_baseline, experiment, foundation_models, inversion, probes, taggers, training
from benchmarks.attacks import attack_table
from benchmarks.record_io import machine_line, markdown

__all__ = ["MODEL_TABLES"]


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


def _foundation(record: dict[str, Any]) -> str:
    people = record["individuals"]
    seconds = ", ".join(f"{name} {value:,.0f}" for name, value in record["seconds_per_stage"].items() if value >= 60)
    return (
        f"{people['members']} members, {people['heldout']} held-out individuals; "
        f"{record['cut']}. {machine_line(record)}\n\n{foundation_models.table(record)}\n"
        f"{attack_table(record['attacks'])}\nDuration of the longest stages in seconds: {seconds}.\n"
    )


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
    people = record["individuals"]
    return (
        f"{people['members']} members, each canary {record['repetitions']} times, {record['epochs']} "
        f"epochs. {machine_line(record)}\n\n" + canary_lab.table(record["rows"])
    )


def _taggers(record: dict[str, Any]) -> str:
    rows = [taggers.cells(row) for row in record["rows"]]
    return f"{machine_line(record)}\n\n" + markdown(taggers.HEADS, rows)


def _experiment(record: dict[str, Any]) -> str:
    people, num_seeds = record["individuals"], len(record["seeds"])
    seeds = "one seed" if num_seeds == 1 else f"means over {num_seeds} seeds"
    return (
        f"Generated hospital, {people['members']} members, {people['heldout']} "
        f"held-out individuals, {record['documents']:,} documents; {seeds}. Utility: "
        "share of ordinary words of held-out individuals predicted right; Privacy: share of the members' identifiers "
        f"that are predicted nowhere. {machine_line(record)}\n\n" + experiment.table(record)
    )


#: Page -> its table.
MODEL_TABLES = {
    "experiment": _experiment,
    "training": _training,
    "dp-sgd": _dp,
    "foundation-models": _foundation,
    "attacks": _attacks,
    "inversion": _inversion,
    "canaries": _canaries,
    "probes": probes.probe_tables,
    "taggers": _taggers,
    "scoring": _scoring,
    "tagging-speed": _tagging,
}
