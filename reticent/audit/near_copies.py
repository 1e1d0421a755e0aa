"""Sentences beside the verdict: how many held-out individuals hold near-copies of members' documents, and the areas of
membership without them. The report, the dossier and the summary say the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from reticent.audit.membership.validity import CHANCE, INVALID, WITHOUT_COPIES
from reticent.audit.stats.seeds import over_seeds

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence, ModelEvidence
    from reticent.audit.evidence.membership import MeasuredAttack
    from reticent.audit.language import Words

__all__ = ["near_copies_lines"]


def near_copies_lines(audit: AuditEvidence, t: Words) -> Iterator[str]:
    """Yield the sentences; those on areas are of the last checkpoint of each trained model."""
    found, cell = audit.corpus.near_copies, audit.cell
    if found is None:
        yield t("Whether held-out people hold near-copies of members’ documents was not looked for.")
        return
    if found.num_copied == 0:
        yield t("No held-out person holds a near-copy of a member’s document.")
        return
    yield t(
        "Held-out people who hold a near-copy of a member’s document: {n} of {heldout}. A model that knows the text "
        "takes them for members, so a test over all of them finds too little.",
        n=t.count(found.num_copied, cell),
        heldout=t.count(found.num_heldout, cell),
    )
    attacked = [(model, attack) for model in _last(audit.models) if (attack := _strongest(model))]
    if not attacked:
        yield t("They are so few that no number leaves them out, or so many that none can be printed.")
    for model, attack in attacked:
        without = attack.auc_without_copies
        yield t(
            "{model}: without them members are ranked above others with {without} ({interval}), with them {over_all}.",
            model=f"{model.recipe} / {model.model}" if model.model else model.recipe,
            without=t.value(without, area=True),
            interval=t.interval(without, area=True),
            over_all=t.value(attack.auc, area=True),
        )
    rows = audit.risks.rows if audit.risks else []
    follow = [row.recipe for row in rows if any(WITHOUT_COPIES in (result.what or "") for result in row.results)]
    if follow:
        yield t(
            "The verdict takes the worse of the two; it follows the number without them for: {models}.",
            models=t.listed(list(dict.fromkeys(follow))),
        )


def _last(models: Sequence[ModelEvidence]) -> list[ModelEvidence]:
    last: dict[tuple[str | None, str, str], ModelEvidence] = {}
    for model in over_seeds([one for one in models if one.recipe != "base"]):
        key = (model.model, model.objective, model.recipe)
        if key not in last or model.epoch > last[key].epoch:
            last[key] = model
    return list(last.values())


def _strongest(model: ModelEvidence) -> MeasuredAttack | None:
    """The valid attack whose area without near-copies is farthest from chance."""

    def size(attack: MeasuredAttack) -> float:
        found = attack.auc_without_copies
        return -1.0 if found is None or found.value is None else abs(found.value - CHANCE)

    valid = [attack for attack in model.membership.values() if attack.verdict != INVALID]
    strongest = max(valid, key=size, default=None)
    return strongest if strongest and size(strongest) >= 0 else None
