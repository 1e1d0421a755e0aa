"""Means over seeds: by hand-worked cases; what several trainings say is never taken for more individuals."""

from __future__ import annotations

from typing import Any

import pytest
from fixtures.audits import filled
from hypothesis import given
from hypothesis import strategies as st

from reticent.audit.evidence.audit import ModelEvidence
from reticent.audit.evidence.json_form import to_json
from reticent.audit.stats.seeds import average_over_seeds, max_num_trainings

Entry = dict[str, Any]


def over(models: list[Entry], small_cell: int = 5) -> list[ModelEvidence]:
    return average_over_seeds([filled(ModelEvidence, one) for one in models], small_cell)


def estimate(value: float | None, low: float | None, high: float | None, n: int | None = 40, **more: Any) -> Entry:
    return {"value": value, "low": low, "high": high, "n": n, "level": 0.95, "unit": "individual", **more}


def entry(seed: int | None, value: Entry, recipe: str = "mlm", epoch: int = 4, **more: Any) -> Entry:
    own = {} if seed is None else {"seed": seed}
    found = {"model": "bert", **own, "name": recipe, "recipe": recipe, "objective": "mlm", "epoch": epoch}
    return {**found, "ledger": None, "utility": {"heldout": {"perplexity": value}}, **more}


def accuracy(models: list[Entry]) -> Entry:
    (model,) = over(models)
    found: Entry = to_json(model)["utility"]["heldout"]["perplexity"]
    return found


def test_a_mean_keeps_the_individuals_and_tells_the_range_of_the_trainings() -> None:
    found = accuracy([entry(s, estimate(v, v - 0.1, v + 0.2)) for s, v in enumerate((0.2, 0.3, 0.7))])
    assert found["value"] == pytest.approx(0.4)
    assert (found["low"], found["high"]) == (pytest.approx(0.3), pytest.approx(0.6))
    assert found["n"] == 40  # not 120
    assert found["seeds"] == {"n": 3, "low": 0.2, "high": 0.7, "sd": pytest.approx(0.2645751)}


def test_the_best_attack_of_several_trainings_is_one_of_them() -> None:
    def training(seed: int, best: str, loss: float, zlib: float) -> Entry:
        areas = {"loss": loss, "zlib": zlib}
        ends = {name: [area - 0.2, area + 0.2] for name, area in areas.items()}
        auc = {**estimate(areas[best], *ends[best]), "method": "max-statistic"}
        membership = {name: {"auc": estimate(area, area - 0.1, area + 0.1)} for name, area in areas.items()}
        found = {"attack": best, "num_attacks": 2, "auc": auc, "intervals": ends}
        return entry(seed, estimate(0.5, 0.4, 0.6), membership=membership, best_attack=found)

    (found,) = over([training(0, "loss", 0.7, 0.6), training(1, "zlib", 0.6, 0.9)])
    merged = to_json(found)
    best = merged["best_attack"]
    assert (best["attack"], best["num_attacks"], best["auc"]["method"]) == ("zlib", 2, "max-statistic")
    assert best["auc"]["value"] == merged["membership"]["zlib"]["auc"]["value"] == pytest.approx(0.75)
    assert (best["auc"]["low"], best["auc"]["high"]) == (pytest.approx(0.55), pytest.approx(0.95))
    (found,) = over([training(0, "loss", 0.7, 0.5), training(1, "zlib", 0.6, 0.02)])
    assert to_json(found)["best_attack"]["attack"] == "zlib"  # below chance tells members as well as above it


def test_what_stands_beside_an_estimate_is_a_mean_too_and_p_values_are_combined() -> None:
    def training(seed: int, leaked: int, area: float, attack: str, p_value: float) -> Entry:
        privacy = {**estimate(1 - leaked / 100, 0.0, 1.0), "num_identifiers": 100, "num_leaked": leaked}
        group = {"name": "ward", "num_members": 50, "num_nonmembers": 50, "attack": attack, "p_value": p_value}
        group["auc"] = estimate(area, area - 0.1, area + 0.1)
        return entry(seed, estimate(0.5, 0.4, 0.6), privacy_by_n={"1": privacy}, groups=[group])

    (found,) = over([training(0, 5, 0.5, "loss", 0.9), training(1, 70, 0.9, "reference", 0.001)])
    merged = to_json(found)
    of_length = merged["privacy_by_n"]["1"]
    assert (of_length["value"], of_length["num_leaked"]) == (pytest.approx(0.625), 38)
    (group,) = merged["groups"]
    assert (group["attack"], group["p_value"]) == ("loss; reference", pytest.approx(0.002))


def test_one_training_stays_as_it_is() -> None:
    models = [entry(None, estimate(0.5, 0.4, 0.6), recipe="base", epoch=0), entry(3, estimate(0.5, 0.4, 0.6))]
    assert over(models) == [filled(ModelEvidence, one) for one in models]
    assert max_num_trainings(over(models)) == 1


def test_recipes_epochs_and_sections_are_not_mixed_and_keep_their_order() -> None:
    value = estimate(0.5, 0.4, 0.6)
    models = [
        entry(s, value, recipe, epoch) | {"model": section}
        for section in ("a", "b")
        for recipe in ("mlm", "ppmlm")
        for s in (0, 1)
        for epoch in (4, 8)
    ]
    merged = over(models)
    assert [(m.model, m.recipe, m.epoch) for m in merged] == [
        (section, recipe, epoch) for section in ("a", "b") for recipe in ("mlm", "ppmlm") for epoch in (4, 8)
    ]
    assert all(m.num_trainings == 2 and m.seed is None for m in merged)
    assert max_num_trainings(merged) == 2


def test_a_bound_stays_a_bound_and_bounds_of_two_sides_are_no_number() -> None:
    above = estimate(0.9, 0.8, 1.0, bound="above")
    assert accuracy([entry(0, above), entry(1, estimate(0.7, 0.6, 0.8))])["bound"] == "above"
    assert accuracy([entry(0, above), entry(1, estimate(0.1, 0.0, 0.2, bound="below"))])["value"] is None


def test_what_one_training_could_not_measure_has_no_mean() -> None:
    found = accuracy([entry(0, estimate(0.5, 0.4, 0.6)), entry(1, estimate(None, None, None, n=None))])
    assert found["value"] is found["low"] is found["high"] is None
    assert "seeds" not in found


def test_an_interval_that_one_training_lacks_is_not_made_of_the_others() -> None:
    found = accuracy([entry(0, estimate(0.5, 0.4, 0.6)), entry(1, estimate(0.7, None, None))])
    assert found["value"] == pytest.approx(0.6)
    assert found["low"] is found["high"] is None


def test_counts_are_means_rounded_up_with_closed_ones_at_the_threshold() -> None:
    def leaked(*counts: int | None, **small_cell: int) -> int | None:
        parts = ({"both": {"num_identifiers": 40, "num_leaked": n}} for n in counts)
        (found,) = over([entry(s, estimate(0.5, 0.4, 0.6), privacy=p) for s, p in enumerate(parts)], **small_cell)
        return found.privacy["both"].num_leaked

    assert leaked(12, None, 8, small_cell=5) == 9  # (12 + 5 + 8) / 3 = 8.33
    assert leaked(0, None, small_cell=5) is None  # at most 2.5, and nobody knows how many
    assert leaked(None, None) is None
    assert leaked(0, 0) == 0


def test_ledgers_are_sums_so_that_one_violation_is_seen() -> None:
    ledgers = [{"targets": 10, "violations": 0}, {"targets": 12, "violations": 1}]
    models = [entry(s, estimate(0.5, 0.4, 0.6)) | {"ledger": ledger} for s, ledger in enumerate(ledgers)]
    assert to_json(over(models)[0].ledger) == {"eligible": 0, "protected": 0, "targets": 22, "violations": 1}


def test_a_roc_curve_is_the_first_seeds_and_its_area_the_mean() -> None:
    def attack(value: float, tpr: list[float]) -> Entry:
        area = estimate(value, value - 0.1, value + 0.1)
        return {"loss": {"auc": area, "roc": {"fpr": [0, 0.5, 1], "tpr": tpr}, "num_members": 40}}

    models = [entry(s, estimate(0.5, 0.4, 0.6), membership=attack(0.6 + 0.2 * s, [0, s, 1])) for s in (0, 1)]
    measured = to_json(over(models)[0])["membership"]["loss"]
    assert measured["auc"]["value"] == pytest.approx(0.7)
    assert measured["roc"]["tpr"] == [0, 0, 1]
    assert measured["num_members"] == 40


def test_rows_of_a_list_are_averaged_one_by_one() -> None:
    rows = [
        [{"share": 1.0, "f1": estimate(v, 0.0, 1.0)}, {"share": 0.5, "f1": estimate(v / 2, 0.0, 1.0)}]
        for v in (0.4, 0.8)
    ]
    models = [entry(s, estimate(0.5, 0.4, 0.6), low_cost={"by_graph_share": r}) for s, r in enumerate(rows)]
    low_cost = over(models)[0].low_cost
    assert low_cost
    assert [(row.share, row.f1.value) for row in low_cost.by_graph_share] == [
        (1.0, pytest.approx(0.6)),
        (0.5, pytest.approx(0.3)),
    ]


def test_the_worst_group_of_several_trainings_is_named_by_all_that_it_was() -> None:
    def attack(group: str, value: float) -> Entry:
        worst = {"group": group, "num_groups": 6, "num_members": 12, "num_nonmembers": 11,
                 "auc": estimate(value, value - 0.1, value + 0.1)}  # fmt: skip
        return {"loss": {"auc": estimate(0.6, 0.5, 0.7), "num_members": 40, "worst_subgroup": worst}}

    def worst(*groups: tuple[str, float]) -> Entry:
        models = [entry(s, estimate(0.5, 0.4, 0.6), membership=attack(*own)) for s, own in enumerate(groups)]
        found: Entry = to_json(over(models)[0].membership["loss"])["worst_subgroup"]
        return found

    differing = worst(("shortest", 0.7), ("most documents", 0.9), ("shortest", 0.8))
    assert differing["group"] == "shortest; most documents"
    assert differing["auc"]["value"] == pytest.approx(0.8)
    assert worst(("shortest", 0.7), ("shortest", 0.9))["group"] == "shortest"


def test_what_only_one_training_has_is_not_the_mean_of_all() -> None:
    area = {"auc": estimate(0.6, 0.5, 0.7), "num_members": 40}
    worst = {"group": "shortest", "num_groups": 6, "num_members": 12, "num_nonmembers": 11,
             "auc": estimate(0.9, 0.8, 1.0)}  # fmt: skip
    first = {"loss": {**area, "worst_subgroup": worst, "control": estimate(0.5, 0.4, 0.6)}, "lira": area}
    models = [entry(s, estimate(0.5, 0.4, 0.6), membership=own) for s, own in enumerate((first, {"loss": area}))]
    found = over(models)[0].membership
    assert list(found) == ["loss"]
    assert found["loss"].worst_subgroup is found["loss"].control is None


@given(st.lists(st.tuples(*[st.floats(0, 1)] * 3), min_size=2, max_size=6))
def test_a_mean_lies_within_its_range_and_its_interval(rows: list[tuple[float, float, float]]) -> None:
    models = [entry(s, estimate(sorted(r)[1], min(r), max(r))) for s, r in enumerate(rows)]
    found = accuracy(models)
    slack = 1e-12
    assert found["seeds"]["low"] - slack <= found["value"] <= found["seeds"]["high"] + slack
    assert found["low"] - slack <= found["value"] <= found["high"] + slack
