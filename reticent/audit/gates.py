"""The verdict: gates whose thresholds were fixed in the job, judged by the upper ends of intervals.

A gate *passes* where the upper end is within its threshold and an attack that should succeed did. It *fails* where the
estimate itself is beyond. Else there is *no power*: too few individuals, an interval too wide, no control that shows
that the attack can find anything, or an attack that the rules of :mod:`reticent.audit.membership.validity` call
invalid. No power never reads as safety.

The upper end of a two-sided 95 % interval is a one-sided bound of 97.5 %, that of a zero one of 95 %: a pass holds at
95 % at least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from reticent.audit.membership.validity import CHANCE, INVALID

__all__ = ["FAIL", "GATES", "NO_POWER", "PASS", "PLAIN", "Gate", "failed", "judge", "verdict", "verdict_lines"]

PASS, FAIL, NO_POWER = "pass", "fail", "no power"
#: Recipes that protect nothing: the positive control of every attack.
PLAIN = ("mlm", "clm")
#: Excess leakage and excess exposure where nothing was learned.
NO_EXCESS = 0.0
#: The false-positive rate of the gate ``membership_tpr``, as the evidence names it.
FPR = "0.01"
#: Of a lower bound on epsilon: why it passes, and why it could not.
LOWER_BOUND = "more was not shown, though the guesses could have shown it; from above nothing is bounded"
TOO_FEW_GUESSES = "so few guesses could not have shown more"


#: A gate as in the job.
Settings = Mapping[str, Any]
#: A model's entry of the audit, and its entry of extraction and canaries.
Pair = tuple[Mapping[str, Any], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class _Measured:
    """One number to judge, whether an attack that should succeed did, its name, why the attack says nothing, and the
    individuals on the smaller side where two are compared."""

    estimate: Mapping[str, Any] | None
    control: bool | None
    about: dict[str, Any]
    invalid: str | None = None
    fewest: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One thing that a job can set a threshold on.

    Parameters
    ----------
    measure : its name in ``[[gate]]``
    title : what a reader calls it
    null : what it is where nothing leaked: a control shows that the attack can succeed where its interval lies over it;
        None where the measure brings a control of another kind
    estimate : gives the numbers to judge of (settings, a model, its unprotected twin or None), each with its control
    needs : sections of the job without which there is no such number
    from_below : it is a lower bound: "at least", and from above nothing is bounded
    """

    measure: str
    title: str
    null: float | None
    estimate: Callable[[Settings, Pair, Pair | None], Iterator[_Measured]]
    needs: frozenset[str] = frozenset()
    from_below: bool = False


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
        line = (
            f"{row['outcome']}: {GATES[row['measure']].title}{f' ({what})' if what else ''} at most {row['at_most']:g}"
        )
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
        rows = list(GATES[gate["measure"]].estimate(gate, (model, canaries.get(key)), plain))
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
            yield {
                "model": name,
                "recipe": recipe,
                "seed": seed,
                "epoch": model["epoch"],
                **_judged(found, gate, small_cell),
            }


def _judged(found: _Measured, gate: Mapping[str, Any], small_cell: int) -> dict[str, Any]:
    """One number held to the threshold of its gate: what it is about, its bound, outcome and reason."""
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
    if GATES[gate["measure"]].from_below:
        bound = {"upper": None, "at_least": estimate["high"]}
        few = outcome == NO_POWER and found.control is False
        reason = LOWER_BOUND if outcome == PASS else TOO_FEW_GUESSES if few else reason
    return {
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


#: Subject of a gate, the estimate to judge, and the one that in a control must lie over the null.
Found = tuple[dict[str, Any], Any, Any]


def _beside_twin(
    estimates: Callable[[Settings, Pair], Iterator[Found]], null: float
) -> Callable[[Settings, Pair, Pair | None], Iterator[_Measured]]:
    """The estimates of a model, with those of its unprotected twin as controls."""

    def measured(gate: Settings, own: Pair, plain: Pair | None) -> Iterator[_Measured]:
        twins = [] if plain is None else list(estimates(gate, plain))
        for about, estimate, _ in estimates(gate, own):
            control = next((_above(shows, null) for other, _, shows in twins if other == about), None)
            attack = own[0]["membership"].get(about.get("attack"), {})
            invalid = attack["why"] if attack.get("verdict") == INVALID else None
            yield _Measured(estimate, control, about, invalid, _fewest(gate, own[0], attack))

    return measured


def _excess(gate: Settings, pair: Pair) -> Iterator[Found]:
    estimate = (pair[0]["excess"].get(gate["part"]) or {}).get("excess")
    yield {"part": gate["part"]}, estimate, estimate


def _attacks(gate: Settings, pair: Pair) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return ((name, found) for name, found in pair[0]["membership"].items() if gate["attack"] in (None, name))


def _auc(gate: Settings, pair: Pair) -> Iterator[Found]:
    for name, found in _attacks(gate, pair):
        yield {"attack": name}, found["auc"], found["auc"]


def _tpr(gate: Settings, pair: Pair) -> Iterator[Found]:
    for name, found in _attacks(gate, pair):
        estimate = found["tpr_at_fpr"].get(FPR)
        yield {"attack": name}, estimate, estimate


def _extracted(gate: Settings, pair: Pair) -> Iterator[Found]:
    """The passages that came back to the adversary who knows or asks most."""
    asked = pair[1]
    if not asked or not asked.get("passages"):
        return
    names = ("np_discoverable",) if gate["measure"] == "np_extraction" else ("k_extractable", "discoverable")
    rows = [r for r in asked["passages"]["rates"] if r["measure"] in names and r["asked"] == "all"]
    if rows:
        row = max(rows, key=lambda r: (r["prefix_tokens"], r["num_queries"] or 0))
        about = {"prefix_tokens": row["prefix_tokens"], "num_queries": row["num_queries"]}
        yield about, row["members"], row["excess"]


def _fewest(gate: Settings, model: Mapping[str, Any], attack: Mapping[str, Any]) -> int | None:
    """Individuals on the smaller of the two sides that a number compares; None where it does not."""
    if gate["measure"] == "excess_leakage":
        part = model["excess"].get(gate["part"]) or {}
        sides = [part[side]["n"] for side in ("members", "heldout") if side in part]
    else:
        sides = [attack[side] for side in ("num_members", "num_nonmembers") if side in attack]
    return min(sides, default=None)


def _exposure(gate: Settings, own: Pair, plain: Pair | None) -> Iterator[_Measured]:
    estimate = _of_arm(own, gate["arm"], "exposure", "included")
    # Nothing protects the missed arm of the same model; where there is none, the same arm of the plain twin.
    control = _of_arm(own, "missed", "excess_exposure") or (plain and _of_arm(plain, gate["arm"], "excess_exposure"))
    yield _Measured(estimate, _above(control, NO_EXCESS), {"arm": gate["arm"]})


def _epsilon(gate: Settings, own: Pair, _: Pair | None) -> Iterator[_Measured]:
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


_CANARIES, _EXTRACTION = frozenset({"canaries"}), frozenset({"extraction"})
#: Every gate by its measure; adding a row here is adding a gate everywhere.
GATES: Mapping[str, Gate] = MappingProxyType(
    {
        gate.measure: gate
        for gate in (
            Gate(
                measure="excess_leakage",
                title="excess leakage",
                null=NO_EXCESS,
                estimate=_beside_twin(_excess, NO_EXCESS),
            ),
            Gate(measure="membership_auc", title="membership AUC", null=CHANCE, estimate=_beside_twin(_auc, CHANCE)),
            Gate(
                measure="membership_tpr",
                title="membership TPR at 1 % FPR",
                null=float(FPR),
                estimate=_beside_twin(_tpr, float(FPR)),
            ),
            Gate(
                measure="extraction",
                title="extraction rate",
                null=NO_EXCESS,
                estimate=_beside_twin(_extracted, NO_EXCESS),
                needs=_EXTRACTION,
            ),
            Gate(
                measure="np_extraction",
                title="(n, p)-extraction rate",
                null=NO_EXCESS,
                estimate=_beside_twin(_extracted, NO_EXCESS),
                needs=_EXTRACTION,
            ),
            Gate(
                measure="exposure",
                title="canary exposure in bits",
                null=NO_EXCESS,
                estimate=_exposure,
                needs=_CANARIES,
            ),
            Gate(
                measure="epsilon",
                title="empirical epsilon of all that carries one canary",
                null=None,
                estimate=_epsilon,
                needs=_CANARIES,
                from_below=True,
            ),
        )
    }
)
