"""How fast do the detectors that need no other package find identifiers, beside Presidio and edsnlp?

Throughput: notes of real size, of ``mtsamples``, ``meddocan`` and ``reticent synth`` in equal parts, from Parquet to
the ordered table of spans on the disk, with the fields of the generated individuals as records and all US census names
as a gazetteer; two threads. In the same round ``wc -w`` counts the words of the same text in one file: the goal P17 is
a ratio to it. A trained NER is timed with two processes on fewer notes, alone and within the preset ``thorough``.
Peers: documents a second of the detector alone, batches in memory, the same documents and categories, with the recall
of each beside it; the ratio is taken within each round. Presidio and edsnlp use one core, so ours has a row with one
thread.

    python -m benchmarks.detection_speed [--size toy|cpu] [--mb 60] [--rounds 5]
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fixtures.corpora import census_names, read_case

from benchmarks.detection import PIPELINES, _number, _version
from benchmarks.engine_workers import write_text
from benchmarks.record_io import DATA, estimate_text, markdown, spread, write_record
from benchmarks.runner import command
from reticent.audit.detection import evaluate_detection
from reticent.audit.evidence.json_form import to_json
from reticent.core.errors import PolicyError
from reticent.engine.corpus import open_corpus
from reticent.engine.detect import detect_spans, make_detectors
from reticent.engine.detect.common import counted_words
from reticent.engine.detect.marks import gather_marks
from reticent.engine.detect.propagate import propagate
from reticent.engine.schema import SPANS
from reticent.engine.synthetic import SynthConfig, synthesize

GOAL_MB_PER_SECOND = 50
#: MB a second of all three together, by those of ``wc -w``.
GOAL_OF_WC = 0.4
#: The preset, all of its steps.
FAST = "preset fast"
#: Language -> corpus on which its NER and the preset with it are timed, and documents of it.
NER_CORPORA = {"en": ("mtsamples", 30), "fr": ("synth_fr", 90)}
#: Entities of Presidio's pattern recognisers that have a category here.
PRESIDIO_PATTERNS = ["EMAIL_ADDRESS", "PHONE_NUMBER", "URL", "IP_ADDRESS", "CREDIT_CARD", "IBAN_CODE", "US_SSN"]
PATTERN_CATEGORIES = ("EMAIL", "PHONE", "URL", "IP", "ID")


def throughput(folder: Path, num_mb: float, rounds: int) -> dict[str, Any]:
    """Return MB/s of each detector of ours and of all, and the seconds its parts take."""
    num_bytes = _write_documents(folder, num_mb)
    options: dict[str, dict[str, Any]] = {"rules": {}, "records": {"table": str(folder / "records.parquet")}}
    if (DATA / "us_census_names").exists():
        options["gazetteer"] = {"lists": census_names(folder, share=100.0)}
    together = " + ".join(options)
    rows = {name: [name] for name in (*options, "shipped")} | {together: list(options)}
    rows |= {"rules + records + shipped": ["rules", "records", "shipped"], FAST: ["shipped", *options]}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in rows}
    spans: dict[str, int] = {}
    write_text(folder / "documents.parquet", folder / "text.txt")
    of_wc, ratios = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run(
            ["wc", "-w", folder / "text.txt"], check=True, capture_output=True, env={**os.environ, "LC_ALL": "C.UTF-8"}
        )
        of_wc.append(num_bytes / 1e6 / (time.perf_counter() - start))
        for name, detectors in rows.items():
            start = time.perf_counter()
            made = make_detectors(detectors, options, num_threads=2)
            ready, cpu = time.perf_counter(), time.process_time()
            corpus = open_corpus(folder / "documents.parquet")
            counts = detect_spans(corpus, made, folder)
            if name == FAST:
                words = counted_words(corpus, made)
                propagate(corpus, folder / "spans.parquet", folder / "spread.parquet", common=words, num_threads=2)
            seconds = time.perf_counter() - ready
            assert spans.setdefault(name, counts["spans"]) == counts["spans"] > 0, "a run finds other spans"
            cpu = time.process_time() - cpu
            runs[name].append(
                {
                    "mb_per_second": num_bytes / 1e6 / seconds,
                    "mb_per_cpu_second": num_bytes / 1e6 / cpu,
                    "cpu_seconds": cpu,
                    "seconds": seconds,
                    "making": ready - start,
                }
            )
        ratios.append(runs[together][-1]["mb_per_second"] / of_wc[-1])
    shown = {
        name: {key: spread([run[key] for run in measured]) for key in measured[0]} | {"spans": spans[name]}
        for name, measured in runs.items()
    }
    beside = {"mb_per_second": spread(of_wc), "ratio": spread(ratios), "goal": GOAL_OF_WC}
    return {"num_bytes": num_bytes, "goal_mb_per_second": GOAL_MB_PER_SECOND, "wc -w": beside, "rows": shown}


def _write_documents(folder: Path, num_mb: float) -> int:
    """Write documents.parquet, a third of each corpus that is there, and records.parquet; returns the bytes of text."""
    share = num_mb * 1e6 / 3
    config = SynthConfig(
        num_individuals=max(20, int(share / 11_000)),
        words_per_document=735,
        documents_per_individual=2.5,
        vocabulary=350_000,
        languages=("en", "fr"),
        seed=3,
    )
    (folder / "synth").mkdir()
    synthesize(folder / "synth", config)
    columns = ["doc_id", "individual_id", "text"]
    parts = [pq.read_table(folder / "synth" / "documents").select(columns)]
    for name in ("mtsamples", "meddocan"):
        if (DATA / name).exists():
            table = read_case(name).documents.select(columns)
            size = table.column("text").nbytes
            table = table.slice(0, int(len(table) * share / size) + 1)  # part of it, where it is more than is wanted
            for copy in range(max(1, round(share / size))):
                numbered = pa.array([f"{name}-{copy}-{row}" for row in range(len(table))])
                parts.append(table.set_column(0, "doc_id", numbered).set_column(1, "individual_id", numbered))
    schema = pa.schema([("doc_id", pa.string()), ("individual_id", pa.string()), ("text", pa.large_string())])
    documents = pa.concat_tables([part.cast(schema) for part in parts])
    pq.write_table(documents, folder / "documents.parquet", row_group_size=4096)
    (folder / "synth" / "records.parquet").rename(folder / "records.parquet")
    return int(pc.sum(pc.binary_length(documents.column("text"))).as_py())


def trained(language: str, size: str, rounds: int) -> dict[str, Any]:
    """Return MB/s of a NER on two cores, and of the preset ``thorough`` with it from Parquet to spans on the disk."""
    name, num = NER_CORPORA[language]
    if name == "mtsamples" and not (DATA / name).exists():
        return {"status": "no documents: RETICENT_DATA"}
    case = read_case(name, 4 if size == "toy" else num)
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as place:
        folder = Path(place)
        pq.write_table(case.documents.select(["doc_id", "individual_id", "text"]), folder / "d.parquet")
        num_bytes = pc.sum(pc.binary_length(case.documents.column("text"))).as_py()
        ner = {"pipeline": PIPELINES[language], "passages": True, "guard": True, "num_processes": 2}
        rates: dict[str, list[float]] = {}
        corpus = open_corpus(folder / "d.parquet")
        for _ in range(rounds):
            for what, names in (("NER alone", ["spacy"]), ("preset thorough", ["rules", "shipped", "spacy"])):
                try:
                    made = make_detectors(names, {"spacy": ner}, num_threads=2)
                except PolicyError:
                    return {"status": "not installed"}
                # Its processes have loaded the pipeline once they have found something.
                made[-1].detect(pa.record_batch({"text": ["Seen by Dr. Grant."] * 2}))
                start = time.perf_counter()
                detect_spans(corpus, made, folder)
                if what != "NER alone":
                    propagate(corpus, folder / "spans.parquet", folder / "spread.parquet", num_threads=2)
                rates.setdefault(what, []).append(num_bytes / 1e6 / (time.perf_counter() - start))
    return {
        "status": "measured",
        "pipeline": PIPELINES[language],
        "corpus": name,
        "num_bytes": num_bytes,
        "mb_per_second": {what: spread(values) for what, values in rates.items()},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Ours and a peer on the same documents and categories."""

    name: str
    corpora: tuple[str, ...]
    categories: tuple[str, ...]
    ours: tuple[str, dict[str, Any]]
    peer: tuple[str, dict[str, Any]]
    package: str


COMPARISONS = (
    Comparison(
        name="Presidio, its patterns",
        corpora=("presidio_synth", "synth_en"),
        categories=PATTERN_CATEGORIES,
        ours=("rules", {}),
        peer=("presidio", {"language": "en", "entities": PRESIDIO_PATTERNS}),
        package="presidio-analyzer",
    ),
    Comparison(
        name="Presidio, its patterns, with spaCy",
        corpora=("presidio_synth", "synth_en"),
        categories=PATTERN_CATEGORIES,
        ours=("rules", {}),
        peer=("presidio", {"language": "en", "pipeline": PIPELINES["en"], "entities": PRESIDIO_PATTERNS}),
        package="presidio-analyzer",
    ),
    Comparison(
        name="edsnlp, its dates",
        corpora=("synth_fr",),
        categories=("DATE",),
        ours=("rules", {}),
        peer=("eds", {"components": {"eds.sentences": {}, "eds.dates": {}}}),
        package="edsnlp",
    ),
)


def compare(comparison: Comparison, num_documents: int, rounds: int) -> dict[str, Any]:
    """Return documents a second and recall of both, and the ratio within rounds; says so where a peer is not there."""
    documents = _sample(comparison.corpora, num_documents)
    if documents is None:
        return {"status": "no documents: RETICENT_DATA"}
    (ours, settings), (peer, peer_settings) = comparison.ours, comparison.peer
    try:
        detectors = {
            f"{ours}, 1 thread": make_detectors([ours], {ours: settings}, num_threads=1)[0],
            f"{ours}, all cores": make_detectors([ours], {ours: settings})[0],
            peer: make_detectors([peer], {peer: peer_settings})[0],
        }
    except (PolicyError, ImportError):
        return {"status": "not installed"}
    batch = documents.select(["doc_id", "individual_id", "text"]).combine_chunks().to_batches()[0]
    seconds: dict[str, list[float]] = {name: [] for name in detectors}
    found = {}
    for _ in range(rounds + 1):
        for name, detector in detectors.items():
            start = time.perf_counter()
            found[name] = detector.detect(batch)
            seconds[name].append(time.perf_counter() - start)
    seconds = {name: values[1:] for name, values in seconds.items()}  # the first round warms up
    recalls = {name: _recalls(documents, found[name], name, comparison.categories) for name in detectors}
    mine = recalls[f"{ours}, 1 thread"]
    equal = [
        c for c in mine["categories"] if mine["categories"][c]["recall"] >= recalls[peer]["categories"][c]["recall"]
    ]
    return {
        "status": "measured",
        "documents": batch.num_rows,
        "categories": list(comparison.categories),
        "ours_is_at_least_as_good_on": equal,
        "equal_recall": set(equal) == set(mine["categories"]),
        "rows": {
            name: {"documents_per_second": spread([batch.num_rows / s for s in values]), **recalls[name]}
            for name, values in seconds.items()
        },
        "ratio": {
            name: spread([theirs / s for theirs, s in zip(seconds[peer], seconds[name], strict=True)])
            for name in detectors
            if name != peer
        },
    }


def _sample(corpora: Sequence[str], num_documents: int) -> pa.Table | None:
    """Documents of these corpora with gold spans, spread over each."""
    parts = []
    for name in corpora:
        try:
            table = read_case(name).documents.select(["doc_id", "individual_id", "text", "spans"])
        except FileNotFoundError:
            continue
        step = max(1, len(table) // (num_documents // len(corpora)))
        parts.append(table.take(list(range(0, len(table), step))[: num_documents // len(corpora)]))
    kind = pa.list_(pa.struct([("start", pa.int32()), ("end", pa.int32()), ("label", pa.string())]))
    schema = pa.schema(
        [("doc_id", pa.string()), ("individual_id", pa.string()), ("text", pa.large_string()), ("spans", kind)]
    )
    return pa.concat_tables([part.cast(schema) for part in parts]) if parts else None


def _recalls(documents: pa.Table, found: pa.Table, name: str, categories: Sequence[str]) -> dict[str, Any]:
    """Relaxed recall and precision of each category, and over all of them."""
    names = pa.array([name] * found.num_rows, pa.string())
    ids = documents.column("doc_id").combine_chunks().take(found.column("document").combine_chunks())
    spans = found.append_column("doc_id", ids).append_column("detector", names)
    spans = spans.sort_by([("document", "ascending"), ("start", "ascending")]).select(SPANS.names).cast(SPANS)
    batches = documents.select(["individual_id", "text", "spans"]).to_batches()
    marks = gather_marks(batches, spans).with_only(categories=categories)
    union = to_json(evaluate_detection(marks, num_bootstrap=200).union)
    rates = {
        category: {what: scores["relaxed"][what]["value"] for what in ("precision", "recall")}
        for category, scores in union["categories"].items()
        if category in categories and scores["relaxed"]["recall"]["of"]
    }
    overall = {what: _number(union["overall"]["relaxed"][what]) for what in ("precision", "recall")}
    return overall | {"categories": rates}


def run(size: Annotated[str, ("toy", "cpu")] = "cpu", mb: float = 60, rounds: int = 5) -> None:
    """Measure both, write the record and print its tables."""
    if size == "toy":
        mb, rounds = 0.3, 1
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
        result: dict[str, Any] = {"throughput": throughput(Path(folder), mb, rounds)}
    result["trained"] = {language: trained(language, size, min(rounds, 3)) for language in NER_CORPORA}
    result["peers"] = {
        comparison.name: compare(comparison, 20 if size == "toy" else 400, rounds)
        | {"version": _version(comparison.package)}
        for comparison in COMPARISONS
    }
    result["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    write_record("detection_speed", result, size)
    print(speed_tables(result))


def speed_tables(record: dict[str, Any]) -> str:
    """Return the tables of a record as Markdown."""
    through = record["throughput"]
    rows = [
        (
            name,
            *(
                estimate_text(row[key], digits)
                for key, digits in (("mb_per_second", 1), ("mb_per_cpu_second", 1), ("making", 2))
            ),
        )
        for name, row in through["rows"].items()
    ]
    text = f"{through['num_bytes'] / 1e6:,.0f} MB of text, from Parquet to spans on the disk; "
    text += f"goal {through['goal_mb_per_second']} MB/s."
    wc = through["wc -w"]
    text += f" `wc -w` on the same text: {estimate_text(wc['mb_per_second'], 0)} MB/s; all three together read "
    text += f"{estimate_text(wc['ratio'], 2)} of that, goal {wc['goal']}.\n\n"
    text += markdown(("detectors", "MB/s", "MB per CPU second", "seconds to make"), rows)
    of_ner = [
        (found["pipeline"], found["corpus"], f"{found['num_bytes'] / 1e6:.2f}", what, estimate_text(rate, 3))
        for found in record.get("trained", {}).values()
        if found["status"] == "measured"
        for what, rate in found["mb_per_second"].items()
    ]
    if of_ner:
        text += "\n" + markdown(("trained NER, two processes", "corpus", "MB", "", "MB/s"), of_ner)
    peers = []
    for name, found in record["peers"].items():
        if found["status"] != "measured":
            peers.append((name, found["status"], *["-"] * 4))
            continue
        for who, row in found["rows"].items():
            rates = [f"{row[what]['value']:.3f}" for what in ("recall", "precision")]
            ratio = estimate_text(found["ratio"][who], 0) if who in found["ratio"] else "1"
            peers.append((name, who, estimate_text(row["documents_per_second"], 0), ratio, *rates))
    heads = ("beside", "detector", "documents/s", "times the peer", "relaxed recall", "precision")
    return text + "\n" + markdown(heads, peers)


if __name__ == "__main__":
    command(run)
