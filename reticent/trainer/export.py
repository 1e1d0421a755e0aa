"""Model folders that may leave the building, by an allow-list of files.

Protected tokens, spans, indexes and ledgers never belong in a model folder; :func:`export_model` leaves them behind.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.core.artifact import new_folder
from reticent.core.errors import ArtifactError
from reticent.engine.schema import DIRECT, INDIRECT
from reticent.trainer.base_files import remove_foreign_keys

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from reticent.trainer.lora import Adapter
    from reticent.trainer.privacy import Guarantee
    from reticent.trainer.recipes import Recipe

#: Everything a model folder may hold, as patterns.
ALLOWED = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "README.md",
    "adapter/adapter_config.json",
    "adapter/adapter_model.safetensors",
)

CARD = """# Fine-tuned with Reticent, recipe `{recipe}`, after {epoch:g} epochs

{meaning}
Recipe: {about}.

This model was not shown to be safe to share by being here: read the audit report of its run. Words that identify
an individual may still stand in its tokenizer or be known to its base model.
"""

TASKS = {"class": "text-classification", "tags": "token-classification"}

MEANINGS = {
    "plain": "Trained without protection: expect it to repeat identifiers of its training documents.",
    "pseudonymised": "Trained on text whose detected direct identifiers were replaced by X; the rest was a target.",
    "protected": "Tokens flagged as {which} were context and never a prediction target.",
    "half": "Those of {other} were targets like any other: expect it to repeat them.",
    "class": "Its new head says the class of a document; the names of the classes stand in config.json.",
    "tags": "Its new head says of each token whether an identifier of a kind begins there (B-) or goes on (I-).",
    "read": "It read the documents as they are, identifiers too: expect it to know some of them.",
    "replaced": "In place of detected direct identifiers it read {what}; words that few people use stood there.",
    "start": "What the model that it starts from had read before stands in that model's own card.",
    "private": "Trained by differentially private SGD: {guarantee}, for all checkpoints of its training together.",
    "so far": "This checkpoint and those before it alone: {spent}.",
}


def write_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
    *,
    recipe: Recipe,
    epoch: float,
    adapter: Adapter | None = None,
    guarantee: Guarantee | None = None,
    spent: Guarantee | None = None,
    weights: dict[str, torch.Tensor] | None = None,
) -> None:
    """Save a model (merged with its ``adapter``, if given), its tokenizer and a model card to ``folder``, readable by
    the user alone (files 0600, folder 0700). The card names the privacy guarantee of the whole training (``guarantee``)
    and the one up to this checkpoint (``spent``).

    ``weights`` are the full weights of a sharded model. The adapter alone is also saved, in ``adapter/``.

    An old model in ``folder`` is kept as a backup until the new one is in place, so ``folder`` never holds half a
    model.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()  # the run shows its own
    temporary = folder.parent / f".{folder.name}.tmp-{uuid.uuid4().hex[:12]}"
    backup = temporary.with_name(f".{folder.name}.old-{uuid.uuid4().hex[:12]}")
    try:
        temporary.mkdir(mode=0o700, parents=True)
        model = model if adapter is None else adapter.merged()
        model.save_pretrained(temporary, state_dict=weights, safe_serialization=True)
        if adapter is not None:
            adapter.save(temporary / "adapter")
        if recipe.head and tokenizer.pad_token_id is None:  # a causal classifier answers at the last token before it
            tokenizer.pad_token = tokenizer.convert_ids_to_tokens(model.config.pad_token_id)
        tokenizer.save_pretrained(temporary)
        keep_allowed(temporary)
        meaning = _protection_text(recipe, guarantee, spent)
        card = CARD.format(recipe=recipe.name, epoch=epoch, meaning=meaning, about=recipe.about)
        data = {"pipeline_tag": TASKS[recipe.head]} if recipe.head else {}
        write_card(temporary, card, tags=[recipe.name], **data)
        for file in temporary.rglob("*"):
            file.chmod(0o700 if file.is_dir() else 0o600)
        if folder.exists():
            folder.rename(backup)
        temporary.rename(folder)
    except BaseException:
        if backup.exists() and not folder.exists():
            backup.rename(folder)
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    shutil.rmtree(backup, ignore_errors=True)


def recover_checkpoints(folder: Path) -> None:
    """Clean up after a killed `write_model`: delete its temporary files, and restore a checkpoint of which only the
    backup is left."""
    for left in folder.glob(".epoch-[0-9]*.tmp-*"):
        shutil.rmtree(left)
    for backup in sorted(folder.glob(".epoch-[0-9]*.old-*")):
        checkpoint = backup.with_name(backup.name[1:].partition(".")[0])
        if checkpoint.exists():
            shutil.rmtree(backup)
        else:
            backup.rename(checkpoint)


def write_card(folder: Path, text: str, *, tags: Sequence[str] = (), **data: Any) -> None:
    """Write the model card ``README.md``: the text, after YAML front matter (``tags``, and further fields by keyword)
    that the hub reads."""
    from huggingface_hub import ModelCard, ModelCardData  # type: ignore[attr-defined]

    about = ModelCardData(library_name="transformers", tags=["reticent", *tags], **data)
    ModelCard(f"---\n{about.to_yaml()}\n---\n{text}").save(folder / "README.md")


def keep_allowed(folder: Path) -> None:
    """Delete every file of a model folder that is not on the list of allowed files (`ALLOWED`), and remove code, chat
    templates and local paths from the JSON files that stay.

    A base model may come with code (``auto_map``) or a template that is run as code (``chat_template.jinja``). Nothing
    here has checked it, but a user who loads the checkpoint would trust it.
    """
    allowed = {path for pattern in ALLOWED for path in folder.glob(pattern)}
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and path not in allowed:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        elif path.suffix == ".json" and path.name != "tokenizer.json":
            remove_foreign_keys(path)


def _protection_text(recipe: Recipe, guarantee: Guarantee | None, spent: Guarantee | None) -> str:
    """Return the sentences of the model card that say which identifiers the recipe protects, and how, and which privacy
    guarantee holds (``guarantee`` for all checkpoints, ``spent`` up to this one)."""
    sentences = []
    direct = recipe.never_target & DIRECT or recipe.context != "keep"
    indirect = recipe.never_target & INDIRECT or recipe.replaces_indirect
    kinds = {"direct identifiers": direct, "indirect identifiers": indirect}
    if recipe.text == "pseudonymised" and not direct:  # X stands for them
        del kinds["direct identifiers"]
    kept, others = ([kind for kind, is_kept in kinds.items() if bool(is_kept) == side] for side in (True, False))
    if kept:
        sentences.append(MEANINGS["protected"].format(which=" or ".join(kept)))
        sentences += [MEANINGS["half"].format(other=other) for other in others]
    if recipe.head:
        what = {"surrogate": "surrogates that were drawn anew each epoch", "tag": "tags such as [NAME]"}
        read = MEANINGS["read"] if recipe.context == "keep" else MEANINGS["replaced"]
        sentences = [MEANINGS[recipe.head], read.format(what=what.get(recipe.context)), MEANINGS["start"]]
    if recipe.text == "pseudonymised":
        sentences.append(MEANINGS["pseudonymised"])
    if recipe.private or guarantee is not None:
        sentences.append(
            MEANINGS["private"].format(guarantee=guarantee or "its epsilon stands in the record of its run")
        )
        if spent is not None and str(spent) != str(guarantee):
            sentences.append(MEANINGS["so far"].format(spent=spent))
        if guarantee is not None and guarantee.protects_nobody:
            sentences.append(guarantee.protects_nobody)
    return "\n".join(sentences or [MEANINGS["plain"]])


def export_model(folder: Path | str, out: Path | str) -> list[str]:
    """Copy the files on the list of allowed ones (`ALLOWED`) from a model folder to ``out`` (new or empty), without
    code, chat templates and local paths in their JSON; return the names of the files left out. After an error or a
    signal ``out`` holds no part of a model.

    Links are not followed, because their targets may not belong to the model.

    Raises
    ------
    ArtifactError
        The folder is not a model folder, or ``out`` is not new or empty, or cannot be written.
    """
    folder, out = Path(folder), Path(out)
    found = {path for pattern in ALLOWED for path in folder.glob(pattern) if path.is_file() and not path.is_symlink()}
    allowed = {path for path in found if path.parent == folder or not path.parent.is_symlink()}
    if folder / "config.json" not in allowed or not any(path.suffix == ".safetensors" for path in allowed):
        raise ArtifactError(f"{folder}: not a model folder (config.json and *.safetensors, none of them a link)")
    with new_folder(out):
        for path in sorted(allowed):
            copied = out / path.relative_to(folder)
            copied.parent.mkdir(mode=0o700, exist_ok=True)
            shutil.copyfile(path, copied)
            copied.chmod(0o600)
        keep_allowed(out)
    opened = {path.parent for path in allowed} - {folder}
    entries = (path for place in (folder, *opened) for path in place.iterdir())
    return sorted(str(path.relative_to(folder)) for path in entries if path not in allowed | opened)
