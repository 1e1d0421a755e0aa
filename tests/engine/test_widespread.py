"""Scope ``corpus`` blacklists no grammar: what too many individuals use is protected in its individual's documents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fixtures.cases import Case
from fixtures.tokenizers import plain_tokenizer

from reticent import _rust
from reticent.engine.flagged_words import FlaggedWords
from reticent.engine.ngrams import NgramIndex
from reticent.engine.oracle.documents import WordTable
from reticent.engine.oracle.protection import widespread_words
from reticent.engine.protect import Policy
from reticent.engine.schema import DIRECT
from reticent.engine.verify import CheckedText, verify_tokens

#: p0 has a false name with grammar in it; six others write the same words, and two of them the rare one.
DOCUMENTS = [
    ("p0", "«The oak of Harlow|NAME» was seen"),
    ("p0", "The report of the day"),
    *[(f"p{number}", "The report of Harlow" if number < 3 else "The report of the day") for number in range(1, 7)],
]


PLAIN = [text.replace("«", "").replace("|NAME»", "") for _, text in DOCUMENTS]
WORDS = sorted({word for text in PLAIN for word in text.split()})


def case_of(folder: Path) -> tuple[Case, NgramIndex]:
    case = Case(folder, DOCUMENTS)
    case.write()
    builder = _rust.IndexBuilder(max_n=1)
    people = sorted({person for person, _ in DOCUMENTS})
    builder.add(pa.array(PLAIN), np.array([people.index(person) for person, _ in DOCUMENTS], dtype=np.uint32))
    return case, NgramIndex(builder.finish(min_support=1))


@pytest.mark.parametrize("indexed", [True, False])
def test_common_words_of_a_false_name_stay_targets_elsewhere(tmp_path: Path, indexed: bool) -> None:
    case, index = case_of(tmp_path)
    options = {"index": index, "policy": Policy(k=2)} if indexed else {}
    store, counts = case.tokens("tokens", plain_tokenizer(*WORDS), spans=case.spans, **options)
    flags = np.split(store.flags, store.doc_offsets[1:-1])
    direct = [
        [word for word, flag in zip(text.split(), own, strict=True) if flag & DIRECT]
        for text, own in zip(PLAIN, flags, strict=True)
    ]
    assert direct[0] == ["The", "oak", "of", "Harlow"]
    assert direct[1] == ["The", "of"]  # the individual's own documents
    assert direct[2] == ["Harlow"]
    assert direct[-1] == []
    assert counts["common_tokens"] == 23
    assert counts["common_direct_tokens"] == 4
    assert counts["common_lost"] == 4 / 23
    assert counts["retention"] == 1 - counts["protected_tokens"] / counts["tokens"]
    text = CheckedText(case.corpus, case.individuals)
    check = verify_tokens(store, text, policy=Policy(k=2), spans=case.spans, counted=indexed)
    assert (check.violations, check.unexplained) == (0, 0)


def test_text_says_what_numbers_say(tmp_path: Path) -> None:
    case, index = case_of(tmp_path)
    flagged = FlaggedWords(case.corpus, case.individuals, spans=case.spans, index=index, policy=Policy(k=2))
    flags = np.concatenate([part.flags for part in flagged])
    store, _ = case.tokens("tokens", plain_tokenizer(*WORDS), spans=case.spans, index=index, policy=Policy(k=2))
    assert flags.tolist() == store.flags.tolist()


@pytest.mark.parametrize(
    ("word", "support", "num_units", "expected"),
    [
        ("Roy", 5, 10, False),
        ("Roy", 6, 10, True),
        ("Roy", 200, 1000, False),
        ("Roy", 201, 1000, True),
        ("the", 50, 1000, False),
        ("the", 51, 1000, True),
        ("2019", 51, 1000, False),
        ("的", 201, 1000, True),
    ],
)
def test_rule_by_hand(word: str, support: int, num_units: int, expected: bool) -> None:
    table = WordTable()
    words = type("Words", (), {"spellings": np.array([table[word]])})()
    assert widespread_words(words, table.visible_forms("exact"), np.array([support]), num_units).tolist() == [expected]
