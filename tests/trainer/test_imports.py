"""A machine with a GPU and little else: the trainer needs neither Polars, spaCy, Opacus, DuckDB nor the Rust core."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from fixtures.forks import Forks
from fixtures.places import ROOT
from fixtures.tokenizer_kinds import LINES, tokenizer_json

from reticent.engine.corpus import open_corpus
from reticent.engine.tokens import write_tokens

#: Blocks what that machine does not have, imports all of the trainer, and trains on a store that was written elsewhere.
BARE = """
import sys
class Absent:
    names = ("polars", "spacy", "opacus", "duckdb")
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names or name == "reticent._rust":
            raise ImportError(name)
assert not sys.modules.keys() & {*Absent.names, "reticent"}  # or a library has them already
sys.meta_path.insert(0, Absent())
import pkgutil, importlib
import reticent.trainer, reticent.audit.scoring.scores
for found in pkgutil.iter_modules(reticent.trainer.__path__):
    if found.name not in ("clipping", "dpsgd"):  # parts of Opacus, imported where a private run begins
        importlib.import_module(f"reticent.trainer.{found.name}")
from pathlib import Path
from transformers import BertConfig, BertForMaskedLM
from reticent.engine.store import open_tokens
from reticent.trainer.config import TrainConfig
from reticent.trainer.loop import train
from reticent.trainer.recipes import get_recipe
store = open_tokens(Path(sys.argv[1]))
small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
model = BertForMaskedLM(BertConfig(vocab_size=500, **small))
config = TrainConfig(num_epochs=1, batch_size=4, window_length=32, checkpoint_epochs=(), device="cpu")
out = Path(sys.argv[1]) / "trained"
print(train(model, store, get_recipe("mlm"), config, out, tokenizer=str(store.tokenizer_path)).num_steps)
"""


@pytest.mark.heavy
def test_the_trainer_needs_neither_polars_nor_spacy_nor_opacus_nor_the_core(tmp_path: Path, forks: Forks) -> None:
    ids = [f"d{number}" for number in range(len(LINES))]
    table = pa.table({"doc_id": ids, "individual_id": ids, "text": LINES})
    write_tokens(tmp_path, open_corpus(table), None, tokenizer_json("WordPiece, cased"))
    done = forks.run(BARE, tmp_path, environment={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.splitlines()[-1]) > 1
