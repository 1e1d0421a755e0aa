"""Which individuals and diagnoses the clinical ladder tests, and what the attacker knows on each rung (level of
knowledge).

Rungs add up: public demographics; encounter metadata; a sentence of a note that fewer than k individuals share; and the
beginning of a note, as a colleague has read it. None of it holds a diagnosis, a synonym or a drug of the list: a
sentence or a value that does is left out. Memory: the texts of the individuals tested, and 16 bytes for each use of
one of their sentences.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from reticent.core.errors import PolicyError
from reticent.core.json_toml import read_toml
from reticent.engine.detect.records import read_record_table
from reticent.engine.identity import normalise_listed_ids
from reticent.engine.randomness import generator
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.engine.sources.columns import SOURCE_COLUMN

if TYPE_CHECKING:
    from reticent.audit.config import DiagnosesConfig
    from reticent.engine.corpus import Corpus
    from reticent.engine.split import Individuals

#: Words of a fragment at least and at most, and of what a colleague has read of a note.
FRAGMENT_WORDS, COLLEAGUE_WORDS = (6, 24), 48
#: A sentence that so many individuals or households of both sides share is a template.
TEMPLATE_SUPPORT = 10
_STREAM = 81
#: Matches nothing.
_NO_NAME = re.compile(r"(?!)")
Fields = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A diagnosis: its name, synonyms, drugs that reveal it, and whether it is sensitive."""

    name: str
    synonyms: tuple[str, ...] = ()
    drugs: tuple[str, ...] = ()
    is_sensitive: bool = True


@dataclass(frozen=True, slots=True)
class Questions:
    """The individuals (N) and diagnoses (D) of a clinical ladder, with cues (the attacker's knowledge) by rung.

    Attributes
    ----------
    codes, units : int64 (N,), of `Individuals`; is_member : bool (N,)
    written : bool (N, D), whether it stands in the individual's texts
    recorded : bool (N, D), whether the record has it; equal to ``written`` without a record
    cues : for each rung of `RUNGS`, in order, what is known of each individual; empty where nothing is
    fragments, templates : a sentence of each individual that few share, other than that of their cue, and one that many
        share; empty where there is none
    """

    codes: np.ndarray
    units: np.ndarray
    is_member: np.ndarray
    diagnoses: tuple[Diagnosis, ...]
    written: np.ndarray
    recorded: np.ndarray
    cues: tuple[list[str], ...]
    fragments: list[str]
    templates: list[str]


def read_terms(path: Path | str) -> tuple[Diagnosis, ...]:
    """Return the diagnoses with synonyms and drugs in a TOML file of [[diagnosis]] tables.

    Raises
    ------
    PolicyError
        The file has no [[diagnosis]], one has no name or an unknown field, or two share a name or a synonym.
    """
    found, tables = [], read_toml(Path(path)).get("diagnosis", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise PolicyError(f"{path}: diagnosis: expected tables, each under [[diagnosis]]")
    for number, table in enumerate(tables, start=1):
        known = {"name": str, "synonyms": list, "drugs": list, "sensitive": bool}
        wrong = [field for field, value in table.items() if not isinstance(value, known.get(field, ()))]
        if wrong or not str(table.get("name", "")).strip():
            raise PolicyError(f"{path}: diagnosis {number}: expected name, synonyms, drugs and sensitive")
        synonyms, drugs = (tuple(map(str, table.get(field, ()))) for field in ("synonyms", "drugs"))
        found.append(Diagnosis(table["name"], synonyms, drugs, table.get("sensitive", True)))
    if len(found) < 2:
        raise PolicyError(f"{path}: {len(found)} [[diagnosis]]; at least two are needed, to tell one from the others")
    names = [_normalise(name) for each in found for name in (each.name, *each.synonyms)]
    if twice := [name for name, num in Counter(names).items() if num > 1]:
        raise PolicyError(f"{path}: {len(twice)} names stand for two diagnoses, or twice for one")
    return tuple(found)


def make_questions(corpus: Corpus, individuals: Individuals, config: DiagnosesConfig, *, k: int, ids: str, seed: int,
        left_out: np.ndarray | None = None) -> Questions:  # fmt: skip
    """Build the questions of the diagnosis attack ("clinical ladder") on random members and as many held-out
    individuals: their true diagnoses, and texts of what the attacker knows of them at each rung. One rung adds a rare
    sentence, which fewer than ``k`` individuals (or households) write.

    Cost: two passes over the documents; in memory the texts of those asked about, and 16 bytes for each document of any
    individual that has a sentence of theirs.

    Parameters
    ----------
    left_out : bool array by code, individuals who are not asked about: held-out ones with near-copies of a member

    Raises
    ------
    CorpusError, PolicyError
        The list or the table cannot be read, a column is missing, or no diagnosis stands in any text.
    """
    chosen = drawn_individuals(individuals, config.num_individuals, seed, left_out)
    row_of = np.full(len(individuals.units), -1)
    row_of[chosen] = np.arange(len(chosen))
    columns = config.columns
    known: list[Fields] = [{} for _ in chosen]
    texts: list[list[str]] = [[] for _ in chosen]
    if config.records is not None:
        add_fields_from_table(config.records, ids, individuals, row_of, columns, known)
    own = [] if config.records is not None else columns
    wanted = ("individual_id", "text", *(f"{SOURCE_COLUMN}{name}" for name in own))
    for batch in corpus.batches(columns=wanted):
        rows, written_texts = row_of[individuals.individual_codes(batch.column("individual_id"))], batch.column("text")
        for number in np.flatnonzero(rows >= 0).tolist():
            texts[rows[number]].append(written_texts[number].as_py())
            for name in own:
                add_field(known[rows[number]], name, batch.column(f"{SOURCE_COLUMN}{name}")[number].as_py())
    values = [_recorded_diagnoses(fields, config.column) for fields in known]
    diagnoses = read_terms(config.terms) if config.terms else _distinct_diagnoses(values)
    written = _diagnoses_in_texts(diagnoses, ["\n".join(own) for own in texts])
    recorded = _diagnoses_in_texts(diagnoses, ["\n".join(own) for own in values]) if config.column else written
    if not written.any():
        raise PolicyError(f"audit.diagnoses: none of {len(diagnoses)} diagnoses stands in any text")
    hidden = _any_name_pattern(name for each in diagnoses for name in (each.name, *each.synonyms, *each.drugs))
    sentences = [_distinct_sentences(own, hidden) for own in texts]
    support = _sentence_supports(sentences, corpus, individuals)
    counted = [list(zip(own, of_own, strict=True)) for own, of_own in zip(sentences, support, strict=True)]
    rare = [[each for each, num in own if num < k] for own in counted]
    common = [[each for each, num in own if num >= TEMPLATE_SUPPORT] for own in counted]
    steps = [
        [_describe_fields(fields, config.demographics, hidden) for fields in known],
        [_describe_fields(fields, config.encounter, hidden) for fields in known],
        [own[0] if own else "" for own in rare],
        [_beginning_of_first_text(own, hidden) for own in texts],
    ]
    return Questions(
        codes=chosen,
        units=individuals.units[chosen].astype(np.int64),
        is_member=individuals.mask(MEMBERS)[chosen],
        diagnoses=diagnoses,
        written=written,
        recorded=recorded,
        cues=tuple(
            ["\n".join(filter(None, parts)) if parts[-1] else "" for parts in zip(*steps[:rung], strict=True)]
            for rung in range(1, len(steps) + 1)
        ),
        fragments=[_last_unseen_sentence(own[1:], known) for own, known in zip(rare, steps[-1], strict=True)],
        templates=[_last_unseen_sentence(own, known) for own, known in zip(common, steps[-1], strict=True)],
    )  # fmt: skip


def drawn_individuals(individuals: Individuals, most: int, seed: int, left_out: np.ndarray | None) -> np.ndarray:
    """Draw up to ``most`` members and as many held-out individuals at random; return their codes, ascending."""
    random, parts = generator(seed, _STREAM), []
    for side in (MEMBERS, HELDOUT):
        mask = individuals.mask(side)
        codes = np.flatnonzero(mask & ~left_out if left_out is not None and side == HELDOUT else mask)
        parts.append(random.permutation(codes)[:most])
    return np.sort(np.concatenate(parts))


def read_listed_records(records: str, ids: str, names: pa.Array, columns: Sequence[str]) -> pa.Table:
    """Return the table of records in a file, with ``columns``; its individual ids are normalised by the setting
    ``ids``, as those of the documents (``names``) were.

    Raises
    ------
    CorpusError
        It cannot be read, a column is missing, or an id is spelt otherwise than in the documents.
    """
    path = Path(records)
    table, _ = read_record_table(path, ["individual_id", *columns])
    known, given = (column.cast(pa.string()) for column in (names, table.column("individual_id").combine_chunks()))
    given = normalise_listed_ids(given, known, ids, str(path), lambda row: f"row {row + 1}")  # type: ignore[arg-type]
    return table.set_column(table.schema.get_field_index("individual_id"), "individual_id", given)


def check_fields(corpus: Corpus, records: str | None, ids: str, columns: Sequence[str]) -> None:
    """Raise `CorpusError` if ``columns`` cannot be read from the table of records or, without one, from the documents.

    Cost: one pass over these columns.
    """
    if records is not None:
        read_listed_records(records, ids, corpus.scan().column("individual_id").unique(), columns)
    elif columns:
        for _ in corpus.batches(columns=tuple(f"{SOURCE_COLUMN}{name}" for name in columns)):
            pass  # every value is checked as it is read


def add_fields_from_table(
    records: str, ids: str, individuals: Individuals, row_of: np.ndarray, columns: Sequence[str], known: list[Fields]
) -> None:
    """Read a table of records, and add the values of ``columns`` to ``known``, the fields of each tested individual.
    ``row_of`` maps an individual's code to the index in ``known`` (-1: not tested).
    """
    names = individuals.table.column("individual_id").combine_chunks()
    table = read_listed_records(records, ids, names, columns)
    code_of = {name: code for code, name in enumerate(names.to_pylist())}
    for row, name in enumerate(table.column("individual_id").to_pylist()):
        code = code_of.get(name, -1)
        if code >= 0 and row_of[code] >= 0:
            for column in columns:
                add_field(known[row_of[code]], column, table.column(column)[row].as_py())


def add_field(fields: Fields, name: str, value: Any) -> None:
    """Add a value as text to the list of the field ``name`` in ``fields``, unless it is null, blank or already in the
    list.
    """
    said = "" if value is None else str(value).strip()
    if said and said not in fields.setdefault(name, []):
        fields[name].append(said)


def _recorded_diagnoses(fields: Fields, column: str | None) -> list[str]:
    """Return the diagnoses in an individual's record, split at semicolons."""
    parts = (part.strip() for value in fields.get(column or "", ()) for part in value.split(";"))
    return [part for part in parts if part]


def _distinct_diagnoses(values: Sequence[Sequence[str]]) -> tuple[Diagnosis, ...]:
    """Return the distinct diagnoses in the individuals' records, without synonyms; raise `PolicyError` if fewer than
    two.
    """
    named = {_normalise(value): value for own in values for value in own}
    if len(named) < 2:
        raise PolicyError(f"audit.diagnoses.column: {len(named)} different diagnoses; at least two are needed")
    return tuple(Diagnosis(named[name]) for name in sorted(named))


def _normalise(text: str) -> str:
    """Return a text in lower case (casefolded) with single spaces."""
    return " ".join(text.casefold().split())


def _any_name_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Return a case-insensitive regular expression for any of the names as whole words."""
    spaced = (r"\s+".join(map(re.escape, name.split())) for name in names)
    return re.compile(rf"(?<!\w)(?:{'|'.join(sorted(spaced, key=len, reverse=True))})(?!\w)", re.IGNORECASE)


def _diagnoses_in_texts(diagnoses: Sequence[Diagnosis], texts: Sequence[str]) -> np.ndarray:
    """Return whether each text names each diagnosis or a synonym of it, bool (N, D)."""
    patterns = [_any_name_pattern((each.name, *each.synonyms)) for each in diagnoses]
    found = [[pattern.search(text) is not None for pattern in patterns] for text in texts]
    return np.array(found, dtype=bool).reshape(len(texts), len(patterns))


def _describe_fields(fields: Fields, columns: Sequence[str], hidden_names: re.Pattern[str]) -> str:
    """Return an individual's fields as the text "name: value; …", without fields that contain a hidden name (of a
    diagnosis or drug)."""
    said = (f"{name}: {fields[name][0]}" for name in columns if fields.get(name))
    return "; ".join(part for part in said if not hidden_names.search(part))


def _safe_sentences(text: str, hidden: re.Pattern[str]) -> list[str]:
    """Return the sentences of a text that name no diagnosis or drug (do not match ``hidden``)."""
    parts = (part.strip() for part in re.split(r"(?<=[.!?])\s+|\n+", text))
    return [part for part in parts if part and not hidden.search(part)]


def _distinct_sentences(texts: Sequence[str], hidden: re.Pattern[str]) -> list[str]:
    """Return the distinct sentences of an individual's texts that are long enough and do not match ``hidden`` (names of
    diagnoses and drugs). Each is cut to the maximum number of words of a fragment.
    """
    least, most = FRAGMENT_WORDS
    own = (" ".join(part.split()[:most]) for text in texts for part in _safe_sentences(text, hidden))
    return list(dict.fromkeys(sentence for sentence in own if len(sentence.split()) >= least))


def _sentence_supports(sentences: Sequence[Sequence[str]], corpus: Corpus, individuals: Individuals) -> list[list[int]]:
    """Return for each individual's ``sentences`` how many privacy units (individuals or households), members and
    held-out, write each sentence.
    """
    keys = [[hash(_normalise(each)) for each in own] for own in sentences]
    asked, uses = {key for own in keys for key in own}, [np.empty((0, 2), np.int64)]
    on_a_side = individuals.mask(MEMBERS) | individuals.mask(HELDOUT)
    for batch in corpus.batches(columns=("individual_id", "text")):
        codes = individuals.individual_codes(batch.column("individual_id"))
        rows = np.flatnonzero(on_a_side[codes])
        texts = zip(individuals.units[codes[rows]].tolist(), batch.column("text").take(rows).to_pylist(), strict=True)
        found = [
            (key, unit)
            for unit, text in texts
            for each in _distinct_sentences([text], _NO_NAME)
            if (key := hash(_normalise(each))) in asked
        ]
        uses.append(np.array(found, dtype=np.int64).reshape(-1, 2))
    pairs = np.unique(np.concatenate(uses), axis=0)
    support = dict(zip(*(values.tolist() for values in np.unique(pairs[:, 0], return_counts=True)), strict=True))
    return [[support[key] for key in own] for own in keys]


def _beginning_of_first_text(texts: Sequence[str], hidden_names: re.Pattern[str]) -> str:
    """Return the first words of an individual's first text, without sentences that contain a hidden name (of a
    diagnosis or drug)."""
    words = " ".join(_safe_sentences(texts[0], hidden_names)).split() if texts else []
    return " ".join(words[:COLLEAGUE_WORDS])


def _last_unseen_sentence(sentences: Sequence[str], beginning: str) -> str:
    """Return the last sentence whose first words do not occur in ``beginning``, from where they could be copied; "" if
    there is none.
    """
    known = f" {beginning} "
    starts = ((sentence, " ".join(sentence.split()[: FRAGMENT_WORDS[0]])) for sentence in reversed(sentences))
    return next((sentence for sentence, start in starts if f" {start} " not in known), "")
