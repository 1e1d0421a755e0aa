"""The guard: nothing of 50 characters of the training text gets out, of a finished text, of a stream, of a model."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.drawing import examples
from fixtures.models import toy_model, toy_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine.corpus import open_corpus
from reticent.engine.detect import make_detectors
from reticent.engine.detect.rules import RulesDetector
from reticent.engine.schema import MEMBERS
from reticent.engine.verbatim import build_verbatim
from reticent.guard import NOTICE, POLICIES, Guard, GuardedModel, open_guard
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run

pytestmark = pytest.mark.usefixtures("one_thread")

NOTES = [
    "the patient was seen today with pain in the chest and a fever and was given rest at home after a week in the back",
    "she has a cough and no fever and came back with the same pain in the chest and was seen again after a week in",
]


def guard_of(*training: str, length: int = 50, rules: bool = False) -> Guard:
    index = _rust.VerbatimFilter(1 << 14, length=length, key=3)
    index.add(pa.array(training, pa.large_string()))
    return Guard(index, [RulesDetector(num_threads=1)] if rules else [])


def longest_shared(text: str, sources: list[str]) -> int:
    """Characters of the longest stretch that the text and a source share."""
    longest = 0
    for source in sources:
        ends: dict[int, int] = {}
        for a in text:
            ends = {at + 1: ends.get(at, 0) + 1 for at, b in enumerate(source) if a == b}
            longest = max([longest, *ends.values()])
    return longest


# ------------------------------------------------------------------------------------------------- finished texts

COPY = NOTES[0][10:70]


@pytest.mark.parametrize(
    ("text", "policy", "expected"),
    [
        ("nothing of anybody", "block", "nothing of anybody"),
        ("", "block", ""),
        (f"so {COPY} it is", "block", NOTICE),
        (f"so{COPY}# it is", "redact", "so[VERBATIM]# it is"),
        (f"so{COPY}# it is", "stop", "so"),
        ("mail a@example.org now", "block", NOTICE),
        ("mail a@example.org now", "redact", "mail [EMAIL] now"),
        ("mail a@example.org now", "stop", "mail "),
        (f"{COPY}# a@example.org", "redact", "[VERBATIM]# [EMAIL]"),
        (COPY[:49], "block", COPY[:49]),
    ],
)
def test_texts_are_shown_by_policy(text: str, policy: Any, expected: str) -> None:
    (shown,) = guard_of(*NOTES, rules=True).apply([text], policy)
    assert shown.text == expected
    assert bool(shown.findings) is (text != expected)


class _Echo:
    """Finds what the others found."""

    name, columns = "echo", ()

    def detect_beside(self, batch: pa.RecordBatch, found: pa.Table) -> pa.Table:
        return found.drop_columns("detector")


def test_a_detector_that_reads_the_finds_of_others_is_given_them() -> None:
    guard = Guard(_rust.VerbatimFilter(10), [_Echo(), RulesDetector(num_threads=1)])  # type: ignore[list-item]
    ((one, other),) = guard.find(["mail a@example.org now"])
    assert (one.detector, other.detector) == ("echo", "rules")
    assert (one.start, one.end, one.category) == (other.start, other.end, "EMAIL")


@pytest.mark.parametrize(
    "form",
    [
        lambda words: " ".join(f"**{word}**" for word in words),
        lambda words: "\n".join(f"> {' '.join(words[at : at + 6])}" for at in range(0, len(words), 6)),
        lambda words: "\n".join(f"{at}. {' '.join(words[at : at + 6])}" for at in range(0, len(words), 6)),
        lambda words: "-\n".join(" ".join(words)[at : at + 30] for at in range(0, len(" ".join(words)), 30)),
        "_".join,
        lambda words: "<br>".join(f"<b>{word}</b>" for word in words),
        lambda words: " ".join(" ".join(words).replace(" ", "")),
    ],
)
def test_signs_hyphens_tags_and_numbers_of_lines_let_nothing_out(form: Any, tmp_path: Path) -> None:
    words = [f"{word}{number}" for number in range(8) for word in ("fever", "cough", "amoxicillin", "discharged")]
    texts = pa.array([" ".join(words), "Nothing."], pa.large_string())
    table = pa.table({"doc_id": ["d", "e"], "individual_id": ["p", "q"], "text": texts})
    pq.write_table(table, tmp_path / "documents.parquet")
    guard = Guard(build_verbatim(open_corpus(tmp_path / "documents.parquet")))
    said = form(words)
    assert guard.apply([said])[0].text == NOTICE
    stream = guard.stream()
    shown = "".join(stream.push(said[at : at + 7]) for at in range(0, len(said), 7)) + stream.finish()
    assert NOTICE in shown
    letters = "".join(c for c in shown.replace(NOTICE, "") if c.isalnum())
    assert len(letters) < 60
    assert guard.apply(["Admitted without fever, treated with ibuprofen and sent home to rest"])[0].findings == ()


def test_findings_say_where_and_what_but_not_the_text() -> None:
    text = f"12. {COPY}"
    (findings,) = guard_of(*NOTES, rules=True).find([text])
    assert [(f.start, f.end, f.category, f.detector) for f in findings] == [(4, len(text), "VERBATIM", "verbatim")]
    assert COPY[:10] not in repr(findings)


def test_a_tag_that_completes_training_text_is_withheld() -> None:
    training = "seen on [DATE] by the ward round and sent home with a letter"
    (shown,) = guard_of(training, rules=True).apply(
        ["seen on 2021-03-04 by the ward round and sent home with a letter"], "redact"
    )
    assert shown.text == NOTICE


def test_a_detector_that_needs_more_than_text_is_refused() -> None:
    detector = SimpleNamespace(name="records", columns=("individual_id",))
    with pytest.raises(PolicyError, match="individual_id"):
        Guard(_rust.VerbatimFilter(10), [detector])  # type: ignore[list-item]


def test_records_that_would_find_nothing_in_text_of_no_individual_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"individual_id": ["p1"], "name": ["Zorba Quixby"]}), tmp_path / "records.parquet")
    detectors = make_detectors(["records"], {"records": {"table": str(tmp_path / "records.parquet")}})
    with pytest.raises(PolicyError, match="gazetteer"):
        Guard(_rust.VerbatimFilter(10), detectors)


def test_an_unknown_policy_and_one_text_for_many_are_refused() -> None:
    guard = guard_of(*NOTES)
    with pytest.raises(PolicyError, match="a list of texts"):  # in its letters nothing would be found
        guard.apply(COPY)
    for attempt in (lambda: guard.apply([""], "warn"), lambda: guard.stream("warn")):  # type: ignore[arg-type]
        with pytest.raises(PolicyError, match="block, redact, stop"):
            attempt()


# --------------------------------------------------------------------------------------------------------- streams


def pieces_of(text: str, seed: int) -> list[str]:
    rng = random.Random(seed)
    pieces = []
    while text:
        size = rng.choice([1, 2, 5, 30, 200])
        pieces.append(text[:size])
        text = text[size:]
    return pieces


words = st.lists(st.sampled_from(["ab", "cd ", "a", " ", "abcd", "é"]), max_size=30).map("".join)


@settings(max_examples=examples(150))
@given(st.lists(words, min_size=1, max_size=3), st.data(), st.sampled_from(POLICIES), st.booleans())
def test_a_stream_lets_no_match_out_and_agrees_with_the_whole_text(
    training: list[str], data: st.DataObject, policy: Any, rules: bool
) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(training) | words, max_size=6)))
    guard = guard_of(*training, length=18, rules=rules)
    stream = guard.stream(policy)
    shown = [stream.push(piece) for piece in pieces_of(text, data.draw(st.integers(0, 9)))] + [stream.finish()]
    out = "".join(shown)
    assert not guard.find([out.replace(NOTICE, "\n#\n")])[0]
    (whole,) = guard.apply([text], policy)
    assert bool(stream.findings) is bool(whole.findings)
    if not whole.findings:
        assert out == text
    elif policy == "redact":
        assert out == whole.text or NOTICE in (out, whole.text)
    elif policy == "stop":
        assert out == whole.text
    else:
        assert out == text[: whole.findings[0].start] + NOTICE
    assert stream.push("more") == stream.finish() == ""


def test_a_stream_shows_what_cannot_become_a_match() -> None:
    stream = guard_of(*NOTES).stream()
    shown = stream.push("x" * 1000)
    assert len(shown) == 1000 - 42
    assert stream.finish() == "x" * 42


@pytest.mark.parametrize("seed", range(5))
def test_identifiers_are_found_wherever_a_stream_is_cut(seed: int) -> None:
    text = "".join(f"{'w ' * (97 + 13 * i)}mail a.b{i}@example.org on 2021-03-0{i + 1}, " for i in range(8))
    guard = guard_of(*NOTES, rules=True)
    stream = guard.stream("redact")
    out = "".join([stream.push(piece) for piece in pieces_of(text, seed)] + [stream.finish()])
    assert out == guard.apply([text], "redact")[0].text
    assert (out.count("[EMAIL]"), out.count("[DATE]")) == (8, 8)


# ---------------------------------------------------------------------------------------------------------- models


@pytest.fixture(scope="module")
def parrot() -> tuple[Any, Any]:
    """A GPT-2 that says its training notes, and its tokenizer."""
    import torch
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    torch.set_num_threads(1)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(toy_tokenizer("gpt2")))
    tokenizer.pad_token = tokenizer.eos_token = "<|endoftext|>"
    model = toy_model("gpt2", hidden_size=64, max_length=160)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    batch = [tokenizer(note + "<|endoftext|>", return_tensors="pt").input_ids for note in NOTES]
    model.eval()  # by heart: without dropout
    for step in range(200):
        ids = batch[step % 2]
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    return model, tokenizer


def prompts(tokenizer: Any) -> Any:
    tokenizer.padding_side = "left"
    return tokenizer([" ".join(note.split()[:3]) for note in NOTES], return_tensors="pt", padding=True)


def test_the_toy_model_says_its_training_text_by_heart(parrot: tuple[Any, Any]) -> None:
    model, tokenizer = parrot
    asked = prompts(tokenizer)
    output = model.generate(input_ids=asked["input_ids"], attention_mask=asked["attention_mask"], max_new_tokens=80)
    texts = tokenizer.batch_decode(output[:, asked["input_ids"].shape[1] :], skip_special_tokens=True)
    assert all(longest_shared(text, NOTES) >= 50 for text in texts)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("options", [{}, {"num_beams": 2}, {"do_sample": True, "num_return_sequences": 3}])
def test_nothing_of_50_characters_gets_out_of_a_model(
    parrot: tuple[Any, Any], policy: Any, options: dict[str, Any]
) -> None:
    model, tokenizer = parrot
    asked = prompts(tokenizer)
    guarded = GuardedModel(model, tokenizer, guard_of(*NOTES), policy=policy)
    ids, mask = asked["input_ids"], asked["attention_mask"]
    shown = guarded.generate(ids, attention_mask=mask, max_new_tokens=80, **options)
    assert len(shown) == 2 * options.get("num_return_sequences", 1)
    assert any(text.findings for text in shown)
    assert all(longest_shared(text.text, NOTES) < 50 for text in shown)
    assert all((text.text == NOTICE) is bool(text.findings) for text in shown if policy == "block")


def test_generation_ends_with_the_match_and_other_texts_go_on(parrot: tuple[Any, Any]) -> None:
    model, tokenizer = parrot
    asked = prompts(tokenizer)
    lengths = []
    for guard in (guard_of(NOTES[0]), guard_of("nobody's")):
        guarded = GuardedModel(model, tokenizer, guard, policy="stop")
        seen: list[Any] = []
        decode = guarded._decode
        guarded._decode = lambda ids, seen=seen, decode=decode: seen.append(len(ids)) or decode(ids)  # type: ignore[method-assign]
        shown = guarded.generate(asked["input_ids"], attention_mask=asked["attention_mask"], max_new_tokens=60)
        lengths.append([len(text.text) for text in shown])
    assert lengths[0][0] < 50
    assert lengths[0][1] == lengths[1][1]  # the note that is not in the guard


def test_a_model_that_says_nothing_known_is_left_alone(parrot: tuple[Any, Any]) -> None:
    model, tokenizer = parrot
    asked = prompts(tokenizer)
    ids, mask = asked["input_ids"], asked["attention_mask"]
    output = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=40)
    plain = tokenizer.batch_decode(output[:, ids.shape[1] :], skip_special_tokens=True)
    for policy in POLICIES:
        guarded = GuardedModel(model, tokenizer, guard_of("nobody's"), policy=policy)  # type: ignore[arg-type]
        shown = guarded.generate(ids, attention_mask=mask, max_new_tokens=40)
        assert [text.text for text in shown] == plain


@pytest.mark.parametrize("policy", POLICIES)
def test_a_stream_of_a_model_lets_nothing_of_50_characters_out(parrot: tuple[Any, Any], policy: Any) -> None:
    model, tokenizer = parrot
    ids = prompts(tokenizer)["input_ids"][:1]
    guarded = GuardedModel(model, tokenizer, guard_of(*NOTES), policy=policy)
    out = "".join(guarded.stream(ids, max_new_tokens=80))
    assert longest_shared(out, NOTES) < 50
    assert ("[" in out) is (policy != "stop")
    free = "".join(GuardedModel(model, tokenizer, guard_of("nobody's")).stream(ids, max_new_tokens=40))
    (whole,) = GuardedModel(model, tokenizer, guard_of("nobody's")).generate(ids, max_new_tokens=40)
    assert free == whole.text


def test_ways_around_the_guard_are_refused(parrot: tuple[Any, Any]) -> None:
    model, tokenizer = parrot
    ids = prompts(tokenizer)["input_ids"]
    guarded = GuardedModel(model, tokenizer, guard_of(*NOTES))
    with pytest.raises(PolicyError, match=r"use GuardedModel\.stream"):
        guarded.generate(ids, streamer=object())
    for wrong in ({"input_ids": ids}, {"input_ids": ids[:1], "num_beams": 2}):
        with pytest.raises(PolicyError, match="one text"):
            next(guarded.stream(**wrong))


def test_an_error_of_the_model_is_raised_by_the_stream(parrot: tuple[Any, Any]) -> None:
    model, tokenizer = parrot
    guarded = GuardedModel(model, tokenizer, guard_of(*NOTES))
    with pytest.raises(ValueError, match="max_new_tokens"):
        list(guarded.stream(prompts(tokenizer)["input_ids"][:1], max_new_tokens=-1))


# -------------------------------------------------------------------------------------------------------- commands


def documents(path: Path, *, seed: int = 0) -> Path:
    rng = random.Random(seed)
    texts = [" ".join(f"w{rng.randrange(999)}" for _ in range(40)) for _ in range(30)]
    table = pa.table({"doc_id": range(30), "individual_id": [i // 2 for i in range(30)], "text": texts})
    pq.write_table(table, path)
    return path


def test_commands_build_and_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = documents(tmp_path / "documents.parquet")
    guard = tmp_path / "guard"
    assert command("guard", "build", source, "--out", guard, "--json") == 0
    counts = json.loads(capsys.readouterr().out)
    texts = pq.read_table(source).column("text").to_pylist()
    assert counts["num_bytes"] < 2 * sum(map(len, texts)) + 64
    assert counts["documents"] == 30
    copy = texts[3][5:70]
    (tmp_path / "said.txt").write_text(f"héllo#{copy}")
    assert command("guard", "check", guard, tmp_path / "said.txt") == 3
    out = capsys.readouterr().out
    assert copy[:8] not in out
    (finding, *_) = json.loads(out)["findings"]
    assert finding == {"start": 6, "end": 71, "category": "VERBATIM", "detector": "verbatim"}
    for said, identifiers, status in (
        ("hello", True, 0),
        ("", True, 0),
        ("a@example.org", True, 3),
        ("a@example.org", False, 0),
        (copy[:40], True, 0),
    ):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(said.encode())))
        option = "--identifiers" if identifiers else "--verbatim-only"
        assert command("guard", "check", guard, "-", option) == status, said
        assert json.loads(capsys.readouterr().out)["characters"] == len(said)


def test_commands_refuse_what_is_no_guard_and_no_text(tmp_path: Path) -> None:
    source = documents(tmp_path / "documents.parquet")
    assert command("guard", "check", tmp_path) == 1
    assert command("guard", "build", tmp_path / "nothing", "--out", tmp_path / "guard") == 1
    assert command("guard", "build", source, "--out", tmp_path / "guard", "--length", "3") == 2
    assert command("guard", "build", source, "--out", tmp_path / "guard", "--seed", str(1 << 64)) == 2
    assert command("guard", "build", source, "--out", tmp_path / "guard") == 0
    (tmp_path / "bytes").write_bytes(b"\xff")
    assert command("guard", "check", tmp_path / "guard", tmp_path / "bytes") == 1
    assert command("guard", "check", tmp_path / "guard", tmp_path / "missing") == 1
    with pytest.raises(
        ArtifactError, match=r"no artefact here .*; reticent guard build SOURCE --out GUARD makes a guard"
    ):
        open_guard(tmp_path)


def test_a_guard_of_a_run_knows_the_members_only(tmp_path: Path) -> None:
    source = documents(tmp_path / "documents.parquet")
    run = Run(parse_job({"out": str(tmp_path / "run"), "corpus": {"source": str(source)}}))
    execute(run, "split")
    assert command("guard", "build", tmp_path / "run", "--out", tmp_path / "guard", "--quiet") == 0
    guard = open_guard(tmp_path / "guard", ())
    members = run.individuals.mask(MEMBERS)[
        run.individuals.individual_codes(run.corpus.scan().column("individual_id").combine_chunks())
    ]
    found = guard.find(pq.read_table(source).column("text").to_pylist())
    assert [bool(findings) for findings in found] == members.tolist()


def test_a_guard_of_a_run_is_not_built_of_documents_that_its_models_never_saw(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = documents(tmp_path / "documents.parquet")
    execute(Run(parse_job({"out": str(tmp_path / "run"), "corpus": {"source": str(source)}})), "split")
    table = pq.read_table(source)
    texts = [f"{text} more" for text in table.column("text").to_pylist()]
    pq.write_table(table.set_column(2, "text", pa.array(texts)), source)
    assert command("guard", "build", tmp_path / "run", "--out", tmp_path / "guard", "--quiet") == 1
    assert "its documents have changed since they were split" in capfd.readouterr().err
    assert not (tmp_path / "guard").exists()


def test_a_guard_is_not_built_of_documents_that_change_meanwhile(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = documents(tmp_path / "documents.parquet")

    def build(*arguments: Any, **options: Any) -> Any:
        documents(source, seed=1)
        return build_verbatim(*arguments, **options)

    monkeypatch.setattr("reticent.cli.guard.build_verbatim", build)
    assert command("guard", "build", source, "--out", tmp_path / "guard", "--quiet") == 1
    assert "have changed since" in capfd.readouterr().err
    assert not (tmp_path / "guard").exists()
