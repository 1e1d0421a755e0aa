"""Makes `reticent/engine/detect/taggers/LANGUAGE.parquet`, the taggers that the package ships, from text made here.

Every person in the text is invented: a name is put together from the public lists of Faker (MIT), and every third one
from halves of two others, so that no list holds it. The sentences stand in `tools/tagger_texts/LANGUAGE.txt`; many are
of words that do not exist, since a rare word is mostly no name. English has a second source, which `RETICENT_DATA` must
hold: sentences of MTSamples (CC0), MTS-Dialog and PriMock57 (CC BY 4.0) in which invented people stand where a patient,
a relative or a doctor is spoken of; a sentence with a rare capitalised word that was there before is left out. No
corpus that the taggers are measured on is read.

    python -m tools.train_taggers [LANGUAGE ...]  # writes the files
    python -m tools.train_taggers en --text 20    # shows what is made
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import os
import random
import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from reticent.engine.corpus import open_corpus
from reticent.engine.detect import make_detectors
from reticent.engine.detect.common import learn_common_words
from reticent.engine.detect.detector import find_in_turn
from reticent.engine.detect.learned import LESSONS, Tagger, TaggerConfig, learn_tagger
from reticent.engine.detect.shipped import FOLDER

__all__ = ["LANGUAGES", "found_beside", "made_documents", "made_texts", "trained"]

LANGUAGES = ("en", "fr", "de", "es")
TEXTS = Path(__file__).parent / "tagger_texts"
SEED = 49
#: English learns from more, since real sentences are half of its text; Spanish finds no more by it, and less surely.
NUM_DOCUMENTS = {"en": 20000, "fr": 10000, "de": 10000, "es": 10000}
CONFIG = TaggerConfig(k=4, corpus=False, affixes=True, epochs=8, seed=SEED)
#: Taken from the score of no identifier. Real sentences teach English what is no name; the others have none, and are
#: made to find less, more surely.
LEAN = {"en": 0.25, "fr": -2.0, "de": -2.0, "es": -2.0}
#: The detectors whose finds it reads.
BESIDE = ("rules",)
#: Share of names of the language's own people; the others are of the whole world.
OWN = 0.6
#: Share of names that are put together from halves of two.
MIXED = 0.3
WORLD = (
    "cs_CZ", "da_DK", "de_CH", "en_IE", "en_IN", "en_KE", "en_NG", "es_MX", "et_EE", "fi_FI", "fr_BE", "fr_DZ", "ga_IE",
    "ha_NG", "hr_HR", "hu_HU", "id_ID", "ig_NG", "is_IS", "it_IT", "lv_LV", "nl_NL", "no_NO", "pl_PL", "pt_BR", "ro_RO",
    "sk_SK", "sl_SI", "sv_SE", "sw", "tr_TR", "uz_UZ", "vi_VN", "yo_NG", "zu_ZA",
)  # fmt: skip
#: Share of the sentences about nobody that are of invented words.
INVENTED = {"en": 0.25, "fr": 0.5, "de": 0.5, "es": 0.5}
#: Slots whose value is an identifier -> its label.
MARKED = {
    "name": "NAME", "first": "NAME", "last": "NAME", "doc": "NAME", "lastfirst": "NAME", "date": "DATE", "age": "AGE",
    "phone": "PHONE", "email": "EMAIL", "url": "URL", "id": "ID", "zip": "ZIP", "city": "CITY", "street": "STREET",
    "country": "COUNTRY", "hosp": "HOSPITAL", "org": "ORGANIZATION", "school": "ORGANIZATION", "job": "PROFESSION",
}  # fmt: skip
FILLED = {
    "kin": "kin", "symptom": "symptom", "disease": "disease", "drug": "drug", "exam": "exam", "plan": "plan",
    "thing": "things", "T": "titles", "D": "doctor titles",
}  # fmt: skip
DOMAINS = ("example.org", "mail.example.com", "example.net", "clinic.example", "post.example.de", "correo.example.es")
PARTICLES = ("de", "van", "von", "van der", "de la", "di", "Mc", "O'", "Le ", "al-", "El ", "dos", "St. ", "D'")
WEB = ("https://www.", "http://", "www.", "")
#: Kind of document -> (how often, sections that its sentences are of, fewest and most sentences, what joins them).
KINDS: dict[str, tuple[int, dict[str, int], int, int, tuple[str, ...]]] = {
    "note": (6, {"prose": 6, "plain": 6, "forms": 1}, 4, 14, (" ", " ", "\n")),
    "form": (2, {"forms": 8, "plain": 1}, 4, 12, ("\n",)),
    "letter": (2, {"letters": 3, "prose": 4, "plain": 2}, 3, 9, ("\n", "\n\n", " ")),
    "talk": (3, {"chat": 4, "plain": 4}, 3, 12, ("\n", " ")),
    "general": (3, {"general": 4, "plain": 2, "chat": 1}, 1, 5, (" ", "\n")),
    "one": (4, {"chat": 4, "general": 4, "prose": 3, "letters": 1, "plain": 3, "forms": 1}, 1, 1, (" ",)),
}


@dataclass
class Text:
    """A text under way and its gold spans, in characters."""

    text: str = ""
    spans: list[tuple[int, int, str]] = field(default_factory=list)

    def push(self, value: str, label: str | None = None) -> None:
        if label:
            self.spans.append((len(self.text), len(self.text) + len(value), label))
        self.text += value

    def join(self, other: Text, between: str) -> None:
        shift = len(self.text) + (len(between) if self.text else 0)
        self.text += (between if self.text else "") + other.text
        self.spans += [(start + shift, end + shift, label) for start, end, label in other.spans]

    def changed(self, change: Callable[[str, bool], str]) -> Text:
        """The text with each part outside and inside of spans changed."""
        made, at = Text(), 0
        for start, end, label in sorted(self.spans):
            made.push(change(self.text[at:start], False))
            made.push(change(self.text[start:end], True), label)
            at = end
        made.push(change(self.text[at:], False))
        return made


@dataclass(frozen=True)
class Person:
    first: str
    middle: str
    last: str


def sections(path: Path) -> dict[str, list[str]]:
    """Return the lists of a file of texts."""
    found: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("[") and line.endswith("]"):
            lines = found.setdefault(line[1:-1], [])
        elif line and not line.startswith("#"):
            lines.append(line.replace("\\n", "\n").replace("\\t", "\t"))
    return found


class Maker:
    """Makes documents of one language; the same seed makes the same ones."""

    def __init__(self, language: str, seed: int = SEED):
        self.language, self.rng = language, random.Random(f"{seed}.{language}")
        self.lists = sections(TEXTS / "any.txt") | sections(TEXTS / f"{language}.txt")
        own = tomllib.loads((FOLDER.parents[1] / "names.toml").read_text(encoding="utf-8"))[language]
        pool = {name: own[name].split() for name in ("women", "men", "surnames", "places")}
        self.firsts, self.lasts, self.places = (pool["women"] + pool["men"], pool["surnames"], pool["places"])
        self.world_firsts, self.world_lasts = _world()
        locale = {"en": "en_US", "fr": "fr_FR", "de": "de_DE", "es": "es_ES"}[language]
        address = importlib.import_module(f"faker.providers.address.{locale}").Provider
        self.countries = [name for name in address.countries if len(name) < 25 and "(" not in name]
        self.person = self._person()

    # -- people ------------------------------------------------------------------------------------------------------
    def _drawn(self, own: list[str], world: list[str]) -> str:
        pick = lambda: self.rng.choice(own if self.rng.random() < OWN else world)
        name = pick()
        if self.rng.random() < MIXED:
            other = pick()
            head, tail = name[: max(2, len(name) // 2 + self.rng.randint(-1, 1))], other[len(other) // 2 :].lower()
            if head.isalpha() and tail.isalpha():
                name = head + tail
        return name

    def _person(self) -> Person:
        rng = self.rng
        first, last = self._drawn(self.firsts, self.world_firsts), self._drawn(self.lasts, self.world_lasts)
        if rng.random() < 0.06:
            first += rng.choice("- ") + self._drawn(self.firsts, self.world_firsts)
        double = 0.5 if self.language == "es" else 0.07
        if rng.random() < double:
            last += (" " if self.language == "es" else rng.choice("-- ")) + self._drawn(self.lasts, self.world_lasts)
        elif rng.random() < 0.08:
            particle = rng.choice(PARTICLES)
            last = particle + ("" if particle[-1] in "'c- " else " ") + last
        return Person(first, self._drawn(self.firsts, self.world_firsts), last)

    def _name(self, slot: str, person: Person) -> str:
        rng, first, last = self.rng, person.first, person.last
        if slot == "first":
            return f"{first} {last[0]}" if self.language == "en" and rng.random() < 0.02 else first
        if slot == "last":
            return last
        if slot == "lastfirst":
            return rng.choice(
                [f"{last}, {first}", f"{last.upper()} {first}", f"{last.upper()}, {first}", f"{last} {first}"]
            )
        full = [f"{first} {last}"] * 8
        full += [f"{first} {person.middle[0]}. {last}", f"{first} {person.middle} {last}", f"{first[0]}. {last}"]
        full += [f"{first[0]}.{person.middle[0]}. {last}", f"{first} {last.upper()}", f"{last} {first}"]
        if slot == "doc":
            full += [last] * 8 + [f"{first[0]} {last}", f"{first[0]}. {last}"]
        return rng.choice(full)

    # -- what has a form ---------------------------------------------------------------------------------------------
    def _date(self) -> str:
        rng, months = self.rng, self.lists["months"]
        day, month, year = rng.randint(1, 28), rng.randint(1, 12), rng.randint(1925, 2025)
        name, two = months[month - 1], f"{year % 100:02}"
        forms = [f"{year}", f"{day:02}.{month:02}.{year}", f"{year}-{month:02}-{day:02}", f"{day}/{month}/{two}"]
        if self.language == "en":
            forms += [f"{month:02}/{day:02}/{year}", f"{name} {day}, {year}", f"{day} {name} {year}", f"{month}/{day}"]
            forms += [f"{name} {year}", f"{name} {day}", f"{day} {name[:3]} {year}", rng.choice(self.lists["weekdays"])]
        elif self.language == "de":
            forms += [f"{day:02}.{month:02}.{two}", f"{day}. {name} {year}", f"{day}.{month}.", f"{name} {year}"]
        else:
            of = " de " if self.language == "es" else " "
            forms += [
                f"{day:02}/{month:02}/{year}",
                f"{day}{of}{name}{of}{year}",
                f"{day}{of}{name}",
                f"{name}{of}{year}",
            ]
        return rng.choice(forms)

    def _phone(self) -> str:
        form = {
            "en": ("(###) ###-####", "###-###-####", "### ### ####", "+1 ### ### ####", "0## #### ####"),
            "fr": ("0# ## ## ## ##", "0#.##.##.##.##", "+33 # ## ## ## ##", "0#########"),
            "de": ("0## ########", "0###/######", "+49 ### #######", "(0####) #####"),
            "es": ("6## ### ###", "9## ## ## ##", "+34 6## ### ###", "#########"),
        }[self.language]
        return self._digits(self.rng.choice(form))

    def _digits(self, form: str) -> str:
        return re.sub("[#?]", lambda m: self.rng.choice("0123456789" if m[0] == "#" else "ABCDEFGHKLMPRSTVW"), form)

    def _place(self) -> str:
        return self.rng.choice(self.places) if self.rng.random() < 0.7 else self._drawn(self.lasts, self.lasts)

    def _street(self) -> str:
        rng, kind = self.rng, self.rng.choice(self.lists["kind of street"])
        name = rng.choice([self._place, lambda: self._drawn(self.lasts, self.world_lasts)])()
        number = str(rng.randint(1, 250))
        if self.language == "en":
            street = rng.choice(
                [*[f"{number} {name} {kind}"] * 7, f"{name} {kind}", f"{name} {kind}", f"{name} {number}"]
            )
            flat = rng.choice(["Apt.", "Apt", "Suite", "Unit", "Flat"])
            return f"{street}{rng.choice([',', ''])} {flat} {rng.randint(1, 999)}" if rng.random() < 0.25 else street
        if self.language == "fr":
            return rng.choice([f"{number} {kind} {name}", f"{number}, {kind} {name}", f"{kind} {name}"])
        if self.language == "de":
            street = name + kind if kind.islower() else f"{name} {kind}"
            return f"{street} {number}" if rng.random() < 0.8 else street
        return rng.choice([f"{kind} {name}, {number}", f"{kind} {name} {number}", f"{kind} {name}"])

    def _value(self, slot: str, person: Person) -> str:
        rng = self.rng
        if slot in ("name", "first", "last", "doc", "lastfirst"):
            return self._name(slot, person)
        if slot == "date":
            return self._date()
        if slot == "age":
            return str(rng.randint(1, 99))
        if slot == "phone":
            return self._phone()
        if slot in ("email", "url"):
            plain = re.sub(
                "[^a-z]", "", _without_accents(person.first + rng.choice([".", "_", ""]) + person.last).lower()
            )
            if slot == "url":
                return rng.choice(WEB) + plain[:12] + ".example.org" + rng.choice(["", "/index.html", "/" + plain[:4]])
            return (
                (plain or "mail")
                + rng.choice(["", "@", str(rng.randint(1, 99)) + "@"]).strip("@")
                + "@"
                + rng.choice(DOMAINS)
            )
        if slot == "id":
            form = rng.choice(
                ["########", "######", "??######", "###-##-####", "?######", "####-####", "##-######", "#### #### ####"]
            )
            return self._digits(form)
        if slot == "zip":
            return self._digits(
                rng.choice(["#####"] * 4 + (["?? #??", "#####-####"] if self.language == "en" else ["####"]))
            )
        if slot == "city":
            return self._place()
        if slot == "street":
            return self._street()
        if slot == "country":
            return rng.choice(self.countries)
        if slot == "job":
            return rng.choice(self.lists["job"])
        name = self._place() if rng.random() < 0.5 else self._drawn(self.lasts, self.world_lasts)
        if slot == "org":
            kind = rng.choice(self.lists["kind of company"])
            return rng.choice(
                [f"{name} {kind}", f"{name} {kind}", f"{name} {self._drawn(self.lasts, self.lasts)}", name]
            )
        kind = rng.choice(self.lists["kind of hospital" if slot == "hosp" else "kind of school"])
        if self.language == "en":
            return f"{name} {kind}"
        return f"{kind}{'' if kind[-1] == '-' else ' '}{name}"

    # -- sentences and documents -------------------------------------------------------------------------------------
    def _sentence(self, template: str) -> Text:
        rng, made = self.rng, Text()
        person = self.person if rng.random() < 0.5 else self._person()
        her = rng.random() < 0.5
        for at, piece in enumerate(re.split(r"\{([A-Za-z]+)\}", template)):
            if at % 2 == 0:
                made.push(piece)
            elif piece in MARKED:
                made.push(self._value(piece, person), MARKED[piece])
                if piece in ("name", "first", "last", "doc", "lastfirst"):
                    person = self._person() if rng.random() < 0.7 else self.person
            elif piece == "rare":  # what bears a name is nobody
                known = rng.choice(self.lists["eponyms"])
                made.push(known if rng.random() < 0.5 else self._drawn(self.lasts, self.world_lasts))
            elif piece == "n":
                made.push(str(rng.randint(1, 20)))
            elif piece.lower() in ("he", "his", "him"):
                value = self.lists[piece.lower()][0 if her else 1]
                made.push(value.capitalize() if piece[0] == "H" else value.lower())
            elif piece == "sex":
                made.push(self.lists["sexes"][(0 if her else 1) + 2 * rng.randint(0, 2)])
            else:
                value = rng.choice(self.lists[FILLED.get(piece, FILLED[piece.upper()] if len(piece) == 1 else "")])
                if not made.text or made.text[-1] == "\n" or made.text.endswith(". "):
                    value = value[0].upper() + value[1:]
                made.push(value.lower() if piece in ("t", "d") else value)
        return made

    def _invented(self) -> str:
        """A word that nobody has read, of the language by its ending: no name, though rare."""
        rng, lists = self.rng, self.lists
        stem = rng.choice(lists["stems"])
        if rng.random() < 0.5:
            other = rng.choice(lists["stems"])
            stem = rng.choice([stem[: rng.randint(2, 5)] + other, stem + "o" + other, other[:3] + stem])
        return stem + rng.choice(lists["endings"])

    def prose(self) -> Text:
        """A sentence about nobody, of invented words between the small words of the language."""
        rng, words = self.rng, []
        for number in range(rng.randint(3, 16)):
            if number % 3 == 0 or rng.random() < 0.35:
                words.append(rng.choice(self.lists["small words"]))
            draw = rng.random()
            word = self._invented()
            if draw < 0.06:
                word = rng.choice(self.lists["abbreviations"])
            elif draw < 0.12:
                word = self._digits(
                    rng.choice(["#", "##", "#,#", "#.#", "## mg", "## %", "#-#", "##/##", "#x# cm", "### ml", "#cm"])
                )
            elif draw < 0.2:
                word = rng.choice(self.lists[rng.choice(["drug", "disease", "symptom"])])
            elif draw < 0.22 or (self.language == "de" and draw < 0.65):
                word = word.capitalize()
            elif draw < 0.28:
                word = f"({word})"
            elif draw < 0.31:
                word = f"{word}-{self._invented()}"
            elif draw < 0.33:
                word = self._digits(rng.choice(["??##", "?-###", "?#?#", "#?", "??-??", "p?#?#"]))
            words.append(word + (rng.choice(",;:") if rng.random() < 0.09 else ""))
        if rng.random() < 0.1:  # a field or a heading
            words[: len(words) // 3] = [" ".join(words[: 1 + len(words) % 3]).strip(",;:").title() + ":"]
        line = " ".join(words)
        return Text(line[0].upper() + line[1:] + rng.choice([".", ".", ".", "", ":"]))

    def document(self) -> Text:
        rng = self.rng
        kinds = list(KINDS)
        kind = rng.choices(kinds, [KINDS[name][0] for name in kinds])[0]
        _, parts, fewest, most, joints = KINDS[kind]
        self.person, made, joint = self._person(), Text(), rng.choice(joints)
        for _ in range(rng.randint(fewest, most)):
            part = rng.choices(list(parts), list(parts.values()))[0]
            if part == "plain" and rng.random() < INVENTED[self.language]:
                sentence = self.prose()
            else:
                sentence = self._sentence(rng.choice(self.lists[part]))
            made.join(sentence, "\n" if part == "forms" else joint)
        return disguised(made, rng, spoken=kind == "talk")


def disguised(text: Text, rng: random.Random, *, spoken: bool) -> Text:
    """The text as some write: all small, all capital, names small, without accents, punctuation set apart."""
    draw = rng.random()
    small = 0.4 if spoken else 0.05
    if draw < small:
        text = text.changed(lambda part, _: part.lower())
    elif draw < small + 0.04:
        text = text.changed(lambda part, _: part.upper())
    elif draw < small + 0.07:
        text = text.changed(lambda part, marked: part.lower() if marked else part)
    if rng.random() < 0.05:
        text = text.changed(lambda part, _: _without_accents(part))
    draw = rng.random()
    if draw < (0.3 if spoken else 0.02):
        text = text.changed(lambda part, marked: part if marked else re.sub(r"(?<=\S)([,.?!;])(?=\s|$)", r" \1", part))
    elif spoken and draw < 0.45:
        text = text.changed(lambda part, marked: part if marked else re.sub(r"[,.?!;]+(?=\s|$)", "", part))
    return text


def _without_accents(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


def _world() -> tuple[list[str], list[str]]:
    """First and last names of many countries in Latin letters, of Faker's lists."""
    firsts: dict[str, None] = {}
    lasts: dict[str, None] = {}
    fits = lambda name: (
        2 < len(name) < 16 and name[0].isupper() and name.isalpha() and name[1:].islower() and _latin(name)
    )
    for locale in WORLD:
        provider = importlib.import_module(f"faker.providers.person.{locale}").Provider
        for attribute, names in (("first_names_female", firsts), ("first_names_male", firsts), ("last_names", lasts)):
            found = sorted(name for name in getattr(provider, attribute, ()) if fits(name))
            names |= dict.fromkeys(random.Random(locale).sample(found, min(len(found), 300)))
    return list(firsts), list(lasts)


def _latin(name: str) -> bool:
    return _without_accents(name).translate(str.maketrans("", "", "øØłŁđĐıßæÆœŒþÞðÐ")).isascii()


# -- real English sentences with invented people -------------------------------------------------------------------
_END = re.compile(r"(?<!\b[A-Z])(?<!\bDr)(?<!\bMr)(?<!\bMs)(?<!\bMrs)[.?!]+\s+|\n+")
_TITLE = r"(?:Dr|Mr|Mrs|Ms|Doctor|Miss)\b\.?"
_CAPITAL = re.compile(r"(?<![.?!:\n-] )(?<![\n\"(])(?<!^)\b[A-Z][a-z]{2,}\b")
_PLACES_OF_PEOPLE = re.compile(
    rf"(?P<title>{_TITLE})\s+(?P<name>[A-Z][A-Za-z]*)\b"
    r"|(?P<who>\b[Tt]he patient\b)(?!')"
    r"|(?P<he>(?<![^\n])(?:He|She)\b)"
    r"|(?P<hi>\b(?:Hi|Hello|Hey|Good morning|Good afternoon|Okay|All right|Thank you|Thanks|Sure|Bye|Great)(?=[,.?!]))"
    r"|(?P<kin>\b(?:wife|husband|mother|father|daughter|son|sister|brother|mom|dad|aunt|uncle|friend)\b(?=[ ,.]))"
    r"|(?P<you>\b(?:so|okay|well|now|you|your \w+|today|here|that)\b(?= ?[,.?!]))"
)


def real_sentences(data: Path) -> list[tuple[bool, list[str]]]:
    """Documents of openly licensed English text: whether it was spoken, and its sentences, without those that may hold
    an identifier."""
    written = [json.loads(line)["text"] for line in (data / "mtsamples" / "mtsamples.jsonl").open(encoding="utf-8")]
    with (data / "mts_dialog" / "MTS-Dialog-TrainingSet.csv").open(encoding="utf-8", newline="") as file:
        spoken = [row["dialogue"] for row in csv.DictReader(file)]
    for line in (data / "primock57" / "primock57.jsonl").open(encoding="utf-8"):
        row = json.loads(line)
        said = (re.sub(r"<[^>]*>", "", turn["text"]).strip() for turn in row["utterances"])
        spoken.append("\n".join(said))
        written.append(row["note"])
    texts = [(False, text) for text in written] + [(True, text) for text in spoken]
    documents = Counter(word for _, text in texts for word in set(re.findall(r"[A-Za-z]+", text)))
    rare = lambda word: documents[word] < 12 and documents[word.lower()] < 3
    kept = []
    for is_spoken, text in texts:
        sentences = []
        ends = [0, *(match.end() for match in _END.finditer(text)), len(text)]
        for sentence in (text[start:end] for start, end in pairwise(ends)):
            plain = re.sub(rf"{_TITLE}\s+[A-Z]\w*", "", sentence)
            if not re.search(r"\d{4}|\d/\d|_|\bSample\b|\bXYZ\b|\bABC\b", plain) and not any(
                map(rare, _CAPITAL.findall(plain))
            ):
                sentences.append(sentence)
        kept.append((is_spoken, sentences))
    return kept


def peopled(maker: Maker, is_spoken: bool, sentences: list[str]) -> Text:
    """Some consecutive sentences, with invented people where one is spoken of."""
    rng = maker.rng
    start = rng.randrange(max(1, len(sentences) - 6))
    maker.person, made = maker._person(), Text()
    for sentence in sentences[start : start + rng.randint(2, 14)]:
        at = 0
        for match in _PLACES_OF_PEOPLE.finditer(sentence):
            kind, often = match.lastgroup, rng.random()
            person = maker.person if rng.random() < 0.5 else maker._person()
            made.push(sentence[at : match.start()])
            at = match.end()
            if kind == "name":
                made.push(match["title"] + " ")
                made.push(maker._name("doc", person), "NAME")
            elif kind == "who" and often < 0.4:
                slot = rng.choice(["first", "last", "name", "name"])
                if slot == "last" and rng.random() < 0.7:
                    made.push(rng.choice(["Mr. ", "Mrs. ", "Ms. ", "Mr ", "Miss "]))
                made.push(maker._name(slot, maker.person), "NAME")
            elif kind == "he" and often < 0.2:
                made.push(maker._name("first", maker.person), "NAME")
            elif kind == "hi" and often < 0.4:
                made.push(match[0] + rng.choice([", ", " "]))
                made.push(maker._name(rng.choice(["first", "first", "name"]), maker.person), "NAME")
            elif kind == "kin" and often < 0.3:
                made.push(match[0] + rng.choice([", ", " ", " "]))
                made.push(maker._name("first", person), "NAME")
            elif kind == "you" and is_spoken and often < 0.3:
                made.push(match[0] + rng.choice([", ", " , ", " "]))
                made.push(maker._name("first", maker.person), "NAME")
            else:
                made.push(match[0])
        made.push(sentence[at:])
    return disguised(made, rng, spoken=is_spoken)


# -- documents -----------------------------------------------------------------------------------------------------
def made_texts(language: str, num_documents: int, *, seed: int = SEED, data: Path | None = None) -> Iterator[Text]:
    """Yield documents of a language; with ``data``, half of the English ones are real text with invented people."""
    maker = Maker(language, seed)
    real = real_sentences(data) if language == "en" and data else []
    real = [document for document in real if len(document[1]) > 2]
    for number in range(num_documents):
        yield peopled(maker, *maker.rng.choice(real)) if real and number % 2 else maker.document()


def made_documents(texts: Iterable[Text]) -> pa.Table:
    """Return documents (`LESSONS`) to learn from; every document is an individual's own."""
    rows = [
        {
            "individual_id": str(number),
            "text": text.text,
            "spans": [dict(zip(("start", "end", "label"), span, strict=True)) for span in sorted(text.spans)],
            "weight": 1.0,
        }
        for number, text in enumerate(texts)
    ]
    return pa.Table.from_pylist(rows, schema=LESSONS)


def found_beside(documents: pa.Table) -> pa.Table:
    """Return what `BESIDE` find in documents (`FOUND`), of which they learn the common words."""
    ids = documents.column("individual_id")
    table = pa.table({"doc_id": ids, "individual_id": ids, "text": documents.column("text")})
    detectors: list[Any] = make_detectors(BESIDE)
    learn_common_words(open_corpus(table), detectors)
    (batch,) = table.combine_chunks().to_batches()
    return find_in_turn(detectors, batch)


def trained(language: str, data: Path | None) -> Tagger:
    """Return the tagger of a language."""
    documents = made_documents(made_texts(language, NUM_DOCUMENTS[language], data=data))
    tagger = learn_tagger(documents, found_beside(documents), CONFIG, detectors=BESIDE, languages=[language])
    return tagger.with_bias(LEAN[language])


def main() -> int:
    """Write the taggers, or show the text; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("languages", nargs="*", default=LANGUAGES)
    parser.add_argument("--text", type=int, metavar="N", help="print N documents instead, with identifiers in brackets")
    arguments = parser.parse_args()
    data = Path(os.environ.get("RETICENT_DATA", TEXTS.parents[1] / ".." / "shared" / "data"))
    for language in arguments.languages:
        if arguments.text:
            for text in made_texts(language, arguments.text, data=data):
                print(text.changed(lambda part, marked: f"[{part}]" if marked else part).text, end="\n---\n")
        else:
            content = trained(language, data).to_bytes()
            (FOLDER / f"{language}.parquet").write_bytes(content)
            print(f"{language}: {len(content) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
