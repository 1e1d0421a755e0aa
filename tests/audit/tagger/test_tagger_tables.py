"""The tables of [@nussbaumer2023] from score files: published counts, files worked by hand, files that are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fixtures.command import command

from reticent.core.errors import CorpusError
from reticent.ext.tagger.prompts import PROMPTS
from reticent.ext.tagger.tables import Table, read_scores, thesis_tables

HEAD = "pair,name,label,prompt,score\n"
#: True positives of Tables 4.1 and 4.2, of 826 pairs.
HITS = {
    "base": [575, 579, 597, 596, 580, 588, 566, 579, 583],
    "large": [584, 557, 562, 574, 557, 560, 565, 567, 552],
}
#: Rows of Table 4.1: accuracy, TP, FP, precision, recall, FP rate.
TABLE_4_1 = [
    "0.696 575 251 0.696 0.696 0.304", "0.701 579 247 0.701 0.701 0.299", "0.723 597 229 0.723 0.723 0.277",
    "0.722 596 230 0.722 0.722 0.278", "0.702 580 246 0.702 0.702 0.298", "0.712 588 238 0.712 0.712 0.288",
    "0.685 566 260 0.685 0.685 0.315", "0.701 579 247 0.701 0.701 0.299", "0.706 583 243 0.706 0.706 0.294",
]  # fmt: skip
TABLE_4_2 = [
    "0.707 584 242 0.707 0.707 0.293", "0.674 557 269 0.674 0.674 0.326", "0.68 562 264 0.68 0.68 0.32",
    "0.695 574 252 0.695 0.695 0.305", "0.674 557 269 0.674 0.674 0.326", "0.678 560 266 0.678 0.678 0.322",
    "0.684 565 261 0.684 0.684 0.316", "0.686 567 259 0.686 0.686 0.314", "0.668 552 274 0.668 0.668 0.332",
]  # fmt: skip


def write(path: Path, hits: list[int], num_pairs: int, side: str | None = None) -> str:
    """A score file in which the positive wins the first pairs of each prompt, as many as ``hits``."""
    lines = []
    for prompt, won in zip(PROMPTS, hits, strict=True):
        for pair in range(num_pairs):
            scores = (0.9, 0.4) if pair < won else ("ND", 0.5)
            for label, score in zip((1, 0), scores, strict=True):
                more = "" if side is None else f",{side}"
                lines.append(f'{pair},"n{pair}-{label}",{label},{prompt.text},{score}{more}')
    head = HEAD if side is None else HEAD.strip() + ",side\n"
    path.write_text(head + "\n".join(lines) + "\n")
    return str(path)


def by_number(tables: list[Table]) -> dict[str, Table]:
    return {table.number: table for table in tables}


def test_the_published_counts_give_the_published_tables(tmp_path: Path) -> None:
    models = {name: read_scores(write(tmp_path / f"{name}.csv", hits, 826)) for name, hits in HITS.items()}
    tables = by_number(thesis_tables(models))
    for number, published in (("4.1", TABLE_4_1), ("4.2", TABLE_4_2)):
        assert [" ".join(row[1:]) for row in tables[number].rows] == published
        assert [row[0] for row in tables[number].rows] == [prompt.text for prompt in PROMPTS]
    assert tables["4.3"].rows[0] == ("base", "0.705", "0.705", "0.705", "0.705", "0.295", "0.411")
    published = {"base": (0.706, 0.294, 0.412), "large": (0.684, 0.317, 0.367)}  # means of rounded numbers
    for row in tables["4.3"].rows:
        found = float(row[1]), float(row[5]), float(row[6])
        assert found == pytest.approx(published[row[0]], abs=0.0016)
    assert [row[2] for row in tables["4.5"].rows] == ["664", "660", "642", "643", "659", "651", "673", "660", "656"]
    assert [row[2] for row in tables["4.6"].rows] == ["655", "682", "677", "665", "682", "679", "674", "672", "687"]
    assert [row[3] for row in tables["4.7"].rows[:2]] == ["656", "675"]
    assert "4.8" not in tables


#: Two prompts, three pairs: (positive, negative) of each.
SMALL = {"p [MASK]": [(0.9, 0.2), (0.6, 0.7), ("ND", "ND")], "q [MASK]": [(0.8, 0.3), (0.7, 0.3), (0.4, "ND")]}


def small(path: Path, side: str = "dev") -> list[str]:
    lines = [
        f"{pair},n{pair}{label},{label},{prompt},{scores[1 - label]},{side}"
        for prompt, pairs in SMALL.items()
        for pair, scores in enumerate(pairs)
        for label in (1, 0)
    ]
    path.write_text(HEAD.strip() + ",side\n" + "\n".join(lines) + "\n")
    return lines


def test_tables_worked_by_hand(tmp_path: Path) -> None:
    small(tmp_path / "s.csv")
    dev = read_scores(tmp_path / "s.csv").sides["dev"]
    assert dev.tolist() == [[[0.9, 0.6, 0.0], [0.2, 0.7, 0.0]], [[0.8, 0.7, 0.4], [0.3, 0.3, 0.0]]]
    tables = by_number(thesis_tables({"base": read_scores(tmp_path / "s.csv")}))
    # p: 0.9 > 0.2 only (ND ties are lost); q: all three.
    assert [" ".join(row[1:]) for row in tables["4.1"].rows] == [
        "0.333 1 2 0.333 0.333 0.667",
        "1.0 3 0 1.0 1.0 0.0",
    ]
    assert tables["4.3"].rows == (("base", *["0.667"] * 4, "0.333", "0.333"),)
    # A1: votes 2-0, 1-1 (lost), 1-1 (lost). A2: .85 > .25, .65 > .5, .2 > 0. A3: .9 > .3, .7 = .7 so the mean, .4 > 0.
    assert [row[1] for row in tables["4.4"].rows[:3]] == ["0.333", "1.0", "1.0"]
    # p ranks + .9, - .7, + .6, - .2, then both NDs in one step: 1/3 (1 + 2/3 + 3/6). q: + + + first.
    assert [row[1:] for row in tables["4.5"].rows] == [("0.722", "4"), ("1.0", "2")]
    # E: 2/3 · 3 + 1.5 = 3.5, 0 + 1.5; a half is rounded to even as in the published tables.
    # MAP: mean of .722 and 1. Means rank + .85, + .65, - .5, - .25, + .2, - 0: 1/3 (1 + 1 + 3/5). E: 1/3 · 3 + 1.5.
    assert tables["4.7"].rows[0] == ("base", "0.861", "0.867", "2")
    # (1 - AUC) · 3: p: + .9 beats 3, + .6 beats 2, ND beats 0 and ties 1: AUC 5.5 / 9.
    assert tables["A.1-A.2"].rows[0][1] == "1"


def test_the_test_side_has_its_tables(tmp_path: Path) -> None:
    lines = small(tmp_path / "s.csv")
    moved = [line.replace("dev", "test") for line in lines]
    (tmp_path / "s.csv").write_text(HEAD.strip() + ",side\n" + "\n".join(lines + moved) + "\n")
    tables = by_number(thesis_tables({"base": read_scores(tmp_path / "s.csv")}))
    assert list(tables) == ["4.1", "4.3", "4.4", "4.5", "4.7", "4.8", "4.9", "A.1-A.2", "A.3", "A.4"]
    assert tables["4.8"].rows[0] == ("(A3) MAX Score", "1.0")
    assert tables["4.9"].rows[0] == ("base", "0.861", "0.867")
    assert tables["A.4"].rows == (("p [MASK]", "0.722"), ("q [MASK]", "1.0"))


@pytest.mark.parametrize("seed", range(3))
def test_rows_may_stand_in_any_order(seed: int, tmp_path: Path) -> None:
    lines = small(tmp_path / "s.csv")
    first = lines.index("0,n01,1,q [MASK],0.8,dev")
    shuffled = np.random.default_rng(seed).permutation(lines[1:first] + lines[first:]).tolist()
    (tmp_path / "t.csv").write_text(HEAD.strip() + ",side\n" + "\n".join([lines[0], *shuffled]) + "\n")
    found = [thesis_tables({"m": read_scores(tmp_path / name)}) for name in ("s.csv", "t.csv")]
    assert [sorted(table.rows) for table in found[0]] == [sorted(table.rows) for table in found[1]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("label", "member"), "no column label"),
        (("0,n00,0,p [MASK],0.2", "0,n00,0,p [MASK],1.2"), ":3: column score"),
        (("0,n00,0,p [MASK],0.2", "0,n00,0,p [MASK],0"), ":3: column score"),
        (("0,n00,0,p [MASK],0.2", "0,n00,0,p [MASK],"), ":3: column score"),
        (("0,n00,0,p [MASK],0.2", "0,n00,no,p [MASK],0.2"), ":3: column label"),
        (("0,n00,0,p [MASK],0.2,dev", "0,n00,0,p [MASK],0.2,train"), ":3: column side"),
        (("0,n00,0,p [MASK],0.2,dev\n", ""), "12 rows in all, got 11"),
        (("0,n00,0,p [MASK],0.2,dev\n", "0,n01,1,p [MASK],0.2,dev\n"), "12 rows in all, got 12, 11 of them distinct"),
        (("0,n00,0,p [MASK],0.2", "0,other,0,p [MASK],0.2"), "expected one score for both names"),
    ],
)
def test_a_file_that_is_no_table_of_scores_is_refused(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    small(tmp_path / "s.csv")
    text = (tmp_path / "s.csv").read_text()
    assert change[0] in text
    (tmp_path / "s.csv").write_text(text.replace(*change, 1))
    with pytest.raises(CorpusError) as error:
        read_scores(tmp_path / "s.csv")
    assert said in str(error.value)
    assert "n00" not in str(error.value)


def test_models_that_were_asked_other_prompts_are_refused(tmp_path: Path) -> None:
    small(tmp_path / "s.csv")
    (tmp_path / "t.csv").write_text((tmp_path / "s.csv").read_text().replace("q [MASK]", "r [MASK]"))
    with pytest.raises(CorpusError, match="different prompts"):
        thesis_tables({name: read_scores(tmp_path / f"{name}.csv") for name in "st"})


def test_the_command_prints_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "base.csv", HITS["base"], 826)
    assert command("tagger", "thesis", f"base={file}") == 0
    said = capsys.readouterr().out
    assert "| My name is [MASK]. | 0.723 | 597 | 229 | 0.723 | 0.723 | 0.277 |" in said
    assert command("tagger", "thesis", f"base={file}", f"base={file}") == 2
    assert command("tagger", "thesis", tmp_path / "absent.csv") == 1


def test_columns_may_have_other_names_and_other_columns_are_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = small(tmp_path / "s.csv")
    rows = [line.split(",") for line in lines]
    # Names that the reader uses inside, and `score` of something else, are no business of ours.
    head = "row,value,score,nd,id,who,label,prompt,mu,side"
    text = "\n".join(",".join(["x", "y", "z", "n", *row]) for row in rows)
    (tmp_path / "t.csv").write_text(f"{head}\n{text}\n")
    names = {"pair": "id", "name": "who", "score": "mu"}
    found = read_scores(tmp_path / "t.csv", columns=names)
    assert found.sides["dev"].tolist() == read_scores(tmp_path / "s.csv").sides["dev"].tolist()
    options = [word for item in names.items() for word in ("--columns", "=".join(item))]
    assert command("tagger", "thesis", tmp_path / "t.csv", *options) == 0
    assert "Table 4.1: Results for t, dev" in capsys.readouterr().out
    for wrong, status, said in (
        ("mu", 2, "expected WHAT=COLUMN"),
        ("points=mu", 2, "expected some of pair, name, label, prompt, score, side; got points"),
        ("score=points", 1, "no column points for the score"),
        ("side=half", 1, "no column half for the side"),
    ):
        assert command("tagger", "thesis", tmp_path / "s.csv", "--columns", wrong) == status
        assert said in capsys.readouterr().err


def test_without_pairs_only_the_tables_of_the_list_are_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = small(tmp_path / "s.csv")
    lines += [line.replace("dev", "test") for line in lines]
    text = "\n".join([HEAD.strip() + ",side", *lines])
    (tmp_path / "s.csv").write_text(text)
    (tmp_path / "t.csv").write_text("\n".join(line.partition(",")[2] for line in text.split("\n")))
    whole = by_number(thesis_tables({"base": read_scores(tmp_path / "s.csv")}))
    for file in ("s.csv", "t.csv"):
        listed = by_number(thesis_tables({"base": read_scores(tmp_path / file, paired=False)}))
        assert list(listed) == ["4.5", "4.7", "4.9", "A.1-A.2", "A.3", "A.4"]
        for number in ("4.9", "A.1-A.2", "A.3", "A.4"):
            assert listed[number] == whole[number]
        assert list(listed["4.5"].rows) == [row[:2] for row in whole["4.5"].rows]
        assert listed["4.7"].heads == ("Model Size", "(B1) MAP", "(B1) AP")
    assert command("tagger", "thesis", tmp_path / "t.csv") == 1
    assert "no column pair" in capsys.readouterr().err
    assert command("tagger", "thesis", tmp_path / "t.csv", "--no-pairs") == 0
    assert command("tagger", "thesis", tmp_path / "t.csv", "--no-pairs", "--skip-incomplete") == 2
    (tmp_path / "t.csv").write_text(HEAD.partition(",")[2] + "a,1,p,0.5\nb,0,p,0.4\nc,0,p,0.3\n")
    with pytest.raises(CorpusError, match="as many names of label 1 as of label 0, got 1 and 2"):
        read_scores(tmp_path / "t.csv", paired=False)


def test_pairs_that_are_not_whole_are_left_out_on_request_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = small(tmp_path / "s.csv")
    text = "\n".join([HEAD.strip() + ",side", *lines[1:], lines[-1]])  # the first pair lacks one, the last has two
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(CorpusError, match="12 rows in all, got 12, 11 of them distinct"):
        read_scores(tmp_path / "s.csv")
    found = read_scores(tmp_path / "s.csv", only_whole=True)
    assert found.sides["dev"].tolist() == [[[0.6], [0.7]], [[0.7], [0.3]]]
    assert found.num_left_out == 2
    assert command("tagger", "thesis", tmp_path / "s.csv", "--skip-incomplete") == 0
    assert "s: 2 pairs are left out" in capsys.readouterr().err
    (tmp_path / "s.csv").write_text(text.replace(",q [MASK],0.7", ",r [MASK],0.7"))
    with pytest.raises(CorpusError, match="no pair has a score for both names in 3 prompts"):
        read_scores(tmp_path / "s.csv", only_whole=True)
