"""The generated hospital: the same bytes from the same seed, complete gold spans, no individual in the public text."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent import _rust
from reticent.core.errors import PolicyError
from reticent.engine.corpus import Columns, open_corpus
from reticent.engine.detect.labels import category
from reticent.engine.detect.rules import RulesDetector
from reticent.engine.schema import DOCUMENTS
from reticent.engine.synthetic import SynthConfig, synthesize

NUM_INDIVIDUALS = 1200
SETTINGS: dict[str, Any] = {"seed": 3, "languages": ["en", "fr"], "first_individual": 0}
Row = dict[str, Any]


@pytest.fixture(scope="module")
def documents() -> list[Row]:
    batch = _rust.synth_documents(
        num_individuals=NUM_INDIVIDUALS, words_per_document=150, documents_per_individual=2.5, **SETTINGS
    )
    return pa.record_batch(batch).to_pylist()


@pytest.fixture(scope="module")
def records() -> dict[str, Row]:
    rows = pa.record_batch(_rust.synth_records(num_individuals=NUM_INDIVIDUALS, **SETTINGS)).to_pylist()
    return {row["individual_id"]: row for row in rows}


@pytest.fixture(scope="module")
def public() -> list[str]:
    batch = _rust.synth_public(
        seed=3, first_document=0, num_documents=1000, languages=["en", "fr"], words_per_document=150
    )
    return pa.record_batch(batch).column("text").to_pylist()


def marked(document: Row) -> list[tuple[str, str]]:
    """Label and text of every gold span."""
    return [(s["label"], document["text"][s["start"] : s["end"]]) for s in document["spans"]]


def unmarked(document: Row) -> str:
    """The text with every gold span cut out."""
    text, at, parts = document["text"], 0, []
    for span in document["spans"]:
        parts.append(text[at : span["start"]])
        at = span["end"]
    return "\0".join([*parts, text[at:]])


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def is_french(record: Row) -> bool:
    return " " in record["ssn"]


def date_of(text: str, french: bool) -> tuple[int, int, int]:
    first, second, year = map(int, text.split("/"))
    return (year, second, first) if french else (year, first, second)


# The same seed, the same bytes.


def files(folder: Path, config: SynthConfig) -> dict[str, bytes]:
    folder.mkdir()
    synthesize(folder, config)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


def test_equal_configurations_give_equal_bytes_whatever_the_threads(tmp_path: Path) -> None:
    config = {"num_individuals": 150, "seed": 7, "public_documents": 40}
    first = files(tmp_path / "first", SynthConfig(**config, num_threads=1))
    assert list(first) == ["documents/part-00000.parquet", "public/part-00000.parquet", "records.parquet"]
    assert first == files(tmp_path / "again", SynthConfig(**config, num_threads=2))
    other = files(tmp_path / "other", SynthConfig(**{**config, "seed": 8}))
    assert all(first[name] != other[name] for name in first)


def test_larger_corpus_begins_with_the_smaller(documents: list[Row]) -> None:
    batch = _rust.synth_documents(
        num_individuals=50, words_per_document=150, documents_per_individual=2.5, **SETTINGS, num_threads=1
    )
    small = pa.record_batch(batch).to_pylist()
    assert len(small) > 50
    assert documents[: len(small)] == small


def test_counts_are_those_of_the_files(tmp_path: Path) -> None:
    done: list[int] = []
    config = SynthConfig(num_individuals=60, public_documents=11)
    counts = synthesize(tmp_path, config, progress=done.append)
    tables = {name: pq.read_table(tmp_path / name) for name in ("documents", "public", "records.parquet")}
    assert counts == {
        "individuals": 60,
        "documents": tables["documents"].num_rows,
        "num_bytes": sum(len(text.encode()) for text in tables["documents"].column("text").to_pylist()),
        "public_documents": 11,
    }
    assert tables["public"].num_rows == 11
    assert tables["records.parquet"].num_rows == 60
    assert done == [60]
    assert pq.read_schema(tmp_path / "documents" / "part-00000.parquet").metadata == DOCUMENTS.metadata


def test_files_open_as_a_corpus_and_public_ones_have_no_individual(tmp_path: Path) -> None:
    synthesize(tmp_path, SynthConfig(num_individuals=40, public_documents=10))
    columns = Columns(household_id="household_id", label="label", spans="spans")
    corpus = open_corpus(tmp_path / "documents", columns=columns)
    assert corpus.num_documents > 40
    names = [name for name in DOCUMENTS.names if name != "mentions"]  # those of gold files alone
    batches = list(corpus.batches(columns=tuple(DOCUMENTS.names)))
    assert batches[0].schema.names == names
    own = set(corpus.scan().column("individual_id").to_pylist())
    public = open_corpus(tmp_path / "public").scan()
    assert public.column("doc_id") == public.column("individual_id")
    assert not own & set(public.column("individual_id").to_pylist())


# Gold spans.


def test_every_span_is_what_its_label_says(documents: list[Row], records: dict[str, Row]) -> None:
    seen: Counter[str] = Counter()
    for document in documents:
        record = records[document["individual_id"]]
        french = is_french(record)
        name = f"{record['first_name']} {record['last_name']}"
        exact = {
            "NAME": {name, record["first_name"], record["last_name"]},
            "ID": {record["mrn"]},
            "NIR" if french else "SSN": {record["ssn"]},
            **{field.upper(): {record[field]} for field in ("phone", "email", "address", "city", "zip")},
        }
        for label, text in marked(document):
            seen[label] += 1
            if label in exact:
                assert text in exact[label], label
            elif label == "DATE":
                assert re.fullmatch(r"\d\d/\d\d/\d{4}", text)
                year, month, day = date_of(text, french)
                assert text == record["birth_date"] or year >= 2012
                assert 1 <= month <= 12
                assert 1 <= day <= 28
            elif label == "AGE":
                assert re.fullmatch(r"\d{1,2}", text)
            else:
                assert label in ("DOCTOR", "HOSPITAL")
                assert text[0].isupper()
    assert set(seen) == {
        *("NAME", "ID", "NIR", "SSN", "PHONE", "EMAIL", "ADDRESS", "CITY", "ZIP", "DATE", "AGE", "DOCTOR", "HOSPITAL")
    }
    assert min(seen.values()) > 300


def test_spans_are_in_order_and_apart(documents: list[Row]) -> None:
    for document in documents:
        bounds = [(span["start"], span["end"]) for span in document["spans"]]
        assert bounds
        assert all(start < end for start, end in bounds)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(bounds))
        assert bounds[-1][1] <= len(document["text"])


def test_no_identity_stands_outside_its_spans(documents: list[Row], records: dict[str, Row]) -> None:
    """Nor does anybody else's: no name of an individual or a clinician, no hospital, no place."""
    names = {word for r in records.values() for field in ("first_name", "last_name") for word in words(r[field])}
    shared = {text for document in documents for label, text in marked(document) if label in ("DOCTOR", "HOSPITAL")}
    names |= {
        word for document in documents for label, text in marked(document) if label == "DOCTOR" for word in words(text)
    }
    assert len(names) > 300
    assert len(shared) > 100
    places = {r[field] for r in records.values() for field in ("city", "address")}
    for document in documents:
        text = unmarked(document)
        record = records[document["individual_id"]]
        assert not names & set(words(text))
        assert not any(place in text for place in places)
        assert not any(record[field] in text for field in ("mrn", "ssn", "phone", "email", "zip", "birth_date"))
        assert not any(hospital in text for hospital in shared)
        assert not re.search(r"\d{4}", text)  # doses are all the numbers left


def test_rules_find_every_identity_that_has_a_form(documents: list[Row]) -> None:
    texts = [document["text"] for document in documents]
    batch = pa.record_batch({"text": pa.array(texts, pa.large_string())})
    found: dict[int, set[tuple[int, int, str]]] = defaultdict(set)
    for row in RulesDetector().detect(batch).to_pylist():
        found[row["document"]].add((row["start"], row["end"], category(row["label"])))
    checked = 0
    for number, document in enumerate(documents):
        for span in document["spans"]:
            if span["label"] in ("EMAIL", "PHONE", "SSN", "NIR", "DATE", "ID"):
                assert (span["start"], span["end"], category(span["label"])) in found[number], span["label"]
                checked += 1
    assert checked > 5000


def test_age_is_the_years_completed_on_the_day_of_the_visit(documents: list[Row], records: dict[str, Row]) -> None:
    checked = 0
    for document in documents:
        record = records[document["individual_id"]]
        french = is_french(record)
        birth = date_of(record["birth_date"], french)
        dates = {text for label, text in marked(document) if label == "DATE"} - {record["birth_date"]}
        ages = {int(text) for label, text in marked(document) if label == "AGE"}
        assert len(dates) <= 1
        assert len(ages) <= 1
        if dates and ages:
            visit = date_of(dates.pop(), french)
            assert birth < visit
            assert ages == {visit[0] - birth[0] - (visit[1:] < birth[1:])}
            checked += 1
    assert checked > 500


# Individuals.


def test_social_numbers_pass_the_checks_of_their_country(records: dict[str, Row]) -> None:
    countries: Counter[bool] = Counter()
    for record in records.values():
        french = is_french(record)
        countries[french] += 1
        if french:
            digits = record["ssn"].replace(" ", "")
            assert re.fullmatch(r"[12] \d\d \d\d \d\d \d{3} \d{3} \d\d", record["ssn"])
            assert int(digits[13:]) == 97 - int(digits[:13]) % 97
            year, month, _ = date_of(record["birth_date"], french)
            assert (int(digits[1:3]), int(digits[3:5])) == (year % 100, month)
        else:
            area, group, serial = map(int, record["ssn"].split("-"))
            assert 1 <= area <= 899
            assert area != 666
            assert group >= 1
            assert serial >= 1
    assert min(countries.values()) > 0.4 * NUM_INDIVIDUALS  # households take turns


@pytest.mark.parametrize("field", ["individual_id", "mrn", "email"])
def test_no_two_individuals_share_a_number_or_an_address(records: dict[str, Row], field: str) -> None:
    assert len({record[field] for record in records.values()}) == len(records)


def test_households_share_their_name_home_and_language(records: dict[str, Row], documents: list[Row]) -> None:
    homes = defaultdict(list)
    for record in records.values():
        homes[record["household_id"]].append(record)
    shared = [people for people in homes.values() if len(people) > 1]
    assert len(shared) == NUM_INDIVIDUALS // 16
    for people in shared:
        for field in ("last_name", "address", "city", "zip"):
            assert len({person[field] for person in people}) == 1
        assert len(set(map(is_french, people))) == 1
    assert all(records[d["individual_id"]]["household_id"] == d["household_id"] for d in documents)


def test_notes_are_in_the_language_of_the_individual(documents: list[Row], records: dict[str, Row]) -> None:
    typical = {True: {"le", "la", "est", "une", "de"}, False: {"the", "is", "of", "and", "with"}}
    for document in documents:
        text = set(words(document["text"].lower()))
        french = is_french(records[document["individual_id"]])
        assert len(text & typical[french]) > len(text & typical[not french])


def test_individuals_have_words_that_no_other_individual_uses(documents: list[Row]) -> None:
    """Rare facts and misspellings: what support protects, beside what detectors find."""
    owners = defaultdict(set)
    for document in documents:
        for word in words(unmarked(document)):
            owners[word].add(document["individual_id"])
    unique = {next(iter(who)) for who in owners.values() if len(who) == 1}
    assert len(unique) > 0.7 * NUM_INDIVIDUALS
    assert sum(len(who) >= 100 for who in owners.values()) > 100


def test_notes_have_the_length_and_number_asked_for() -> None:
    for num_words, num_notes in ((60, 1.0), (150, 2.5), (400, 4.0)):
        batch = _rust.synth_documents(
            num_individuals=600, words_per_document=num_words, documents_per_individual=num_notes, **SETTINGS
        )
        texts = pa.record_batch(batch).column("text").to_pylist()
        assert len(texts) / 600 == pytest.approx(num_notes, rel=0.1)
        assert sum(len(text.split()) for text in texts) / len(texts) == pytest.approx(num_words, rel=0.1)


# Public text.


@pytest.mark.heavy
def test_public_text_names_no_individual(public: list[str], documents: list[Row], records: dict[str, Row]) -> None:
    identities = {
        word
        for r in records.values()
        for field in ("first_name", "last_name", "phone", "email", "mrn", "ssn", "zip")
        for word in words(r[field])
        if not re.fullmatch(r"\d{1,3}", word)  # the pieces of a phone number are also doses
    }
    identities |= {word for d in documents for label, text in marked(d) if label == "DOCTOR" for word in words(text)}
    assert len(identities) > 5000
    whole = {r[field] for r in records.values() for field in ("phone", "email", "address", "city", "ssn")}
    whole |= {text for d in documents for label, text in marked(d) if label == "HOSPITAL"}
    for text in public:
        assert not identities & set(words(text))
        assert not any(value in text for value in whole)
    found = RulesDetector().detect(pa.record_batch({"text": pa.array(public, pa.large_string())}))
    assert found.num_rows == 0


def test_public_text_tells_no_rare_fact(public: list[str], documents: list[Row]) -> None:
    owners = defaultdict(set)
    for document in documents:
        for word in words(unmarked(document)):
            owners[word].add(document["individual_id"])
    seen = {word for text in public for word in words(text)}
    assert len(seen) > 300
    alone = {word for word, who in owners.items() if len(who) == 1}
    assert len(alone) > 500
    assert not seen & alone


def test_public_text_is_the_same_language_as_the_notes(public: list[str], documents: list[Row]) -> None:
    """The stand-in foundation model must know the words of no individual."""
    seen = {word for text in public for word in words(text)}
    owners = defaultdict(set)
    for document in documents:
        for word in words(unmarked(document)):
            owners[word].add(document["individual_id"])
    common = {word for word, who in owners.items() if len(who) > 100}
    assert len(common & seen) > 0.6 * len(common)


# Settings and cost.


def test_unknown_language_is_refused_by_the_core() -> None:
    with pytest.raises(PolicyError, match="language: expected en or fr"):
        _rust.synth_records(seed=0, first_individual=0, num_individuals=1, languages=["de"])
