"""The verdict: gates whose thresholds were fixed in the job, judged by the upper ends of intervals.

A gate *passes* where the upper end is within its threshold and an attack that should succeed did. It *fails* where the
estimate itself is beyond. Else there is *no power*: too few people, an interval too wide, no control that shows that
the attack can find anything, or an attack that the rules of :mod:`reticent.audit.membership.validity` call invalid.
No power never reads as safety.

The upper end of a two-sided 95 % interval is a one-sided bound of 97.5 %, that of a zero one of 95 %: a pass holds at
95 % at least.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reticent.audit.membership.validity import CHANCE, INVALID

__all__ = ["FAIL", "NO_POWER", "PASS", "PLAIN", "failed", "judge", "verdict", "verdict_lines"]

PASS, FAIL, NO_POWER = "pass", "fail", "no power"
#: Recipes that protect nothing: the positive control of every attack.
PLAIN = ("mlm", "clm")
FPR = "0.01"
#: What each measure would be if nothing had leaked; a control must be above it.
NOTHING = {"membership_auc": CHANCE, "membership_tpr": float(FPR)}
TITLES = {
    "excess_leakage": "excess leakage",
    "membership_auc": "membership AUC",
    "membership_tpr": "membership TPR at 1 % FPR",
    "extraction": "extraction rate",
    "np_extraction": "(n, p)-extraction rate",
    "exposure": "canary exposure in bits",
    "epsilon": "empirical epsilon of all that carries one canary",
}
#: Of a lower bound on epsilon: why it passes, and why it could not.
LOWER_BOUND = "more was not shown, though the coins could have shown it; from above nothing is bounded"
TOO_FEW_COINS = "so few coins could not have shown more"


@dataclass(frozen=True, slots=True)
class _Measured:
    """One number to judge, whether an attack that should succeed did, its name, why the attack says nothing, and people
    on the smaller side where two are compared."""

    estimate: Mapping[str, Any] | None
    control: bool | None
    about: dict[str, Any]
    invalid: str | None = None
    fewest: int | None = None


def judge(
    estimate: Mapping[str, Any] | None, at_most: float, control: bool | None, *, small_cell: int = 5
) -> tuple[str, str]:
    """Return the outcome of one gate, and why.

    Parameters
    ----------
    estimate : {"value", "high", "n", …} or None, where the attack gave no number
    control : whether an attack that should succeed did; None where none was made

    >>> judge({"value": 0.0, "high": 0.00997, "n": 299}, 0.01, True)
    ('pass', 'the upper bound is within the threshold')
    >>> judge({"value": 0.0, "high": 0.0495, "n": 59}, 0.01, True)
    ('no power', 'the interval is too wide: its upper end is beyond the threshold')
    """
    if estimate is None or estimate["value"] is None:
        return NO_POWER, "too few to give the number at all"
    if estimate["n"] < small_cell:
        return NO_POWER, f"fewer than {small_cell}"
    if estimate["value"] > at_most:
        return FAIL, "the estimate is beyond the threshold"
    if control is None:
        return NO_POWER, "no control: nothing unprotected was attacked that shows that the attack can succeed"
    if not control:
        return NO_POWER, "the attack finds nothing in the control either"
    if estimate["high"] is None or estimate["high"] > at_most:
        return NO_POWER, "the interval is too wide: its upper end is beyond the threshold"
    return PASS, "the upper bound is within the threshold"


def verdict(evidence: Mapping[str, Any], gates: Sequence[Mapping[str, Any]], *, small_cell: int = 5) -> dict[str, Any]:
    """Judge every gate on the last checkpoint of each training it is for.

    Parameters
    ----------
    evidence : the audit (report.json's structure, before publication)
    gates : as in the job

    Returns
    -------
    dict
        "outcome", the worst of all; "failed", whether a gate failed or one that is required had no power; "results", a
        row for each gate and number that it is about. A gate that is about nothing has no power.
    """
    results = []
    for number, gate in enumerate(gates, start=1):
        rows = list(_results(evidence, gate, small_cell))
        rows = rows or [{"outcome": NO_POWER, "reason": "no model of this job is measured so", "n": 0, "upper": None}]
        about = {"gate": number, "measure": gate["measure"], "at_most": gate["at_most"], "required": gate["required"]}
        results += [{**about, **row} for row in rows]
    outcomes = {row["outcome"] for row in results}
    worst = next((name for name in (FAIL, NO_POWER, PASS) if name in outcomes), None)
    return {"outcome": worst, "failed": any(map(failed, results)), "results": results}


def failed(row: Mapping[str, Any]) -> bool:
    """Whether a row of the results fails the run."""
    return bool(row["outcome"] == FAIL or (row["required"] and row["outcome"] == NO_POWER))


def verdict_lines(found: Mapping[str, Any]) -> list[str]:
    """Say each result in a line."""
    lines = []
    for row in found["results"]:
        whose = " of ".join(str(row[key]) for key in ("recipe", "model") if row.get(key))
        what = " ".join(str(row[key]) for key in ("attack", "arm", "part") if row.get(key))
        upper = "" if row["upper"] is None else f", upper bound {row['upper']:.3g}"
        if row.get("at_least") is not None:
            upper = f", at least {row['at_least']:.3g}"
        line = f"{row['outcome']}: {TITLES[row['measure']]}{f' ({what})' if what else ''} at most {row['at_most']:g}"
        seed = "" if row.get("seed") is None else f", seed {row['seed']}"
        lines.append(f"{line}{f' - {whose}' if whose else ''}{seed}{upper}, n = {row['n']:,}: {row['reason']}")
    return lines


def _results(evidence: Mapping[str, Any], gate: Mapping[str, Any], small_cell: int) -> Iterator[dict[str, Any]]:
    last = _last(evidence["models"])
    canaries = _last((evidence.get("extraction") or {}).get("models", []))
    wanted = gate["recipes"]
    for key, model in last.items():
        name, recipe, seed = key
        if recipe == "base" or (recipe not in wanted if wanted else recipe in PLAIN):
            continue
        twin = next((other for other in last if other[0] == name and other[1] in PLAIN and other[2] == seed), None)
        plain = None if twin is None else (last[twin], canaries.get(twin))
        rows = list(_measured(gate, (model, canaries.get(key)), plain))
        if not rows and (
            wanted or any(gate["attack"] in other["membership"] for k, other in last.items() if k[0] == name)
        ):
            # Named, or attacked beside it: silence would read as a pass.
            yield {
                "model": name,
                "recipe": recipe,
                "seed": seed,
                "epoch": model["epoch"],
                "n": 0,
                "upper": None,
                **({"attack": gate["attack"]} if gate["attack"] else {}),
                "outcome": NO_POWER,
                "reason": "this model is not measured so",
            }
        for found in rows:
            outcome, reason = judge(found.estimate, gate["at_most"], found.control, small_cell=small_cell)
            if outcome == PASS and found.invalid:
                outcome, reason = NO_POWER, f"the attack is invalid: {found.invalid}"
            elif outcome == FAIL and found.invalid:
                reason += f", by an attack that is invalid: {found.invalid}"
            estimate = found.estimate or {"n": 0, "high": None}
            if found.fewest is not None and found.fewest < small_cell:  # n counts both sides
                outcome, reason = NO_POWER, f"fewer than {small_cell} on one side"
                estimate = {"n": found.fewest, "high": None}
            bound: dict[str, Any] = {"upper": estimate["high"]}
            if gate["measure"] == "epsilon":  # it is bounded from below only
                bound = {"upper": None, "at_least": estimate["high"]}
                few = outcome == NO_POWER and found.control is False
                reason = LOWER_BOUND if outcome == PASS else TOO_FEW_COINS if few else reason
            yield {
                "model": name,
                "recipe": recipe,
                "seed": seed,
                "epoch": model["epoch"],
                **found.about,
                **bound,
                "outcome": outcome,
                "reason": reason,
                "n": estimate["n"],
                "unit": estimate.get("unit", "individuals"),
            }


def _last(models: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, str, Any], Mapping[str, Any]]:
    """The entry of the highest epoch of each training."""
    last: dict[tuple[Any, str, Any], Mapping[str, Any]] = {}
    for model in models:
        key = (model.get("model"), model["recipe"], model.get("seed"))
        if key not in last or model["epoch"] > last[key]["epoch"]:
            last[key] = model
    return last


Pair = tuple[Mapping[str, Any], Mapping[str, Any] | None]


def _measured(gate: Mapping[str, Any], own: Pair, plain: Pair | None) -> Iterator[_Measured]:
    measure = gate["measure"]
    if measure == "epsilon":
        yield from _epsilon(gate, own)
    elif measure == "exposure":
        estimate = _of_arm(own, gate["arm"], "exposure", "included")
        # Nothing protects the missed arm of the same model; where there is none, the same arm of the plain twin.
        control = _of_arm(own, "missed", "excess_exposure") or (
            plain and _of_arm(plain, gate["arm"], "excess_exposure")
        )
        yield _Measured(estimate, _above(control, 0.0), {"arm": gate["arm"]})
    else:
        for about, estimate, _ in _estimates(gate, own):
            twins = [] if plain is None else list(_estimates(gate, plain))
            control = next((shows for other, _, shows in twins if other == about), None)
            attack = own[0]["membership"].get(about.get("attack"), {})
            invalid = attack["why"] if attack.get("verdict") == INVALID else None
            yield _Measured(estimate, control, about, invalid, _fewest(gate, own[0], attack))


def _estimates(gate: Mapping[str, Any], pair: Pair) -> Iterator[tuple[dict[str, Any], Any, bool | None]]:
    """What a gate is about, the estimate, and whether it shows a leak."""
    measure, (model, asked) = gate["measure"], pair
    if measure == "excess_leakage":
        estimate = (model["excess"].get(gate["part"]) or {}).get("excess")
        yield {"part": gate["part"]}, estimate, _above(estimate, 0.0)
    elif measure.startswith("membership"):
        for name, found in model["membership"].items():
            if gate["attack"] in (None, name):
                estimate = found["auc"] if measure == "membership_auc" else found["tpr_at_fpr"].get(FPR)
                yield {"attack": name}, estimate, _above(estimate, NOTHING[measure])
    elif asked and asked.get("passages"):
        names = ("np_discoverable",) if measure == "np_extraction" else ("k_extractable", "discoverable")
        rows = [r for r in asked["passages"]["rates"] if r["measure"] in names and r["asked"] == "all"]
        if rows:  # the adversary who knows or asks most
            row = max(rows, key=lambda r: (r["prefix_tokens"], r["num_queries"] or 0))
            about = {"prefix_tokens": row["prefix_tokens"], "num_queries": row["num_queries"]}
            yield about, row["members"], _above(row["excess"], 0.0)


def _fewest(gate: Mapping[str, Any], model: Mapping[str, Any], attack: Mapping[str, Any]) -> int | None:
    """People on the smaller of the two sides that a number compares; None where it does not."""
    if gate["measure"] == "excess_leakage":
        part = model["excess"].get(gate["part"]) or {}
        sides = [part[side]["n"] for side in ("members", "heldout") if side in part]
    else:
        sides = [attack[side] for side in ("num_members", "num_nonmembers") if side in attack]
    return min(sides, default=None)


def _epsilon(gate: Mapping[str, Any], own: Pair) -> Iterator[_Measured]:
    """A lower bound: it can show a failure; it passes only where it could have shown one."""
    found = _of_arm(own, gate["arm"], "one_run")
    estimate = None
    if found and found["at_least"] is not None:
        bound = found["at_least"]
        estimate = {"value": bound, "high": bound, "n": found["num_guesses"], "unit": "guesses"}
    yield _Measured(estimate, None if not found else (found["most"] or 0) > gate["at_most"], {"arm": gate["arm"]})


def _of_arm(pair: Pair, arm: str, *path: str) -> Any:
    found: Any = ((pair[1] or {}).get("canaries") or {}).get("arms", {}).get(arm)
    for key in path:
        found = None if found is None else found.get(key)
    return found


def _above(estimate: Mapping[str, Any] | None, nothing: float) -> bool | None:
    """Whether an interval lies above what there would be if nothing had leaked; None without an interval."""
    if estimate is None or estimate["value"] is None or estimate["low"] is None:
        return None
    return bool(estimate["low"] > nothing)
