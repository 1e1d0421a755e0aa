"""Adapter for the Python library `tokenizers`, versions 0.23 and 1.0.

A tokenizer of 1.0 has no parts, no ``from_str``, ``to_str`` or ``decode_batch``, and its tokens have no offsets. What
runs for a user therefore encodes and decodes by the crate in our own core; an object of the Python library is made for
transformers, and to compare two files. The oracle of tokens and the learning of vocabularies need 0.23.
"""

from __future__ import annotations

from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from reticent.core.json_toml import parse_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from reticent import _rust

#: Tokenizers of transformers -> the ``tokenizer.json`` that they were made of, and the core's own.
_MADE_OF: WeakKeyDictionary[PreTrainedTokenizerFast, str] = WeakKeyDictionary()
_OPENED: WeakKeyDictionary[PreTrainedTokenizerFast, _rust.LibraryTokenizer] = WeakKeyDictionary()


def library_tokenizer(tokenizer_json: str) -> Any:
    """Return a tokenizer of the Python library tokenizers made from the text of a ``tokenizer.json``; the library's
    errors pass through."""
    from tokenizers import Tokenizer

    if hasattr(Tokenizer, "from_str"):
        return Tokenizer.from_str(tokenizer_json)
    with NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as file:
        file.write(tokenizer_json)
        file.flush()
        return Tokenizer.from_file(file.name)


def library_json(tokenizer: Any) -> str:
    """Return the ``tokenizer.json`` text of a tokenizer of the Python library; versions of the library write different
    JSON."""
    return str(tokenizer.to_str() if hasattr(tokenizer, "to_str") else tokenizer.__reduce__()[1][0])


def remember_json(tokenizer: PreTrainedTokenizerFast, tokenizer_json: str) -> PreTrainedTokenizerFast:
    """Record the ``tokenizer.json`` text that a transformers tokenizer was made from, so that `json_of` returns it;
    return the tokenizer."""
    _MADE_OF[tokenizer] = tokenizer_json
    return tokenizer


def json_of(tokenizer: Any) -> str:
    """Return the ``tokenizer.json`` text of a transformers tokenizer."""
    return _MADE_OF.get(tokenizer) or library_json(tokenizer.backend_tokenizer)


def core_tokenizer(tokenizer: PreTrainedTokenizerFast) -> _rust.LibraryTokenizer:
    """Return the Rust core's tokenizer equivalent to a transformers one, without padding or truncation.

    Cost: up to .3 s for a large vocabulary, once for each tokenizer.
    """
    from reticent import _rust  # a machine that only trains may lack the core

    if tokenizer not in _OPENED:
        _OPENED[tokenizer] = _rust.LibraryTokenizer(json_of(tokenizer))
    return _OPENED[tokenizer]


def names_in(tokenizer_json: str) -> set[str]:
    """Return the text of all tokens in a ``tokenizer.json``, added ones included."""
    content = parse_json(tokenizer_json)
    vocabulary = content["model"].get("vocab") or {}
    pieces = vocabulary if isinstance(vocabulary, dict) else (piece for piece, _ in vocabulary)
    return {*pieces, *(token["content"] for token in content.get("added_tokens") or ())}
