"""Public words: what stands in the context where an identifying word stood (definitions.md#training, context).

A pool is fixed before the corpus is looked at, and nothing is taken out of it because of the corpus: that would say
what the corpus holds. There are three kinds: ``generated`` here, from lists of stems and by a fixed draw;
``wordfreq:LANGUAGE`` (the extra ``reticent[wordfreq]``; its lists are CC BY-SA 4.0 and are no part of Reticent); or a
file of one's own, a word a line.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reticent.core.errors import PolicyError

__all__ = ["GENERATED", "PublicWords", "generated_words", "read_public_words"]

GENERATED = "generated"
WORDFREQ = "wordfreq:"
#: Words of a pool; of a longer list the first count.
MAX_WORDS = 20_000
#: Words that are drawn by syllables and joined of stems, and numbers of each form.
NUM_DRAWN, NUM_JOINED, NUM_NUMBERS = 2_500, 3_000, 40


def _listed(text: str) -> list[str]:
    return text.split()


BEFORE = _listed(
    "hyper hypo peri endo epi intra sub supra inter trans retro ante poly micro macro neo pseudo bi tri multi iso auto "
    "hemi para meta dys eu tachy brady pan"
)
STEMS = _listed(
    "cardi hepat gastr neur derm oste arthr my nephr pneum enter col cyst ot rhin ophthalm lith angi vascul thorac "
    "crani cerebr spin lumb tend gloss dent sinus lar trache bronch pleur splen pancreat thyr aden lymph haem"
)
AFTER = _listed("itis oma osis ectomy opathy otomy algia oscopy emia uria ine al ic oid ogram ation ment ity or ers")
COMMON = _listed(
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
ONSETS = _listed("b c ch d dr f g gl gr h j k l m n p pr qu r s sh st t tr v w z")
VOWELS = _listed("a e i o u ai ea ou ie")
CODAS = ["", "n", "r", "l", "s", "t", "m", "nd", "rt", "ck"]
#: Numbers of digits, and what stands between them.
FORMS: tuple[tuple[int | str, ...], ...] = (
    *((num,) for num in range(1, 13)), (2, "/", 2, "/", 4), (1, "/", 2, "/", 2), (2, "-", 2, "-", 4), (1, ".", 1),
    (4, "-", 2, "-", 2), (2, ".", 2, ".", 4), (2, ".", 1), (3, ".", 2), (2, ":", 2), (3, "-", 3, "-", 4), (3, "/", 2),
    (2, "-", 2),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PublicWords:
    """A pool: its words, each once, and where they are from."""

    words: tuple[str, ...]
    source: str

    def digest(self) -> str:
        """Return a fingerprint of the words in their order."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()


def read_public_words(source: str) -> PublicWords:
    """Return the pool of a source: ``generated``, ``wordfreq:en`` (or another language), or the path of a file.

    Raises
    ------
    PolicyError
        The file cannot be read or holds no word, or wordfreq is not installed or has no such language.
    """
    if source == GENERATED:
        words = generated_words()
    elif source.startswith(WORDFREQ):
        words = _of_wordfreq(source.removeprefix(WORDFREQ))
    else:
        words = _of_file(Path(source))
    kept = tuple(itertools.islice(dict.fromkeys(word for word in words if word and not word.isspace()), MAX_WORDS))
    if not kept:
        raise PolicyError(f"surrogates.pool: {source} holds no word; {_choices()}")
    return PublicWords(kept, source)


def generated_words() -> list[str]:
    """Return the pool that comes with Reticent: stems joined, syllables and numbers drawn by a fixed seed."""
    random = np.random.default_rng(20_250_101)
    joined = [stem + after for stem in STEMS for after in AFTER]
    joined += [before + stem + after for before, stem, after in itertools.product(BEFORE, STEMS, AFTER[:8])]
    random.shuffle(joined)
    return [*COMMON, *(_syllables(random) for _ in range(NUM_DRAWN)), *_numbers(random), *joined[:NUM_JOINED]]


def _syllables(random: np.random.Generator) -> str:
    num = int(random.choice([1, 2, 2, 3, 3, 4, 5, 6]))
    return "".join(str(random.choice(part)) for _ in range(num) for part in (ONSETS, VOWELS, CODAS))


def _numbers(random: np.random.Generator) -> Iterator[str]:
    def digits(num: int) -> str:
        return "".join(str(digit) for digit in random.integers(0, 10, num))

    for form in FORMS:
        for _ in range(NUM_NUMBERS):
            yield "".join(digits(part) if isinstance(part, int) else part for part in form)
    for letters, num in itertools.product(("A", "B", "C", "T", "L", "S", "MR", "ID", "mg", "x"), range(1, 8)):
        yield from (f"{letters}{digits(num)}" for _ in range(8))
        yield from (f"{digits(num)}{letters}" for _ in range(8))


def _of_wordfreq(language: str) -> list[str]:
    try:
        from wordfreq import top_n_list
    except ImportError:
        raise PolicyError(
            f"surrogates.pool: {WORDFREQ}{language} needs the extra reticent[wordfreq]; {_choices()}"
        ) from None
    try:
        return list(top_n_list(language, MAX_WORDS))
    except LookupError:
        raise PolicyError(f"surrogates.pool: wordfreq has no language {language!r}; {_choices()}") from None


def _of_file(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError:
        raise PolicyError(f"surrogates.pool: {path} is not UTF-8; expected a word a line") from None
    except OSError as error:
        raise PolicyError(f"surrogates.pool: {path} cannot be read ({error.strerror}); {_choices()}") from None


def _choices() -> str:
    return (
        f'choose a public pool: "{GENERATED}", "{WORDFREQ}en" (or another language), or a file with a word a line that '
        "was not made from these documents"
    )
