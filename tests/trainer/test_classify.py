"""Classifiers: what is trained and what is frozen, the learning rate, long documents, same bits, going on, DP-SGD."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from fixtures.jobs import control_c
from fixtures.models import toy_tokenizer
from fixtures.private import dp
from fixtures.stores import Token, make_store

from reticent.core.errors import ArtifactError, CorpusError, PolicyError, TrainingError
from reticent.engine.store import TokenStore
from reticent.ext.classify.labels import MAX_CLASSES, LabelledTokens, label_documents
from reticent.ext.classify.training import Classified, ClassifyConfig, _predict, classify
from reticent.ext.dp.budget import read_budget
from reticent.trainer.export import ALLOWED, write_model
from reticent.trainer.foundation import new_model
from reticent.trainer.metrics import LossReader
from reticent.trainer.models import load_tokenizer
from reticent.trainer.recipes import get_recipe
from reticent.trainer.windows import SpecialIds, cut_windows

pytestmark = pytest.mark.usefixtures("one_thread")

KINDS = ("bert", "gpt2", "llama")
ADD = LossReader.add
QUICK = {"window_length": 16, "batch_size": 4, "num_epochs": 2, "device": "cpu"}


def document(word: int, length: int = 6) -> list[Token]:
    return [(word, number, 0) for number in range(length)]


def two_classes(num_train: int = 12, num_test: int = 6, *, long: int = 6) -> LabelledTokens:
    """Documents of one word each, which tells the class; every third is ``long``."""
    num = num_train + num_test
    documents = [document(30 + number % 2, long if number % 3 == 0 else 4) for number in range(num)]
    labels = pa.array(["no" if number % 2 else "yes" for number in range(num)])
    return label_documents(make_store(*documents), labels, np.arange(num) < num_train)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model folder of each kind, two layers deep."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folders = {}
    for kind in KINDS:
        tokenizer = toy_tokenizer("bert" if kind == "bert" else "gpt2")
        if kind == "llama":
            sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
            torch.manual_seed(0)
            config = LlamaConfig(vocab_size=len(load_tokenizer(tokenizer)), max_position_embeddings=64, **sizes)
            model: Any = LlamaForCausalLM(config)
        else:
            name: Any = kind
            model = new_model(name, tokenizer, hidden_size=16, num_layers=2, max_length=64)
        folders[kind] = tmp_path_factory.mktemp("models") / kind
        write_model(model, load_tokenizer(tokenizer), folders[kind], recipe=get_recipe("mlm"), epoch=1)
    return folders


# ----------------------------------------------------------------------------------------------------- what is trained


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_last_layer_and_the_head_change_and_the_rest_keeps_its_bits(
    checkpoints: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    from transformers import AutoModel, AutoModelForSequenceClassification

    found = classify(
        checkpoints[kind], two_classes(), ClassifyConfig(learning_rate=1e-2, **QUICK), out=tmp_path / "classifier"
    )
    before = AutoModel.from_pretrained(checkpoints[kind]).state_dict()
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "classifier")
    after = model.base_model.state_dict()
    last = {"bert": "encoder.layer.1.", "gpt2": "h.1.", "llama": "layers.1."}[kind]
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    frozen = {name for name in after if not name.startswith((last, "pooler."))}
    assert len(frozen) > 5
    assert not changed & frozen
    # Not the keys' bias of BERT and GPT-2: softmax does not see what is added to all keys alike.
    assert {name for name in after if name.startswith(last) and name.endswith("weight")} <= changed
    head = sum(p.numel() for name, p in model.named_parameters() if not name.startswith(model.base_model_prefix + "."))
    of_last = sum(after[name].numel() for name in after if name.startswith((last, "pooler.")))
    assert found.num_trained == head + of_last < found.num_parameters
    assert found.num_parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("kind", "private"), [*((kind, False) for kind in KINDS), ("bert", True), ("gpt2", True)])
def test_a_word_that_tells_the_class_is_learned_by_every_kind(
    checkpoints: dict[str, Path], kind: str, private: bool
) -> None:
    if private:
        pytest.importorskip("opacus")
    documents = two_classes()
    config = ClassifyConfig(**{**QUICK, "num_epochs": 20}, learning_rate=1e-2, private=private)
    privacy = dp(noise_multiplier=0.01, sample_rate=0.25) if private else None
    found = classify(checkpoints[kind], documents, config, privacy=privacy)
    assert np.array_equal(found.predicted, documents.classes[~documents.is_train])
    assert found.losses[-1] < 0.2 < found.losses[0]


def test_the_head_is_fresh_and_the_same_for_a_seed_whatever_the_start(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    other = new_model("bert", toy_tokenizer("bert"), hidden_size=16, num_layers=2, max_length=64, seed=9)
    write_model(other, load_tokenizer(toy_tokenizer("bert")), tmp_path / "other", recipe=get_recipe("mlm"), epoch=1)
    heads = []
    for start, seed in ((checkpoints["bert"], 0), (tmp_path / "other", 0), (checkpoints["bert"], 1)):
        out = tmp_path / f"classifier-{len(heads)}"
        classify(start, two_classes(), ClassifyConfig(**QUICK, learning_rate=1e-12, seed=seed), out=out)
        heads.append(load_file(out / "model.safetensors")["classifier.weight"])
    assert torch.allclose(heads[0], heads[1], atol=1e-9)
    assert not torch.allclose(heads[0], heads[2], atol=1e-3)


# -------------------------------------------------------------------------------------------------------------- steps


def test_the_rate_rises_from_0_over_a_tenth_of_the_steps_and_then_falls_linearly(
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    rates: list[float] = []
    monkeypatch.setattr(LossReader, "add", lambda self, *values: (rates.append(values[3]), ADD(self, *values)))
    config = ClassifyConfig(**{**QUICK, "num_epochs": 4, "batch_size": 3})
    classify(checkpoints["bert"], two_classes(15), config, progress=told.append)  # 15 windows: 5 steps an epoch
    assert [(step["step"], step["num_steps"], step["epoch"]) for step in told[::5]] == [
        (1, 20, 1), (6, 20, 2), (11, 20, 3), (16, 20, 4),
    ]  # fmt: skip
    assert rates == pytest.approx([0.0, 1e-5, 2e-5, *(2e-5 * (18 - step) / 18 for step in range(1, 18))], abs=1e-12)


def test_documents_weigh_equally_however_long_they_are_and_however_windows_fall_into_batches(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    documents = two_classes(9, long=40)  # of 14 tokens a window: three windows, or one
    found = []
    for size in (1, 2, 64):
        config = ClassifyConfig(window_length=16, batch_size=size, num_epochs=2, learning_rate=1e-12, device="cpu")
        found.append(classify(checkpoints["bert"], documents, config))
    for each in found:
        assert each.losses == pytest.approx(found[0].losses, rel=1e-5)
    assert found[0].num_steps == 2 * 9  # one window of each document


def test_of_a_long_document_each_window_is_drawn_in_some_epoch_and_one_in_each() -> None:
    store = make_store(document(30, 40), document(31, 4), document(32, 20))
    windows = cut_windows(store, 16, SpecialIds(prefix=1, suffix=2, pad=0, mask=None))
    drawn = [windows.one_of_each(seed=0, epoch=epoch) for epoch in range(40)]
    assert all(each.documents.tolist() == [0, 1, 2] for each in drawn)
    assert {tuple(np.unique([each.starts[number] for each in drawn])) for number in range(3)} == {
        (0, 14, 28), (40,), (44, 58),
    }  # fmt: skip
    again = windows.one_of_each(seed=0, epoch=3).starts
    assert np.array_equal(again, drawn[3].starts)


def answers(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> SimpleNamespace:
    """A model whose log-odds of class 1 are the first token less 10."""
    odds = input_ids[:, 0].float() - 10
    return SimpleNamespace(logits=torch.stack([torch.zeros_like(odds), odds], dim=1))


@pytest.mark.parametrize(
    ("read", "classes"),
    [
        # Windows of two: (13 . 8 . 8) has log-odds 3, -2, -2; log-probability of 0: -3.049 -.127 -.127 = -3.303, of 1:
        # -.049 -2.127 -2.127 = -4.303; (8 . 13): 0: -.127 -3.049 = -3.175, 1: -2.127 -.049 = -2.175; (9): 0.
        ("all", [0, 1, 0]),
        ("first", [1, 0, 0]),
    ],
)
def test_windows_of_a_document_answer_by_their_mean_log_probability(read: Any, classes: list[int]) -> None:
    ids = [[13, 7, 8, 7, 8, 7], [8, 7, 13, 7], [9]]
    store = make_store(*([(token, number, 0) for number, token in enumerate(line)] for line in ids))
    documents = LabelledTokens(
        store=store, class_names=("a", "b"), classes=np.zeros(3, int), is_train=np.zeros(3, bool), left_out={}
    )
    config = ClassifyConfig(window_length=2, windows=read, batch_size=2)
    model: Any = type("Model", (), {"__call__": staticmethod(answers)})()
    model.config, model.device = SimpleNamespace(num_labels=2), torch.device("cpu")
    special = SpecialIds(prefix=None, suffix=None, pad=0, mask=None)
    assert _predict(model, documents, config, special, 8).tolist() == classes


def test_windows_are_never_padded_beyond_their_length(checkpoints: dict[str, Path]) -> None:
    found = classify(checkpoints["bert"], two_classes(long=61), ClassifyConfig(**{**QUICK, "window_length": 63}))
    assert len(found.predicted) == 6


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_two_runs_give_the_same_bits_and_another_seed_others(
    checkpoints: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    weights, state = [], torch.get_rng_state()
    for number, seed in enumerate((0, 0, 1)):
        out = tmp_path / str(number)
        classify(checkpoints[kind], two_classes(), ClassifyConfig(**QUICK, learning_rate=1e-3, seed=seed), out=out)
        weights.append((out / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]
    assert torch.equal(torch.get_rng_state(), state)  # no other draw changes


# ----------------------------------------------------------------------------------------------------------- the folder


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_classifier_is_a_plain_private_folder_that_answers_the_same(
    checkpoints: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    out = tmp_path / "classifier"
    documents = two_classes()
    found = classify(
        checkpoints[kind], documents, ClassifyConfig(**{**QUICK, "num_epochs": 8}, learning_rate=1e-2), out=out
    )
    assert out.stat().st_mode & 0o777 == 0o700
    for file in out.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600
        assert any(file.match(pattern) for pattern in (*ALLOWED, "ledger.json", "metrics.jsonl")), file.name
    ledger = json.loads((out / "ledger.json").read_text())
    assert ledger["recipe"]["head"] == "class"
    assert [row["targets"] for row in ledger["epochs"]] == [12] * 8
    card = (out / "README.md").read_text()
    assert "pipeline_tag: text-classification" in card
    assert "read the documents as they are" in card
    assert json.loads((out / "config.json").read_text())["id2label"] == {"0": "no", "1": "yes"}
    model = AutoModelForSequenceClassification.from_pretrained(out).eval()
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert model.config.label2id == {"no": 0, "yes": 1}
    test = documents.store.select(np.flatnonzero(~documents.is_train))
    ends = (tokenizer.cls_token_id, tokenizer.sep_token_id) if kind == "bert" else (tokenizer.bos_token_id,)
    for number, said in enumerate(found.predicted):
        ids = [ends[0], *test.input_ids[test.doc_offsets[number] : test.doc_offsets[number + 1]].tolist(), *ends[1:]]
        assert int(model(torch.tensor([ids])).logits.argmax()) == said
    assert len(tokenizer(["a", "the patient was seen"], padding=True)["input_ids"]) == 2


# ------------------------------------------------------------------------------------------------------------ bad input


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path, checkpoints: dict[str, Path]) -> None:
    with pytest.raises(ArtifactError, match="no such folder"):
        classify(tmp_path / "nowhere", two_classes())
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtifactError, match="no tokenizer can be loaded"):
        classify(tmp_path / "empty", two_classes())
    (tmp_path / "half").mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "half" / name).write_bytes((checkpoints["bert"] / name).read_bytes())
    with pytest.raises(ArtifactError, match=r"half: not a model \("):
        classify(tmp_path / "half", two_classes())
    (tmp_path / "half" / "config.json").write_bytes((checkpoints["bert"] / "config.json").read_bytes())
    with pytest.raises(ArtifactError, match="cannot be loaded as a mlm model"):
        classify(tmp_path / "half", two_classes())


def test_windows_and_tokens_that_do_not_fit_the_model_are_refused(checkpoints: dict[str, Path]) -> None:
    with pytest.raises(TrainingError, match="window_length 65 is longer than the model's 64 positions"):
        classify(checkpoints["bert"], two_classes(), ClassifyConfig(window_length=65))
    store = make_store(document(60_000), *[document(1)] * 5)
    strange = label_documents(store, pa.array(["a", "b"] * 3), np.arange(6) < 4)
    with pytest.raises(TrainingError, match=r"beyond the model's .* embeddings"):
        classify(checkpoints["bert"], strange, ClassifyConfig(window_length=16))


def test_a_loss_that_is_not_finite_stops_and_nothing_is_saved(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"not finite in epoch \d+, step \d+; lower the learning rate"):
        classify(checkpoints["bert"], two_classes(), ClassifyConfig(**QUICK, learning_rate=1e38), out=tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.safetensors"))


@pytest.mark.parametrize(("stop", "left"), [(5, [6]), (0, [])])  # in a step, and as it predicts
@pytest.mark.parametrize("private", [False, True])
def test_a_training_that_was_killed_goes_on_and_ends_with_the_same_bits(
    checkpoints: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    private: bool,
    stop: int,
    left: list[int],
) -> None:
    if private:
        pytest.importorskip("opacus")
    config = ClassifyConfig(**QUICK, learning_rate=1e-3, private=private)
    told: list[int] = []

    def trained(name: str) -> Classified:
        budget = {"budget_file": str(tmp_path / f"{name}.json"), "corpus": "notes"}
        privacy = dp(sample_rate=0.25, seed=3, **budget) if private else None

        def progress(said: Any) -> None:
            told.append(said["step"])
            if name == "killed" and told == [1, 2, 3, 4, stop]:
                control_c()

        out = tmp_path / name
        return classify(checkpoints["bert"], two_classes(), config, out=out, privacy=privacy, progress=progress)

    whole = trained("whole")
    told.clear()
    with monkeypatch.context() as patched:
        patched.setattr("reticent.ext.classify.training._predict", lambda *_: control_c())
        with pytest.raises(KeyboardInterrupt):
            trained("killed")
    assert not (tmp_path / "killed/config.json").exists()
    told.clear()
    again = trained("killed")
    assert told[:1] == left
    files = [
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir() if path.name != "metrics.jsonl"}
        for name in ("whole", "killed")
    ]
    assert files[0] == files[1]
    assert again.losses == whole.losses
    assert np.array_equal(again.predicted, whole.predicted)
    assert (again.guarantee is not None) is private
    assert [each.settled for each in read_budget(tmp_path / "killed.json")] == [True] * private


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_epochs": 0},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"warmup_ratio": 1.1},
        {"windows": "some"},
        {"weight_decay": -1.0},
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=r"^classify"):
        ClassifyConfig(**wrong)


# -------------------------------------------------------------------------------------------------------------- classes


def store_of(*individual: int, empty: tuple[int, ...] = ()) -> TokenStore:
    documents = [[] if number in empty else document(30) for number in range(len(individual))]
    return make_store(*documents, individual=list(individual))


def test_documents_without_a_label_or_a_token_are_left_out_and_counted() -> None:
    labels = pa.array(["b", None, "a", "b", "a", " ", "a", "b", "a"])
    train = np.array([1, 1, 1, 1, 1, 0, 0, 0, 0], dtype=bool)
    found = label_documents(store_of(0, 0, 1, 1, 0, 2, 3, 4, 5, empty=(8,)), labels, train)
    assert found.class_names == ("a", "b")
    assert found.classes.tolist() == [1, 0, 1, 0, 0, 1]
    assert found.is_train.tolist() == [True, True, True, True, False, False]
    assert found.store.individual.tolist() == [0, 1, 1, 0, 3, 4]
    assert found.left_out == {"unlabelled": 2, "without_text": 1, "of_rare_classes": 0, "rare_classes": 0}


def test_rare_classes_are_left_out_when_asked_and_counted_by_individual() -> None:
    # c has two documents on each side, but of one individual on the left.
    labels = pa.array(["a", "a", "b", "b", "c", "c", "a", "a", "b", "b", "c", "c"])
    store = store_of(0, 1, 0, 1, 2, 2, 3, 4, 3, 4, 5, 6)
    several = store_of(0, 1, 0, 1, 2, 1, 3, 4, 3, 4, 5, 6)
    found = label_documents(store, labels, np.arange(12) < 6, min_individuals=2)
    assert found.class_names == ("a", "b")
    assert found.classes.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert (found.left_out["of_rare_classes"], found.left_out["rare_classes"]) == (4, 1)
    assert label_documents(several, labels, np.arange(12) < 6).class_names == ("a", "b", "c")
    assert label_documents(store, labels, np.arange(12) < 6, min_individuals=1).class_names == ("a", "b")


SECRET = "Zyxwvut"


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (["a", SECRET, "a", "a"], {}, r"1 of 2 classes have no held-out document \(side heldout\); leave rare"),
        (["a", "a", "a", SECRET], {}, r"1 of 2 classes have no training document \(side members\)"),
        (["a", SECRET, "a", SECRET], {}, "2 of 2 classes are of a single individual to train on"),
        (
            ["a", "b", "a", "b"],
            {"min_individuals": 2},
            "at least two classes that 2 individuals on each side have, got",
        ),
        ([SECRET] * 4, {}, "expected at least two classes, got 1 of 1"),
        ([None, "", " ", None], {}, "no document has one"),
        (["a", "b", "a", SECRET * 15], {}, "the longest of 105 characters; expected the names of at most 100 classes"),
    ],
)
def test_labels_that_cannot_be_learned_or_measured_are_refused_and_never_shown(
    labels: list[str | None], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(CorpusError, match=message) as caught:
        label_documents(store_of(0, 1, 2, 3), pa.array(labels, pa.string()), np.arange(4) < 2, **options)
    assert SECRET not in str(caught.value)


def test_a_column_of_ids_is_no_column_of_classes() -> None:
    num = MAX_CLASSES + 1
    labels = pa.array([f"{SECRET}{number}" for number in range(num)])
    with pytest.raises(
        CorpusError, match=f"{num} distinct ones among {num} documents.*is it a column of text"
    ) as caught:
        label_documents(store_of(*range(num)), labels, np.arange(num) < 50)
    assert SECRET not in str(caught.value)


def test_an_individual_and_a_household_are_on_one_side() -> None:
    sides, labels = np.arange(4) < 2, pa.array(["a", "a", "b", "b"])
    with pytest.raises(ArtifactError, match=r"2 households are on both sides.*split\.by"):
        label_documents(store_of(0, 1, 2, 3), labels, sides, households=np.array([5, 6, 5, 6]))
    with pytest.raises(ArtifactError, match="1 individuals are on both sides"):
        label_documents(store_of(0, 1, 1, 2), pa.array(["a", "b"] * 2), np.arange(4) < 2)
    with pytest.raises(ArtifactError, match="3 labels and 4 sides for 4 documents"):
        label_documents(store_of(0, 1, 2, 3), pa.array(["a", "b", "a"]), np.arange(4) < 2)
