"""Attack sets: CoNLL files decoded by hand, what is left out and counted, names that are absent, pairs that match."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.corpus import Columns, open_corpus
from reticent.engine.split import SplitConfig, split_individuals
from reticent.ext.tagger.attacks import blind_scores, wins
from reticent.ext.tagger.prompts import read_prompts
from reticent.ext.tagger.sets import (
    FEATURES,
    Mentions,
    build_attack_set,
    decode_entities,
    names_of_corpus,
    read_conll,
    read_names,
    read_pairs,
)
from reticent.ext.tagger.tables import read_scores

#: (tags of one sentence, bounds of its PER entities), worked by hand.
DECODED = [
    ("IOB1: I- begins after O", "O I-PER I-PER O", [(1, 3)]),
    ("IOB1: B- only between neighbours", "I-PER I-PER B-PER I-PER", [(0, 2), (2, 4)]),
    ("IOB1: another type ends an entity", "I-ORG I-PER I-LOC", [(1, 2)]),
    ("BIO", "B-PER I-PER O B-PER", [(0, 2), (3, 4)]),
    ("BIO: neighbours", "B-PER B-PER I-PER", [(0, 1), (1, 3)]),
    ("BIO: I- of another type begins anew", "B-ORG I-PER I-PER", [(1, 3)]),
    ("BIOES", "B-PER E-PER S-PER S-PER O", [(0, 2), (2, 3), (3, 4)]),
    ("BIOES: I- after an end begins anew", "B-PER E-PER I-PER", [(0, 2), (2, 3)]),
    ("bare types", "PER PER O PER", [(0, 2), (3, 4)]),
    ("nobody", "O O B-LOC", []),
]


@pytest.mark.parametrize(("tags", "bounds"), [row[1:] for row in DECODED], ids=[row[0] for row in DECODED])
def test_entities_of_hand_tagged_sentences(tags: str, bounds: list[tuple[int, int]]) -> None:
    assert decode_entities(tags.split(), [0], ("PER",)).tolist() == [list(pair) for pair in bounds]


def test_an_entity_never_crosses_a_sentence() -> None:
    assert decode_entities(["I-PER", "I-PER"], [0, 1], ("PER",)).tolist() == [[0, 1], [1, 2]]


def entities_oracle(tags: list[str]) -> list[list[int]]:
    """BIO and IOB1 as the reference evaluation of CoNLL reads them, one tag after the other."""
    found: list[list[int]] = []
    before = "O"
    for at, tag in enumerate(tags):
        if tag[2:] == "PER":
            if tag[0] == "B" or before[2:] != "PER":
                found.append([at, at + 1])
            else:
                found[-1][1] = at + 1
        before = tag
    return found


@given(st.lists(st.sampled_from(["O", "B-PER", "I-PER", "B-ORG", "I-ORG"]), min_size=1, max_size=12))
def test_decoding_matches_oracle(tags: list[str]) -> None:
    assert decode_entities(tags, [0], ("PER",)).tolist() == entities_oracle(tags)


ENGLISH = """-DOCSTART- -X- O O

Ada NNP I-NP I-PER
Brown NNP I-NP I-PER
Carl NNP I-NP B-PER
Dunn NNP I-NP I-PER
left VBD I-VP O

Acme NNP I-NP I-ORG
hired VBD I-VP O
Ada NNP I-NP I-PER
Brown NNP I-NP I-PER
"""
TWO = "Ada\tB-PER\nBrown\tI-PER\nCarl\tB-PER\nDunn\tI-PER\nleft\tO\n\nAcme\tB-ORG\nhired\tO\nAda\tB-PER\nBrown\tI-PER\n"
GERMAN = "".join(
    line if not line.strip() or "DOCSTART" in line else line.replace(" ", " lemma ", 1)
    for line in ENGLISH.splitlines(keepends=True)
)


@pytest.mark.parametrize("content", [ENGLISH, TWO, GERMAN, ENGLISH.replace("\n", "\r\n")], ids=["4", "2", "5", "crlf"])
def test_conll_layouts_give_the_same_names_and_sentences(content: str, tmp_path: Path) -> None:
    file = tmp_path / "train.conll"
    file.write_bytes(content.encode())
    found = read_conll(file)
    assert found.names == ["Ada Brown", "Carl Dunn", "Ada Brown"]
    assert list(found.texts) == ["Ada Brown Carl Dunn left", "Acme hired Ada Brown"]


@pytest.mark.parametrize(
    ("content", "where", "said"),
    [
        (ENGLISH.replace("left VBD I-VP O", "left VBD O"), ":7:", "expected 4 columns, got 3"),
        ("Ada I-NP I-PER\n", ":1:", "expected 2, 4 or 5 columns, got 3"),
        ("\n\n", "", "no tagged token"),
    ],
)
def test_a_line_of_other_columns_is_named_by_file_and_line(content: str, where: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.conll"
    file.write_text(content)
    with pytest.raises(CorpusError) as error:
        read_conll(file)
    assert f"bad.conll{where}" in str(error.value)
    assert said in str(error.value)
    assert "left" not in str(error.value)
    assert "Ada" not in str(error.value)


def test_a_conll_file_in_another_encoding_is_read_when_told(tmp_path: Path) -> None:
    file = tmp_path / "train.conll"
    file.write_bytes("José I-PER\nPeña I-PER\n".encode("cp1252"))
    with pytest.raises(CorpusError, match="cannot be read as utf-8"):
        read_conll(file)
    assert read_conll(file, encoding="cp1252").names == ["José Peña"]


def test_a_file_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    none = tmp_path / "none"
    for read, error in ((read_conll, CorpusError), (read_names, CorpusError), (read_prompts, PolicyError)):
        with pytest.raises(error, match=r"none: [a-z ]+ \(No such file or directory\)"):
            read(none)
    with pytest.raises(CorpusError, match=r"not a readable CSV \(No such file or directory\)"):
        read_scores(none)


TRAIN = Mentions(
    ["Ada Brown", "Carl Dunn", "Ada Brown", "Cher", "Łukasz Żak", "Eve  Fox"],
    ["Ada Brown and Carl Dunn met Cher .", "Ada Brown , Łukasz Żak and Eve Fox wrote to grace hill ."],
)


def test_what_is_left_out_is_counted_by_reason() -> None:
    listed = [
        "Ida Jones",
        "Ida Jones",
        "IDA JONES",
        "Bono",
        "Иван Петров",
        "ADA BROWN",
        "Grace Hill",
        "Max Moss",
        "Jo Oak",
    ]
    found = build_attack_set(TRAIN, listed)
    assert sorted(found.positives) == ["Ada Brown", "Carl Dunn", "Eve Fox"]
    assert sorted(found.negatives) == ["Ida Jones", "Jo Oak", "Max Moss"]  # Grace Hill stands in the text, unmarked
    assert {name: number for name, number in found.counts.items() if "matched" not in name} == {
        "training_mentions": 6,
        "training_single_token": 1,
        "training_not_cp1252": 1,
        "training_names": 3,
        "list_duplicate": 2,
        "list_single_token": 1,
        "list_not_cp1252": 1,
        "list_present_in_training": 2,
        "list_names": 3,
        "pairs": 3,
        "dev_pairs": 1,
        "test_pairs": 2,
    }
    assert dict(zip(found.positives, found.occurrences.tolist(), strict=True))["Ada Brown"] == 2


def test_too_few_absent_names_are_an_error_that_says_how_many_and_no_name() -> None:
    with pytest.raises(CorpusError, match=r"3 names of several words are needed .* and 2 of the others") as e:
        build_attack_set(TRAIN, ["Ida Jones", "Max Moss", "Carl Dunn"])
    assert "Ada" not in str(e.value)
    assert len(build_attack_set(TRAIN, ["Ida Jones", "Max Moss"], fewer=True).positives) == 2
    assert len(build_attack_set(TRAIN, ["Ida Jones", "Max Moss"], max_pairs=2).positives) == 2


def test_listed_takes_only_names_that_the_list_has_too() -> None:
    found = build_attack_set(TRAIN, ["Ada Brown", "Carl Dunn", "Ida Jones", "Max Moss"], listed=True)
    assert sorted(found.positives) == ["Ada Brown", "Carl Dunn"]
    assert found.counts["training_not_listed"] == 1


def many(num: int, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    names = {f"{_word(random)} {_word(random)}" for _ in range(3 * num)}
    return sorted(names)[:num]


def _word(random: np.random.Generator) -> str:
    return "".join(random.choice(list("abcdefgh"), int(random.integers(3, 9)))).title()


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 30), st.integers(0, 2**40), st.booleans())
def test_sets_are_disjoint_halved_and_repeatable(num: int, seed: int, match: bool) -> None:
    names = many(120, seed % 1000)
    training = Mentions(names[:num] * 2, [f"so {name} said" for name in names[:num]])
    found = build_attack_set(training, names, seed=seed, match=match)
    again = build_attack_set(training, names, seed=seed, match=match)
    assert (found.names, found.is_dev.tolist()) == (again.names, again.is_dev.tolist())
    assert len(set(found.names)) == 2 * num
    assert set(found.positives) == set(names[:num])
    assert not set(found.negatives) & set(names[:num])
    assert found.is_dev.sum() == num // 2
    assert set(found.occurrences) == {2}
    assert found.features.shape == (2, num, len(FEATURES))


def test_matching_leaves_a_blind_attacker_nothing_and_no_matching_leaves_it_a_lot() -> None:
    # Names of the training data are all in capitals or long; the list has every kind.
    every = many(3000)
    training = [name.upper() if number % 2 else name for number, name in enumerate(every[:200])]
    listed = every[200:2200] + [name.upper() for name in every[2200:]]
    accuracy = {}
    for match in (True, False):
        found = build_attack_set(Mentions(training, training), listed, match=match)
        accuracy[match] = wins(*blind_scores(found.features)).mean()
    assert accuracy[False] > 0.62
    assert abs(accuracy[True] - 0.5) < 0.12


def test_the_spelling_of_a_name_in_the_list_tells_nothing_of_membership() -> None:
    names = [f"Given{number:03d} Family{number:03d}" for number in range(60)]  # every word in one name alone
    training = Mentions([name.upper() for name in names[:30]], [f"{name.upper()} wins" for name in names[:30]])
    found = build_attack_set(training, names, match=False)
    counts = found.features[:, :, FEATURES.index("least word count")]
    assert set(counts[0]) == set(counts[1]) == {0.0}  # in no other name of the list, on either side


def test_a_census_folder_gives_full_names_by_frequency(tmp_path: Path) -> None:
    (tmp_path / "dist.male.first").write_text("JAMES 90.0 90.0 1\nJOHN 10.0 100.0 2\n")
    (tmp_path / "dist.female.first").write_text("MARY 1.0 1.0 1\n")
    (tmp_path / "dist.all.last").write_text("SMITH 1.0 1.0 1\nO'HARA 1.0 2.0 2\n")
    names = read_names(tmp_path, num=2000, seed=1)
    assert set(names) >= {"James Smith", "John Smith", "James O'Hara"}
    assert 0.85 < np.mean([name.startswith("James ") for name in names]) < 0.93
    assert names == read_names(tmp_path, num=2000, seed=1) != read_names(tmp_path, num=2000, seed=2)


@pytest.mark.parametrize("make", ["absent", "empty", "folder"])
def test_a_list_that_is_none_is_an_error(make: str, tmp_path: Path) -> None:
    path = tmp_path / make
    if make == "folder":
        path.mkdir()
    elif make == "empty":
        path.write_text(" \n\n")
    with pytest.raises(CorpusError, match=make):
        read_names(path)


@pytest.mark.parametrize(
    ("name", "pair", "label", "said"),
    [
        ("ada BROWN", 3, 1, "pairs.csv:6: the name of line 2 again"),  # the one is for development, the other for tests
        ("Ada Brown", 3, 0, "pairs.csv:6: the name of line 2 again"),
        ("Ada-Brown", 1, 0, "pairs.csv:6: the name of line 2 again"),
        ("", 3, 1, "pairs.csv:6: no name"),
        ("Ada Brown", 1, 1, "expected two pairs or more on either side"),  # a row a prompt
    ],
)
def test_a_name_is_in_one_pair_with_one_label(name: str, pair: int, label: int, said: str, tmp_path: Path) -> None:
    rows = ["1,Ada Brown,1,dev", "1,Ida Jones,0,dev", "2,Carl Dunn,1,dev", "2,Emma Fox,0,dev"]
    side = "test" if pair == 3 else "dev"
    (tmp_path / "pairs.csv").write_text("\n".join(["pair,name,label,side", *rows, f"{pair},{name},{label},{side}"]))
    with pytest.raises(CorpusError, match=said) as error:
        read_pairs(tmp_path / "pairs.csv")
    assert "rown" not in str(error.value)


def test_names_of_a_corpus_are_one_an_individual_and_nobody_elses(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = []
    for number in range(60):
        name = many(60)[number]
        text = f"{name} was seen by Doctor Shared . {name} left ."
        marks = [(0, len(name)), (text.index("Doctor"), text.index(" .")), (text.rindex(name), text.rindex(" left"))]
        spans = [{"start": a, "end": b, "label": "PATIENT"} for a, b in marks]
        rows.append({"doc_id": f"d{number}", "individual_id": f"i{number}", "text": text, "spans": spans})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "documents.parquet")
    corpus = open_corpus(tmp_path / "documents.parquet", columns=Columns(spans="spans"))
    individuals = split_individuals(corpus, SplitConfig())
    training, heldout = names_of_corpus(corpus, individuals)
    assert len(heldout) == individuals.mask("heldout").sum()
    assert len(training.names) == 2 * individuals.mask("members").sum()  # each is mentioned twice
    assert not set(heldout) & set(training.names)
    assert "Doctor Shared" not in {*heldout, *training.names}
    found = build_attack_set(training, heldout, fewer=True, unit="pairs of individuals")
    assert len(found.positives) == min(len(heldout), len(set(training.names)))


def test_names_of_documents_without_marks_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("doc_id,individual_id,text\n1,a,x\n2,b,y\n3,c,z\n4,d,w\n")
    corpus = open_corpus(tmp_path / "d.csv")
    with pytest.raises(CorpusError, match="marks of people"):
        names_of_corpus(corpus, split_individuals(corpus, SplitConfig(heldout=0.5, seed=3)))
