"""``reticent score``: texts by their likelihood, against plain transformers, and texts that a model writes."""

from __future__ import annotations

import json
import math
import stat
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.command import command
from fixtures.models import toy_model, toy_tokenizer

from reticent.cli.score import _format_cell
from reticent.core.errors import CorpusError
from reticent.ext.score.scorer import Scorer
from reticent.ext.score.texts import Candidate, read_texts, without_repeats
from reticent.trainer.models import load_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = ["patient", "seen", "today", "pain", "chest", "fever", "cough", "rest", "home", "week", "back", "after"]
TEXTS = [" ".join(np.random.default_rng(number).choice(WORDS, 12)) for number in range(12)]
KNOWN, NUM_KNOWN = TEXTS[:6], 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ``base``, a ``model`` that learned the first six texts by heart, a masked ``bert``, and the candidates."""
    folder = tmp_path_factory.mktemp("score")
    tokenizer = load_tokenizer(toy_tokenizer("gpt2"))
    model = toy_model("gpt2", hidden_size=48)
    for name in ("base", "model"):
        if name == "model":
            begin = tokenizer.bos_token_id or tokenizer.eos_token_id
            rows = [[begin, *tokenizer.encode(text), tokenizer.eos_token_id] for text in KNOWN]
            ids = torch.full((NUM_KNOWN, max(map(len, rows))), tokenizer.eos_token_id)
            labels = torch.full_like(ids, -100)
            for row, own in enumerate(rows):
                ids[row, : len(own)] = labels[row, : len(own)] = torch.tensor(own)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            for _ in range(120):
                optimizer.zero_grad()
                model(input_ids=ids, labels=labels).loss.backward()
                optimizer.step()
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    toy_model("bert").save_pretrained(folder / "bert")
    load_tokenizer(toy_tokenizer("bert")).save_pretrained(folder / "bert")
    (folder / "texts.txt").write_text("\n\n".join(TEXTS) + "\n", encoding="utf-8")
    return folder


def scored(folder: Path, out: Path, capsys: pytest.CaptureFixture[str], *options: Any) -> list[dict[str, Any]]:
    assert command("score", folder / "model", *options, "--out", out, "--json", "--quiet") == 0
    said = capsys.readouterr()
    assert not any(word in said.out + said.err for word in WORDS)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [{k: v for k, v in row.items() if k not in ("text", "given")} for row in rows] == json.loads(said.out)[
        "rows"
    ]
    return rows


def loss_by_hand(folder: Path, name: str, text: str, given: str = "") -> np.ndarray:
    """Minus the log-probability of each token of the text behind what is given, one forward pass a token."""
    from transformers import AutoModelForCausalLM

    tokenizer, model = load_tokenizer(folder / name), AutoModelForCausalLM.from_pretrained(folder / name).eval()
    before = [tokenizer.bos_token_id or tokenizer.eos_token_id, *tokenizer.encode(given)]
    ids = tokenizer.encode(given + text)[len(before) - 1 :]
    found = []
    for at, token in enumerate(ids):
        logits = model(torch.tensor([[*before, *ids[:at]]])).logits[0, -1].detach().double()
        found.append(-float(torch.log_softmax(logits, -1)[token]))
    return np.array(found)


def test_texts_that_a_model_knows_stand_first(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = scored(folder, tmp_path / "r.jsonl", capsys, "--texts", folder / "texts.txt", "--base", folder / "base")
    assert {row["text"] for row in rows[:NUM_KNOWN]} == set(KNOWN)
    assert [row["perplexity"] for row in rows] == sorted(row["perplexity"] for row in rows)
    assert {row["number"] for row in rows} == set(range(1, 24, 2))  # lines of the file, every second of which is blank
    by_ratio = sorted(rows, key=lambda row: -row["ratio"])
    assert {row["text"] for row in by_ratio[:NUM_KNOWN]} == set(KNOWN)
    for row in (rows[0], rows[-1]):
        own, base = (loss_by_hand(folder, name, row["text"]) for name in ("model", "base"))
        assert row["tokens"] == len(own)
        assert row["perplexity"] == pytest.approx(math.exp(own.mean()), rel=1e-4)
        assert row["ratio"] == pytest.approx(base.mean() / own.mean(), rel=1e-3)
        assert row["zlib"] == pytest.approx(own.sum() / len(zlib.compress(row["text"].encode())), rel=1e-3)


def test_an_item_is_linked_where_it_is_likelier_behind_what_is_given_than_alone(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Definition 1 of ProPILE, with Pr(a_m) of the item behind nothing at all."""
    given, item = KNOWN[0][: KNOWN[0].rindex(" ")], KNOWN[0][KNOWN[0].rindex(" ") :]
    other = next(f" {word}" for word in WORDS if word != item.strip())
    lines = tmp_path / "items.jsonl"
    lines.write_text("".join(json.dumps({"text": t, "given": given}) + "\n" for t in (item, other)))
    rows = {row["text"]: row for row in scored(folder, tmp_path / "out", capsys, "--texts", lines)}
    for text, row in rows.items():
        after, alone = -loss_by_hand(folder, "model", text, given).sum(), -loss_by_hand(folder, "model", text).sum()
        assert row["log_p_given"] == pytest.approx(after, abs=1e-3)
        assert row["log_p"] == pytest.approx(alone, abs=1e-3)
        loss = loss_by_hand(folder, "model", text, given).mean()
        assert row["perplexity_given"] == pytest.approx(math.exp(loss), rel=1e-3)
        assert row["linked"] == (after > alone)
    assert rows[item]["linked"]
    assert rows[item]["log_p_given"] > rows[other]["log_p_given"]
    lines.write_text(json.dumps({"text": item, "given": " ".join(TEXTS * 20)}))  # more than a window
    (row,) = scored(folder, tmp_path / "out", capsys, "--texts", lines)
    assert (row["log_p_given"], row["perplexity_given"], row["linked"]) == (None, None, None)
    assert row["log_p"] is not None


def test_a_quantile_is_the_share_of_held_out_documents_that_are_likelier(folder: Path) -> None:
    scorer = Scorer(str(folder / "model"), "clm", str(folder / "base"))
    heldout = scorer.store_of(TEXTS[NUM_KNOWN:] + KNOWN[:1])
    rows = {row["number"]: row for row in scorer.measure([Candidate(n, t) for n, t in enumerate(TEXTS)], heldout)}
    losses = np.array([rows[n]["perplexity"] for n in (*range(NUM_KNOWN, 12), 0)])
    for row in rows.values():
        assert row["quantile"] == pytest.approx(np.mean(losses < row["perplexity"] - 1e-9))
    assert max(rows[n]["quantile"] for n in range(NUM_KNOWN)) <= 1 / 7
    assert max(rows[n]["ratio_quantile"] for n in range(NUM_KNOWN)) <= 1 / 7


def test_texts_that_a_model_writes_are_those_it_knows_and_each_once(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--generate", 40, "--tokens", 40, "--top-k", 5, "--base", folder / "base")
    rows = scored(folder, tmp_path / "written.jsonl", capsys, *options)
    assert len(rows) < 30
    assert any(row["text"].strip() in KNOWN for row in rows[:NUM_KNOWN])
    again = scored(folder, tmp_path / "again.jsonl", capsys, *options)
    assert rows == again


@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        (["a b c d", "a b c d"], [0]),
        (["a b c d e", "a b c x y"], [0, 1]),  # one trigram of three
        (["a b c d", "a b c x"], [0]),  # one of two
        (["a b", "a b", "b a"], [0, 2]),
        (["a b c a b c", "c a b c"], [0]),
    ],
)
def test_of_texts_that_share_half_of_their_trigrams_the_first_is_kept(texts: list[str], kept: list[int]) -> None:
    candidates = [Candidate(number, text) for number, text in enumerate(texts)]
    assert [each.number for each in without_repeats(candidates)] == kept


def test_a_masked_model_scores_and_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("score", folder / "bert", "--texts", folder / "texts.txt", "--json", "--quiet") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == len(TEXTS)
    assert all(row["perplexity"] > 1 for row in rows)
    assert command("score", folder / "bert", "--generate", 2, "--out", folder / "no") == 2
    assert "a masked model writes no text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.txt", b"", "no text to score"),
        ("t.txt", b"\n \n", "no text to score"),
        ("t.txt", b"fine\nname\t\n", "line 2: no text to score"),
        ("t.jsonl", b'{"text": "secret"}\n{"words": "secret"}\n', "line 2: expected a JSON object"),
        ("t.jsonl", b"secret\n", "line 1: expected a JSON object"),
        ("t.jsonl", b'{"text": "secret", "given": 3}\n', "line 1: expected a JSON object"),
        ("t.jsonl", b'\xef\xbb\xbf{"text": "fine"}\n{"text": "secret \\ud83d"}\n', "line 2: expected a JSON object"),
        ("t.txt", b"secret \xff\n", "not UTF-8"),
    ],
)
def test_a_file_that_is_not_understood_is_named_by_its_line_and_not_quoted(
    name: str, content: bytes, said: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=said) as error:
        read_texts(tmp_path / name)
    assert "secret" not in str(error.value)


def test_a_base_of_another_tokenizer_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("score", folder / "model", "--texts", folder / "texts.txt", "--base", folder / "bert") == 2
    assert "another tokenizer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "shown"), [(1, "1"), (0, "0"), (2000, "2000"), (True, "yes"), (False, "no"), (None, "–"), (0.25, "0.25")]
)
def test_a_count_of_one_is_shown_as_a_number(value: Any, shown: str) -> None:
    assert _format_cell(value) == shown
