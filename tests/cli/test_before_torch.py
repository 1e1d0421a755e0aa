"""Options are checked before torch is loaded, which takes seconds: each wrong one in a process that cannot load it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

#: Runs every command given as JSON and prints status and last line of each; to load torch is an internal error.
PROCESS = """
import contextlib, importlib.machinery, io, json, sys

class NoTorch:
    def create_module(self, spec): return None
    def exec_module(self, module): raise BaseException("torch")
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "torch" else None

sys.meta_path.insert(0, NoTorch())
from reticent.cli import main
done = []
for arguments in json.loads(sys.argv[1]):
    sys.argv, said = ["reticent", *arguments], io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as end:
            done.append((end.code, said.getvalue()))
print(json.dumps(done))
"""
RUN = ("run", "job.toml", "-q", "--set")
PROBE = ("probe", "base", "--subjects", "people.parquet")
SELF = ("probe", "base", "--self", "--items", "me.toml")
ATTACK = ("tagger", "attack", "base", "--out", "out", "--train", "train.conll", "--names", "names.txt")
CLASSIFY = ("classify", "notes.parquet", "--model", "base", "--set", "classify.label=label")
#: Arguments, exit status, and what is said.
WRONG: list[tuple[tuple[str, ...], int, str]] = [
    ((*RUN, "audit.attacks=['magic']"), 2, "unknown attack 'magic'"),
    ((*RUN, "audit.graph_shares=[2.0]"), 2, "audit.graph_shares.0"),
    ((*RUN, "train.device=tpu"), 2, "device 'tpu'"),
    ((*RUN, "classify={label='label', from_epochs=[99]}"), 2, "no checkpoint of epoch 99"),
    ((*RUN, "classify={label='nothere'}"), 1, "column nothere is missing"),
    (("classify", "job.toml", "-q"), 2, "classify needs the column of classes: classify.label"),
    (
        (*RUN, "classify={label='label', save_model=true}", "--set", "audit.heads={attributes=['nothere']}"),
        1,
        "column nothere is missing",
    ),
    ((*RUN, "probe={}"), 2, "a table of individuals' items is needed"),
    ((*RUN, "probe.subjects='none.parquet'"), 1, "none.parquet: no such file"),
    ((*RUN, "probe={subjects='people.parquet', templates='none.txt'}"), 2, "none.txt: cannot be read"),
    ((*RUN, "probe={subjects='people.parquet', language='de'}"), 2, "in language de"),
    ((*RUN, "probe={subjects='people.parquet', given=['shoe']}"), 1, "no column shoe"),
    ((*RUN, "probe={subjects='people.parquet', targets=['shoe']}"), 1, "no column shoe"),
    ((*RUN, "canaries.num=0"), 2, "canaries.num"),
    ((*RUN, "extraction={prefix_tokens=[]}"), 2, "extraction.prefix_tokens"),
    (("train", "nowhere"), 1, "not a run folder"),
    (("train", "--verify", "nowhere.json"), 1, "not the ledger of a run"),
    (("protect", "nowhere", "--model", "x=y"), 1, "not a run folder"),
    (("probe", "base"), 2, "give --subjects or --documents"),
    (("probe", "base", "base", *PROBE[2:]), 2, "two models have the same name"),
    ((*PROBE, "--documents", "notes.parquet"), 2, "give --subjects or --documents"),
    (("probe", "base", "--subjects", "none.parquet"), 1, "none.parquet: no such file"),
    ((*PROBE, "--level", "pair"), 2, "probe.levels.0: expected 'twin'"),
    ((*PROBE, "--masking", "x"), 2, "probe.masking: expected 'together'"),
    ((*PROBE, "--language", "de"), 2, "in language de"),
    ((*PROBE, "--device", "tpu"), 2, "device 'tpu'"),
    ((*PROBE, "--target", "shoe"), 1, "no column shoe"),
    ((*PROBE, "--given", "shoe"), 1, "no column shoe"),
    ((*PROBE, "--templates", "none.txt"), 2, "none.txt: cannot be read"),
    ((*PROBE, "--templates", "shoes.txt"), 2, "unknown field {shoe_size}"),
    ((*PROBE, "--soft-prompt", "--soft-init", "x"), 2, "probe.soft_prompt.init: expected 'type'"),
    ((*PROBE, "--soft-tokens", "3"), 2, "--soft-tokens belongs to --soft-prompt"),
    ((*PROBE, "--sweep"), 2, "--sweep belongs to --soft-prompt"),
    ((*PROBE, "--items", "me.toml"), 2, "--items belongs to --self"),
    ((*SELF, "--language", "de"), 2, "the page is written in en or fr"),
    ((*SELF, "--templates", "shoes.txt"), 2, "--templates has no effect with --self"),
    ((*SELF, "--soft-prompt"), 2, "--soft-prompt has no effect with --self"),
    ((*SELF[:-1], "none.toml"), 1, "none.toml: cannot be read"),
    ((*SELF[:-1], "shoes.txt"), 1, "expected lines like"),
    (("probe", "base", *SELF[1:]), 2, "give one model"),
    (("score", "base"), 2, "give --texts or --generate"),
    (("score", "base", "--texts", "none.txt"), 1, "none.txt: cannot be read"),
    (("score", "base", "--texts", "shoes.txt", "--tokens", "3"), 2, "--tokens belongs to --generate"),
    (("score", "base", "--generate", "3"), 2, "give --out FILE"),
    (("score", "base", "--texts", "shoes.txt", "--run", "nowhere"), 1, "not a run folder"),
    (ATTACK[:5], 2, "give --train FILE"),
    ((*ATTACK, "--bf16", "x"), 2, "expected auto, on or off"),
    ((*ATTACK, "--device", "tpu"), 2, "device 'tpu'"),
    ((*ATTACK, "--prompts", "none.txt"), 2, "none.txt: cannot be read"),
    ((*ATTACK, "--prompts", "train.conll"), 2, "expected [MASK] once"),
    ((*ATTACK, "--key", "none.key"), 2, "none.key: cannot be read"),
    ((*ATTACK, "--encoding", "klingon"), 1, "cannot be read as klingon"),
    ((*ATTACK, "--label", "DOG"), 2, "DOG"),
    ((*ATTACK, "--heldout", "train.conll"), 2, "give --train FILE"),
    ((*ATTACK, "--run", "nowhere"), 2, "--run: the names come from its documents"),
    ((*ATTACK[:5], "--run", "nowhere", "--encoding", "cp1252"), 2, "--encoding has no effect with --run"),
    (("tagger", "attack", "base", "--out", "out", "--run", "nowhere"), 1, "not a run folder"),
    (("tagger", "attack", "base", "--out", "out", "--train", "none.conll", "--names", "names.txt"), 1, "none.conll"),
    (("tagger", "attack", "base", "--out", "out", "--train", "train.conll", "--names", "none.txt"), 1, "none.txt"),
    (("tagger", "thesis", "none.csv"), 1, "none.csv: not a readable CSV"),
    ((*CLASSIFY, "--set", "classify.from_epochs=[3]"), 2, "classify.from_epochs: belongs to a run"),
    ((*CLASSIFY, "--set", "classify.save_model=true"), 2, "classify.save_model: needs a folder"),
    ((*CLASSIFY, "--set", "classify.num_epochs=0"), 2, "classify.num_epochs"),
    ((*CLASSIFY, "--set", "train.device=tpu"), 2, "device 'tpu'"),
    ((*CLASSIFY[:-1], "classify.label=nothere"), 1, "column nothere is missing"),
    (
        ("guard", "build", "notes.parquet", "--out", "out", "--detector", "magic"),
        2,
        "unknown detector 'magic'",
    ),
    (
        ("guard", "check", "nowhere"),
        1,
        "no artefact here (no manifest.json): what makes it was not run, or did not finish",
    ),
    (("scrub", "notes.parquet", "--out", "out", "--detector", "transformers"), 2, "detect.transformers.model"),
]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str]]:
    """Status and words of each, all in one process that stands among the files they name."""
    folder = tmp_path_factory.mktemp("wrong")
    n = range(12)
    ids = {"doc_id": [f"d{i}" for i in n], "individual_id": [f"p{i}" for i in n]}
    notes = {**ids, "text": ["seen at home"] * len(n), "label": ["a", "b", "c", "d"] * 3}
    pq.write_table(pa.table(notes), folder / "notes.parquet")
    people = {"individual_id": ids["individual_id"], "name": [f"Ann B{i}" for i in n], "phone": [f"555{i}" for i in n]}
    pq.write_table(pa.table(people), folder / "people.parquet")
    (folder / "base").mkdir()
    Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]")).save(str(folder / "base" / "tokenizer.json"))
    labels = {"0": "O", "1": "B-PER", "2": "I-PER"}
    (folder / "base" / "config.json").write_text(json.dumps({"model_type": "bert", "id2label": labels}))
    for name, text in (
        ("job.toml", 'out="run"\ncorpus.source="notes.parquet"\n[[model]]\nname="m"\nbase="base"\nobjective="mlm"\n'
         'recipes=["mlm"]\n'),
        ("shoes.txt", "{name} wears {shoe_size} \n"), ("me.toml", 'name = "Ann Bo"\nphone = "555"\n'),
        ("train.conll", "Ann B-PER\nBo I-PER\n\n"), ("names.txt", "Cy Dee\n"),
    ):  # fmt: skip
        (folder / name).write_text(text)
    arguments = json.dumps([case[0] for case in WRONG])
    process = subprocess.run(
        [sys.executable, "-c", PROCESS, arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    left = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert not left & {"out", "run"}
    return [(status, said) for status, said in json.loads(process.stdout)]


@pytest.mark.parametrize("number", range(len(WRONG)), ids=lambda number: " ".join(WRONG[number][0]))
def test_a_wrong_option_is_refused_before_torch_is_loaded(number: int, done: list[tuple[int, str]]) -> None:
    _, status, words = WRONG[number]
    assert words in done[number][1]
    assert done[number][0] == status


def test_a_process_of_this_test_cannot_load_torch(tmp_path: Path) -> None:
    code = PROCESS.replace("from reticent.cli import main", "import torch")
    process = subprocess.run([sys.executable, "-c", code, "[]"], capture_output=True, text=True, check=False)
    assert process.returncode != 0
    assert "torch" in process.stderr
