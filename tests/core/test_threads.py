"""Batches in threads: order, errors, and detectors that several threads call at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pytest
from fixtures.models import toy_tokenizer

from reticent import _rust
from reticent.core.errors import PolicyError
from reticent.engine.threads import mapped, overlapped, read_ahead
from reticent.job.config import parse_job


def batches(*sizes: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"row": list(range(size))}) for size in sizes]


@pytest.mark.parametrize("sizes", [(), (1,), (3, 0, 2, 5, 1)])
def test_overlapped_work_comes_in_order_with_the_rows_before_it(sizes):
    def work(batch, num_before):
        time.sleep(0.01 * (batch.num_rows % 3))  # later batches are often done first
        return num_before

    given = batches(*sizes)
    got = list(overlapped(iter(given), work))
    assert [batch for batch, _ in got] == given
    assert [before for _, before in got] == [sum(sizes[:n]) for n in range(len(sizes))]


def test_an_error_of_overlapped_work_is_raised_where_its_batch_stands():
    def work(batch, num_before):
        if num_before == 3:
            raise ValueError("third")
        return num_before

    seen = []
    with pytest.raises(ValueError, match="third"):
        seen.extend(before for _, before in overlapped(iter(batches(1, 2, 1, 1)), work))
    assert seen == [0, 1]


def test_an_error_of_the_reader_is_raised_after_the_batches_before_it():
    def broken():
        yield from batches(1, 2)
        raise OSError("disk")

    for stream in (read_ahead(broken()), (batch for batch, _ in overlapped(broken(), lambda batch, before: None))):
        with pytest.raises(OSError, match="disk"):
            list(stream)


TWO_AT_ONCE = """
import sys, threading
import pyarrow as pa
from reticent import _rust
names = pa.array([f"name{i}" for i in range(20_000)])
texts = pa.array([f"Mr. name{i} met name{i + 1} and will go." for i in range(2_000)])
gazetteer = _rust.Gazetteer(names, pa.array(["NAME"] * len(names)))
found = []
def ask():
    for _ in range(10):
        common = _rust.CommonWords()  # of another version each time, so that classes are made anew
        common.add(texts)
        common.merge()
        found.append(pa.record_batch(gazetteer.find(texts, common=common, num_threads=2)).num_rows)
threads = [threading.Thread(target=ask) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(set(found)) == 1 and len(found) == 40
"""


def test_four_threads_ask_one_gazetteer_at_once():
    """A lock held while a thread waits for others' work is one that the work it takes up meanwhile may want."""
    subprocess.run([sys.executable, "-c", TWO_AT_ONCE], check=True, timeout=60)


@pytest.mark.parametrize("num_threads", [1025, 100_000, 2**40, 2**63])
def test_more_threads_than_any_machine_has_a_use_for_are_refused_before_one_starts(num_threads):
    values = {"out": "run", "corpus": {"source": "x"}, "num_threads": num_threads}
    with pytest.raises(PolicyError, match="num_threads: expected less than or equal to 1024"):
        parse_job(values)
    for call in (
        lambda: _rust.resolve_threads(num_threads),
        lambda: _rust.segment(pa.array(["a"]), num_threads=num_threads),
        lambda: _rust.TokenEncoder(toy_tokenizer("bert"), num_threads=num_threads),
    ):
        with pytest.raises(PolicyError, match=rf"num_threads: expected at most 1024 threads, got {num_threads}"):
            call()
    assert threading.active_count() < 50


def test_too_many_threads_in_the_environment_are_refused_by_name(monkeypatch):
    monkeypatch.setenv("RAYON_NUM_THREADS", "100000")
    with pytest.raises(PolicyError, match=r"^RAYON_NUM_THREADS: expected at most 1024 threads, got 100000$"):
        _rust.resolve_threads(0)
    assert _rust.resolve_threads(3) == 3


@pytest.mark.parametrize("value", ["", "0", " ", "-1", "many", "9" * 5000])
def test_no_number_of_threads_in_the_environment_is_every_core(monkeypatch, value):
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    every_core = _rust.resolve_threads(0)
    monkeypatch.setenv("RAYON_NUM_THREADS", value)
    assert _rust.resolve_threads(0) == every_core


def test_results_are_in_order_and_an_error_is_raised() -> None:
    assert mapped(lambda number: number * number, range(20)) == [number * number for number in range(20)]
    assert mapped(abs, []) == []
    with pytest.raises(ZeroDivisionError):
        mapped(lambda number: 1 // number, [1, 0, 2])


def test_no_thread_works_on_after_an_interrupt_that_comes_while_threads_start() -> None:
    """A thread whose start was interrupted was not waited for: a stopped run left a file that it wrote on."""
    for _ in range(30):
        begun, ended = [], []

        def work(number: int, begun: list[int] = begun, ended: list[int] = ended) -> None:
            begun.append(number)
            if len(begun) == 1:
                signal.raise_signal(signal.SIGINT)
            time.sleep(0.02)
            ended.append(number)

        with pytest.raises(KeyboardInterrupt):
            mapped(work, range(4))
        assert sorted(ended) == sorted(begun)
