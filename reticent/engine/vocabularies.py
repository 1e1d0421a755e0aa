"""``tokenizer.json`` made from plain vocabulary files, in the form of BERT's or GPT-2's."""

from __future__ import annotations

from pathlib import Path

from reticent.core.errors import ArtifactError
from reticent.core.json_toml import parse_json

__all__ = ["bytelevel_tokenizer_json", "wordpiece_tokenizer_json"]


def wordpiece_tokenizer_json(vocab_path: Path | str, *, lowercase: bool = False) -> str:
    """Return BERT's tokenizer from a ``vocab.txt``; ``lowercase`` is its uncased variant (no accents)."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    vocabulary = {token: number for number, token in enumerate(_lines(vocab_path))}
    missing = [token for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if token not in vocabulary]
    if missing:
        raise ArtifactError(f"{vocab_path}: no token {missing[0]}")
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    return tokenizer.to_str()


def bytelevel_tokenizer_json(vocab_path: Path | str, merges_path: Path | str) -> str:
    """Return GPT-2's tokenizer from ``vocab.json`` and ``merges.txt``."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    try:
        vocabulary = parse_json(Path(vocab_path).read_bytes())
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{vocab_path}: not a readable vocabulary ({type(error).__name__})") from None
    pairs = [line.split(" ") for line in _lines(merges_path) if line and not line.startswith("#version")]
    wrong = [number for number, pair in enumerate(pairs) if len(pair) != 2 or "".join(pair) not in vocabulary]
    if wrong:
        raise ArtifactError(f"{merges_path}: merge {wrong[0] + 1} is not two tokens that make one of {vocab_path}")
    tokenizer = Tokenizer(models.BPE(vocabulary, [(left, right) for left, right in pairs]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer.to_str()


def _lines(path: Path | str) -> list[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path}: not a readable vocabulary ({type(error).__name__})") from None
    return lines if lines[-1] else lines[:-1]  # the last line may lack its newline
