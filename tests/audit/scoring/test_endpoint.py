"""A server in the place of a model: what it is asked for, beside what tests/job/test_subject.py sees of a whole job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures.models import toy_tokenizer
from fixtures.stores import make_store
from fixtures.tokenizer_kinds import TOY_KINDS, tokenizer_json
from tokenizers import Tokenizer

from reticent import _rust
from reticent.audit.scoring import endpoint
from reticent.audit.scoring.generate import Decoding, score_continuations
from reticent.trainer.windows import SpecialIds


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a server that reads and writes eight tokens at most, and must write one."""

    def answer(_: str, question: dict[str, Any]) -> list[dict[str, Any]]:
        assert len(question["prompt"]) + question["max_tokens"] <= 8
        return [{"logprobs": {"token_logprobs": [None] + [-1.0] * len(question["prompt"])}}]

    monkeypatch.setattr(endpoint, "_completions", answer)
    monkeypatch.setattr(endpoint, "core_tokenizer", lambda found: found)
    about = {"url": "http://127.0.0.1/v1", "model": "m", "host": "127.0.0.1", "answers": str(tmp_path / "kept")}
    (tmp_path / "endpoint.json").write_text(json.dumps(about | {"log_probs": True}))
    (tmp_path / "config.json").write_text(json.dumps({"n_positions": 8}))
    return tmp_path


def test_no_text_is_sent_that_leaves_a_server_no_room_for_the_token_it_must_write(folder: Path) -> None:
    server = endpoint.Server(folder, Tokenizer.from_str(toy_tokenizer("gpt2")))  # type: ignore[arg-type]
    found = server.score([[1] * 5, [1] * 4, [1], []], [[2] * 3, [2] * 3, [], [2]])
    assert np.array_equal(found, [np.nan, -3.0, np.nan, np.nan], equal_nan=True)


@pytest.mark.parametrize("window_length", [6, 7, 8, 16])
def test_no_window_fills_what_a_server_reads_and_each_token_is_scored(folder: Path, window_length: int) -> None:
    store = make_store([(5 + n, n, 0) for n in range(20)])
    special = SpecialIds(prefix=1, suffix=None, pad=0, mask=None)
    scores = endpoint.score_endpoint(folder, store, special, window_length)
    assert scores.log_probs.tolist() == [-1.0] * 20


@pytest.mark.parametrize("kind", TOY_KINDS)
def test_a_continuation_that_a_server_writes_is_found_with_each_tokenizer(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server's text begins with a space; tokenizers like Llama 2's put one before every text and decode it away."""
    content = json.loads(tokenizer_json(kind))
    if kind == "BPE, byte fallback":
        content["decoder"]["decoders"].append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    tokenizer = _rust.LibraryTokenizer(json.dumps(content))
    (whole,) = tokenizer.encode(["the patient was seen again on the ward of the old hospital"])
    ids = np.array([whole.ids[:12], [*whole.ids[:11], whole.ids[0]]])
    before, text = tokenizer.decode([whole.ids[:4], whole.ids], skip_special_tokens=False)
    monkeypatch.setattr(endpoint, "_completions", lambda *_: [{"text": text[len(before) :]}])
    server = endpoint.Server(folder, tokenizer)  # type: ignore[arg-type]
    special = SpecialIds(prefix=None, suffix=None, pad=0, mask=None)
    found, _ = score_continuations(server, ids, 4, special=special, decoding=Decoding())
    assert found.tolist() == [True, False]
