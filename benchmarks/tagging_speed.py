"""How fast does a token-classification model find names, beside the pipeline of transformers on the same texts?

BERT-base with random weights, but for a head that reads off the residual stream whether a piece is one of a capitalised
word: its answers are those of a trained model in kind (few, certain), and both must find the same characters before a
time is shown. Texts are MTSamples (RETICENT_DATA), windows of 512 tokens of which a quarter is shared, rounds in turns.

    python -m benchmarks.tagging_speed [--size toy|cpu|gpu] [--rounds 3]

Size gpu needs CUDA; both then compute in bfloat16.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import torch
from fixtures.corpora import read_documents
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForTokenClassification, PreTrainedTokenizerFast, pipeline

from benchmarks.record_io import DATA, estimate_text, markdown, spread, write_record
from benchmarks.runner import command
from reticent.core.device import pick_device
from reticent.engine.detect.transformers import TransformersDetector

OURS, PEER = "detector transformers", "pipeline of transformers"
#: Share of the characters on which both must agree; what is a word differs a little.
AGREEMENT = 0.98
WINDOW, STRIDE = 512, 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model and how many reports."""

    layers: int
    width: int
    vocabulary: int
    reports: int
    batch: int


SIZES = {
    "toy": Size(layers=1, width=64, vocabulary=600, reports=6, batch=4),
    "cpu": Size(layers=12, width=768, vocabulary=20_000, reports=24, batch=8),
    "gpu": Size(layers=12, width=768, vocabulary=20_000, reports=2400, batch=32),
}


def save_tagger(folder: Path, texts: list[str], size: Size) -> None:
    """Write a model to which every piece of a capitalised word's beginning is a name, and nothing else."""
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=size.vocabulary, special_tokens=marks, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), marks, strict=True))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=WINDOW, **names)  # type: ignore
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    model = BertForTokenClassification(
        BertConfig(
            vocab_size=tokenizer.get_vocab_size(), hidden_size=size.width, num_hidden_layers=size.layers,
            num_attention_heads=size.width // 64, intermediate_size=4 * size.width, max_position_embeddings=WINDOW,
            id2label={0: "O", 1: "B-NAME", 2: "I-NAME"},
        )
    )  # fmt: skip
    vocabulary = tokenizer.get_vocab()
    is_name = torch.zeros(len(vocabulary), dtype=torch.bool)
    is_name[[number for piece, number in vocabulary.items() if piece[0].isupper()]] = True
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[:, 0] = torch.where(is_name, 1.0, -1.0)
        model.classifier.weight.zero_()
        model.classifier.weight[0, 0], model.classifier.weight[1, 0] = -4.0, 4.0
        model.classifier.bias[2] = -20.0
    model.save_pretrained(folder)


def measure(size_name: str, rounds: int) -> dict[str, Any]:
    """Time both in turns; returns seconds, characters a second, and on how many characters they agree."""
    size, device = SIZES[size_name], pick_device("cuda" if size_name == "gpu" else "cpu")
    texts = read_documents("mtsamples", size.reports).column("text").to_pylist()
    with tempfile.TemporaryDirectory() as place:
        save_tagger(Path(place), texts, size)
        ours = TransformersDetector(place, device=device.type, window=WINDOW, stride=STRIDE)
        peer = pipeline(
            "token-classification", model=place, device=device, stride=STRIDE, aggregation_strategy="average",
            dtype=torch.bfloat16 if device.type == "cuda" else torch.float32, batch_size=size.batch,
        )  # fmt: skip
    batch = pa.record_batch([pa.array(range(len(texts)), pa.uint32()), pa.array(texts, pa.large_string())],
                            names=["document", "text"])  # fmt: skip

    def by_ours() -> list[list[tuple[int, int]]]:
        found: list[list[tuple[int, int]]] = [[] for _ in texts]
        spans = ours.detect(batch)
        for document, start, end in zip(*(spans.column(name).to_pylist() for name in ("document", "start", "end")),
                                        strict=True):  # fmt: skip
            found[document].append((start, end))
        return found

    def by_peer() -> list[list[tuple[int, int]]]:
        return [[(entity["start"], entity["end"]) for entity in entities] for entities in peer(texts)]

    ways, seconds = {OURS: by_ours, PEER: by_peer}, {OURS: [], PEER: []}  # type: ignore[var-annotated]
    for turn in range(1 + rounds):  # the first warms up
        marks = {}
        for name, way in ways.items():
            started = time.perf_counter()
            spans = way()
            if turn:
                seconds[name].append(time.perf_counter() - started)
            marks[name] = np.concatenate([_covered(len(text), own) for text, own in zip(texts, spans, strict=True)])
        agree = float(np.mean(marks[OURS] == marks[PEER]))
        assert agree >= AGREEMENT, f"both mark the same characters: {agree:.4f} of them"
    num_chars = sum(map(len, texts))
    return {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu", "model": asdict(size),
        "characters": num_chars, "agreement": agree, "marked": float(marks[OURS].mean()), "seconds": seconds,
        "mb_per_second": {name: spread([num_chars / 1e6 / each for each in own]) for name, own in seconds.items()},
        "ratio": spread([b / a for a, b in zip(seconds[OURS], seconds[PEER], strict=True)]),
    }  # fmt: skip


def _covered(length: int, spans: list[tuple[int, int]]) -> np.ndarray:
    marked = np.zeros(length, dtype=bool)
    for start, end in spans:
        marked[start:end] = True
    return marked


def run(size: Annotated[str, SIZES] = "toy", rounds: int = 3) -> None:
    """Measure and write the record; without the corpus nothing is measured, and said."""
    if not (DATA / "mtsamples").exists():
        print(f"skipped: no mtsamples under {DATA} (RETICENT_DATA)", file=sys.stderr)
        return
    result = measure(size, rounds)
    rows = [[name, estimate_text(own, 2)] for name, own in result["mb_per_second"].items()]
    print(result["device"], markdown(["", "MB/s"], rows), f"ratio {result['ratio']}", sep="\n")
    write_record("tagging_speed" + ("-gpu" if size == "gpu" else ""), result, size)


if __name__ == "__main__":
    command(run)
