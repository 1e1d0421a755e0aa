"""The text of a model's tokenizer, and notices for its user before tokens are made with it.

If the tokenizer is in a file, torch is not imported to read it, because the import takes seconds.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reticent.core.json_toml import parse_json
from reticent.engine.tokenizer_library import json_of, library_tokenizer
from reticent.trainer.base_files import differing_parts, read_tokenizer_json

#: Share of a vocabulary that its own normaliser may make unreachable: lower-case vocabularies have a few such tokens.
MOST_UNREACHABLE = 0.03
#: Property that a normaliser may remove -> (letter that tests it, its id if kept); and a tokenizer of such letters.
PROBED = {"capitals": ("A", 0), "accents": ("é", 1)}
LETTERS = {"A": 0, "é": 1, "a": 2, "e": 3, "\u0301": 4}
PROBE = {"version": "1.0", "model": {"type": "BPE", "vocab": LETTERS, "merges": []}}


def tokenizer_json_of(source: str | Path, *, tested: str | None = None) -> str:
    """Return the text of the ``tokenizer.json`` of a model folder or hub name, after testing that the tokenizers
    library can use it. The test is omitted if ``tested`` is the text's SHA-256."""
    file = Path(source) / "tokenizer.json"
    if file.is_file():
        return read_tokenizer_json(file, tested=tested)
    from reticent.trainer.models import load_tokenizer

    return json_of(load_tokenizer(source))


def tokenizer_notices(source: str | Path, content: str, *, builds: bool = True) -> Iterator[str]:
    """Yield warnings for the user about a model's tokenizer ``content``: transformers would build another one from the
    folder (checked with ``builds``, which loads torch), or much of the vocabulary can never be produced."""
    share, lost = _unreachable_vocabulary(content)
    if share > MOST_UNREACHABLE:
        yield (
            f"{source}: {share:.0%} of the vocabulary have {' or '.join(lost)}, and the tokenizer removes these from "
            'every text first; if the model was trained on them, give "do_lower_case": false in '
            "tokenizer_config.json, or a tokenizer.json without lowercase and strip_accents in its normalizer"
        )
    if not builds:
        return
    try:
        from transformers import AutoTokenizer

        built = json_of(AutoTokenizer.from_pretrained(str(source), trust_remote_code=False))
        parts = differing_parts(content, built)
    except Exception:  # whoever needs it names the fault
        return
    if parts:
        yield (
            f"{source}: transformers builds another tokenizer from this folder than its tokenizer.json "
            f"({', '.join(parts)} differ); tokens, checkpoints and attacks here use tokenizer.json. If the model was "
            "trained with the other one, save that with AutoTokenizer.from_pretrained(...).save_pretrained(...) first"
        )


def _unreachable_vocabulary(text: str) -> tuple[float, list[str]]:
    """Return (share of the vocabulary that the tokenizer can never produce, as its normaliser removes capitals or
    accents; names of which of the two it removes)."""
    content = parse_json(text)
    if not content.get("normalizer"):
        return 0.0, []
    probe: Any = library_tokenizer(json.dumps({**PROBE, "normalizer": content["normalizer"]}))
    lost = {name: [number] != probe.encode(letter).ids[-1:] for name, (letter, number) in PROBED.items()}
    vocabulary = content["model"].get("vocab") or {}
    pieces = list(vocabulary) if isinstance(vocabulary, dict) else [piece for piece, _ in vocabulary]
    special = {token["content"] for token in content.get("added_tokens") or ()}
    num_lost = 0
    # Byte-level pieces are letters in place of bytes: of these those of ASCII alone stand for themselves.
    spelt_in_bytes = '"ByteLevel"' in text
    for piece in pieces:
        if piece in special or (spelt_in_bytes and not (piece := "".join(filter(str.isascii, piece)))):
            continue
        capital = lost["capitals"] and any(map(str.isupper, piece))
        num_lost += capital or (lost["accents"] and not spelt_in_bytes and any(map(_has_accent, piece)))
    return num_lost / max(len(pieces), 1), [name for name, is_lost in lost.items() if is_lost]


def _has_accent(character: str) -> bool:
    """Return whether a character has an accent, that is a combining mark in its Unicode decomposition."""
    return any(unicodedata.category(mark) == "Mn" for mark in unicodedata.normalize("NFD", character)[1:])
