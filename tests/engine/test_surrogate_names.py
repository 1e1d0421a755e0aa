"""Names of surrogates: realistic ones in step, fixed without the corpus; languages; files of one's own."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reticent import _rust
from reticent.core.errors import PolicyError
from reticent.engine import names as names_module
from reticent.engine.languages import LANGUAGES, LanguageCount
from reticent.engine.names import SurrogateNames
from reticent.engine.pseudonymize import OUTCOMES, pseudonymise_batch

KEY = bytes(range(32))
TABLES = tomllib.loads(Path(names_module.__file__).with_name("names.toml").read_text(encoding="utf-8"))
#: Of the names that come with Reticent. Another digest makes new artefacts of every run that draws them: it may change
#: only together with a line of the changelog.
DIGEST = "d0353a6887783ddac8dcfecba5be4391366bd9f4f7ae19ceb54939fee3bcb8c6"


def drawn(
    values: list[tuple[str, str]], language: str = "en", individual: str | list[str] = "p0", **options: Any
) -> list[str]:
    """Surrogates of values with their labels, each in a document of its own, of one or of as many individuals."""
    texts = pa.array([value for _, value in values], pa.large_string())
    individuals = [individual] * len(texts) if isinstance(individual, str) else individual
    batch = pa.record_batch(
        {"doc_id": [str(row) for row in range(len(texts))], "individual_id": individuals, "text": texts}
    )
    lengths = np.array([len(value) for _, value in values], dtype=np.int32)
    spans = (np.arange(len(values) + 1), np.zeros_like(lengths), lengths, pa.array([label for label, _ in values]))
    options = {"names": SurrogateNames(language=language).pool(), "style": "surrogate", "key": KEY, **options}
    return pseudonymise_batch(batch, spans, **options).texts.to_pylist()


def names(*values: str, **options: Any) -> list[str]:
    return drawn([("NAME", value) for value in values], **options)


def of(language: str, *kinds: str) -> set[str]:
    return {name for kind in kinds for name in TABLES[language][kind].split()}


@pytest.mark.parametrize("language", LANGUAGES)
def test_surrogates_are_names_of_the_language_in_step_with_each_other(language: str) -> None:
    for number in range(5):
        given, loud, quiet, short, initials, woman, mail, town = drawn(
            [
                *(("NAME", name) for name in ("John Smith", "SMITH, JOHN", "smith's", "J. Smith", "JS", "Mary")),
                *(("EMAIL", "j.smith7@clinic.org"), ("CITY", "Boston")),
            ],
            language,
            f"p{number}",
        )
        first, last = given.split(" ")
        assert first in of(language, "men")
        assert last in of(language, "surnames")
        assert woman in of(language, "women")
        assert town in of(language, "places")
        assert loud == f"{last.upper()}, {first.upper()}"
        assert quiet == f"{last.lower()}'s"
        assert short == f"{initials[0]}. {last}"
        plain = [re.sub(r"\W", "", folded(name)) for name in (first, last)]
        assert initials.lower() == plain[0][0] + plain[1][0]
        assert re.fullmatch(rf"{plain[0][0]}\.{plain[1]}\d@[a-z]+\.example", mail)
        assert (first[0], last[0]) != ("J", "S")


def folded(name: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", name.lower()) if not unicodedata.combining(c))


def test_the_draw_depends_on_key_individual_and_value_alone() -> None:
    first = names("Ann Lee", "Lee")
    assert names("Lee", "Ann Lee") == first[::-1]
    assert names("Ann Lee", "Lee", num_threads=2) == first
    assert names("Ann Lee", "Lee", individual="p1") != first
    assert names("Ann Lee", "Lee", key=bytes(32)) != first
    fresh = [names("Ann Lee", style="rotate", draw=draw) for draw in (1, 2, 1)]
    assert fresh[0] == fresh[2] != fresh[1]


def test_names_keep_their_form_and_never_stay() -> None:
    de_la, obrien, small = names("María de la Cruz", "O'Brien", "ann")
    assert re.fullmatch(r"[A-Z]\w+ de la [A-Z]\w+", de_la)
    assert re.fullmatch(r"[A-Z]'[A-Z]\w+", obrien)
    assert small.islower()
    assert names("Дарья Смит", "王小明", language="fr")[0][0] in "АБВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯ"
    # A name of the pool never becomes itself, whoever bears it: its first letter changes.
    surnames = sorted(of("en", "surnames"))
    assert all(was[0] != now[0] for was, now in zip(surnames, names(*surnames), strict=True))


def test_first_letters_are_as_frequent_as_in_the_pool_and_names_rarely_meet() -> None:
    made = names(*["Miller"] * 4000, individual=[f"p{number}" for number in range(4000)])
    share = Counter(folded(name)[0] for name in of("en", "surnames"))
    total = sum(share.values())
    drawn_letters = Counter(folded(name)[0] for name in made)
    for letter in "sbcw":  # frequent ones; each is the mean over four kinds of names
        assert 0.4 < drawn_letters[letter] / 4000 / (share[letter] / total) < 2.2, letter
    assert drawn_letters["q"] + drawn_letters["x"] + drawn_letters["u"] < 0.02 * 4000  # syllables: 3 of 26
    given = [f"{chr(65 + number % 26)}{chr(97 + number // 26)}bert" for number in range(100)]
    assert len(set(names(*given))) >= 85  # of 4,950 pairs of names of one individual about one in 500 becomes one name


def test_coincidences_with_names_of_the_corpus_are_counted_and_stay() -> None:
    (name,) = names("Smith")
    bounds = (np.array([0, 1]), np.zeros(1, np.int32), np.array([len(name)], np.int32), np.zeros(1, np.uint32))
    known, _, _ = _rust.real_identifiers(pa.array([name]), *bounds, ["NAME"])
    assert names("Smith", avoid=known) == [name]  # to draw again would tell that somebody bears it
    batch = pa.record_batch({"doc_id": ["0"], "individual_id": ["p0"], "text": pa.array(["Smith"], pa.large_string())})
    spans = (np.array([0, 1]), np.zeros(1, np.int32), np.array([5], np.int32), pa.array(["NAME"]))
    for pool, outcome in ((SurrogateNames(language="en").pool(), OUTCOMES["collided"]), (None, 0)):
        made = pseudonymise_batch(batch, spans, "surrogate", KEY, names=pool, avoid=known)
        assert made.outcomes.tolist() == [outcome]


def within(text: str, *found: str, language: str = "de") -> str:
    """A document with these names of it replaced."""
    batch = pa.record_batch({"doc_id": ["d"], "individual_id": ["p0"], "text": pa.array([text], pa.large_string())})
    starts = np.array([text.index(name) for name in found], dtype=np.int32)
    ends = starts + np.array([len(name) for name in found], dtype=np.int32)
    spans = (np.array([0, len(found)]), starts, ends, pa.array(["NAME"] * len(found)))
    pool = SurrogateNames(language=language).pool()
    made = pseudonymise_batch(batch, spans, names=pool, style="surrogate", key=KEY)
    return str(made.texts[0])


@pytest.mark.parametrize(
    ("text", "name", "language", "kind"),
    [
        ("Frau Ohlinde Roth", "Ohlinde Roth", "de", "women"),
        ("Herr Dr. Ohlinde Roth", "Ohlinde Roth", "de", "men"),
        ("Mrs. Ohlinde Roth", "Ohlinde Roth", "en", "women"),
        ("M. Ohlinde Roth", "Ohlinde Roth", "fr", "men"),
        ("la Sra. Ohlinde Roth", "Ohlinde Roth", "es", "women"),
        ("Frau Ohlinde Roth", "Frau Ohlinde Roth", "de", "women"),
    ],
)
def test_title_says_whose_first_name_it_is(text: str, name: str, language: str, kind: str) -> None:
    *_, first, last = within(text, name, language=language).split()
    assert first in of(language, kind)
    assert last in of(language, "surnames")


def test_first_name_stays_the_same_in_its_document() -> None:
    text = "Frau Ohlinde Roth kam. Dann ging Ohlinde."
    titled, later = within(text.replace("ging Ohlinde", "ging OHLINDE"), "Ohlinde Roth", "OHLINDE").split(
        " kam. Dann ging "
    )
    assert later.rstrip(".") == titled.split()[1].upper()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Seen: J. Miller", "Seen: "),
        ("by A. B. Miller", "by "),
        ("by J.Miller", "by "),
        ("M. Miller", "M. "),
        ("NaCl. Miller", "NaCl. "),
    ],
)
def test_initials_before_a_name_are_replaced(text: str, kept: str) -> None:
    made = within(text, "Miller", language="en")
    assert made.startswith(kept)
    initials, own = (each.removeprefix(kept).split(".")[:-1] for each in (made, text))
    assert len(initials) == len(own)
    assert all(new.strip() != old.strip() for new, old in zip(initials, own, strict=True))


# ------------------------------------------------------------------------------------------------ pools and languages


def test_the_names_that_come_with_reticent_are_these() -> None:
    assert SurrogateNames().digest() == DIGEST
    assert set(TABLES) == set(LANGUAGES)
    digests = {SurrogateNames(language=language).digest() for language in (*LANGUAGES, "auto")}
    assert len(digests) == len(LANGUAGES) + 1
    assert SurrogateNames(source="syllables").digest() is None
    assert SurrogateNames(source="syllables").pool("fr") is None


SENTENCES = {
    "de": "Die Patientin wurde mit Fieber aufgenommen und ist nicht von der Station verlegt.",
    "en": "The patient was admitted with fever and is to be seen for the cough.",
    "es": "Los síntomas y las lesiones por su enfermedad, sin fiebre.",
    "fr": "La patiente est vue dans les suites des soins et une toux.",
    "it": "Il paziente che gli è affidato, della corsia, nel reparto di medicina.",
    "nl": "Het meisje met een hoest is niet van de afdeling, voor het eerst.",
    "pt": "Uma doente com tosse, em casa, da enfermaria dos idosos.",
}


def test_the_language_is_that_of_most_documents_in_any_batches() -> None:
    assert set(SENTENCES) == set(LANGUAGES)
    for language, sentence in SENTENCES.items():
        count = LanguageCount()
        count.add(pa.array([sentence.upper(), SENTENCES["en"], sentence, "", "123"]))
        assert count.most == language
    assert LanguageCount().most is None
    texts = pa.array([SENTENCES["fr"] if row < 1000 else SENTENCES["en"] for row in range(2500)])
    whole, parts = LanguageCount(), LanguageCount()
    whole.add(texts)
    for first in range(0, 2500, 700):
        parts.add(texts.slice(first, 700))
    assert whole.most == parts.most == "fr"  # the first 1,000 and one in 101 of the others
    assert SurrogateNames().pool("fr") is SurrogateNames(language="fr").pool() is SurrogateNames().pool("fr")
    assert SurrogateNames().pool(None) is SurrogateNames(language="en").pool()


OWN = '[xx]\nwomen = "Ada Bea"\nmen = "Abe Bob"\nsurnames = "Ames Bond"\nplaces = """Aber\nBath"""\n'


def test_names_of_ones_own_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    own = SurrogateNames(source=str(tmp_path / "own.toml"))
    made = names(*("Charles Dickens", "Mary") * 3, names=own.pool("fr"))
    assert {word for name in made for word in name.split()} <= {"Abe", "Bob", "Ames", "Bond", "Ada", "Bea"}
    assert own.digest() == SurrogateNames(source=own.source, language="auto").digest() != SurrogateNames().digest()


@pytest.mark.parametrize(
    ("text", "language", "says"),
    [
        (None, "auto", "cannot be read .*expected 'realistic', 'syllables' or a file"),
        ("women = [", "auto", "not a file of TOML"),
        ("", "auto", "expected a table a language"),
        (OWN.replace("men =", "mem ="), "auto", "xx: expected a table with the names of women, men, surnames, places"),
        (OWN.replace("Bath", ""), "auto", "xx: .*names of every kind under two letters"),
        (OWN.replace("Bath", "王"), "auto", "xx: .*name 1 of a list begins with no letter from a to z"),
        (OWN, "fr", "language of names: expected auto or one of xx, got 'fr'"),
    ],
)
def test_a_file_of_names_that_does_not_fit_is_refused(
    tmp_path: Path, text: str | None, language: str, says: str
) -> None:
    if text is not None:
        (tmp_path / "own.toml").write_text(text)
    with pytest.raises(PolicyError, match=says):
        SurrogateNames(source=str(tmp_path / "own.toml"), language=language).pool()
