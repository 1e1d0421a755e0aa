"""Life after release: the models and dossiers of a run that an update of its documents touches.

A model cannot forget an individual: where one withdraws, each model that was trained on the documents of that
individual has to be made again, and each dossier about it holds no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.job.stages.dossier import DOSSIER, REPLACED

if TYPE_CHECKING:
    from reticent.job.run import Run

__all__ = ["Touched", "touched_by_update"]


@dataclass(frozen=True, slots=True)
class Touched:
    """Models and dossiers of the run before an update.

    Attributes
    ----------
    trained_on_withdrawn : whether a withdrawn individual is a member, so that all models were trained on them
    models : trainings, by their folders in the run
    dossier : digest of the dossier of the run, None for none
    replaced : digests (first 16 digits) of dossiers that it had replaced, which may have been sent too
    """

    trained_on_withdrawn: bool
    models: list[str]
    dossier: str | None
    replaced: list[str]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """Say it in sentences; none where the run has neither models nor dossiers."""
        found = []
        if self.models and self.trained_on_withdrawn:
            found.append(
                f"Trained on documents of individuals who withdrew: {', '.join(self.models)}. Train them again, and "
                "ask those who have them to delete them."
            )
        elif self.models:
            found.append(
                f"Models of the documents as they were before: {', '.join(self.models)}. They were not changed."
            )
        digests = [*filter(None, (self.dossier,)), *self.replaced]
        if digests:
            found.append(
                f"Dossiers of the documents as they were before: {', '.join(digest[:16] for digest in digests)}. The "
                "dossier of the new run names the one that it replaces."
            )
        return found


def touched_by_update(before: Run, withdrawn: Sequence[Path]) -> Touched:
    """Return what an update of a run touches; ``withdrawn`` are the files of individuals who withdrew now."""
    from reticent.audit.dossier.seal import SUMS, dossier_digest

    dossier = before.folder / DOSSIER
    replaced = sorted(path.name for path in (before.folder / REPLACED).glob("*") if (path / SUMS).is_file())
    models = sorted(path.parent for path in (before.folder / "models").rglob("manifest.json"))
    return Touched(
        trained_on_withdrawn=bool(withdrawn) and _name_a_member(before, withdrawn),
        models=[model.relative_to(before.folder).as_posix() for model in models],
        dossier=dossier_digest(dossier) if (dossier / SUMS).is_file() else None,
        replaced=replaced,
    )


def _name_a_member(before: Run, files: Sequence[Path]) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    from reticent.engine.schema import MEMBERS
    from reticent.engine.update import read_ids

    individuals = before.individuals
    members = individuals.table.column("individual_id").filter(pa.array(individuals.mask(MEMBERS)))
    known = before.given_individuals()
    ids = pa.concat_arrays([read_ids(file, known, before.job.corpus.ids) for file in files])
    return bool(pc.any(pc.is_in(ids, value_set=members)).as_py())
