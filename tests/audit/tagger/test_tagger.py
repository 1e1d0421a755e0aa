"""Scores of names against an oracle that asks one text at a time; prompts, labels, and inputs that cannot be scored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.models import toy_model, toy_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForTokenClassification, PreTrainedTokenizerFast

from reticent.core.errors import PolicyError, TrainingError
from reticent.ext.tagger.prompts import FRENCH_PROMPTS, PROMPTS, Prompt, person_labels, read_prompts
from reticent.ext.tagger.scores import open_tagger, score_names
from reticent.ext.tagger.training import Examples, new_tagger, tag_labels
from reticent.trainer.models import load_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = ["Ada Brown", "José de la Peña", "Anne-Marie O'Hara", "X Y", "[SEP] Smith", "Chris  Doe", "A " + "b" * 30]


@pytest.fixture(scope="module")
def tagger() -> tuple[Any, Any]:
    tokenizer = load_tokenizer(toy_tokenizer("bert"))
    model: Any = new_tagger(toy_model("bert"), seed=1)
    torch.nn.init.normal_(model.classifier.weight, std=1.0, generator=torch.Generator().manual_seed(0))
    return model.eval(), tokenizer


def oracle(model: Any, tokenizer: Any, name: str, prompt: Prompt) -> float:
    """One text, one token after the other."""
    text = prompt.text.replace("[MASK]", name)
    first = prompt.text.index("[MASK]")
    encoded = tokenizer(text, return_offsets_mapping=True, return_tensors="pt", split_special_tokens=True)
    offsets = encoded.pop("offset_mapping")[0].tolist()
    with torch.inference_mode():
        p = torch.softmax(model(**encoded).logits[0].double(), -1)
    own = [
        number
        for number, (start, end) in enumerate(offsets)
        if text[max(start, first) : min(end, first + len(name))].strip()
    ]
    return float(sum(p[number, 1] + p[number, 2] for number in own) / len(own))


@pytest.mark.parametrize("kind", ["wordpiece", "bytelevel", "unigram"])
def test_scores_match_the_oracle_with_every_kind_of_tokenizer(kind: str, tagger: tuple[Any, Any]) -> None:
    model, tokenizer = tagger
    if kind == "bytelevel":
        tokenizer = load_tokenizer(toy_tokenizer("gpt2"))  # no special tokens, and no padding token of its own
        assert tokenizer.vocab_size <= model.config.vocab_size
    elif kind == "unigram":  # a blank may be a token of its own, also inside of a name
        letters = sorted({*"".join(NAMES), *"".join(p.text for p in PROMPTS)} - {" "})
        bare = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁", -1.0), *((c, -2.0) for c in letters)], unk_id=0))
        bare.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=bare, unk_token="<unk>", pad_token="<unk>")
    scores = score_names(model, tokenizer, NAMES, PROMPTS, device="cpu")
    expected = [[oracle(model, tokenizer, name, prompt) for name in NAMES] for prompt in PROMPTS]
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, expected, atol=1e-6)


@pytest.mark.parametrize("batch_tokens", [1, 50, 400])
def test_scores_do_not_depend_on_the_batch_or_the_order(batch_tokens: int, tagger: tuple[Any, Any]) -> None:
    whole = score_names(*tagger, NAMES, device="cpu")
    parts = score_names(*tagger, NAMES[::-1], device="cpu", batch_tokens=batch_tokens)
    np.testing.assert_allclose(parts[:, ::-1], whole, atol=1e-6)


def test_texts_are_tokenized_in_parts_without_a_difference(
    tagger: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = score_names(*tagger, NAMES, device="cpu")
    done: list[int] = []
    monkeypatch.setattr("reticent.ext.tagger.scores.TEXTS_AT_ONCE", 10)
    np.testing.assert_allclose(score_names(*tagger, NAMES, device="cpu", progress=done.append), whole, atol=1e-6)
    assert done == [10, 20, 30, 40, 50, 60, 63]


def test_bfloat16_is_close_and_leaves_the_last_layer_exact(tagger: tuple[Any, Any]) -> None:
    model, tokenizer = tagger
    seen: list[torch.dtype] = []
    hook = model.classifier.register_forward_hook(lambda module, args, out: seen.append(out.dtype))
    exact = score_names(model, tokenizer, NAMES, device="cpu")
    short = score_names(model, tokenizer, NAMES, device="cpu", bf16="on")
    hook.remove()
    assert set(seen) == {torch.float32}
    assert "forward" not in vars(model.classifier)  # left as it was
    assert 0 < np.abs(exact - short).max() < 0.05


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_scores_as_the_processor_does(tagger: tuple[Any, Any]) -> None:
    model, tokenizer = tagger
    on_cpu = score_names(model, tokenizer, NAMES, device="cpu")
    exact = score_names(model, tokenizer, NAMES, device="cuda", bf16="off")
    short = score_names(model, tokenizer, NAMES, device="cuda")
    model.to("cpu")
    np.testing.assert_allclose(exact, on_cpu, atol=1e-4)
    np.testing.assert_allclose(short, on_cpu, atol=0.05)


def test_no_names_have_no_scores(tagger: tuple[Any, Any]) -> None:
    assert score_names(*tagger, [], device="cpu").shape == (9, 0)


def test_a_name_without_a_token_is_nd_and_alone(tagger: tuple[Any, Any]) -> None:
    # BERT's normaliser drops control characters.
    scores = score_names(*tagger, ["Ada Brown", "\x01 \x02"], device="cpu")
    assert np.isnan(scores[:, 1]).all()
    assert not np.isnan(scores[:, 0]).any()


def test_logits_that_are_no_numbers_are_an_error(tagger: tuple[Any, Any]) -> None:
    model: Any = new_tagger(toy_model("bert"))
    torch.nn.init.constant_(model.classifier.weight, torch.nan)
    with pytest.raises(TrainingError, match="not numbers"):
        score_names(model, tagger[1], NAMES, device="cpu")


@pytest.mark.parametrize(
    ("names", "labels", "expected"),
    [
        (["O", "B-PER", "I-PER", "B-LOC"], ("PER",), [1, 2]),
        (["B-MISC", "I-PER", "O", "B-PER"], ("PER",), [1, 3]),
        (["O", "PER", "LOC"], ("PER",), [1]),
        (["O", "B-PER", "I-PER", "E-PER", "S-PER"], ("PER",), [1, 2, 3, 4]),
        (["O", "B-FIRST", "B-LAST", "I-LAST"], ("FIRST", "LAST"), [1, 2, 3]),
        (["O", "B_PERSON", "I_PERSON"], ("PERSON",), [1, 2]),
    ],
)
def test_labels_of_a_person_are_found_by_name(names: list[str], labels: tuple[str, ...], expected: list[int]) -> None:
    assert person_labels(dict(enumerate(names)), labels) == expected


def test_a_model_without_the_label_is_refused_with_its_own_labels() -> None:
    with pytest.raises(PolicyError, match="expected a label PER, the model's are LOC, PERSON"):
        person_labels({0: "O", 1: "B-PERSON", 2: "B-LOC"})


def test_prompts_are_the_published_ones_and_as_many_in_french() -> None:
    assert [prompt.text for prompt in PROMPTS] == [
        "[MASK]",
        "[MASK] is a person.",
        "My name is [MASK].",
        "I am named [MASK].",
        "[MASK] is an individual human being.",
        "Is [MASK] your name?",
        "Is [MASK] a person?",
        "[MASK] is not a person.",
        "My name is not [MASK].",
    ]
    kinds = [[(prompt.utterance, prompt.position) for prompt in prompts] for prompts in (PROMPTS, FRENCH_PROMPTS)]
    assert kinds[0] == kinds[1]
    assert kinds[0].count(("assertion", "subject")) == kinds[0].count(("assertion", "object")) == 2


def test_prompts_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompts.tsv"
    file.write_text("[MASK]\n\nHere is [MASK]!\tassertion\tobject\n")
    assert read_prompts(file) == (Prompt("[MASK]"), Prompt("Here is [MASK]!", "assertion", "object"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[MASK]\nnobody is here\n", ":2: prompt: expected [MASK] once, found it 0 times"),
        ("[MASK] and [MASK]\n", ":1: prompt: expected [MASK] once, found it 2 times"),
        ("[MASK]\tshout\tsubject\n", ":1: prompt: expected none, assertion"),
        ("[MASK]\tassertion\tsubject\tmore\n", ":1: expected at most 3 columns, got 4"),
        ("\n", "no prompt in it"),
    ],
)
def test_a_line_that_is_no_prompt_is_refused(content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts.tsv"
    file.write_text(content)
    with pytest.raises(PolicyError) as error:
        read_prompts(file)
    assert said in str(error.value)


def test_a_prompt_longer_than_the_model_is_named_by_its_number(tagger: tuple[Any, Any]) -> None:
    long = Prompt("[MASK] " + "pain " * 70)
    with pytest.raises(PolicyError, match="prompt 2: 7 of the texts it makes are longer than the 64 tokens") as error:
        score_names(*tagger, NAMES, [PROMPTS[0], long], device="cpu")
    assert "Ada" not in str(error.value)


def test_a_folder_is_opened_and_one_without_a_trained_head_refused(tagger: tuple[Any, Any], tmp_path: Path) -> None:
    model, tokenizer = tagger
    for name, saved in (("tagger", model), ("body", toy_model("bert"))):
        saved.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    opened = open_tagger(tmp_path / "tagger", "cpu")
    np.testing.assert_allclose(
        score_names(*opened, NAMES, device="cpu"), score_names(*tagger, NAMES, device="cpu"), atol=1e-6
    )
    with pytest.raises(PolicyError, match=r"tagger: .* no such head"):
        open_tagger(tmp_path / "body", "cpu")
    with pytest.raises(PolicyError, match=r"tagger: .* cannot be loaded"):
        open_tagger(tmp_path / "absent", "cpu")


def test_labels_of_training_follow_character_offsets() -> None:
    tokenizer = load_tokenizer(toy_tokenizer("bert"))
    texts = ["Ada Brown , Carl Dunn has pain", "no name in the chest", "Eve"]
    examples = Examples(texts, [[(12, 21), (0, 9)], [], [(0, 3)]])
    ids, mask, labels = tag_labels(tokenizer, examples)
    assert ids.shape == mask.shape == labels.shape
    for row, (text, spans) in enumerate(zip(texts, examples.spans, strict=True)):
        offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
        expected = [-100]
        for start, end in offsets[1:-1]:
            inside = [a for a, b in spans if a < end and start < b]
            expected.append(0 if not inside else 1 if start <= inside[0] else 2)
        assert labels[row, : mask[row].sum()].tolist() == [*expected, -100]
        assert (labels[row, mask[row].sum() :] == -100).all()
    assert (labels == 1).sum() == 3


def test_a_text_longer_than_a_window_loses_no_label() -> None:
    tokenizer = load_tokenizer(toy_tokenizer("bert"))
    text = "Ada Brown has pain " * 12
    spans = [(start, start + 9) for start in range(0, len(text), 19)]
    short, whole = (tag_labels(tokenizer, Examples([text], [spans]), max_length=length)[2] for length in (20, 400))
    assert len(short) > 1 == len(whole)
    for label in (0, 1, 2):
        assert (short == label).sum() == (whole == label).sum() > 0


def test_a_configuration_of_other_labels_is_scored_by_them() -> None:
    sizes = {"vocab_size": 400, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(**sizes, intermediate_size=16, id2label={0: "NOM", 1: "O"}, label2id={"NOM": 0, "O": 1})
    model: Any = BertForTokenClassification(config)
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor([0.0, np.log(3.0)]))
    scores = score_names(model, load_tokenizer(toy_tokenizer("bert")), NAMES, FRENCH_PROMPTS, labels=("NOM",))
    np.testing.assert_allclose(scores, 0.25, atol=1e-6)
