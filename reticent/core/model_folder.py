"""Model folders: resolving a model name, and checking which files hold the weights.

A base model is an input of a run: another model with the same digest would be taken for it. So the weights that a
loader reads must be files of the folder itself, which the digest covers, and a name on the hub is the snapshot that
the local cache holds. Links are followed, since snapshots of the hub are made of them, and are hashed by content.
"""

from __future__ import annotations

import os
from pathlib import Path

from reticent.core.errors import ArtifactError
from reticent.core.json_toml import read_json

#: What a snapshot of the hub is asked for: nothing that holds code, and no weights in another form.
FROM_THE_HUB = ("*.json", "*.safetensors", "*.gguf", "*.txt", "*.model")


def folder_of_model(name_or_path: str | Path, *, download: bool = False) -> Path | None:
    """Return the local folder of a model, given as a path or as a name on the Hugging Face Hub, which is looked up in
    the local cache and, if ``download``, fetched. None if there is none.

    Parameters
    ----------
    download : bool
        Fetch a snapshot that is missing or old, where ``HF_HUB_OFFLINE=0`` allows it.
    """
    if Path(name_or_path).exists():
        return Path(name_or_path)
    from huggingface_hub import snapshot_download, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        if download:
            return Path(snapshot_download(str(name_or_path), allow_patterns=list(FROM_THE_HUB)))
        found = try_to_load_from_cache(str(name_or_path), "config.json")
    except (HFValidationError, OSError, ValueError):  # no such name, no network, no room: its loader says which
        return None
    return Path(found).parent if isinstance(found, str) else None


def check_weight_files(folder: Path) -> None:
    """Raise `ArtifactError` if a model folder names weight files outside itself or hidden ones, or holds an adapter
    (whose base weights are elsewhere)."""
    for index in sorted(folder.glob("*.index.json")):
        content = read_json(index)
        names = content.get("weight_map") if isinstance(content, dict) else None
        for name in sorted(set(names.values()), key=str) if isinstance(names, dict) else ():
            _require_plain_name(name, f"{index}: weight_map")
    if (folder / "config.json").is_file():
        content = read_json(folder / "config.json")
        if isinstance(content, dict) and content.get("transformers_weights") is not None:
            _require_plain_name(content["transformers_weights"], f"{folder / 'config.json'}: transformers_weights")
    if (folder / "adapter_config.json").exists():
        raise ArtifactError(
            f"{folder}: an adapter (adapter_config.json), whose weights belong to another model; merge it into that one"
        )


def _require_plain_name(name: object, where: str) -> None:
    """Raise `ArtifactError` unless the name of a weight file has no path and no leading dot."""
    # A name that begins with a dot is in no digest.
    if not isinstance(name, str) or os.path.basename(name) != name or name.startswith(".") or "\\" in name:
        raise ArtifactError(f"{where}: expected names of files of this folder, without a path or a dot before them")
