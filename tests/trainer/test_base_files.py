"""Base models whose files are wrong or hostile: a clear error before any training, and nothing of theirs travels on."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fixtures.models import PUBLIC_TEXT, toy_model, toy_tokenizer

from reticent import _rust
from reticent.core.errors import ArtifactError, TrainingError
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.trainer.base_files import FOREIGN_KEYS, _at_least, check_base
from reticent.trainer.export import export_model, write_model
from reticent.trainer.models import load_model, load_tokenizer
from reticent.trainer.recipes import get_recipe
from reticent.trainer.tokenizer_of_model import tokenizer_json_of

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    toy_model("gpt2").save_pretrained(folder)
    (folder / "tokenizer.json").write_text(toy_tokenizer("gpt2"))
    return folder


def change(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


# ------------------------------------------------------------------------------------------------- size of vocabulary


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (100, "100 tokens, but no matrix of the weights has as many rows"),
        (10**9, "1,000,000,000 tokens, but no matrix of the weights has as many rows"),
        (10**30, ".*,000 tokens, but no matrix of the weights has as many rows"),
        (-1, "expected a number of tokens, got -1"),
        (0, "expected a number of tokens, got 0"),
        ("330", "expected a number of tokens, got str"),
        (330.0, "expected a number of tokens, got float"),
        (True, "expected a number of tokens, got True"),
        (None, "expected a number of tokens, got NoneType"),
    ],
)
def test_a_wrong_vocab_size_is_found_out_before_anything_is_loaded(base: Path, size: Any, said: str) -> None:
    change(base / "config.json", vocab_size=size)
    for load in (lambda: check_base(base), lambda: load_model(base, "clm"), lambda: load_tokenizer(base)):
        with pytest.raises(ArtifactError, match=rf"config\.json: vocab_size: {said}"):
            load()
    model = {"name": "a", "base": str(base), "objective": "clm", "recipes": ["clm"]}
    job = parse_job({"out": str(base / "run"), "corpus": {"source": "none"}, "model": [model]})
    with pytest.raises(ArtifactError, match="vocab_size"):
        execute(Run(job), "train")
    assert not (base / "run").exists()


def test_a_tokenizer_with_ids_beyond_the_embeddings_is_another_models(base: Path) -> None:
    tokenizer = json.loads((base / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["zzzz"] = 330
    (base / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ArtifactError, match=r"329 tokens, but .*tokenizer\.json has ids up to 330"):
        load_tokenizer(base)


def test_a_smaller_base_under_the_tokenizer_that_made_a_runs_ids_is_refused_before_any_stage(
    base: Path, tmp_path: Path
) -> None:
    (tmp_path / "hospital").mkdir()
    synthesize(tmp_path / "hospital", SynthConfig(num_individuals=10, words_per_document=20, languages=("en",)))
    model = {"name": "a", "base": str(base), "objective": "clm", "recipes": ["clm"]}
    corpus = {"source": str(tmp_path / "hospital" / "documents")}
    values = {"out": str(tmp_path / "run"), "corpus": corpus, "model": [model]}
    execute(Run(parse_job(values)), "protect")
    smaller = toy_model("gpt2")
    smaller.resize_token_embeddings(300)
    smaller.save_pretrained(base)
    with pytest.raises(ArtifactError, match=r"300 tokens, but .*tokenizer\.json has ids up to 328"):
        execute(Run(parse_job(values | {"seed": 1})), "protect")


def test_the_pattern_of_large_numbers_finds_each_of_them_and_no_other() -> None:
    numbers = range(2100)
    for least in (1, 9, 10, 89, 99, 100, 199, 909, 999, 1000, 1234, 1999):
        found = [number for number in numbers if re.match(_at_least(least), f"{number},")]
        assert found == list(range(least, numbers.stop))


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize(
    ("vocabulary", "largest"),
    [({"a": 1, "b": 7}, 7), ({"a: 9": 1, "[[[": 2}, 2), ([["a", 0.0], ["b: 9", -1.5], ["c", -2.5]], 2)],
)
def test_the_largest_id_is_found_in_every_kind_of_vocabulary(
    tmp_path: Path, vocabulary: Any, largest: int, indent: int | None
) -> None:
    tokenizer = json.dumps({"version": "1.0", "model": {"vocab": vocabulary}}, indent=indent)
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": largest + 1}))
    check_base(tmp_path, tokenizer=tokenizer)
    change(tmp_path / "config.json", vocab_size=largest)
    with pytest.raises(ArtifactError, match=f"has ids up to {largest};"):
        check_base(tmp_path, tokenizer=tokenizer)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_window_that_the_base_cannot_read_is_refused_before_anything_is_made(tmp_path: Path, kind: str) -> None:
    model = toy_model(kind)
    model.save_pretrained(tmp_path)
    positions = model.config.max_position_embeddings
    check_base(tmp_path, window_length=positions)
    with pytest.raises(TrainingError, match=f"window_length: {positions + 1} tokens are more than the {positions} "):
        check_base(tmp_path, window_length=positions + 1)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_base_that_agrees_with_itself_is_taken(tmp_path: Path, kind: str) -> None:
    toy_model(kind).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(toy_tokenizer(kind))
    check_base(tmp_path, tokenizer=tokenizer_json_of(tmp_path))
    load_model(tmp_path, "mlm" if kind == "bert" else "clm")
    load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        *(
            (changes, "base: cannot be loaded as a clm model")
            for changes in (
                {"n_head": 0},
                {"n_embd": -1},
                {"n_layer": "x"},
                {"activation_function": "no"},
                {"n_embd": 17},
            )
        ),
        ({"n_layer": 10**7}, "config.json: n_layer: expected at most 2,000, got 10000000"),
        ({"text_config": {"num_experts": 10**9}}, "config.json: text_config: num_experts: expected at most 2,000"),
        ({"num_labels": 10**8}, "config.json: num_labels: expected at most 2,000"),
        ({"n_positions": 10**12}, "config.json: n_positions: expected at most 134,217,728"),
        ({"layer_norm_epsilon": math.nan}, "config.json: layer_norm_epsilon: NaN is no number"),
        ({"rope_parameters": [{"factor": math.nan}]}, "config.json: rope_parameters: factor: NaN is no number"),
        *(
            (changes, r"config\.json asks for [\d,]+ parameters, and the weights have [\d,]+$")  # fills no memory
            for changes in ({"n_inner": 1 << 26}, {"n_embd": 1 << 20}, {"n_positions": 1 << 26})
        ),
    ],
)
def test_a_config_that_no_model_can_have_is_refused_before_the_library_loads_it(
    base: Path, changes: dict[str, Any], said: str
) -> None:
    change(base / "config.json", **changes)
    with pytest.raises(ArtifactError, match=said):
        load_model(base, "clm")


# --------------------------------------------------------------------------------------------------- hostile tokenizers


def hostile(kind: str) -> str:
    """A ``tokenizer.json`` that the tokenizers crate reads, and panics, aborts or fails on later."""
    made = json.loads(toy_tokenizer("gpt2"))
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    if kind == "charsmap":
        made["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": ""}
    elif kind == "unigram without an unknown token":
        made |= {"pre_tokenizer": None, "decoder": None, "added_tokens": []}
        made["model"] = {"type": "Unigram", "unk_id": None, "vocab": [["a", -1.0], ["b", -2.0]], "byte_fallback": False}
    elif kind == "a template without its token":
        made["post_processor"] = {
            "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[X]", "type_id": 0}}], "pair": [],
            "special_tokens": {},
        }  # fmt: skip
    elif kind == "an id of four billion":
        made["model"]["vocab"]["zzzz"] = 2**32 - 2
    elif kind == "two tokens of one id":
        made["model"]["vocab"]["zzzz"] = 5
    elif kind == "an added token of four billion":
        made["model"]["vocab"]["<x>"] = 2**31
        made["added_tokens"].append({"id": 2**31, "content": "<x>", **special})
    elif kind == "a letter of a billion":
        step = {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 1000}
        made["normalizer"] = {"type": "Sequence", "normalizers": [step] * 3}
    elif kind == "a bad regex":
        made["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}
    elif kind == "a merge of nothing":
        made["model"]["merges"] = [["no", "such"]]
    elif kind == "chunks of no length":
        made["pre_tokenizer"] = {"type": "FixedLength", "length": 0}
    elif kind == "a word that is missing":
        made |= {"pre_tokenizer": {"type": "Whitespace"}, "decoder": None, "added_tokens": []}
        made["model"] = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[UNK]"}
    return json.dumps(made)


HOSTILE = (
    "charsmap", "unigram without an unknown token", "a template without its token", "an id of four billion",
    "two tokens of one id", "an added token of four billion", "a bad regex", "a merge of nothing",
    "chunks of no length", "a word that is missing", "a letter of a billion",
)  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_tokenizer_is_an_error_of_its_file_in_a_process_that_survives(
    base: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (base / "tokenizer.json").write_text(hostile(kind))
    for load in (tokenizer_json_of, load_tokenizer, lambda folder: load_tokenizer(folder / "tokenizer.json")):
        with pytest.raises(ArtifactError, match=r"tokenizer\.json: not a readable tokenizer\.json: "):
            load(base)
    with pytest.raises(ArtifactError, match=r"^tokenizer: not a readable tokenizer\.json: "):
        load_tokenizer(hostile(kind))
    assert capfd.readouterr().err == ""


def test_the_tokenizers_of_the_field_pass(data: Path) -> None:
    from reticent.engine.vocabularies import bytelevel_tokenizer_json, wordpiece_tokenizer_json

    folder = data / "tokenizer_vocabs"
    _rust.check_tokenizer(wordpiece_tokenizer_json(folder / "bert-base-multilingual-cased" / "vocab.txt"))
    _rust.check_tokenizer(bytelevel_tokenizer_json(folder / "gpt2" / "vocab.json", folder / "gpt2" / "merges.txt"))


PANICS_LATER = """
import json, sys
import pyarrow as pa, numpy as np
from reticent import _rust
from reticent.core.errors import ArtifactError
try:
    encoder = _rust.TokenEncoder(sys.argv[1])
    texts = pa.array(["seen at noon"])
    words = _rust.segment(texts)
    encoder.encode(texts, words, np.zeros(3, np.uint8), np.zeros(3, np.uint8))
except ArtifactError as error:
    print(error)
"""


def test_a_panic_of_the_library_is_an_error_also_while_documents_are_encoded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PANICS_LATER, hostile("charsmap")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "tokenizer.json cannot be used (the tokenizers library fails on it)\n"
    assert done.stderr == ""


# ------------------------------------------------------------------------------------------------- where weights stand


@pytest.mark.parametrize("name", ["../other.safetensors", "/tmp/other.safetensors", "a/b.safetensors", "..", ".b", 3])
@pytest.mark.parametrize("key", ["weight_map", "transformers_weights", "adapter"])
def test_weights_that_are_no_file_of_the_folder_are_refused(base: Path, key: str, name: Any) -> None:
    (base / "model.safetensors").rename(base.parent / "other.safetensors")
    if key == "weight_map":
        (base / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {"a.b": name}}))
    elif key == "adapter":
        (base / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(name)}))
    else:
        change(base / "config.json", transformers_weights=name)
    with pytest.raises(ArtifactError, match="adapter_config" if key == "adapter" else rf"{key}: expected names"):
        load_model(base, "clm")


def hub_model(base: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A hub name whose snapshot, made of links as the hub makes it, has the files of a base."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    repository = cache / "models--ward--notes"
    snapshot = repository / "snapshots" / ("1" * 40)
    for folder in (snapshot, repository / "blobs", repository / "refs"):
        folder.mkdir(parents=True)
    (repository / "refs" / "main").write_text("1" * 40)
    for file in base.iterdir():
        file.rename(repository / "blobs" / file.name)
        (snapshot / file.name).symlink_to(repository / "blobs" / file.name)
    return "ward/notes"


def test_a_name_on_the_hub_is_the_content_of_its_snapshot(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = hub_model(base, tmp_path / "cache", monkeypatch)
    job: dict[str, Any] = {"out": str(tmp_path / "run"), "corpus": {"source": str(tmp_path / "notes.jsonl")}}
    job |= {"model": [{"name": "gpt", "objective": "clm", "base": name, "recipes": ["clm"]}]}

    def digest() -> str:
        run = Run(parse_job(job))
        return run.base_input(run.job.model[0])["base"]

    before, (weights,) = digest(), tmp_path.glob("cache/*/blobs/model.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert len(before) == 64
    assert digest() != before


# ---------------------------------------------------------------------------------------------- what does not travel on


def test_code_and_templates_of_a_base_do_not_travel_into_a_checkpoint_or_an_export(base: Path, tmp_path: Path) -> None:
    secret = "Zyxwvut"
    code = {"AutoModelForCausalLM": f"modeling.{secret}", "AutoConfig": f"configuration.{secret}"}
    change(base / "config.json", auto_map=code, custom_pipelines={"x": {"impl": f"{secret}.Pipe"}})
    template = f"{{{{ {secret} }}}}"
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template, "auto_map": code}
    files = ("tokenizer_file", "vocab_file", "merges_file", "special_tokens_map_file", "added_tokens_file")
    config |= dict.fromkeys(files, f"/home/{secret}/.cache/x.json")  # as older versions of transformers wrote them
    (base / "tokenizer_config.json").write_text(json.dumps(config))
    (base / "chat_template.jinja").write_text(template)
    (base / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    (base / "modeling.py").write_text(f"raise SystemExit({secret!r})")
    (base / "custom_generate").mkdir()
    (base / "custom_generate" / "generate.py").write_text(f"raise SystemExit({secret!r})")
    (base / "additional_chat_templates").mkdir()
    (base / "additional_chat_templates" / "tools.jinja").write_text(template)
    generation = {"custom_generate": f"{secret}/generate.py", "auto_map": code, "do_sample": False}
    (base / "generation_config.json").write_text(json.dumps(generation))
    write_model(load_model(base, "clm"), load_tokenizer(base), tmp_path / "model", recipe=get_recipe("clm"), epoch=1)
    # Whoever put the files of the base into a model folder by hand does not share them either.
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        change(tmp_path / "model" / name, **json.loads((base / name).read_text()))
    before = {path.name for path in (tmp_path / "model").iterdir()}
    export_model(tmp_path / "model", tmp_path / "out")
    assert before == {path.name for path in (tmp_path / "out").iterdir()}
    assert not before & {"chat_template.jinja", "modeling.py", "custom_generate", "additional_chat_templates"}
    for path in (tmp_path / "out").iterdir():
        content = path.read_bytes()
        assert secret.encode() not in content, path.name
        assert str(tmp_path).encode() not in content, path.name
        if path.suffix == ".json" and path.name != "tokenizer.json":
            assert not FOREIGN_KEYS & json.loads(content).keys()
    ids = load_tokenizer(tmp_path / "out")(PUBLIC_TEXT)["input_ids"]
    assert ids == load_tokenizer(base)(PUBLIC_TEXT)["input_ids"]
    load_model(tmp_path / "out", "clm")


def test_a_written_checkpoint_holds_no_code_and_no_template(base: Path, tmp_path: Path) -> None:
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": "{{ x }}", "auto_map": {"A": "b.C"}}
    (base / "tokenizer_config.json").write_text(json.dumps(config))
    (base / "chat_template.jinja").write_text("{{ x }}")
    change(base / "config.json", auto_map={"AutoConfig": "b.C"})
    tokenizer = load_tokenizer(base)
    tokenizer.chat_template = "{{ x }}"  # as a caller's may have
    write_model(load_model(base, "clm"), tokenizer, tmp_path / "model", recipe=get_recipe("clm"), epoch=1)
    assert "chat_template.jinja" not in {path.name for path in (tmp_path / "model").iterdir()}
    for path in (tmp_path / "model").glob("*.json"):
        assert not FOREIGN_KEYS & json.loads(path.read_text()).keys(), path.name
