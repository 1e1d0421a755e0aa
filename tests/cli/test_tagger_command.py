"""End to end: a tagger is fine-tuned on generated names and attacked; the command and what it leaves behind."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.tagger_names import PUBLIC, generated

from reticent.core.artifact import require_kind
from reticent.ext.tagger.prompts import PROMPTS
from reticent.ext.tagger.result import evaluate_attack, score_table
from reticent.ext.tagger.scores import score_names
from reticent.ext.tagger.sets import AttackSet, read_pairs
from reticent.ext.tagger.training import Examples, new_tagger, train_tagger
from reticent.trainer.foundation import new_model, train_tokenizer
from reticent.trainer.models import load_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> dict[str, Any]:
    """Taggers of one base: scores before and after few and many epochs, and after as many with surrogates."""
    arms, attack_set, public = generated(40)
    tokenizer = load_tokenizer(train_tokenizer([PUBLIC + public], "wordpiece", 800))
    base = new_model("bert", tokenizer.backend_tokenizer.to_str(), hidden_size=32, max_length=64)
    scores = {}
    tagger = new_tagger(base)

    def measure(epoch: int) -> None:
        if epoch in (0, 1, 10):
            scores[epoch] = score_names(tagger, tokenizer, attack_set.names, device="cpu")

    measure(0)
    losses = train_tagger(
        tagger, tokenizer, arms["plain"], num_epochs=10, learning_rate=3e-3, device="cpu", after_epoch=measure
    )
    protected = new_tagger(base)
    train_tagger(protected, tokenizer, arms["surrogates"], num_epochs=10, learning_rate=3e-3, device="cpu")
    scores["surrogates"] = score_names(protected, tokenizer, attack_set.names, device="cpu")
    folder = tmp_path_factory.mktemp("tagger") / "model"
    tagger.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return {"scores": scores, "set": attack_set, "folder": folder, "examples": arms["plain"], "losses": losses}


def result_of(trained: dict[str, Any], when: Any) -> dict[str, Any]:
    return evaluate_attack(trained["scores"][when], trained["set"], PROMPTS, num_bootstrap=200)


def advantage(trained: dict[str, Any], when: Any) -> float:
    """Over all pairs, development and test."""
    scores = trained["scores"][when].reshape(len(PROMPTS), 2, -1).mean(axis=0)
    return float(2 * np.mean(scores[0] > scores[1]) - 1)


def test_advantage_over_the_blind_baseline_grows_with_epochs_and_surrogates_have_none(trained: dict[str, Any]) -> None:
    assert trained["losses"][-1] < trained["losses"][0] / 4
    assert advantage(trained, 0) < 0.4
    assert advantage(trained, 10) > max(0.6, advantage(trained, 0) + 0.2)
    assert advantage(trained, "surrogates") < 0.4
    after = result_of(trained, 10)
    assert after.verified.excess.low > 0
    assert "gives away which names" in after.reading[-1]
    assert "No power to tell" in result_of(trained, "surrogates").reading[-1]


def test_the_result_holds_together(trained: dict[str, Any]) -> None:
    result = result_of(trained, 10)
    assert result.dev.pairs + result.test.pairs == 40
    for side in ("dev", "test"):
        found = getattr(result, side)
        rates = [row.accuracy.value for row in found.by_prompt]
        assert found.list.expected_rank == pytest.approx((1 - np.mean(rates)) * 20 + 10)
        assert found.list.map.value == pytest.approx(np.mean([row.average_precision.value for row in found.by_prompt]))
        kinds = found.by_utterance
        # 1 prompt without an utterance, 4 assertions, 2 questions, 2 negations.
        whole = (kinds["none"].value + 4 * kinds["assertion"].value + 2 * kinds["question"].value
                 + 2 * kinds["negation"].value) / 9  # fmt: skip
        assert whole == pytest.approx(np.mean(rates))
        for name, row in found.pairwise.items():
            assert row.advantage.value == pytest.approx(2 * row.accuracy.value - 1), name
            assert row.accuracy.low <= row.accuracy.value <= row.accuracy.high
    best = max(row.accuracy.value for row in result.dev.pairwise.values())
    assert result.dev.pairwise[result.verified.pairwise].accuracy.value == best
    assert sum(row.names for row in result.occurrences) == 40


def test_bins_of_few_names_say_only_that_they_are_few(trained: dict[str, Any]) -> None:
    result = evaluate_attack(trained["scores"][10], trained["set"], PROMPTS, num_bootstrap=50, small_cell=15)
    assert {row.names for row in result.occurrences} <= {"under 15", 20}
    assert all(row.advantage is None for row in result.occurrences if row.names == "under 15")


def conll_of(examples: Examples) -> str:
    """Generated sentences as BIO, two columns."""
    blocks = []
    for text, spans in zip(examples.texts, examples.spans, strict=True):
        lines, at = [], 0
        for token in text.split():
            start = text.index(token, at)
            at = start + len(token)
            inside = any(a <= start < b for a, b in spans)
            tag = "O" if not inside else "B-PER" if any(a == start for a, _ in spans) else "I-PER"
            lines.append(f"{token}\t{tag}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def test_the_command_leaves_private_results_without_a_name(
    trained: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attack_set: AttackSet = trained["set"]
    (tmp_path / "train.conll").write_text(conll_of(trained["examples"]))
    (tmp_path / "names.txt").write_text("\n".join(["Cher", "Иван Петров", *attack_set.names]) + "\n")
    (tmp_path / "key").write_bytes(b"0123456789abcdef")
    out = tmp_path / "result"
    options = ["--train", tmp_path / "train.conll", "--names", tmp_path / "names.txt", "--key", tmp_path / "key"]
    assert command("tagger", "attack", trained["folder"], *options, "--out", out, "--device", "cpu") == 0
    said = capsys.readouterr()
    assert "an attacker who looks at its scores" in said.out
    assert "list single token 1, list not cp1252 1" in said.err
    assert require_kind(out, "tagger").counts == {"pairs": 40, "prompts": 9}
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    result = json.loads((out / "tagger.json").read_text())
    assert result["names"]["training_mentions"] == 100
    table = pq.read_table(out / "scores.parquet")
    assert table.num_rows == 9 * 80
    assert len(set(table["name_hash"].to_pylist())) == 80
    names = [name.encode() for name in attack_set.names]
    for file in out.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        content = file.read_bytes()
        assert not any(name in content for name in names), file.name
    assert not any(name.decode() in said.out + said.err for name in names)


def test_names_of_a_run_are_those_of_members_and_held_out_individuals(
    trained: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"doc_id": f"d{number}", "individual_id": f"i{number}", "text": f"{name} is well .",
         "spans": [{"start": 0, "end": len(name), "label": "PATIENT"}]}
        for number, name in enumerate(trained["set"].names)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "documents.parquet")
    source = [tmp_path / "documents.parquet", "--set", "corpus.spans=spans"]
    assert command("index", *source, "--out", tmp_path / "run", "--quiet") == 0
    options = ["--run", tmp_path / "run", "--out", tmp_path / "result", "--device", "cpu", "--json"]
    assert command("tagger", "attack", trained["folder"], *options) == 0
    result = json.loads(capsys.readouterr().out)
    split = require_kind(tmp_path / "run" / "split", "split").counts
    assert result["unit"] == "pairs of individuals"
    assert result["names"]["training_names"] == split["members"]
    assert result["names"]["list_names"] == split["heldout"]
    assert result["names"]["pairs"] == min(split["members"], split["heldout"])


def test_heldout_names_may_come_from_a_second_file(trained: dict[str, Any], tmp_path: Path) -> None:
    names = trained["set"].names
    for file, own in (("train", names[:4]), ("heldout", [*names[40:50], names[0]])):
        lines = ["\n".join(f"{word} I-PER" for word in name.split()) for name in own]
        (tmp_path / file).write_text("\n\n".join(lines) + "\n")
    options = [
        "--train",
        tmp_path / "train",
        "--heldout",
        tmp_path / "heldout",
        "--prompts",
        "fr",
        "--max-pairs",
        3,
    ]
    out = tmp_path / "result"
    assert command("tagger", "attack", trained["folder"], *options, "--out", out, "--device", "cpu") == 0
    result = json.loads((out / "tagger.json").read_text())
    assert result["names"]["list_present_in_training"] == 1
    assert result["names"]["pairs"] == 3
    assert result["prompts"][1]["text"] == "[MASK] est une personne."


def test_pairs_may_be_given_as_published_scores_have_them(trained: dict[str, Any], tmp_path: Path) -> None:
    attack_set: AttackSet = trained["set"]
    sides = ["dev" if dev else "test" for dev in attack_set.is_dev]
    pairs = list(zip(attack_set.positives, attack_set.negatives, sides, strict=True))
    lines = [
        f'{at},"{name}",{label},{side}'
        for at, (*names, side) in enumerate(pairs)
        for label, name in zip((1, 0), names, strict=True)
    ]
    (tmp_path / "pairs.csv").write_text("\n".join(["pair,name,label,side", *lines, *lines]) + "\n")  # a row a prompt
    found = read_pairs(tmp_path / "pairs.csv")
    assert (found.positives, found.negatives) == (attack_set.positives, attack_set.negatives)
    assert found.is_dev.tolist() == attack_set.is_dev.tolist()
    out = tmp_path / "result"
    options = ["--pairs", tmp_path / "pairs.csv", "--out", out, "--device", "cpu"]
    assert command("tagger", "attack", trained["folder"], *options) == 0
    result = json.loads((out / "tagger.json").read_text())
    own = result_of(trained, 10)
    assert result["names"] == {"pairs": 40, "dev_pairs": 20, "test_pairs": 20}
    assert result["test"]["pairwise"]["maximum"]["accuracy"]["value"] == own.test.pairwise["maximum"].accuracy.value
    assert result["occurrences"] == []  # nobody gave them


def test_hashes_need_the_key(trained: dict[str, Any]) -> None:
    scores, attack_set = trained["scores"][0].copy(), trained["set"]
    scores[0, 0] = np.nan
    hashes = [
        score_table(scores, attack_set, key=key)["name_hash"].to_pylist() for key in (b"a" * 16, b"a" * 16, None, None)
    ]
    assert hashes[0] == hashes[1]
    assert len({column[0] for column in hashes}) == 3
    assert score_table(scores, attack_set)["score"].null_count == 1  # ND


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ([], 2, "give --train FILE and either --names LIST or --heldout FILE"),
        (["--train", "train.conll"], 2, "give --train FILE"),
        (["--train", "train.conll", "--names", "few.txt"], 1, "1 of the others are absent"),
        (["--train", "bad.conll", "--names", "few.txt"], 1, "bad.conll:2: expected 2 columns, got 3"),
        (["--train", "train.conll", "--names", "few.txt", "--label", "PERSON"], 2, "expected a label PERSON"),
        (["--train", "train.conll", "--names", "few.txt", "--prompts", "bad.tsv"], 2, "expected [MASK] once"),
        (["--train", "train.conll", "--names", "few.txt", "--bf16", "yes"], 2, "expected auto, on or off"),
        (["--train", "train.conll", "--names", "few.txt", "--key", "few.txt"], 2, "at least 16 bytes"),
        (["--run", "nowhere", "--names", "few.txt"], 2, "leave out --train"),
        (["--pairs", "pairs.csv", "--names", "few.txt"], 2, "--pairs: has both names of every pair; leave out --train"),
        (["--pairs", "pairs.csv", "--max-pairs", "2"], 2, "has no effect with --pairs"),
        (["--pairs", "pairs.csv"], 1, "pair 2: expected one name of label 1 and one of label 0"),
        (["--pairs", "few.txt"], 1, "no column pair"),
    ],
)
def test_input_that_cannot_be_used_ends_in_a_clear_message(
    options: list[str], status: int, said: str, trained: dict[str, Any], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("train.conll").write_text("Ada B-PER\nBrown I-PER\n\nCarl B-PER\nDunn I-PER\n")
    Path("bad.conll").write_text("Ada B-PER\nBrown X I-PER\n")
    Path("few.txt").write_text("Ida Jones\n")
    Path("bad.tsv").write_text("nobody\n")
    Path("pairs.csv").write_text("pair,name,label\n1,Ada Brown,1\n1,Ida Jones,0\n2,Carl Dunn,1\n2,Emma Fox,1\n")
    assert command("tagger", "attack", trained["folder"], "--out", "out", "--device", "cpu", *options) == status
    assert said in capsys.readouterr().err
    assert not Path("out").exists()
