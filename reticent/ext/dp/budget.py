"""The privacy budget: the epsilon spent by all private trainings (*runs*) on one corpus, in one private JSON file.

A run reserves its whole cost before its first step and settles after its last. A run that was killed never settles and
counts in full, because its checkpoints may have been used. Costs add up for one unit of privacy only: a cost per
document gives no bound for an individual with several documents. So a limit is refused if the file has runs of both
units.

A private vocabulary has an entry of its own, from before it is drawn. The epsilon of a training by it includes it, and
says so (``includes``): the vocabulary then counts no more.

Two bounds are computed, and the smaller one holds. The results of one run are known before the next epsilon is chosen,
but the usual theorem of advanced composition requires epsilons that were fixed before the first run. So:

- basic: sum of epsilons at sum of deltas, for any choice of epsilons (Rogers et al. 2016);
- advanced: sum of epsilon^2 / 2 + sqrt(2 ln(1 / s) * sum of epsilon^2) at sum of deltas plus s. This holds for epsilons
  that were chosen one after the other, if a limit with one s was fixed beforehand and is never exceeded (Whitehouse et
  al. 2023). A limit reserves half of its delta for s.

The corpus is identified by its fingerprint. With one more document it is another corpus, with a budget of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from reticent.core.artifact import make_private_folder, write_private
from reticent.core.errors import ArtifactError, PolicyError
from reticent.core.json_toml import parse_json
from reticent.trainer.privacy import Guarantee, PrivacyConfig, show_delta, together

FORMAT = "reticent.budget/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """The privacy cost charged for one training (*run*), or a private vocabulary; ``settled`` once it has ended."""

    run: str
    corpus: str
    guarantee: Guarantee
    settled: bool = False
    started: str = ""
    about: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Total:
    """The composed cost of several runs of one privacy unit: two bounds, each an (epsilon, delta) pair."""

    basic: tuple[float, float]
    advanced: tuple[float, float]

    @property
    def epsilon(self) -> float:
        """The smaller epsilon of basic and advanced composition."""
        return min(self.basic[0], self.advanced[0])


def compose(epsilons: Sequence[float], deltas: Sequence[float], slack: float) -> Total:
    """Return the (epsilon, delta) of several DP trainings together, by basic and by advanced composition. The advanced
    one adds ``slack`` to delta.

    >>> compose([1.0] * 30, [1e-6] * 30, 1e-5).basic[0]
    30.0
    >>> round(compose([1.0] * 30, [1e-6] * 30, 1e-5).advanced[0], 2)
    41.28
    """
    basic, delta = math.fsum(epsilons), math.fsum(deltas)
    if slack <= 0 or not math.isfinite(basic):
        return Total((basic, delta), (math.inf, delta + max(slack, 0.0)))
    squares = math.fsum(epsilon**2 for epsilon in epsilons)
    return Total((basic, delta), (squares / 2 + math.sqrt(2 * math.log(1 / slack) * squares), delta + slack))


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A budget file, and the epsilon that the runs on one corpus may spend together.

    Parameters
    ----------
    path : the budget file; it is created if it is missing
    corpus : str, fingerprint of the documents
    max_epsilon : float, optional; without it runs are only recorded
    max_delta : float, optional; default: 1 / number of units of the run that reserves
    """

    path: Path
    corpus: str
    max_epsilon: float | None = None
    max_delta: float | None = None

    def require_room(self, asked: Sequence[Spending], num_units: int) -> None:
        """Raise `PolicyError` if the budget's epsilon and delta (default: 1 / ``num_units``) do not allow the future
        trainings ``asked``, all together and with those charged already.
        """
        what = "this run" if (number := len(counted_entries(asked))) == 1 else f"these {number} runs together"
        self._check(asked, self.spent(), num_units, what)

    def spent(self) -> list[Spending]:
        """Return the entries of the budget file that were charged on this corpus."""
        return [each for each in read_budget(self.path) if each.corpus == self.corpus]

    def reserve(
        self,
        run: str,
        guarantee: Guarantee,
        num_units: int,
        about: dict[str, Any] | None = None,
        what: str = "this run",
    ) -> bool:
        """Charge the full privacy cost (``guarantee``) of a training to the budget before it starts, under the name
        ``run``; raise `PolicyError` if it does not fit. Return True if no cost was charged under this name before.

        Raises
        ------
        PolicyError
            The run would exceed the limit, or there is no total to compare with it.
        ArtifactError
            The file cannot be read or written.
        """
        started = datetime.now(UTC).isoformat(timespec="seconds")
        asked = Spending(run=run, corpus=self.corpus, guarantee=guarantee, started=started, about=about or {})
        with _edit_budget(self.path) as spendings:
            others = [each for each in spendings if each.run != run]
            self._check([asked], [each for each in others if each.corpus == self.corpus], num_units, what)
            is_new = len(others) == len(spendings)
            spendings[:] = [*others, asked]
        return is_new

    def release(self, run: str) -> None:
        """Delete the entry of a reserved run that ended before it drew noise."""
        with _edit_budget(self.path) as spendings:
            spendings[:] = [each for each in spendings if each.run != run or each.settled]

    def settle(self, run: str, guarantee: Guarantee) -> None:
        """Replace the cost reserved for a run by its actual cost (``guarantee``), and mark the entry as settled."""
        with _edit_budget(self.path) as spendings:
            for place, each in enumerate(spendings):
                if each.run == run:
                    spendings[place] = replace(each, guarantee=guarantee, settled=True)

    def _check(self, runs_asked: Sequence[Spending], charged: list[Spending], num_units: int, what: str) -> None:
        """Raise `PolicyError`, which names the request by ``what``, if the requested runs and those already charged
        together exceed the budget's epsilon or delta (default: 1 / ``num_units``).
        """
        counted = counted_entries([*charged, *runs_asked])
        before = [each for each in counted if each in charged]
        asked = [each.guarantee for each in counted if each not in charged]
        if self.max_epsilon is None or not asked:
            return
        unit, runs = asked[0].unit, [*(each.guarantee for each in before), *asked]
        price = together(asked)
        if len(units := {each.unit for each in runs}) > 1:
            raise PolicyError(
                f"train.dp.budget_epsilon: the budget file holds runs per {' and per '.join(sorted(units))} on this "
                "corpus; they do not add up, so no total can be given"
            )
        if price is None or any(each.epsilon is None for each in runs):
            raise PolicyError("train.dp.budget_epsilon: a run on this corpus has no epsilon, so no total can be given")
        limit = self.max_delta if self.max_delta is not None else 1 / num_units
        if self._fits(runs, limit):
            return
        low, high = 0.0, min(price.epsilon or 0.0, self.max_epsilon)  # a price without noise is infinite
        for _ in range(60):
            middle = (low + high) / 2
            one = [*runs[: len(before)], replace(price, epsilon=middle)]
            low, high = (middle, high) if self._fits(one, limit) else (low, middle)
        pending = sum(not each.settled for each in before)
        raise PolicyError(
            f"privacy budget: {what} would spend {price}; of epsilon {self.max_epsilon:g} at delta "
            f"{show_delta(limit)} per {unit}, epsilon {math.floor(low * 100) / 100:.2f} is left after "
            f"{len(before)} run{'s' * (len(before) != 1)} on this corpus"
            + (f" ({pending} of them never ended and count in full)" if pending else "")
            + "; lower its epsilon, or decide on a larger train.dp.budget_epsilon"
        )

    def _fits(self, guarantees: Sequence[Guarantee], max_delta: float) -> bool:
        """Return whether the composed cost of several runs is within the budget's epsilon and within ``max_delta``, by
        basic or by advanced composition."""
        assert self.max_epsilon is not None
        bounds = compose(
            [each.epsilon or 0.0 for each in guarantees], [each.delta for each in guarantees], max_delta / 2
        )
        return any(total <= self.max_epsilon and delta <= max_delta for total, delta in (bounds.basic, bounds.advanced))


def counted_entries(entries: Iterable[Spending]) -> list[Spending]:
    """Return the budget entries that count towards the total. The entry of a private vocabulary does not, if the
    epsilon of a charged training includes it already."""
    runs = list(entries)
    included = {tuple(each.about["includes"]) for each in runs if "includes" in each.about}
    return [each for each in runs if not included.issuperset((each.run, k) for k in each.about.get("k", [None]))]


def budget_of(privacy: PrivacyConfig) -> Budget | None:
    """Return the `Budget` that a private training is charged to by its settings; None if they name no budget file."""
    if privacy.budget_file is None or privacy.corpus is None:
        return None
    return Budget(
        path=Path(privacy.budget_file),
        corpus=privacy.corpus,
        max_epsilon=privacy.budget_epsilon,
        max_delta=privacy.budget_delta,
    )


def read_budget(path: Path | str) -> list[Spending]:
    """Return the entries of a budget file, in recorded order; an empty list if there is no file.

    Raises
    ------
    ArtifactError
        The file cannot be read. It must not be taken for an empty budget.
    """
    try:
        content = parse_json(Path(path).read_bytes())
        if content["format"] != FORMAT:
            raise ValueError
        return [Spending(**{**each, "guarantee": _parse_guarantee(each["guarantee"])}) for each in content["runs"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError):
        raise ArtifactError(f"{path}: not a readable privacy budget; expected {FORMAT}") from None


def totals(spendings: Sequence[Spending]) -> list[dict[str, Any]]:
    """Return one row for each corpus and privacy unit with the composed epsilon and delta of its budget entries;
    epsilon is None if an entry has none.

    Advanced composition may add as much to delta as the runs' own deltas together. Without a limit that was fixed
    beforehand it holds only for epsilons that were; ``bound`` names this premise.
    """
    groups: dict[tuple[str, str], list[Guarantee]] = {}
    for each in counted_entries(spendings):
        groups.setdefault((each.corpus, each.guarantee.unit), []).append(each.guarantee)
    rows = []
    for (corpus, unit), found in groups.items():
        row: dict[str, Any] = {"corpus": corpus, "unit": unit, "runs": len(found)}
        deltas = [each.delta for each in found]
        total = compose([each.epsilon or 0.0 for each in found], deltas, math.fsum(deltas))
        bound = "basic" if total.basic[0] <= total.advanced[0] else "advanced"
        epsilon, delta = total.basic if bound == "basic" else total.advanced
        premise = "" if bound == "basic" else ", if no epsilon was chosen by the results of an earlier run"
        counted = all(each.epsilon is not None for each in found) and math.isfinite(epsilon)
        rows.append(
            {**row, "epsilon": epsilon if counted else None, "delta": delta, "bound": f"{bound} composition{premise}"}
        )
    return rows


def _parse_guarantee(values: dict[str, Any]) -> Guarantee:
    """Return a `Guarantee` from its JSON values."""
    epsilon = math.inf if values["epsilon"] == "infinite" else values["epsilon"]
    return Guarantee(**{**values, "epsilon": epsilon, "unaccounted": tuple(values["unaccounted"])})


def entry_to_json(spending: Spending) -> dict[str, Any]:
    """Return a budget entry as JSON values, an infinite epsilon as "infinite"."""
    values = asdict(spending)
    if values["guarantee"]["epsilon"] == math.inf:  # JSON has no infinity
        values["guarantee"]["epsilon"] = "infinite"
    return values


@contextmanager
def _edit_budget(path: Path) -> Iterator[list[Spending]]:
    """Context manager: lock a budget file, yield its entries as a list to change, and write them back."""

    make_private_folder(path.parent)
    with FileLock(path.parent / f".{path.name}.turn", mode=0o600, fallback_to_soft=False):
        spendings = read_budget(path)
        yield spendings
        content = {"format": FORMAT, "runs": [entry_to_json(each) for each in spendings]}
        write_private(path, json.dumps(content, indent=1, allow_nan=False).encode())
