"""What may be published (definitions.md#publication): `published` turns the audit, which stays, into what may leave.

No count under the small-cell threshold, no rate that gives such a count away, no distribution whose steps are single
people, no path of the machine, no promise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

__all__ = ["FORBIDDEN", "published", "published_corpus", "without_seeds"]

#: No count of fewer people, documents or identifiers is published; the job's ``audit.small_cell`` overrules it.
SMALL_CELL = 5
#: Claims no report may make.
FORBIDDEN = ("anonymous", "anonymised", "anonymized", "gdpr compliant", "gdpr-compliant")
#: Parts of the audit that hold settings, in which strings may be paths.
SETTINGS = ("settings", "probe")
#: What `over_seeds` says of several trainings under the key ``seeds``: numbers, and no seed.
SPREAD = {"n", "low", "high", "sd"}


def published(audit: dict[str, Any]) -> dict[str, Any]:
    """Return the audit as it may leave: small cells closed, single people out of distributions, paths shortened,
    seeds kept back (trainings of several are numbered).

    A count from 1 to below the threshold becomes None. A rate that would give it away becomes the rate the threshold
    itself would give, marked ``"bound": "above"`` or ``"below"``, with an interval that reaches to 1 or 0. A rate over
    fewer people than the threshold becomes None.
    """
    cell = int(audit["settings"].get("audit", {}).get("small_cell") or SMALL_CELL)
    audit = without_seeds(_numbered(_every(audit, lambda value: _clean(value, cell))))
    return {
        **audit,
        "small_cell": cell,
        **{name: _every(audit[name], _without_folders) for name in SETTINGS if name in audit},
        "corpus": published_corpus(audit["corpus"], cell),
        "models": [_publish_model(model, cell) for model in audit["models"]],
        **({"extraction": _publish_extraction(audit["extraction"], cell)} if "extraction" in audit else {}),
        **({"verdict": _publish_verdict(audit["verdict"], cell)} if "verdict" in audit else {}),
    }


def _publish_verdict(verdict: dict[str, Any], cell: int) -> dict[str, Any]:
    rows = [{**row, "n": None, "upper": None} if 0 < row["n"] < cell else row for row in verdict["results"]]
    return {**verdict, "results": rows}


def _publish_extraction(section: dict[str, Any], cell: int) -> dict[str, Any]:
    """Extraction of people's text as it may leave; canaries are nobody's."""
    return {**section, "models": [_publish_passages(model, cell) for model in section["models"]]}


def _publish_passages(model: dict[str, Any], cell: int) -> dict[str, Any]:
    if not model["passages"]:
        return model
    rows = []
    for row in model["passages"]["rates"]:
        sides = {side: _share(row[side], row[side]["n"], cell) for side in ("members", "heldout")}
        rows.append(_close_difference({**row, **sides}, cell))
    counts = {
        name: {side: _small(count, cell) for side, count in model["passages"][name].items()}
        for name in ("num_passages", "num_short")
    }
    return {**model, "passages": {**model["passages"], **counts, "rates": rows}}


def _every(value: Any, change: Callable[[Any], Any]) -> Any:
    """A copy with every leaf and every dictionary changed, the inner ones first."""
    if isinstance(value, dict):
        return change({key: _every(inner, change) for key, inner in value.items()})
    if isinstance(value, list):
        return [_every(inner, change) for inner in value]
    return change(value)


def _clean(value: Any, cell: int) -> Any:
    """Close estimates over too few people; take forbidden words out of names that users chose."""
    if isinstance(value, str):
        for claim in FORBIDDEN:
            value = re.sub(re.escape(claim), "(withheld)", value, flags=re.IGNORECASE)
    elif isinstance(value, dict) and {"value", "low", "high", "n"} <= value.keys() and 0 < (value["n"] or 0) < cell:
        return _closed(value, cell)
    elif isinstance(value, dict):
        return _close_difference(value, cell)
    return value


def _closed(estimate: dict[str, Any], cell: int) -> dict[str, Any]:
    return {**estimate, "value": None, "low": None, "high": None, "n": None, "method": f"fewer than {cell}"}


def _close_difference(found: dict[str, Any], cell: int) -> dict[str, Any]:
    """Two sides and their difference: where one is closed, the other and the difference would add up to it."""
    sides = [side for name in ("members", "heldout") if isinstance(side := found.get(name), dict)]
    closed = any("bound" in side or side.get("n", 0) is None for side in sides)
    return {**found, "excess": _closed(found["excess"], cell)} if closed and "excess" in found else found


def _without_folders(value: Any) -> Any:
    """A path keeps its last part, however it begins: folders are named after people and projects.

    A name on the hub looks like a relative path and is shortened like one.
    """
    if isinstance(value, str) and re.search(r"[\\/]|^~|^[A-Za-z]:", value):
        return "…/" + re.split(r"[\\/:]", value.rstrip("\\/"))[-1]
    return value


def without_seeds(value: Any) -> Any:
    """Return a copy without any seed, however deep it lies.

    The sides, and the coins of canaries, are functions of seed and ids: who had both would know who was a member. The
    seeds of trainings go too, as the job's is often one of them.
    """

    def change(inner: Any) -> Any:
        if not isinstance(inner, dict):
            return inner
        return {key: part for key, part in inner.items() if not (_names_seeds(key) and not _is_spread(part))}

    return _every(value, change)


def _names_seeds(key: str) -> bool:
    return re.search(r"(?:^|[^a-z])seeds?(?:$|[^a-z])", str(key), re.IGNORECASE) is not None


def _is_spread(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == SPREAD


def _numbered(audit: dict[str, Any]) -> dict[str, Any]:
    """The audit with ``training``, a number from 1 on, beside the seed of each of several trainings of a model, in the
    order in which they come.
    """
    seeds: dict[Any, dict[Any, int]] = {}

    def numbered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        result = []
        for row in rows:
            if row.get("seed") is not None:
                known = seeds.setdefault(row.get("model"), {})
                row = {**row, "training": known.setdefault(row["seed"], len(known) + 1)}
            result.append(row)
        return result

    changed: dict[str, Any] = {"models": numbered(audit["models"])}
    for section, rows in (("extraction", "models"), ("verdict", "results")):
        if section in audit:
            changed[section] = {**audit[section], rows: numbered(audit[section][rows])}
    return {**audit, **changed}


def _small(count: int | None, cell: int) -> int | None:
    return None if count is not None and 0 < count < cell else count


def _bounded(estimate: dict[str, Any], value: float, side: str) -> dict[str, Any]:
    """An estimate whose exact value would give a small count away."""
    low = value if estimate["low"] is None else min(estimate["low"], value)
    high = value if estimate["high"] is None else max(estimate["high"], value)
    ends = {"low": low, "high": 1.0} if side == "above" else {"low": 0.0, "high": high}
    return {**estimate, "value": value, **ends, "bound": side}


def _share(estimate: dict[str, Any], total: int | None, cell: int) -> dict[str, Any]:
    """A share of ``total`` people: closed at both ends, few who are and few who are not."""
    if estimate["value"] is None or not total:
        return estimate
    # Of passages or other things that a person has several of, a rate can be less than one person's.
    count = round(estimate["value"] * total)
    if estimate["value"] > 0 and count < cell:
        return _bounded(estimate, cell / total, "below")
    if estimate["value"] < 1 and total - count < cell:
        return _bounded(estimate, 1 - cell / total, "above")
    return estimate


def published_corpus(corpus: dict[str, Any], cell: int) -> dict[str, Any]:
    """Return the statistics of a corpus as they may leave: see `published`.

    A count of n-grams from 1 to below ``cell`` becomes None; a distribution over people goes in steps of ``cell``.
    """
    people = corpus.get("num_individuals", {})
    members = people.get("members", 0)
    result = {**corpus, "num_individuals": {side: _small(count, cell) for side, count in people.items()}}
    if "identifiers_per_individual" in corpus:
        curves = corpus["identifiers_per_individual"]
        result["identifiers_per_individual"] = {part: _grouped(curve, members, cell) for part, curve in curves.items()}
    if "words_per_individual" in corpus:
        result["words_per_individual"] = _grouped(corpus["words_per_individual"], members, cell)
    for name in ("identifying_words", "identifiers_by_n", "margin"):
        if name in corpus:
            result[name] = _every(corpus[name], lambda found: _close_counts(found, members, cell))
    if "unicity" in corpus:
        result["unicity"] = [
            {**row, "share": _share(_clean(row["share"], cell), row["share"]["n"], cell)} for row in corpus["unicity"]
        ]
    if "copies" in corpus:
        result["copies"] = {
            key: _copies(found, cell) if isinstance(found, dict) else found for key, found in corpus["copies"].items()
        }
    if "reading" in corpus:
        result["reading"] = {**corpus["reading"], "skipped": _small(corpus["reading"]["skipped"], cell)}
    result["detected"] = [row for row in corpus.get("detected") or [] if row["num_individuals"] >= cell]
    return result


def _copies(found: dict[str, Any], cell: int) -> dict[str, Any]:
    """Counts of copies, and the shares that go with them, as they may leave."""
    hidden = any(0 < found.get(key, 0) < cell for key in ("documents", "clusters", "lifted_words"))
    kept = {key: _copies(part, cell) if isinstance(part, dict) else part for key, part in found.items()}
    return {key: part if key in ("k", "min_words") else None for key, part in kept.items()} if hidden else kept


def _close_counts(found: Any, members: int, cell: int) -> Any:
    """Counts of n-grams and of their occurrences, and distributions over people, as they may leave."""
    if not isinstance(found, dict):
        return found
    if "distinct" in found and 0 < found["distinct"] < cell:  # what so few make up tells of them
        found = {key: None if key.startswith(("distinct", "occurrences")) else part for key, part in found.items()}
    counts = {key: _small(found[key], cell) for key in found if key.startswith(("distinct", "occurrences"))}
    curves = {key: _grouped(found[key], members, cell) for key in found if key == "per_individual"}
    return {**found, **counts, **curves}


def _grouped(curve: dict[str, Any], num: int, cell: int) -> dict[str, Any]:
    """A cumulative distribution over people in steps of at least ``cell`` of them, without its first and last few."""
    x, y, before = [], [], 0
    for at, share in zip(curve["x"], curve["y"], strict=True):
        count = round(share * num)
        if count - before >= cell and num - count >= cell:
            x.append(at)
            y.append(share)
            before = count
    return {"x": x, "y": y}


def _publish_model(model: dict[str, Any], cell: int) -> dict[str, Any]:
    result = {**model, "privacy": {part: _publish_part(p, cell) for part, p in model["privacy"].items()}}
    if "privacy_by_n" in model:
        result["privacy_by_n"] = {n: _publish_leaks(p, p, cell) for n, p in model["privacy_by_n"].items()}
    if model.get("low_cost"):
        rows = [_publish_calls(row, cell) for row in model["low_cost"].get("by_graph_share", [])]
        result["low_cost"] = {**_publish_calls(model["low_cost"], cell), "by_graph_share": rows}
    if "by_category" in model:
        result["by_category"] = {name: _publish_category(p, cell) for name, p in model["by_category"].items()}
    if "all_occurrences" in model:
        again = model["all_occurrences"]
        result["all_occurrences"] = {
            **again, "privacy": {part: _publish_part(p, cell) for part, p in again["privacy"].items()}
        }  # fmt: skip
    if "generated" in model:
        counts = {side: _small(count, cell) for side, count in model["generated"]["num_prompts"].items()}
        result["generated"] = {**model["generated"], "num_prompts": counts}
    if "inversion" in model:
        result["inversion"] = {name: _publish_exchanged(p, cell) for name, p in model["inversion"].items()}
    result["membership"] = {
        name: {**measured, "roc": _without_few(measured, cell), **_low_rates(measured, cell)}
        for name, measured in (model.get("membership") or {}).items()
        if _enough(measured, cell)
    }
    for measured in result["membership"].values():
        if measured.get("worst_subgroup") and not _enough(measured["worst_subgroup"], cell):
            measured["worst_subgroup"] = None
    if model.get("best_attack") and model["best_attack"]["attack"] not in result["membership"]:
        result["best_attack"] = None
    elif model.get("best_attack") and "intervals" in model["best_attack"]:
        kept = {n: ends for n, ends in model["best_attack"]["intervals"].items() if n in result["membership"]}
        result["best_attack"] = {**model["best_attack"], "intervals": kept}
    for name in ("blind", "blind_fresh"):
        if name in model and not _enough(model[name], cell):
            del result[name]
    return result


def _enough(measured: dict[str, Any], cell: int) -> bool:
    return bool(min(measured["num_members"], measured["num_nonmembers"]) >= cell)


def _publish_part(part: dict[str, Any], cell: int) -> dict[str, Any]:
    result = {**part, **_publish_leaks(part, part["types"], cell, "types")}
    if "individuals" in part:
        result["individuals"] = _share(part["individuals"], part["individuals"]["n"], cell)
    result["num_unpredictable"] = _small(part.get("num_unpredictable"), cell)
    return result


def _publish_exchanged(found: dict[str, Any], cell: int) -> dict[str, Any]:
    """Inversion of a kind of identifiers, or association: its counts, and rates that would give few away."""
    result = dict(found)
    for key in ("num_targets", "num_terms"):
        if key in found:
            result[key] = {side: _small(count, cell) for side, count in found[key].items()}
    for key in ("num_eligible", "num_unmatched", "num_too_long", "num_rows", "num_unused"):
        if key in found:
            result[key] = _small(found[key], cell)
    for words in ("all", "ordinary"):
        if words in found:
            top1 = found[words]["top1"]
            sides = {side: _share(top1[side], found["num_targets"][side], cell) for side in ("members", "heldout")}
            result[words] = {**found[words], "top1": _close_difference({**top1, **sides}, cell)}
    return result


def _publish_category(found: dict[str, Any], cell: int) -> dict[str, Any]:
    """Privacy of a category, whose leak rate is also what strangers' and the excess add up to."""
    result = _publish_leaks(found, found, cell)
    if result["value"] is None or "bound" in result:
        result["excess"] = {**result["excess"], "excess": _closed(result["excess"]["excess"], cell)}
    return result


def _low_rates(measured: dict[str, Any], cell: int) -> dict[str, Any]:
    """Shares of the members that are named at low false-positive rates: no few of them."""
    rates = measured.get("tpr_at_fpr") or {}
    closed = {fpr: rate and _share(rate, measured["num_members"], cell) for fpr, rate in rates.items()}
    return {"tpr_at_fpr": closed} if "tpr_at_fpr" in measured else {}


def _publish_leaks(part: dict[str, Any], types: dict[str, Any], cell: int, key: str = "") -> dict[str, Any]:
    """Counts of identifiers with their Privacy; the estimate stands under ``key``, or in the part itself."""
    leaked, total = part["num_leaked"], part["num_identifiers"]
    if 0 < total < cell:
        types = {**types, "value": None, "low": None, "high": None}
        leaked = None
    elif 0 < leaked < cell and types["value"] is not None:
        types = _bounded(types, 1 - cell / total, "above")
    counts = {"num_leaked": _small(leaked, cell), "num_identifiers": _small(total, cell)}
    return {**({key: types} if key else types), **counts}


def _publish_calls(calls: dict[str, Any], cell: int) -> dict[str, Any]:
    """Precision, recall and F1 of calling people members, so that no few of them can be counted."""
    precision, recall, f1 = (calls[key] for key in ("precision", "recall", "f1"))
    # Where nobody was called, or too few to say, the threshold itself bounds the calls from above.
    members, called = recall["n"], precision["n"] or cell
    if recall["value"] is None or not members:
        return calls
    hit = round(recall["value"] * members)
    few = cell if 0 < hit < cell else members - cell if 0 < members - hit < cell else None
    result = {**calls, "recall": _share(recall, members, cell)}
    if few is not None:
        side = result["recall"]["bound"]
        if f1["value"] is not None:
            result["f1"] = _bounded(f1, min(2 * few / (called + members), 1.0), side)
        if precision["value"] is not None:
            result["precision"] = _bounded(precision, min(few / called, 1.0), side)
    return result


def _without_few(measured: dict[str, Any], cell: int) -> dict[str, Any]:
    """A ROC curve without the thresholds that only a few people of a side pass."""
    sides = (("fpr", measured["num_nonmembers"]), ("tpr", measured["num_members"]))
    points = list(zip(measured["roc"]["fpr"], measured["roc"]["tpr"], strict=True))
    kept = [p for p in points if not any(0 < round(rate * n) < cell for rate, (_, n) in zip(p, sides, strict=True))]
    return {"fpr": [fpr for fpr, _ in kept], "tpr": [tpr for _, tpr in kept]}
