"""Export a model from a run: its allowed files, with a model card that repeats the dossier's findings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.audit.judgement.rows import WITHIN
from reticent.audit.report.page import published
from reticent.core.artifact import new_folder
from reticent.core.errors import ArtifactError, GateError, PolicyError
from reticent.engine.schema import REFERENCE
from reticent.ext.dossier.card import build_card, verdict_of
from reticent.ext.dossier.job import changed_models, changed_outcomes, changed_results
from reticent.ext.dossier.provenance import KEY
from reticent.ext.dossier.seal import dossier_digest
from reticent.ext.dossier.stage import DOSSIER
from reticent.ext.dossier.verify import read_evidence, verify_dossier, verify_model
from reticent.trainer.export import export_model, write_card

if TYPE_CHECKING:
    from reticent.job.run import Run


def export_with_card(
    run: Run,
    model: str,
    recipe: str,
    out: Path,
    *,
    epoch: int | None = None,
    training: int = 1,
    despite: str = "",
    push_to_hub: str = "",
) -> dict[str, Any]:
    """Copy a tested model with its model card to ``out`` (new or empty), against its verdict only with a reason,
    ``despite``; return the folder, the verdict and the files left behind.

    Parameters
    ----------
    epoch : checkpoint; default: the last one, which the verdict is about
    training : number of the training, from 1, where the recipe was trained with several seeds
    despite : the reason why a model leaves whose verdict is not "within", or whose base nothing protected; its card
        says so
    push_to_hub : the repository of the hub that gets the files of ``out`` then, in the words of its card's metadata; it
        is made private where it is new

    Raises
    ------
    PolicyError
        The job has no such model, recipe, training or checkpoint, or the hub is to be reached and ``HF_HUB_OFFLINE``
        forbids it.
    GateError
        The verdict on the model is not "within", or its base was pre-trained on individuals without protection.
    ArtifactError
        There is no dossier, it was changed, is of an earlier audit or says another verdict than this audit gives, or
        the model files are not those that it is about; or the hub took them not, which ``out`` has all the same.
    """
    from huggingface_hub import is_offline_mode

    despite = despite.strip()
    if push_to_hub and is_offline_mode():
        raise PolicyError("--push-to-hub: nothing reaches the hub from here; HF_HUB_OFFLINE=0 allows it")
    section = next((each for each in run.job.model if each.name == model), None)
    if section is None or recipe not in section.recipes:
        raise PolicyError(f"export: the run has no model {model!r} with the recipe {recipe!r}")
    seeds = list(run.job.training(section).seeds or [None])
    if not 1 <= training <= len(seeds):
        raise PolicyError(f"--training: expected a number from 1 to {len(seeds)}, got {training}")
    places = run.checkpoints(section, recipe, seeds[training - 1])
    chosen = max(places, default=None) if epoch is None else epoch
    if chosen not in places:
        raise PolicyError(f"--epoch: there are checkpoints of {', '.join(map(str, sorted(places))) or 'none'}")
    folder = run.folder / DOSSIER
    if faults := verify_dossier(folder).faults:
        raise ArtifactError(f"{folder}: {'; '.join(faults)}")
    evidence = read_evidence(folder)
    if (run.folder / KEY).is_file() and any(changed_results(evidence, run.folder, only="audit")):
        raise ArtifactError(f"{folder}: is of an earlier audit of this run; make it again with `reticent dossier`")
    if (run.folder / "audit" / "audit.json").is_file():
        again = published(run.evidence)
        if said := [*changed_outcomes(evidence.audit, again), *changed_models(evidence, again)]:
            raise ArtifactError(f"{folder}: {'; '.join(said)}; make it again with `reticent dossier`")
    tested = verify_model(evidence, places[chosen], of=(model, recipe, chosen, training if len(seeds) > 1 else None))
    if tested is None:
        raise ArtifactError(f"{places[chosen]}: not a model that the dossier is about; run `reticent audit` again")
    outcome = verdict_of(evidence, tested)
    base = section.base and (section.base if not Path(section.base).exists() else Path(section.base).name)
    made_from = ""
    if section.foundation is not None and section.foundation.text == REFERENCE:
        made_from = " on the documents of the reference individuals, without protection"
        if not despite:
            raise GateError(
                f"{recipe} of {model}: its base was pre-trained{made_from}, so it is not exported; --despite-verdict "
                "REASON exports it, and its card says so"
            )
    if outcome != WITHIN and not despite:
        raise GateError(
            f"{recipe} of {model}: the verdict is {outcome!r}, so it is not exported; --despite-verdict REASON exports "
            "it, and its card says so"
        )
    card = build_card(evidence, tested, dossier_digest(folder), base, made_from, despite)
    with new_folder(out):  # a model without its verdict must not lie there
        left = export_model(places[chosen], out)
        write_card(out, card.text, tags=[recipe], **card.data)
        (out / "README.md").chmod(0o600)
    if push_to_hub:
        _push_to_hub(out, push_to_hub)
    return {"folder": str(out), "verdict": outcome, "left_behind": left}


def _push_to_hub(folder: Path, repo: str) -> None:
    """Upload an exported model folder to a repository of the Hugging Face hub, private if it is new."""
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        api.create_repo(repo, private=True, exist_ok=True)
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message="A model that was exported with its card")
    except Exception as error:  # whatever the network or a library of it raises: it may hold the address with a token
        status = getattr(getattr(error, "response", None), "status_code", type(error).__name__)
        raise ArtifactError(f"{folder} holds the model and its card; the hub did not take it ({status})") from None
