"""Tokenizers of the obfuscation lab: one of each way that a text can come to tokens, trained on a few lines.

Vocabularies are tiny, so that a name is cut into many pieces and each has its chance to get away. Where
``RETICENT_DATA`` holds published vocabularies, these are tried too.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from functools import cache

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from benchmarks.record_io import DATA

__all__ = ["GPT4O", "KINDS", "LLAMA3", "TOY_KINDS", "published_tokenizers", "split_by", "tokenizer_json"]

LINES = [
    "the patient was seen by Dr. Smith on 2021-03-04 and again at 10:45, on the ward of the old hospital",
    "le patient a été vu à l'hôpital Saint-Élie, tél. 06 12 34 56 78; rien à signaler (voir plus bas)",
    "Zor and Quib were here; zo qu ne li eb ck ZO QU NE LI EB CK",
    "שלום עולם 患者 田中 ひらがな カタカナ ไทย नमस्ते مرحبا 한국어 😀 🇫🇷 é ﬁn ½ — “ok” <s> [MASK] <|endoftext|>",
] * 10
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
#: How Llama 3 cuts a text (its ``tokenizer.json``).
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
#: How GPT-4o and gpt-oss do.
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _wordpiece(lowercase: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=BERT_SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


def _bytelevel(pre_tokenizer: pre_tokenizers.PreTokenizer) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


def split_by(pattern: str, behavior: str = "isolated") -> pre_tokenizers.PreTokenizer:
    """Return the steps of tokenizers that split by an expression of their own, before ByteLevel renames the bytes."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior), level])


def _split(pattern: str) -> Tokenizer:
    return _bytelevel(split_by(pattern))


def _qwen() -> Tokenizer:
    """Composed characters, digits by themselves, an added token that is no special one."""
    tokenizer = _split(LLAMA3.replace("{1,3}", ""))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("th", normalized=False)])
    return tokenizer


def _digits_apart() -> Tokenizer:
    """As StarCoder and SmolLM have it."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return _bytelevel(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level]))


def _spaces_added() -> Tokenizer:
    """As ModernBERT and OLMo have it: tokens of white space that are no special ones."""
    tokenizer = _bytelevel(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken(" " * num, normalized=True) for num in (2, 3, 4)])
    return tokenizer


def _unigram(normalizer: normalizers.Normalizer) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=250, special_tokens=["<unk>", "<s>", "</s>", "[MASK]"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


def _sentencepiece() -> Tokenizer:
    """As XLM-R, T5 and CamemBERT have it: a map of SentencePiece, here a small one; it deletes, expands, replaces."""
    deleted = [*range(1, 9), 0xB, *range(0xE, 0x20), 0x7F]
    pairs = {chr(c): "" for c in deleted} | dict.fromkeys("\u00a0\u200b\u2009\u2028\u3000\ufeff", " ")
    pairs |= {chr(c + 0xFEE0): chr(c) for c in range(0x21, 0x7F)} | {"½": "1⁄2", "¾": "3⁄4", "ﬁ": "fi", "ﬂ": "fl"}
    collapse = normalizers.Replace(Regex(" {2,}"), " ")
    return _unigram(normalizers.Sequence([normalizers.Precompiled(charsmap(pairs)), collapse]))


def charsmap(pairs: Mapping[str, str]) -> bytes:
    """Return a ``precompiled_charsmap`` of SentencePiece: a double array (Darts) over UTF-8, and what it leads to."""
    strings, places = bytearray(), {}
    for made in dict.fromkeys(pairs.values()):
        places[made] = len(strings)
        strings += made.encode() + b"\0"
    units: dict[int, int] = {}
    blocks = itertools.count(1)

    def put(position: int, label: int, suffixes: dict[bytes, str]) -> None:
        # Each node has a block of 256 for its children, so nothing has to be fitted.
        base = 256 * next(blocks)
        units[position] = label | (b"" in suffixes) << 8 | (position ^ base) << 10
        if b"" in suffixes:
            units[base] = 1 << 31 | places[suffixes[b""]]
        for byte in sorted({suffix[0] for suffix in suffixes if suffix}):
            put(base ^ byte, byte, {s[1:]: made for s, made in suffixes.items() if s[:1] == bytes([byte])})

    put(0, 0, {key.encode(): made for key, made in pairs.items()})
    array = b"".join(units.get(at, 0).to_bytes(4, "little") for at in range((max(units) // 256 + 1) * 256))
    return len(array).to_bytes(4, "little") + array + bytes(strings)


def _byte_fallback() -> Tokenizer:
    """As Llama 2 has it: no cuts, ``▁`` for spaces and one more in front, bytes for what the vocabulary lacks."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    # Letters of ASCII alone: everything else falls back.
    lines = ["".join(c for c in line if c.isascii()) for line in LINES]
    trainer = trainers.BpeTrainer(vocab_size=480, special_tokens=special, show_progress=False, max_token_length=8)
    tokenizer.train_from_iterator(lines, trainer)
    # Bytes are ordinary tokens of the vocabulary, not added ones.
    tokenizer = _without_added(tokenizer, keep=3)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _without_added(tokenizer: Tokenizer, keep: int) -> Tokenizer:
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = content["added_tokens"][:keep]
    return Tokenizer.from_str(json.dumps(content))


def _nfd() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


def _added() -> Tokenizer:
    """Special and ordinary added tokens that stand in texts, take the blanks beside them, or cut names in two."""
    tokenizer = _bytelevel(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.add_special_tokens([AddedToken("<|name|>", special=True), AddedToken("Quib", special=True)])
    tokenizer.add_tokens(
        [
            AddedToken("line", normalized=False),
            AddedToken("was", lstrip=True, rstrip=True),
            AddedToken("@", lstrip=True),
            AddedToken("ward", single_word=True),
            AddedToken("zo", normalized=True),
            AddedToken("🦄"),
            AddedToken("(", rstrip=True),
        ]
    )
    return tokenizer


#: Name -> how it is made.
KINDS: dict[str, Callable[[], Tokenizer]] = {
    "WordPiece, uncased": lambda: _wordpiece(True),
    "WordPiece, cased": lambda: _wordpiece(False),
    "byte-level BPE": lambda: _bytelevel(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "byte-level, prefix space": lambda: _bytelevel(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "superword BPE": lambda: _bytelevel(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)),
    "Unigram, NFKC": lambda: _unigram(normalizers.NFKC()),
    "Unigram, SentencePiece": _sentencepiece,
    "BPE, byte fallback": _byte_fallback,
    "Llama 3 split": lambda: _split(LLAMA3),
    "GPT-4o split": lambda: _split(GPT4O),
    "Qwen split, NFC": _qwen,
    "digits apart": _digits_apart,
    "spaces added, NFC": _spaces_added,
    "NFD, no accents": _nfd,
    "added tokens": _added,
}
TOY_KINDS = ("WordPiece, uncased", "byte-level BPE", "BPE, byte fallback")


@cache
def tokenizer_json(kind: str) -> str:
    """Return the ``tokenizer.json`` of a kind; the same text in every process."""
    return KINDS[kind]().to_str()


def published_tokenizers() -> dict[str, str]:
    """Return the published tokenizers that are there, name -> ``tokenizer.json``."""
    from reticent.engine.vocabularies import bytelevel_tokenizer_json, wordpiece_tokenizer_json

    folder, found = DATA / "tokenizer_vocabs", {}
    for name in ("bert-base-cased", "bert-base-uncased", "bert-base-multilingual-cased"):
        if (path := folder / name / "vocab.txt").exists():
            found[name] = wordpiece_tokenizer_json(path, lowercase="uncased" in name)
    if (path := folder / "gpt2" / "vocab.json").exists():
        found["gpt2"] = bytelevel_tokenizer_json(path, path.with_name("merges.txt"))
    return found
