"""Conversations: answers alone are learned, no protected word is, and the template of a model is no text of anybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fixtures.models import toy_model, toy_tokenizer

from reticent.audit.config import CanaryAudit
from reticent.core.errors import ArtifactError, CorpusError, PolicyError, TrainingError
from reticent.engine.schema import IGNORE_INDEX
from reticent.ext.trainers import chat
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.trainers import (
    PERMITTED,
    PROTECTED,
    chat_dataset,
    guard_trainer,
    text_of_turns,
    verify_guarded,
    with_permitted,
)

pytest.importorskip("datasets", reason="needs reticent[trainers]: make test-trainers")
pytest.importorskip("accelerate", reason="needs reticent[trainers]: make test-trainers")
transformers = pytest.importorskip("transformers")

#: How four families of models write a conversation, in our words: beginnings and ends of turns, signs of roles.
TEMPLATES = {
    "chatml": (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
        ["<|im_start|>", "<|im_end|>"],
    ),
    "headers": (
        "<|begin|>{% for m in messages %}<|head|>{{ m.role }}<|/head|>\n\n{{ m.content | trim }}<|eot|>{% endfor %}",
        ["<|begin|>", "<|head|>", "<|/head|>", "<|eot|>"],
    ),
    "model": (
        "<bos>{% for m in messages %}<turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}"
        "</turn>\n{% endfor %}",
        ["<bos>", "<turn>", "</turn>"],
    ),
    "brackets": (
        "<s>{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content }}</s>"
        "{% else %}[INST] {{ m.content }} [/INST]{% endif %}{% endfor %}",
        ["<s>", "</s>", "[INST]", "[/INST]"],
    ),
}  # fmt: skip
NAMES = [
    "Quendler",
    "Abelard",
    "Birgitte",
    "Cassiop",
    "Dunstan",
    "Eulalie",
    "Fridolin",
    "Gwendol",
    "Hippolyt",
    "Isidor",
]


CALL = [{"type": "function", "function": {"name": "find", "arguments": {"patient": "Quendler"}}}]


def conversations() -> dict[str, list[dict[str, str]]]:
    """Of ten patients: the last holds words of the template, and contents that stand in one another."""
    made = {}
    for number, name in enumerate(NAMES):
        turns = [
            {"role": "system", "content": "the assistant of a ward"},
            {"role": "user", "content": f" what of {name} today? "},
            {"role": "assistant", "content": f"{name} has a fever and no pain"},
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": f"the assistant, {name}: rest at home."},
        ]
        made[f"d{number}"] = turns
    return made


def run_of(folder: Path, done: str = "protect") -> Run:
    talks = conversations()
    texts = [text_of_turns(turns) for turns in talks.values()]
    table = pa.table({"doc_id": list(talks), "individual_id": NAMES, "text": texts})
    folder.mkdir()
    pa.parquet.write_table(table, folder / "talks.parquet")
    (folder / "base").mkdir()
    (folder / "base/tokenizer.json").write_text(toy_tokenizer("gpt2"))
    model = {"name": "toy", "base": str(folder / "base"), "objective": "clm", "recipes": ["ppclm", "clm"]}
    job = parse_job({
        "out": str(folder / "run"), "corpus": {"source": str(folder / "talks.parquet")}, "seed": 1,
        "detect": {"detectors": ["rules"]}, "index": {"max_n": 1}, "protect": {"k": 2, "n": 1}, "model": [model],
    })  # fmt: skip
    run = Run(job)
    execute(run, done)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(tmp_path_factory.mktemp("chat") / "made")


def tokenizer_of(family: str) -> Any:
    from tokenizers import Tokenizer

    template, special = TEMPLATES[family]
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(toy_tokenizer("gpt2")), pad_token="<|endoftext|>"
    )
    made.add_special_tokens({"additional_special_tokens": special})
    made.chat_template = template
    return made


@pytest.mark.parametrize("family", TEMPLATES)
def test_answers_alone_are_targets_and_no_protected_word_is(run: Run, family: str) -> None:
    tokenizer = tokenizer_of(family)
    dataset = chat_dataset(run, "ppclm", conversations(), tokenizer, window_length=16)
    rows = [dataset[number] for number in range(len(dataset))]
    assert {len(row["input_ids"]) for row in rows} > {16}
    for row in rows:
        labels, permitted = np.array(row["labels"]), np.array(row[PERMITTED])
        assert (labels == np.where(permitted == PROTECTED, IGNORE_INDEX, permitted)).all()
    rows = list(chat_dataset(run, "ppclm", conversations(), tokenizer))
    ids, permitted = (np.concatenate([row[name] for row in rows]) for name in ("input_ids", PERMITTED))
    members = run.individuals.table.column("individual_id").filter(run.individuals.mask("members")).to_pylist()
    said = tokenizer.decode(ids[permitted >= 0], clean_up_tokenization_spaces=False)
    end = {"chatml": "<|im_end|>", "headers": "<|eot|>", "model": "</turn>", "brackets": "</s>"}[family]
    start = " " if family == "brackets" else ""
    one = f"{start}* has a fever and no pain{end}{start}the assistant, *: rest at home.{end}"
    without = one.replace("* ", " ").replace("*", "")
    assert said.replace(" ", "") == (without * len(members)).replace(" ", "")
    # The name is protected where the user says it, too: it is no target there, and it is counted.
    hidden = tokenizer.decode(ids[permitted == PROTECTED], clean_up_tokenization_spaces=False)
    assert hidden.replace(" ", "") == "".join(name * 3 for name in sorted(members, key=NAMES.index))


@pytest.mark.parametrize(
    "more",
    [
        {"tool_calls": CALL},
        {"function_call": {"name": "find", "arguments": "Quendler"}},
        {"reasoning_content": "Quendler"},
        {"name": "Quendler"},
        {"tool_call_id": "Quendler-1"},
        {"Quendler": 1},
    ],
)
def test_a_turn_with_more_than_its_content_is_refused_as_a_template_may_write_it(more: dict[str, Any]) -> None:
    turn = {"role": "assistant", "content": "rest"}
    with pytest.raises(CorpusError, match="beside its role and content") as said:
        text_of_turns([turn, turn | more])
    assert "Quendler" not in str(said.value)
    assert text_of_turns([turn, turn | dict.fromkeys(more)]) == "rest\n\nrest"  # as a table of turns has it


def test_a_window_of_a_conversation_without_a_target_is_left_out(run: Run) -> None:
    """The first token of a window is predicted by nothing: alone it is no target, and a loss over none is no number."""
    tokenizer = tokenizer_of("chatml")
    whole = chat_dataset(run, "ppclm", conversations(), tokenizer)
    for length in range(2, 24):
        rows = [whole[number] for number in range(len(whole))]
        cut = [
            {name: row[name][first : first + length] for name in row}
            for row in rows
            for first in range(0, len(row["labels"]), length)
        ]
        dataset = chat_dataset(run, "ppclm", conversations(), tokenizer, window_length=length)
        expected = [row for row in cut if set(row["labels"][1:]) - {IGNORE_INDEX}]
        assert [dataset[number] for number in range(len(dataset))] == expected
        assert len(expected) < len(cut)


def test_plain_recipes_protect_nothing_and_tokens_are_those_of_the_template(run: Run) -> None:
    tokenizer = tokenizer_of("chatml")
    dataset = chat_dataset(run, "clm", conversations(), tokenizer)
    row = dataset[0]
    assert not (np.array(row[PERMITTED]) == PROTECTED).any()
    written = [tokenizer.apply_chat_template(turns, return_dict=False) for turns in conversations().values()]
    assert list(row["input_ids"]) in written


def test_a_guarded_trainer_learns_answers_and_refuses_all_tokens(run: Run, tmp_path: Path) -> None:
    tokenizer = tokenizer_of("chatml")
    dataset = chat_dataset(run, "ppclm", conversations(), tokenizer)
    collate = with_permitted(transformers.DataCollatorForSeq2Seq(tokenizer))

    def naive(rows: list[dict[str, Any]]) -> Any:
        made = collate(rows)
        return {**made, "labels": made["input_ids"].clone()}

    for collator in (collate, naive):
        model = toy_model("gpt2", max_length=128)
        model.resize_token_embeddings(len(tokenizer))
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path / "out"), use_cpu=True, report_to=[], save_strategy="no", num_train_epochs=1,
            disable_tqdm=True, per_device_train_batch_size=2,
        )  # fmt: skip
        trainer = transformers.Trainer(
            model, arguments, train_dataset=dataset, data_collator=collator, processing_class=tokenizer
        )
        guard = guard_trainer(trainer, ledger=tmp_path / "ledger.json")
        if collator is naive:
            with pytest.raises(TrainingError, match="protected tokens are targets"):
                trainer.train()
        else:
            trainer.train()
            assert guard.counts()[1]["targets"] > 0
            assert guard.counts()[1]["protected"] > 0
            verdict = verify_guarded(tmp_path / "ledger.json", chat_dataset(run, "ppclm", conversations(), tokenizer))
            assert verdict.holds
            assert verdict.counts == guard.counts()[1]
            trainer.save_model()
            kept = transformers.AutoTokenizer.from_pretrained(tmp_path / "out").chat_template
            assert kept == tokenizer.chat_template


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for m in messages %}{{ m.content | upper }}{% endfor %}", "changes a content"),
        ("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}", "repeats or leaves out"),
        ("{% for m in messages[1:] %}{{ m.content }}{% endfor %}", "repeats or leaves out"),
        (None, "has no chat template"),
    ],
)
def test_a_template_that_hides_where_contents_stand_is_refused(run: Run, template: str | None, message: str) -> None:
    tokenizer = tokenizer_of("chatml")
    tokenizer.chat_template = template
    with pytest.raises(PolicyError, match=message):
        chat_dataset(run, "ppclm", conversations(), tokenizer)


def test_a_conversation_that_the_template_refuses_is_named_without_its_text(run: Run) -> None:
    tokenizer = tokenizer_of("chatml")
    tokenizer.chat_template = "{% for m in messages %}{{ raise_exception('no ' + m.content) }}{% endfor %}"
    with pytest.raises(CorpusError, match=r"row \d+: the chat template refuses it") as said:
        chat_dataset(run, "ppclm", conversations(), tokenizer)
    assert "ward" not in str(said.value)
    assert said.value.__suppress_context__


def test_a_job_that_plants_canaries_is_refused(run: Run) -> None:
    planting = Run(run.job.model_copy(update={"canaries": CanaryAudit()}))
    with pytest.raises(PolicyError, match="canaries are no conversations"):
        chat_dataset(planting, "ppclm", conversations(), tokenizer_of("chatml"))


def test_what_is_no_conversation_of_the_run_is_refused_without_its_text(run: Run, tmp_path: Path) -> None:
    tokenizer, talks = tokenizer_of("chatml"), conversations()
    changed = {name: [*turns[:-1], {**turns[-1], "content": "Zanzibarova"}] for name, turns in talks.items()}
    with pytest.raises(CorpusError, match=r"row \d+: another text than its conversation") as said:
        chat_dataset(run, "ppclm", changed, tokenizer)
    assert "Zanzibarova" not in str(said.value)
    with pytest.raises(CorpusError, match=r"row \d+: no conversation of its id"):
        chat_dataset(run, "ppclm", {}, tokenizer)
    with pytest.raises(PolicyError, match="causal recipes that keep the text"):
        chat_dataset(run, "ppmlm", talks, tokenizer)
    with pytest.raises(CorpusError, match="whose content is no text"):
        text_of_turns([{"role": "assistant", "content": None}])
    with pytest.raises(CorpusError, match="whose content is no text"):
        text_of_turns([{"role": "assistant", "tool_calls": []}])
    calling = {name: [*turns[:-1], {**turns[-1], "tool_calls": CALL}] for name, turns in talks.items()}
    with pytest.raises(CorpusError, match=r"row \d+: a turn .* beside its role and content") as said:
        chat_dataset(run, "ppclm", calling, tokenizer)
    assert "Quendler" not in str(said.value)
    with pytest.raises(ArtifactError, match="run it until protect first"):
        chat_dataset(run_of(tmp_path / "early", "split"), "ppclm", talks, tokenizer)


def test_signs_of_a_template_are_found_in_any_order() -> None:
    tokenizer = tokenizer_of("chatml")
    tokenizer.chat_template = "{% for m in messages | reverse %}<|im_start|>{{ m.content | trim }}{% endfor %}"
    turns = [{"role": "user", "content": " b "}, {"role": "assistant", "content": "im_start"}]
    written = tokenizer.apply_chat_template(turns, tokenize=False)
    assert chat._locate_contents(turns, written, tokenizer) == [(32, "b"), (12, "im_start")]


def test_each_content_is_found_whichever_ends_the_template_takes_off() -> None:
    tokenizer = tokenizer_of("chatml")
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content | trim }}</s>"
        "{% else %}[INST] {{ m.content.rstrip() }} [/INST]{% endif %}{% endfor %}"
    )
    turns = [{"role": "user", "content": " [INST] b\n"}, {"role": "assistant", "content": "\n </s> c "}]
    written = tokenizer.apply_chat_template(turns, tokenize=False)
    places = chat._locate_contents(turns, written, tokenizer)
    assert places == [(7, " [INST] b"), (written.rindex("</s> c"), "</s> c")]


def test_spaces_of_answers_are_learned_where_the_tokenizer_trims_its_spans() -> None:
    from tokenizers import processors

    tokenizer = tokenizer_of("chatml")
    tokenizer._tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    turns = [{"role": "user", "content": "a  b"}, {"role": "assistant", "content": "c   d "}]
    ids, permitted = chat._tokenise_conversation(turns, np.zeros(len(text_of_turns(turns)), bool), tokenizer)
    assert tokenizer.decode(ids[permitted >= 0]) == "c   d <|im_end|>"
