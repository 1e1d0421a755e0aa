"""The text of a ``tokenizer.json``, read and tested.

The Rust core tests every ``tokenizer.json`` before Python's tokenizers library may load it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from reticent.core.errors import ArtifactError

__all__ = ["checked_tokenizer_json", "read_tokenizer_json", "without_panic"]


def read_tokenizer_json(file: Path | str, *, tested: str | None = None) -> str:
    """Return the text of a ``tokenizer.json`` that works; `ArtifactError` names the file.

    Parameters
    ----------
    tested : SHA-256 (hex) of a text that was tested before; it is not tested again
    """
    try:
        data = Path(file).read_bytes()
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{file}: not valid UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise ArtifactError(f"{file}: cannot be read ({error.strerror})") from None
    if tested is not None and sha256(data).hexdigest() == tested:
        return text
    return checked_tokenizer_json(text, str(file))


def checked_tokenizer_json(text: str, where: str) -> str:
    """Return the text of a tokenizer after a test.

    Raises
    ------
    ArtifactError
        The text cannot be read, or the library fails with it on ordinary text, by an error or a panic.
    """
    if wrong := _fault_of(text):
        raise ArtifactError(f"{where}: not a readable tokenizer.json: {wrong}")
    return text


@lru_cache(maxsize=4)
def _fault_of(text: str) -> str | None:
    """The faults of a tokenizer, or None. Each text is tested once, because many models of a run share it.

    A machine that only trains may lack the core; its tokenizers were tested where the tokens were made.
    """
    try:
        from reticent import _rust
    except ImportError:
        return None
    try:
        _rust.check_tokenizer(text)
    except ArtifactError as error:
        return str(error).removeprefix("tokenizer.json ")
    return None


@contextmanager
def without_panic(where: str) -> Iterator[None]:
    """Raise `ArtifactError` for a panic of the tokenizers library, which is not an `Exception` and would end a run."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ArtifactError(f"{where}: cannot be used (the tokenizers library fails on it)") from None
