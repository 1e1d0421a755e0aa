"""Consistency checks of the files of a model folder, made before a library loads them.

If ``config.json`` and the weights disagree on the vocabulary, loading fails deep inside torch, or allocates all memory.
This module also lists the keys that hold or name code: none of them is copied into a checkpoint.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from reticent.core.errors import ArtifactError, TrainingError
from reticent.core.json_toml import parse_json, read_json
from reticent.core.model_folder import check_weight_files
from reticent.engine.tokenizer_library import library_json, library_tokenizer

#: JSON files of a model folder that transformers reads.
READ = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "model.safetensors.index.json",
)


#: The parts of ``tokenizer.json`` that determine how a text is tokenised.
PARTS = ("normalizer", "pre_tokenizer", "model")
#: Keys that name code, hold a template that is run as code, or hold a path on the machine that wrote the file.
FOREIGN_KEYS = frozenset(
    {
        "auto_map", "custom_pipelines", "custom_generate", "chat_template", "_name_or_path", "name_or_path",
        "tokenizer_file", "vocab_file", "merges_file", "special_tokens_map_file", "added_tokens_file",
    }
)  # fmt: skip


def check_base(folder: Path | str, *, tokenizer: str | None = None, window_length: int = 0) -> None:
    """Raise `ArtifactError` unless the files of a model folder can be read and agree on the size of the vocabulary, and
    `TrainingError` where a window has more tokens than the model has positions.

    A folder without ``config.json`` is left to its loader. Cost: reads the headers of the weights and no weight.

    Parameters
    ----------
    folder : path of the model folder
    tokenizer : str, text of the model's ``tokenizer.json``; each of its ids must have a row in the embeddings; None:
        not checked
    window_length : int, number of tokens of a training window, special ones included; 0: not checked
    """
    folder = Path(folder)
    for name in READ:
        if (folder / name).is_file() and not isinstance(read_json(folder / name), dict):
            raise ArtifactError(f"{folder / name}: expected a JSON object")
    if folder.is_dir():
        check_weight_files(folder)
    if not (folder / "config.json").is_file():
        return
    config = read_json(folder / "config.json")
    _check_numbers(config, str(folder / "config.json"))
    for section in (config, config.get("text_config")):
        if isinstance(section, dict) and "vocab_size" in section:
            _check_vocabulary(folder, section["vocab_size"], "quantization_config" in config, tokenizer)
        for positions in _context_lengths(section):
            if 0 < positions < window_length:
                raise TrainingError(
                    f"train.window_length: {window_length} tokens are more than the {positions} positions of {folder}"
                )


def positions_in(folder: Path) -> int | None:
    """Return the context length of the model in a folder, in tokens; None if ``config.json`` does not say."""
    file = folder / "config.json"
    return next(_context_lengths(read_json(file) if file.is_file() else {}), None)


def _context_lengths(config: Any) -> Iterator[int]:
    """Yield the context lengths that a ``config.json`` names, in tokens."""
    for name in ("max_position_embeddings", "n_positions") if isinstance(config, dict) else ():
        if isinstance(config.get(name), int):
            yield int(config[name])


#: Largest plausible numbers of a config: positions or bytes of a table, and layers (a thousand in published models).
MOST, MOST_PARTS = 1 << 27, 2_000
#: Names of config numbers that count modules.
COUNTED = re.compile(r"layers?$|experts|groups|blocks|stacks|num_labels")


def num_weights(folder: Path) -> int:
    """Return the number of entries of all weight matrices in a folder's safetensors files, from their headers."""
    return sum(math.prod(shape) for file in folder.glob("*.safetensors") for shape in shapes_of(file) if len(shape) > 1)


def _check_numbers(value: Any, where: str) -> None:
    """Raise `ArtifactError` for an implausibly large number in a config, which would exhaust memory or time in
    loading."""
    if isinstance(value, dict):
        for name, inner in value.items():
            # An id may be of a token that the model does not have; the vocabulary has a check of its own.
            if isinstance(inner, int) and not re.search(r"(^|_)(id|ids|seed|vocab_size)$", name):
                most = MOST_PARTS if COUNTED.search(name) else MOST
                if inner > most:
                    raise ArtifactError(f"{where}: {name}: expected at most {most:,}, got {inner}")
            _check_numbers(inner, f"{where}: {name}")
    elif isinstance(value, list):
        for inner in value:
            _check_numbers(inner, where)
    elif isinstance(value, float) and math.isnan(value):
        raise ArtifactError(f"{where}: NaN is no number")


def _check_vocabulary(folder: Path, size: Any, quantised: bool, tokenizer: str | None) -> None:
    """Raise `ArtifactError` unless the vocabulary size fits the weights and the tokenizer's ids."""
    where = f"{folder / 'config.json'}: vocab_size"
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        got = size if isinstance(size, int) else type(size).__name__
        raise ArtifactError(f"{where}: expected a number of tokens, got {got}")
    weights = [] if quantised else sorted(folder.glob("*.safetensors"))
    rows = {shape[0] for file in weights for shape in shapes_of(file) if len(shape) > 1}
    if rows and size not in rows:
        raise ArtifactError(f"{where}: {size:,} tokens, but no matrix of the weights has as many rows")
    if tokenizer is None or not _may_reach(tokenizer, size):
        return
    if (largest := _largest_id(tokenizer)) >= size:
        raise ArtifactError(
            f"{where}: {size:,} tokens, but {folder / 'tokenizer.json'} has ids up to {largest:,}; is it another's?"
        )


def shapes_of(file: Path) -> list[list[int]]:
    """Return the shapes of the tensors in a safetensors file, from its header; raise `ArtifactError` if it is
    unreadable."""
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if length > file.stat().st_size:
                raise ValueError
            header = parse_json(opened.read(length))
        shapes: list[list[int]] = [about["shape"] for name, about in header.items() if name != "__metadata__"]
        if not all(isinstance(shape, list) for shape in shapes):
            raise ValueError
        return shapes
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
        raise ArtifactError(f"{file}: not readable safetensors") from None


def _may_reach(tokenizer: str, size: int) -> bool:
    """Whether a tokenizer's vocabulary may have an id of ``size`` or more, by a fast search of its JSON text."""
    return re.search(rf":\s*{_at_least(size)}", tokenizer) is not None or tokenizer.count("[") >= size


def _at_least(number: int) -> str:
    """Return a regular expression that matches the decimal numbers from ``number`` on."""
    digits = str(number)
    larger = (
        f"{digits[:place]}[{int(digit) + 1}-9][0-9]{{{len(digits) - place - 1}}}"
        for place, digit in enumerate(digits)
        if digit < "9"
    )
    return f"(?:[0-9]{{{len(digits) + 1}}}|{'|'.join((digits, *larger))})"


def _largest_id(tokenizer: str) -> int:
    """Return the largest token id of a tokenizer's own vocabulary, without added tokens, which may lie beyond the
    embeddings if unused."""
    model = parse_json(tokenizer).get("model") or {}
    vocabulary = model.get("vocab") or {}
    if isinstance(vocabulary, list):  # Unigram: by place
        return len(vocabulary) - 1
    return max(vocabulary.values(), default=-1)


def remove_foreign_keys(path: Path) -> None:
    """Remove the keys that name code, hold a chat template or hold a local path (`FOREIGN_KEYS`) from a JSON file, in
    place and at any depth; a file without such keys is not rewritten."""
    content = read_json(path)
    kept = _drop_foreign_keys(content)
    if kept != content:
        path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _drop_foreign_keys(value: Any) -> Any:
    """Return JSON values without the keys that name code, hold a chat template or hold a local path
    (`FOREIGN_KEYS`)."""
    if isinstance(value, dict):
        return {key: _drop_foreign_keys(inner) for key, inner in value.items() if key not in FOREIGN_KEYS}
    return [_drop_foreign_keys(inner) for inner in value] if isinstance(value, list) else value


def read_tokenizer_json(file: Path | str, *, tested: str | None = None) -> str:
    """Return the text of a ``tokenizer.json`` file; raise `ArtifactError`, naming the file, if the tokenizers library
    cannot use it. This test is omitted if ``tested`` is the SHA-256 of the text."""
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
    """Return a tokenizer's JSON text unchanged if the library can use it; raise `ArtifactError` if not.

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
    """Return what is wrong with a tokenizer's JSON text, None if nothing; cached, as many models of a run share it.

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


def differing_parts(one: str, other: str) -> list[str]:
    """Return the names of the parts in which two tokenizers, as JSON, tokenise texts differently; empty if they agree.

    Raises
    ------
    ArtifactError
        One of them cannot be read.
    """
    if one == other:
        return []
    ours, theirs = _normal_parts(one), _normal_parts(other)
    return [name for name in PARTS if ours[name] != theirs[name]]


@lru_cache(maxsize=4)
def _normal_parts(text: str) -> dict[str, Any]:
    """Return the parts of a tokenizer that determine how it tokenises texts (`PARTS`), by name, as the library reads
    them from its JSON, with defaults filled in."""
    try:
        with panic_as_error("tokenizer.json"):
            content = parse_json(library_json(library_tokenizer(text)))
    except ArtifactError:
        raise
    except Exception:  # the library raises nothing narrower
        raise ArtifactError("tokenizer.json: not a readable tokenizer") from None
    return {name: content[name] for name in PARTS}


@contextmanager
def panic_as_error(where: str) -> Iterator[None]:
    """Raise `ArtifactError` if the ``with`` block ends in a panic of the tokenizers library, which is not an
    `Exception` and would end a run."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ArtifactError(f"{where}: cannot be used (the tokenizers library fails on it)") from None
