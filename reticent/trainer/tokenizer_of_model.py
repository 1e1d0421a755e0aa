"""The text of a model's tokenizer. If it is in a file, torch is not imported, because the import takes seconds."""

from __future__ import annotations

from pathlib import Path

from reticent.trainer.base_files import read_tokenizer_json

__all__ = ["tokenizer_json_of"]


def tokenizer_json_of(source: str | Path, *, tested: str | None = None) -> str:
    """Return the ``tokenizer.json`` of a model folder or hub name, as text; ``tested`` as in `read_tokenizer_json`."""
    file = Path(source) / "tokenizer.json"
    if file.is_file():
        return read_tokenizer_json(file, tested=tested)
    from reticent.trainer.models import load_tokenizer

    return load_tokenizer(source).backend_tokenizer.to_str()
