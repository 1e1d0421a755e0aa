"""A textbook's section on attacks and differential privacy: its canary lab, its exercises, its accountant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reticent.trainer.privacy import epsilon_of
from studies.canary_lab import DRAWS, FALSE_ALARMS, run
from studies.reproduction.chart import Panel, bars_of, draw, line_of
from studies.reproduction.rows import Anchor, Measured, Ours, Part, Row, over

ABOUT = (
    "It tells a reader what to expect and shows no data. Its lab is run here with 150 people trained on, of whom about "
    "30 are canaries (there 1,000 texts and 50), with models that a CPU can train; GPT-2 is not at hand. Figures "
    "50.1.1 and 50.1.2a are schemes."
)
Anchors = Mapping[str, Anchor]


def make_accountant(size: str, folder: Path) -> dict[str, Any]:
    """Epsilon of our accountant for the steps and the noise of the textbook's example, and for twice of each."""
    # 32 of 10,000 texts a step, three epochs; the textbook does not say how many texts it has.
    rate, steps, noise, delta = 0.0032, 940, 0.8712, 1e-5
    return {
        "rows": [
            {"steps": times * steps, "noise": by * noise, "epsilon": epsilon_of(rate, by * noise, times * steps, delta)}
            for times, by in ((1, 1), (2, 1), (1, 2))
        ]
    }


# -------------------------------------------------------------------------------------------------------------- ours


def _ways(evidence: Measured) -> dict[str, Measured]:
    return {row["way"]: row for row in evidence["rows"]}


def _by_end(evidence: Measured, prefix: str, name: str, ends: Sequence[str], side: str = "") -> Ours:
    """A number of each way of training by the end of its anchor's key; None of a way that was not trained."""
    rows = {end: _ways(evidence).get(_way_of(f".{end}")) for end in ends}
    return {f"{prefix}.{end}": (row[name][side] if side else row[name]) if row else None for end, row in rows.items()}


def _rise(evidence: Measured, epsilon: int) -> Measured | None:
    """By how much the held-out perplexity is above that without DP."""
    found = _by_end(evidence, "p", "perplexity", ("none", str(epsilon)))
    return over(found[f"p.{epsilon}"], found["p.none"], 1.0)


def lab(evidence: Measured) -> Ours:
    return {**_by_end(evidence, "back", "greedy", ("none", "8"), "in"), "rise.8": _rise(evidence, 8)}


def exercise1(evidence: Measured) -> Ours:
    return {**_by_end(evidence, "auc", "membership_auc", ("none", "8")), "rise.8": _rise(evidence, 8)}


def exercise2(evidence: Measured) -> Ours:
    below = _by_end(evidence, "below", "below_threshold", ("none", "8", "4"), "in")
    return {**below, "rise.8": _rise(evidence, 8), "rise.4": _rise(evidence, 4)}


def membership(evidence: Measured) -> Ours:
    return _by_end(evidence, "auc", "membership_auc", ("none",))


def copies(evidence: Measured) -> Ours:
    return {f"copies.{row['copies']}": row["greedy"] for row in evidence["curve"]}


def scenario(evidence: Measured) -> Ours:
    return _by_end(evidence, "perplexity", "perplexity", ("8", "1"))


def accountant(evidence: Measured) -> Ours:
    own, steps, noise = (row["epsilon"] for row in evidence["rows"])

    def exact(value: float) -> Measured:
        return {"value": value, "low": value, "high": value}

    return {"steps.twice": exact(steps / own), "noise.twice": exact(noise / own)}


def drop(evidence: Measured) -> Ours:
    """Accuracy without DP less that of tuned DP-SGD: medians over seeds, and the far ends of their ranges."""
    ways = evidence["ways"]
    plain, private = (ways[name]["accuracy"] for name in ("no privacy", "tuned DP: large batch, LoRA"))
    ends = {"low": plain["low"] - private["high"], "high": plain["high"] - private["low"]}
    return {"drop": {"value": plain["median"] - private["median"], **ends, "n": plain["n"], "unit": "seeds"}}


# ---------------------------------------------------------------------------------------------------------- pictures


def _by_way(evidence: Measured, name: str, title: str, axis: str, keys: tuple[str, ...], anchors: Anchors) -> Panel:
    """Bars by way of training of members and of what was left out; published numbers by their key."""
    rows = list(evidence["rows"])
    sides = {"trained on": "in", "left out": "out"} if name in ("greedy", "below_threshold", "drawn") else {"": None}
    places = [row["way"] for row in rows]
    bars = [
        bars_of(side or "ours", [row[name][key] if key else row[name] for row in rows]) for side, key in sides.items()
    ]
    published = [
        (float(places.index(way)), anchors[key].value or 0.0)
        for key in keys
        if key in anchors and (way := _way_of(key)) in places
    ]
    return Panel(title, "", axis, bars=bars, categories=places, published=published)


def _way_of(key: str) -> str:
    """The way of training of an anchor's key: ``back.8`` is ``epsilon-8``."""
    end = key.rpartition(".")[2]
    return "none" if end == "none" else f"epsilon-{end}"


def draw_lab(evidence: Measured, anchors: Anchors) -> str:
    """Canaries given back and the perplexity beside them, by way of training; and every regime of the pilot."""
    panels = [
        _by_way(evidence, "greedy", "Given back", "share of canaries", ("back.none", "back.8"), anchors),
        _by_way(evidence, "perplexity", "Held-out people", "perplexity", (), anchors),
        _pilot(evidence),
    ]
    return draw(panels, "Canaries given back and perplexity, by epsilon, and all regimes of the pilot")


def _pilot(evidence: Measured) -> Panel:
    """What every regime gives back, against the copies times epochs that a canary was read."""
    lines: dict[str, dict[float, Measured]] = {}
    for row in evidence["pilot"]["regimes"]:
        name = f"hidden {row['hidden']}, {row['copies']} copies"
        lines.setdefault(name, {})[row["copies"] * row["epochs"]] = row["greedy"]
    drawn = [line_of(name, dict(sorted(points.items()))) for name, points in lines.items()]
    return Panel("Pilot seed, without DP", "times that a canary was read", "share given back", lines=drawn,
                 log_x=True)  # fmt: skip


def draw_exercise1(evidence: Measured, anchors: Anchors) -> str:
    """AUC of the loss attack by way of training."""
    panel = _by_way(evidence, "membership_auc", "Loss attack", "AUC", ("auc.none", "auc.8"), anchors)
    return draw([panel], "AUC of the loss attack by epsilon")


def draw_exercise2(evidence: Measured, anchors: Anchors) -> str:
    """Canaries under the threshold of perplexity, and given back within some draws, by way of training."""
    keys = ("below.none", "below.8", "below.4")
    panels = [
        _by_way(evidence, "below_threshold", "Under the threshold", "share of canaries", keys, anchors),
        _by_way(evidence, "drawn", f"Within {DRAWS} draws", "chance, mean over canaries", (), anchors),
    ]
    return draw(panels, "Canaries under a threshold of perplexity, by epsilon")


def draw_copies(evidence: Measured, _: Anchors) -> str:
    """What is given back by the copies of a canary, greedy and within some draws."""
    lines = [
        line_of(name, {row["copies"]: row[how] for row in evidence["curve"]})
        for name, how in (("greedy", "greedy"), (f"within {DRAWS} draws", "drawn"))
    ]
    counts = [float(row["copies"]) for row in evidence["curve"]]
    panel = Panel("Copies of a canary", "copies", "share given back", lines=lines, ticks_x=counts, log_x=True)
    return draw([panel], "Canaries given back by their copies")


def draw_sweep(evidence: Measured, _: Anchors) -> str:
    """Perplexity and canaries against epsilon."""
    rows = {float(way.partition("-")[2]): row for way, row in _ways(evidence).items() if way.startswith("epsilon-")}
    rows = dict(sorted(rows.items()))
    ticks = list(rows)
    panels = [
        Panel(title, "epsilon", axis, lines=[line_of("ours", found)], log_x=True, ticks_x=ticks)
        for title, axis, found in (
            ("Utility", "perplexity, held out", {epsilon: row["perplexity"] for epsilon, row in rows.items()}),
            ("Canaries", "share given back", {epsilon: row["greedy"]["in"] for epsilon, row in rows.items()}),
        )
    ]
    return draw(panels, "Perplexity and canaries by epsilon")


def draw_layers(evidence: Measured, _: Anchors) -> str:
    """Canaries that get out, and perplexity, behind no layer, each alone and all."""
    rows = evidence["layers"]
    panels = [
        Panel(
            title, "", axis, categories=[row["layers"] for row in rows],
            bars=[bars_of("ours", [row[name] for row in rows])]
        )
        for title, axis, name in (
            ("Canaries that get out", "share of canaries", "given_back"), ("Utility", "perplexity", "perplexity")
        )
    ]  # fmt: skip
    return draw(panels, "Canaries that get out behind each layer of defence")


# -------------------------------------------------------------------------------------------------------------- rows

LAB, ACCOUNTANT, BASELINE = "s2-lab", "s2-accountant", "s2-baseline"
PARTS = (
    Part(
        name=LAB,
        make=run,
        on="a sentence each of 240 generated people, and 60 canaries; half trained on; GPT-2 of two layers",
        minutes={"toy": 1, "cpu": 60},
        record="canary_lab",
    ),
    Part(
        name=ACCOUNTANT,
        make=make_accountant,
        on="940 steps of 32 out of 10,000, noise .8712, delta 1e-5, by the PRV accountant",
        minutes={"toy": 0.1, "cpu": 0.1, "base": 0.1},
    ),
    Part(
        name=BASELINE,
        on="generated French notes of 400 people, a small GPT-2 that was pre-trained on English ones",
        record="dp_baseline",
    ),
)
ROWS = (
    Row(
        source=2, place="Lab", title="canaries given back, without DP and at each epsilon", part=LAB, ours=lab,
        figure=draw_lab,
        how="greedy decoding behind `Patient record 7: SSN`, of canaries that were trained on and of as many left out; "
        "the regime was taken on a pilot seed by a rule written down before, and measured on others",
        note="*No noise* takes the steps and the clipping of DP-SGD without its noise: what it does not give back is "
        "owed to these and not to the noise."
    ),
    Row(
        source=2, place="Exercise 1", title="membership by the loss", part=LAB, ours=exercise1, figure=draw_exercise1,
        how="the loss attack over 150 people that were trained on and 150 that were not, the models of the lab"
    ),
    Row(
        source=2, place="Exercise 2", title="canaries under a threshold of perplexity", part=LAB, ours=exercise2,
        figure=draw_exercise2,
        how="perplexity of the secret behind its prefix (`reticent score`); the threshold lets "
        f"{FALSE_ALARMS:.0%} of the canaries pass that were left out",
        note="The textbook names no threshold. All fine-tunings of one regime, not of 5 epochs of GPT-2."
    ),
    Row(
        source=2, place="§50.1.1", title="repeated sequences are given back more often", part=LAB, ours=copies,
        figure=draw_copies, how="unprotected trainings that differ in the copies of each canary alone"
    ),
    Row(
        source=2, place="§50.1.2", title="membership inference against fine-tuned models", part=LAB, ours=membership,
        how="as Exercise 1",
        note="The .60 to .75 of a threshold at the shadow models' median, and the .55 to .65 of pre-trained models, "
        "name no data that could be had."
    ),
    Row(
        source=2, place="Accountant", title="what twice the steps and twice the noise do to epsilon", part=ACCOUNTANT,
        ours=accountant, how="epsilon of our accountant for both",
        note="The textbook's formula is an asymptotic bound; PRV and RDP are not linear in it at this noise. Its "
        "printed run (sigma .8712, epsilon 3.14, 5.47, 7.89 after three epochs) does not say how many texts it had."
    ),
    Row(
        source=2, place="Scenario", title="utility and canaries over a sweep of epsilon", part=LAB, ours=scenario,
        figure=draw_sweep, how="the models of the lab; others than 8 on the first seed alone",
        note="There accuracy on SST-2 (92, 88 and 82 %) with DistilBERT, which is not at hand; here perplexity."
    ),
    Row(
        source=2, place="Exercise 5", title="accuracy that DP-SGD costs", part=BASELINE, ours=drop,
        how="accuracy of the next token on people who were never seen, without DP and with tuned DP-SGD at epsilon 8"
    ),
    Row(
        source=2, place="Fragment 50.1.2", title="one switch for all layers of defence", part=LAB, figure=draw_layers,
        how="scrubbing by our rules, exact duplicates of a person, sequences of fewer than 3 people never a target, "
        "DP-SGD at epsilon 8, and a guard over what is written: none, each alone, all",
        note="It has no number to compare. The [page of the lab](canaries.md) has what each layer did, and says of "
        "each that is off that it is off."
    ),
    Row(
        source=2, place="Exercise 4", title="prefixes that a model of 7 billion continues from its training text",
        cannot="a model of 7 billion weights, trained on two trillion tokens, is not at hand"
    ),
)  # fmt: skip
