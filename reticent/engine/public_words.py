"""Public words, which replace identifying words in the context of a model (definitions.md#training, context).

A pool is fixed before the corpus is looked at, and nothing is taken out of it because of the corpus: that would say
what the corpus holds. There are three kinds: ``generated`` here, from lists of stems and by a fixed draw;
``wordfreq:LANGUAGE`` (the extra ``reticent[wordfreq]``; its lists are CC BY-SA 4.0 and are no part of Reticent); or a
file of one's own, a word a line.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.errors import PolicyError
from reticent.core.json_toml import parse_json

if TYPE_CHECKING:
    from reticent._rust import ReadWords
    from reticent.engine.ngrams import NgramIndex


GENERATED = "generated"
WORDFREQ = "wordfreq:"
#: Words of a pool; of a longer list the first count.
MAX_WORDS = 20_000
#: Words that are drawn by syllables and joined of stems, and numbers of each form.
NUM_DRAWN, NUM_JOINED, NUM_NUMBERS = 2_500, 3_000, 40


def _split_words(text: str) -> list[str]:
    """Return the words of a text separated by white space."""
    return text.split()


BEFORE = _split_words(
    "hyper hypo peri endo epi intra sub supra inter trans retro ante poly micro macro neo pseudo bi tri multi iso auto "
    "hemi para meta dys eu tachy brady pan"
)
STEMS = _split_words(
    "cardi hepat gastr neur derm oste arthr my nephr pneum enter col cyst ot rhin ophthalm lith angi vascul thorac "
    "crani cerebr spin lumb tend gloss dent sinus lar trache bronch pleur splen pancreat thyr aden lymph haem"
)
AFTER = _split_words(
    "itis oma osis ectomy opathy otomy algia oscopy emia uria ine al ic oid ogram ation ment ity or ers"
)
COMMON = _split_words(
    "stone river garden winter summer letter window table silver copper yellow orange purple bright narrow gentle "
    "empty heavy early later north south market bridge castle forest island valley meadow harbor engine wheel paper "
    "pencil mirror candle blanket basket bottle kitchen ladder hammer button jacket pocket ribbon leather cotton "
    "wooden golden ancient modern simple double single triple central eastern western royal noble clever honest proud "
    "brave calm rapid steady sudden distant hidden broken frozen melted painted written spoken chosen driven carried "
    "turned moved opened closed raised lowered gathered scattered measured counted ordered visited followed answered "
    "music painter teacher farmer sailor soldier baker miller weaver hunter fisher driver player singer dancer writer "
    "reader leader owner guest child uncle cousin friend neighbour student captain doctor lawyer judge clerk nurse "
    "horse sheep goat rabbit eagle falcon salmon spider beetle maple cedar willow clover barley wheat apple cherry "
    "olive pepper ginger honey butter cheese coffee sugar bread soup salad dinner supper morning evening Monday Friday "
    "January March August October London Paris Berlin Madrid Vienna Dublin Boston Texas Spain France Canada India "
    "do go see run walk talk sing play work read write speak think know feel hold keep take give find look call want "
    "on in at up off out over under after before near far left right top side end part half full new old big small"
)
ONSETS = _split_words("b c ch d dr f g gl gr h j k l m n p pr qu r s sh st t tr v w z")
VOWELS = _split_words("a e i o u ai ea ou ie")
CODAS = ["", "n", "r", "l", "s", "t", "m", "nd", "rt", "ck"]
#: Numbers of digits, and what stands between them.
FORMS: tuple[tuple[int | str, ...], ...] = (
    *((num,) for num in range(1, 13)), (2, "/", 2, "/", 4), (1, "/", 2, "/", 2), (2, "-", 2, "-", 4), (1, ".", 1),
    (4, "-", 2, "-", 2), (2, ".", 2, ".", 4), (2, ".", 1), (3, ".", 2), (2, ":", 2), (3, "-", 3, "-", 4), (3, "/", 2),
    (2, "-", 2),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PublicWords:
    """A pool of public words, each once, and its source."""

    words: tuple[str, ...]
    source: str

    def digest(self) -> str:
        """Return the SHA-256, hexadecimal, of the words, in their order."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()


def read_public_words(source: str, setting: str = "surrogates.pool") -> PublicWords:
    """Return the list of public words that replace identifying ones: built in (``generated``), from ``wordfreq:en`` (or
    another language), or from a file; ``setting`` names the setting in errors.

    Raises
    ------
    PolicyError
        The file cannot be read or holds no word, or wordfreq is not installed or has no such language.
    """
    if source == GENERATED:
        words: Sequence[str] = generated_words()
    elif source.startswith(WORDFREQ):
        words = _read_wordfreq(source.removeprefix(WORDFREQ), setting)
    else:
        words = _read_word_file(Path(source), setting)
    kept = tuple(itertools.islice(dict.fromkeys(word for word in words if word and not word.isspace()), MAX_WORDS))
    if not kept:
        raise PolicyError(f"{setting}: {source} holds no word; {_explain_choices()}")
    return PublicWords(kept, source)


@cache
def generated_words() -> tuple[str, ...]:
    """Return the built-in list of public words: common words, joined stems, and syllables and numbers drawn with a
    fixed seed."""
    random = np.random.default_rng(20_250_101)
    joined = [stem + after for stem in STEMS for after in AFTER]
    joined += [before + stem + after for before, stem, after in itertools.product(BEFORE, STEMS, AFTER[:8])]
    random.shuffle(joined)
    return (*COMMON, *(_draw_syllables(random) for _ in range(NUM_DRAWN)), *_draw_numbers(random), *joined[:NUM_JOINED])


def _draw_syllables(random: np.random.Generator) -> str:
    """Return a random invented word of one to six syllables."""
    num = int(random.choice([1, 2, 2, 3, 3, 4, 5, 6]))
    return "".join(str(random.choice(part)) for _ in range(num) for part in (ONSETS, VOWELS, CODAS))


def _draw_numbers(random: np.random.Generator) -> Iterator[str]:
    """Yield random numbers, dates and codes in typical formats."""

    def digits(num: int) -> str:
        """Return ``num`` random digits."""
        return "".join(str(digit) for digit in random.integers(0, 10, num))

    for form in FORMS:
        for _ in range(NUM_NUMBERS):
            yield "".join(digits(part) if isinstance(part, int) else part for part in form)
    for letters, num in itertools.product(("A", "B", "C", "T", "L", "S", "MR", "ID", "mg", "x"), range(1, 8)):
        yield from (f"{letters}{digits(num)}" for _ in range(8))
        yield from (f"{digits(num)}{letters}" for _ in range(8))


def _read_wordfreq(language: str, setting: str) -> list[str]:
    """Return the most frequent words of a language from the package wordfreq."""
    try:
        from wordfreq import top_n_list
    except ImportError:
        raise PolicyError(
            f"{setting}: {WORDFREQ}{language} needs the extra reticent[wordfreq]; {_explain_choices()}"
        ) from None
    try:
        return list(top_n_list(language, MAX_WORDS))
    except LookupError:
        raise PolicyError(f"{setting}: wordfreq has no language {language!r}; {_explain_choices()}") from None


def _read_word_file(path: Path, setting: str) -> list[str]:
    """Return the lines of a text file, stripped."""
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError:
        raise PolicyError(f"{setting}: {path} is not UTF-8; expected a word a line") from None
    except OSError as error:
        raise PolicyError(f"{setting}: {path} cannot be read ({error.strerror}); {_explain_choices()}") from None


def _explain_choices() -> str:
    """Return advice on the possible sources of public words, for error messages."""
    return (
        f'choose a public pool: "{GENERATED}", "{WORDFREQ}en" (or another language), or a file with a word a line that '
        "was not made from these documents"
    )


# ------------------------------------------------------------------------------------------------------- context words
#
# ContextWords: a public pool as tokens, and the check that no identifying word is read.
#
# Made once for a training, from a tokenizer, a pool (:mod:`reticent.engine.public_words`) and the index that protects;
# a batch is then work on numbers (:mod:`reticent.engine.context_kernels`). It holds which words identify, so it is as
# secret as the index, and nothing of it is written.


#: A word of more tokens has no surrogate.
MAX_TOKENS = 32
#: A kind with fewer words of a length shares those of the other kinds.
FEWEST_WORDS = 8


@dataclass(frozen=True, slots=True)
class Replaced:
    """The input ids of a batch with identifying words replaced, int64 (B, T), and counts: words replaced, of these
    filled because no public word had their length, and replacements that happen to identify."""

    input_ids: np.ndarray
    num_words: int
    num_filled: int
    num_coincidences: int


@dataclass(frozen=True, slots=True)
class ContextWords:
    """Public words as token ids, by kind and number of tokens; see `draw_surrogates` for the arrays.

    Attributes
    ----------
    source, digest : where the pool is from, and its fingerprint
    fill : id that stands for each token of a word that has no surrogate
    reader : words that identify, as the tokenizer spells them
    """

    source: str
    digest: str
    fill: int
    reader: ReadWords
    classes: np.ndarray
    first: np.ndarray
    count: np.ndarray
    entries: np.ndarray
    pool: np.ndarray
    is_rare: np.ndarray
    fill_is_rare: np.ndarray

    def blank(self) -> ContextWords:
        """Return a copy that replaces each word by the fill token (such as the unknown token), not by public words."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return ContextWords(**{**values, "count": np.zeros_like(self.count)})

    def replace(
        self,
        input_ids: np.ndarray,
        word_ids: np.ndarray,
        replaced: np.ndarray,
        windows: np.ndarray,
        *,
        seed: int,
        epoch: int,
    ) -> Replaced:
        """Return a batch's token ids with a random public word in place of each word marked in ``replaced`` (bool, (B,
        T)), and counts of the replacements. ``windows`` numbers the rows, for the draw."""
        from reticent.engine.context_kernels import draw_surrogates

        out = np.empty_like(input_ids)
        counts = draw_surrogates(
            input_ids, word_ids, replaced, windows, self.classes, self.first, self.count, self.entries, self.pool,
            self.is_rare, self.fill, self.fill_is_rare, seed, epoch, out,
        )  # fmt: skip
        return Replaced(out, *map(int, counts))

    def count_identifying(self, input_ids: np.ndarray, word_ids: np.ndarray, skipped: np.ndarray) -> int:
        """Return the number of identifying words in a batch, not counting words that have a token in the mask
        ``skipped``."""
        return self.reader.count(
            np.ascontiguousarray(input_ids, dtype=np.int64),
            np.ascontiguousarray(word_ids, dtype=np.int32),
            np.ascontiguousarray(skipped, dtype=np.bool_),
        )


def context_words(
    tokenizer_json: str,
    pool: PublicWords,
    index: NgramIndex | None,
    k: int,
    *,
    also_shared: Sequence[str] = (),
    num_threads: int = 0,
) -> ContextWords:
    """Return an object that replaces identifying words in batches of token ids by public words of ``pool``. A word is
    identifying if fewer than ``k`` units (individuals or households) of ``index`` use it and it is not in
    ``also_shared``.

    Without an index no input can be held to it.

    Parameters
    ----------
    also_shared : words that stand in the text for others, and so identify no individual: ``X`` in pseudonymised text

    Raises
    ------
    PolicyError
        No word of the pool can be written with this tokenizer.

    Cost: encoding every distinct word of the index and a hundred thousand of the pool; some microseconds each.
    """
    from reticent.engine.context_kernels import kind_of_word

    words = pa.array([], pa.string()) if index is None else index.words().column("word")
    supports = np.zeros(0, np.int64) if index is None else index.words().column("support").to_numpy()
    surface = "exact" if index is None else index.surface
    is_rare = np.append(supports < k, np.zeros(len(also_shared), bool)).astype(np.uint8)
    words = pa.concat_arrays([words, pa.array(also_shared, words.type)])
    reader = _rust.ReadWords(tokenizer_json, words, is_rare, surface=surface, num_threads=num_threads)
    classes = reader.classes()
    ids, starts, lengths = _encode_pool(tokenizer_json, pool, reader.unknown, num_threads)
    if not len(starts):
        raise PolicyError(
            f"surrogates.pool: no word of {pool.source} can be written with this tokenizer; choose another"
        )
    kinds = np.array([kind_of_word(classes, ids, a, a + n) for a, n in zip(starts, lengths, strict=True)])
    first, count, chosen = _group_by_kind(kinds, lengths)
    rare = reader.is_rare(ids.astype(np.uint32), np.append(starts, starts[-1] + lengths[-1]).astype(np.int64))
    fill = _choose_fill_token(tokenizer_json, reader.unknown, ids, starts, lengths)
    filled = np.full(MAX_TOKENS * (MAX_TOKENS + 1) // 2, fill, np.uint32)  # once, twice, …
    fill_is_rare = reader.is_rare(filled, np.cumsum(np.arange(MAX_TOKENS + 1)))
    return ContextWords(
        pool.source, pool.digest(), fill, reader, classes, first, count, starts[chosen], ids, rare[chosen],
        np.append(np.uint8(0), fill_is_rare),
    )  # fmt: skip


def _encode_pool(
    tokenizer_json: str, pool: PublicWords, unknown: int | None, num_threads: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct token sequences of the public words, after a space or newline, in several letter cases, as
    three arrays: all token ids, and each sequence's first position and number of tokens.

    Returns ids, and first token and number of tokens of each run; runs follow each other.
    """

    spelt = dict.fromkeys(form for word in pool.words for form in (word, word.lower(), word.capitalize(), word.upper()))
    forms = [form for form in spelt if not any(character.isspace() for character in form)]
    texts = pa.array([f"a{gap}{form}" for gap in (" ", "\n") for form in forms], pa.large_string())
    words = _rust.segment(texts, num_threads=num_threads)
    none = np.zeros(words.num_words, dtype=np.uint8)
    tokens = _rust.TokenEncoder(tokenizer_json, num_threads=num_threads).encode(texts, words, none, none)
    whole = np.diff(words.doc_offsets) == 2  # a form of several words would not be one
    runs: dict[tuple[int, ...], None] = {}
    for document in np.flatnonzero(whole):
        own = slice(*tokens.doc_offsets[document : document + 2])
        found = tuple(tokens.input_ids[own][tokens.word_ids[own] == 1].tolist())
        if 0 < len(found) <= MAX_TOKENS and unknown not in found:
            runs[found] = None
    lengths = np.array([len(run) for run in runs], dtype=np.int64)
    ids = np.array([number for run in runs for number in run], dtype=np.int64)
    return ids, np.cumsum(lengths) - lengths, lengths


def _group_by_kind(kinds: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group words by kind and number of tokens; a group with few words also gets words of other kinds. Return the start
    and the size of each group in a list of word numbers, int64 (kinds, lengths), and that list."""
    from reticent.engine.context_kernels import NUM_KINDS

    first, count = (np.zeros((NUM_KINDS, MAX_TOKENS + 1), dtype=np.int64) for _ in range(2))
    chosen: list[np.ndarray] = []
    total = 0
    for length in range(1, MAX_TOKENS + 1):
        of_length = np.flatnonzero(lengths == length)
        for kind in range(NUM_KINDS):
            own = of_length[kinds[of_length] == kind]
            if len(own) < FEWEST_WORDS:  # any form, with the same space; then any
                own = of_length[kinds[of_length] // 4 == kind // 4]
            if len(own) < FEWEST_WORDS:
                own = of_length
            first[kind, length], count[kind, length] = total, len(own)
            chosen.append(own)
            total += len(own)
    return first, count, np.concatenate(chosen).astype(np.int64)


def _choose_fill_token(
    tokenizer_json: str, unknown: int | None, ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray
) -> int:
    """Return the token id for words that no public word can replace: the unknown token, else the mask token, else the
    first single-token word of the pool."""
    if unknown is not None:
        return unknown
    added = {token["content"]: int(token["id"]) for token in parse_json(tokenizer_json).get("added_tokens") or ()}
    for name in ("[UNK]", "<unk>", "[MASK]", "<mask>"):
        if name in added:
            return added[name]
    single = np.flatnonzero(lengths == 1)
    return int(ids[starts[single[0]] if len(single) else 0])
