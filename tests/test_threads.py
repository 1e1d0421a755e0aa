"""Batches in threads: order, errors, and detectors that several threads call at once."""

from __future__ import annotations

import subprocess
import sys
import time

import pyarrow as pa
import pytest

from reticent.engine.threads import overlapped, read_ahead


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
