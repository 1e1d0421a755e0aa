"""Gazetteers: listed names wherever they stand free, and the guard against names that are common words."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.detecting import found
from fixtures.drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.corpus import open_corpus
from reticent.engine.detect.common import count_common_words, learn_common_words, read_common_words
from reticent.engine.detect.gazetteer import GazetteerDetector, read_lists


def gazetteer(folder: Path, *, common: list[str] | None = None, guard: bool = True, **lists: list[str]):
    for label, names in lists.items():
        (folder / f"{label}.txt").write_text("\n".join(names), encoding="utf-8")
    if common is not None:
        (folder / "common.txt").write_text("\n".join(common), encoding="utf-8")
    return GazetteerDetector(
        {label: folder / f"{label}.txt" for label in lists},
        guard=guard,
        common=folder / "common.txt" if common is not None else None,
    )


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("Ann", "Ann, Anna annie ANN (ann)", ["Ann", "ANN", "ann"]),  # whole words only
        ("Ann", "MaryAnn Ann2 2Ann Ann_x", ["Ann"]),
        ("Jean Dupont", "M. Jean Dupont", ["Jean Dupont"]),
        ("Jean Dupont", "M. Jean  \n Dupont", ["Jean  \n Dupont"]),  # broken over two lines
        ("Jean Dupont", "M. Jean\u00a0Dupont", ["Jean\u00a0Dupont"]),
        ("Jean Dupont", "Jean-Dupont / Jean/Dupont", ["Jean-Dupont"]),
        ("Élodie", "ÉLODIE élodie Elodie ELODIE", ["ÉLODIE", "élodie", "Elodie", "ELODIE"]),
        ("Élodie", "E\u0301lodie", ["E\u0301lodie"]),
        ("E\u0301lodie", "vu Élodie.", ["Élodie"]),
        ("Zoé", "😀 Zoe\u0301😀", ["Zoe\u0301"]),
        ("Zoé", "Zoée", []),
        ("Weiß", "WEISS, Weiß", ["WEISS", "Weiß"]),
        ("Weis", "Weiß", []),  # would cut a letter
        ("Παππας", "ΠΑΠΠΑΣ", ["ΠΑΠΠΑΣ"]),
        ("İstanbul", "istanbul İSTANBUL", ["istanbul", "İSTANBUL"]),
        ("O'Brien", "O\u2019Brien, O Brien", ["O\u2019Brien", "O Brien"]),
        ("Dupont", "Du\u00adpont Ｄｕｐｏｎｔ Du\u200bpont", ["Du\u00adpont", "Ｄｕｐｏｎｔ", "Du\u200bpont"]),
        ("Saint-Élie", "SAINT-ELIE / saint elie", ["SAINT-ELIE", "saint elie"]),
        ("שרה", "לשרה שרה.", ["שרה"]),
        ("a.b@x.org", "a.b@x.org a b x org", ["a.b@x.org"]),  # only what joins names may differ
        ("Bartholomäuskirchenweg", "bartholomauskirchenweg", ["bartholomauskirchenweg"]),
        ("\x00Ann\x00Lee", "Ann\x00Lee Ann Lee", ["Ann\x00Lee"]),
        (" Ann ", "Ann", ["Ann"]),  # lists are trimmed
        ("Ann", "", []),
    ],
)
def test_gazetteer_finds_free_standing_names(tmp_path: Path, pattern: str, text: str, expected: list[str]) -> None:
    assert found(gazetteer(tmp_path, NAME=[pattern]), [text])[0] == [("NAME", piece) for piece in expected]


def test_gazetteer_keeps_overlaps_and_labels(tmp_path: Path) -> None:
    detector = gazetteer(tmp_path, NAME=["Jean Dupont", "Dupont", "Dupont"], CITY=["Dupont"])
    assert found(detector, ["Jean Dupont"]) == [[("NAME", "Jean Dupont"), ("NAME", "Dupont"), ("CITY", "Dupont")]]


@pytest.mark.parametrize(
    ("surface", "expected"),
    [
        ("exact", ["Zoé", "Zoe\u0301"]),
        ("casefold", ["Zoé", "ZOÉ", "Zoe\u0301"]),
        ("fold", ["Zoé", "ZOÉ", "Zoe\u0301", "Zoe"]),
    ],
)
def test_surface_says_which_spellings_are_the_same(tmp_path: Path, surface: str, expected: list[str]) -> None:
    (tmp_path / "names.txt").write_text("Zoé", encoding="utf-8")
    detector = GazetteerDetector({"NAME": tmp_path / "names.txt"}, surface=surface)
    assert [text for _, text in found(detector, ["Zoé ZOÉ Zoe\u0301 Zoe"])[0]] == expected


@pytest.mark.parametrize("surface", ["casefold", "fold"])
def test_a_name_in_capitals_with_a_capital_sharp_s_is_found(tmp_path: Path, surface: str) -> None:
    spellings = ["Groß", "GROẞ", "GROSS"]
    for listed in spellings:
        (tmp_path / "names.txt").write_text(listed, encoding="utf-8")
        detector = GazetteerDetector({"NAME": tmp_path / "names.txt"}, surface=surface)
        assert [text for _, text in found(detector, [", ".join(spellings)])[0]] == spellings


def pieces(text: str) -> list[tuple[int, int]]:
    """Runs of letters, digits and marks, one character at a time."""
    inside = [c.isalnum() or unicodedata.combining(c) > 0 for c in text] + [False]
    starts = [i for i in range(len(text)) if inside[i] and (i == 0 or not inside[i - 1])]
    return [(start, next(i for i in range(start, len(inside)) if not inside[i])) for start in starts]


def gap_form(gap: str) -> str:
    return " " if gap and len(gap.encode()) <= 8 and all(c.isspace() or c in "-'.," for c in gap) else gap


@settings(max_examples=examples(300))
@given(
    st.lists(st.text(st.sampled_from("abÀé😀 -'/12"), max_size=6), min_size=1, max_size=4),
    st.text(st.sampled_from("abÀé😀 -'/12"), max_size=30),
)
def test_gazetteer_matches_oracle(patterns: list[str], text: str) -> None:
    """An entry is found where its pieces follow each other with like gaps (composed letters, no double spaces)."""
    text, *patterns = (" ".join(t.split()) for t in (text, *patterns))
    patterns = [p for p in patterns if sum(map(str.isalnum, p)) >= 2] or ["xx"]
    cut = pieces(text)
    expected = set()
    for number, pattern in enumerate(patterns):
        own = pieces(pattern)
        for first in range(len(cut) - len(own) + 1):
            here = cut[first : first + len(own)]
            same = all(pattern[a:b] == text[c:d] for (a, b), (c, d) in zip(own, here, strict=True))
            own_gaps = [gap_form(pattern[own[i][1] : own[i + 1][0]]) for i in range(len(own) - 1)]
            if same and own_gaps == [gap_form(text[here[i][1] : here[i + 1][0]]) for i in range(len(own) - 1)]:
                expected.add((here[0][0], here[-1][1], str(number)))
    gazetteer = _rust.Gazetteer(pa.array(patterns), pa.array([str(i) for i in range(len(patterns))]), surface="exact")
    rows = pa.record_batch(gazetteer.find(pa.array([text]))).to_pylist()
    assert {(row["start"], row["end"], row["label"]) for row in rows} == expected
    assert len(rows) == len(expected)


COMMON = ["will", "brown", "may", "grant", "rose", "young", "petit", "blanco", "pat"]
NAMES = [
    "Will",
    "Brown",
    "May",
    "Grant",
    "Rose",
    "Young",
    "Petit",
    "Blanco",
    "Pat",
    "Parkinson",
    "Foley",
    "Crohn",
    "Smith",
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("We will see a brown rose in may.", []),
        ("Will improve. Brown sputum. May return.", []),
        ("The Young have come back.", []),
        ("Seen by Mr. Brown and Dr Young today.", ["Brown", "Young"]),
        ("Patient: Rose", ["Rose"]),
        ("Nom : Petit, vu par Mme Blanco hier", ["Petit", "Blanco"]),
        ("M. Petit va bien", ["Petit"]),
        ("a small child (m) petit", []),
        ("seen with J. Grant here", ["Grant"]),
        ("I Will go", []),
        ("was seen by Grant Smith", ["Grant", "Smith"]),
        ("was seen by Smith, Rose", ["Smith", "Rose"]),
        ("we met Will Brown again", ["Will", "Brown"]),
        ("Will Brown Rose Young", []),  # a heading, for all we know
        ("on May 5 and 5 May", []),
        ("in the case of Mr. May", ["May"]),
        ("has Parkinson's disease and a Foley catheter; maladie de Crohn", []),
        ("was seen by Dr. Foley and by Parkinson", ["Foley", "Parkinson"]),
        ("smith said so, SMITH too", ["smith", "SMITH"]),  # no common word
        ("mr. brown in small letters", ["brown"]),
        ("", []),
    ],
)
def test_common_words_need_evidence(tmp_path: Path, text: str, expected: list[str]) -> None:
    detector = gazetteer(tmp_path, NAME=NAMES, common=COMMON)
    assert [piece for _, piece in found(detector, [text])[0]] == expected


def test_without_a_guard_common_words_count(tmp_path: Path) -> None:
    assert found(gazetteer(tmp_path, NAME=["Will"], guard=False), ["We will"])[0] == [("NAME", "will")]
    with pytest.raises(PolicyError, match="guard = false"):
        gazetteer(tmp_path, NAME=["Will"], guard=False, common=["will"])


def test_common_words_are_learned_from_the_corpus(tmp_path: Path) -> None:
    texts = [
        "She will come. Will it do? It will, said Mr. Will Brown.",
        "A brown spot, seen by Brown, by Brown and by Brown with a brown coat.",
        "all in small letters: smith smith smith",
        "Smith left.",
    ]
    rows = "\n".join(f'd{i},p{i},"{text}"' for i, text in enumerate(texts))
    (tmp_path / "d.csv").write_text("doc_id,individual_id,text\n" + rows, encoding="utf-8")
    corpus = open_corpus(tmp_path / "d.csv")
    common = count_common_words(corpus, num_threads=1)
    words = pa.array(["will", "Brown", "smith", "unseen"])
    assert common.classes(words).tolist() == [2, 1, 0, 0]
    assert count_common_words(corpus, num_threads=2).classes(words).tolist() == [2, 1, 0, 0]
    detector = gazetteer(tmp_path, NAME=["Will", "Brown", "Smith"])
    learn_common_words(corpus, [detector])
    spans = [[piece for _, piece in document] for document in found(detector, texts)]
    assert spans == [["Will", "Brown"], ["Brown", "Brown", "Brown"], ["smith", "smith", "smith"], ["Smith"]]


def test_a_list_of_the_users_is_not_counted_again(tmp_path: Path) -> None:
    detector = gazetteer(tmp_path, NAME=["Will"], common=["Will"])
    before = detector.common_words
    learn_common_words(None, [detector])  # type: ignore[arg-type]
    assert detector.common_words is before


def test_lists_that_cannot_be_used_say_where(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "x", tmp_path / "missing"):
        with pytest.raises(CorpusError, match=f"{path.name}: not a readable list of names"):
            read_lists({"NAME": path})
        with pytest.raises(CorpusError, match=f"{path.name}: not a readable list of common words"):
            read_common_words(path)
    (tmp_path / "x").write_text("\ufeff\n \n", encoding="utf-8")
    with pytest.raises(CorpusError, match="x: holds no name"):
        read_lists({"NAME": tmp_path / "x"})
    (tmp_path / "x").write_text("Ann\n-B-\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="x: name 2 has fewer than 2"):
        read_lists({"NAME": tmp_path / "x"})
    with pytest.raises(CorpusError, match="row 1 has fewer than 2"):
        _rust.Gazetteer(pa.array(["Ann", "X"]), pa.array(["NAME", "NAME"]))
    with pytest.raises(CorpusError, match="1 labels were given for 2"):
        _rust.Gazetteer(pa.array(["Ann", "Bob"]), pa.array(["NAME"]))


@pytest.mark.corpus
def test_census_names_in_real_notes_are_found_at_the_speed_of_a_table(data: Path, tmp_path: Path) -> None:
    path = data / "us_census_names" / "dist.all.last"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    names = [line.split()[0] for line in path.read_text().splitlines()]
    (tmp_path / "names.txt").write_text("\n".join(name for name in names if len(name) > 1))
    detector = GazetteerDetector({"NAME": tmp_path / "names.txt"})
    spans = found(detector, ["Dr. Abernathy was seen with zzyzx"])
    assert ("NAME", "Abernathy") in spans[0]
    assert all(piece != "zzyzx" for _, piece in spans[0])


def test_words_of_lines_without_case_are_judged_by_the_capitals_of_the_rest(tmp_path: Path) -> None:
    """A dialogue typed in small letters says nothing of its names; of words that never have a capital it does."""
    dialogue = "[doctor] hi , karen . do you love white bread ?\n[patient] i love white bread .\n"
    note = "Karen is a pleasant 50-year-old woman. She was seen by Karen Roy.\n\nCHIEF BREAD\n"
    texts = [f"{dialogue}{note}"] * 4
    (tmp_path / "names.txt").write_text("Karen\nLove\nWhite\nBread\n")
    ids = [f"p{number}" for number in range(4)]
    table = {"doc_id": ids, "individual_id": ids, "text": pa.array(texts, pa.large_string())}
    pq.write_table(pa.table(table), tmp_path / "d.parquet")
    detector = GazetteerDetector({"NAME": tmp_path / "names.txt"})
    learn_common_words(open_corpus(tmp_path / "d.parquet"), [detector])
    found = detector.detect(pa.record_batch({"text": pa.array(texts[:1], pa.large_string())}))
    surfaces = [texts[0][row["start"] : row["end"]] for row in found.to_pylist()]
    assert surfaces == ["karen", "Karen", "Karen"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("So he lives at 12 Roy Street now.", []),
        ("She went to San Roy and to Hospital Roy in English.", []),
        ("Then he had a negative Roy sign; negative Roy's", []),
        ("So he had a long walk.", []),  # nowhere with a capital
        ("She lives with Roy, and roy came.", ["Roy", "roy"]),
        ("Seen by Dr. English and dr. long today.", ["English", "long"]),
    ],
)
def test_listed_names_are_not_those_of_places_things_and_words(tmp_path: Path, text: str, expected: list[str]) -> None:
    names = ["Roy", "Street", "English", "Long"]
    pq.write_table(pa.table({"doc_id": ["d"], "individual_id": ["p"], "text": [text]}), tmp_path / "d.parquet")
    for label in ("NAME", "TOWN"):
        detector = gazetteer(tmp_path, **{label: names})
        learn_common_words(open_corpus(tmp_path / "d.parquet"), [detector])
        surfaces = [piece for _, piece in found(detector, [text])[0]]
        assert surfaces == expected if label == "NAME" else set(expected) <= set(surfaces)


def test_whether_patterns_are_names_is_said_once_for_each() -> None:
    with pytest.raises(CorpusError, match="once for each pattern"):
        _rust.Gazetteer(pa.array(["Ann", "Bob"]), pa.array(["NAME", "NAME"]), are_names=[True])
