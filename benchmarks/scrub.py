"""How fast are identifiers replaced, style by style, beside a loop over Python strings?

The documents are generated, with every identifier marked: one in some 150 bytes, more than real notes hold. What the
loop does is the least that a tag needs, and its texts must be equal to ours. Seconds are those of the wall, and of all
cores together.

    python -m benchmarks.scrub
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.record_io import spread, write_record
from reticent.engine.corpus import Columns, open_corpus
from reticent.engine.detect import detect_spans, make_detectors
from reticent.engine.detect.labels import category
from reticent.engine.detect.spans import SpanReader
from reticent.engine.pseudonymize import STYLES, DateOptions, pseudonymise_batch, span_arrays
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.ext.scrub.scrub import ScrubConfig, scrub_corpus

SIZES = {"toy": (60, 1), "cpu": (8000, 7)}
KEY = bytes(32)


def run(size: str) -> dict[str, Any]:
    """Measure every style in turns, in memory, and the whole stage from file to file."""
    num_individuals, rounds = SIZES[size]
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as place:
        folder = Path(place)
        (folder / "synth").mkdir()
        synthesize(folder / "synth", SynthConfig(num_individuals=num_individuals, words_per_document=300))
        corpus = open_corpus(folder / "synth" / "documents", columns=Columns(spans="spans"))
        columns = ("doc_id", "individual_id", "text", "spans")
        batches = list(corpus.batches(columns=columns))
        arrays = [span_arrays(batch.column("spans")) for batch in batches]
        num_bytes = sum(pc.sum(pc.binary_length(batch.column("text"))).as_py() for batch in batches)
        rows = [(batch.column("text").to_pylist(), batch.column("spans").to_pylist()) for batch in batches]

        def python_tags() -> list[str]:
            return [
                _tagged(text, spans, category)
                for texts, lists in rows
                for text, spans in zip(texts, lists, strict=True)
            ]

        ours = [
            pseudonymise_batch(batch, spans, "tag", KEY).texts for batch, spans in zip(batches, arrays, strict=True)
        ]
        assert pa.chunked_array(ours).to_pylist() == python_tags(), "the loop puts other tags than we do"
        (folder / "spans").mkdir()
        detect_spans(corpus, make_detectors(["gold"]), folder / "spans")
        reader = SpanReader(folder / "spans")
        tasks: dict[str, Callable[[], object]] = {"Python loop, tag": python_tags}
        for style in STYLES:
            shift = DateOptions(shift_days=30) if style in ("surrogate", "rotate") else DateOptions()

            def in_memory(style: Any = style, shift: DateOptions = shift) -> None:
                for batch, spans in zip(batches, arrays, strict=True):
                    pseudonymise_batch(batch, spans, style, KEY, dates=shift)

            tasks[f"reticent, {style}"] = in_memory

        def whole_stage() -> None:
            with tempfile.TemporaryDirectory(dir=folder) as out:
                scrub_corpus(corpus, reader, out, ScrubConfig(), KEY)

        tasks["reticent, surrogate, file to file"] = whole_stage
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in tasks}
        for _ in range(rounds):
            for name, task in tasks.items():
                measured[name].append(_seconds(task))
        num_spans = sum(len(spans[1]) for spans in arrays)
    megabytes = num_bytes / 1e6
    result = {
        "documents": sum(batch.num_rows for batch in batches),
        "bytes": num_bytes,
        "spans": num_spans,
        "mb_per_second": {n: spread([megabytes / wall for wall, _ in times]) for n, times in measured.items()},
        "mb_per_core_second": {n: spread([megabytes / cpu for _, cpu in times]) for n, times in measured.items()},
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    for name in tasks:
        wall, cpu = result["mb_per_second"][name]["median"], result["mb_per_core_second"][name]["median"]
        print(f"{name}: {wall:,.0f} MB/s, {cpu:,.0f} MB a second of one core")
    write_record("scrub", result, size)
    return result


def _tagged(text: str, spans: list[dict[str, Any]], category: Callable[[str], str]) -> str:
    pieces, at = [], 0
    for span in spans:
        pieces += [text[at : span["start"]], "[", category(span["label"]), "]"]
        at = span["end"]
    return "".join([*pieces, text[at:]])


def _seconds(task: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    task()
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    run("cpu")
