"""Texts without end of one kind: what is looked at around a word is bounded."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from fixtures.processor_time import processor_seconds

from reticent import _rust


def refined(text: str, starts: list[int]) -> list[bool]:
    """Return which of these names, each a letter long, are kept."""
    spans = (np.zeros(len(starts), dtype=np.int64), np.array(starts, dtype=np.int32))
    texts = pa.array([text], pa.large_string())
    return _rust.refine_formless(texts, *spans, spans[1] + 1, np.ones(len(starts), dtype=bool), num_threads=1)[
        1
    ].tolist()


def test_words_that_hyphens_join_cost_no_more_for_each() -> None:
    def seconds(num: int) -> float:
        text, starts = "So it was: " + "Roselstone-" * num, [11 + 11 * number for number in range(num)]
        return processor_seconds(lambda: refined(text, starts))

    assert seconds(24_000) < 20 * seconds(3_000)


def test_particles_before_a_name_cost_no_more_for_each() -> None:
    def seconds(num: int) -> float:
        text, starts = "So it was: " + "De " * num, [11 + 3 * number for number in range(num)]
        return processor_seconds(lambda: refined(text, starts))

    assert seconds(8_000) < 20 * seconds(1_000)


def test_hyphens_before_what_is_called_so_are_passed_over() -> None:
    assert refined("A Bard-Parker blade was used.", [2, 7]) == [False, False]
    assert refined("An A-B-C-D-E-F-G-H-I blade was used, Roselstone saw.", [37]) == [True]


def test_an_individual_with_many_record_values_costs_no_more_for_each() -> None:
    def seconds(num: int) -> float:
        phones = pa.array([f"06{number:08d}" for number in range(num)])
        fields, labels = pa.array(["phone"] * num), pa.array(["PHONE"] * num)
        records = _rust.Records(np.zeros(num, dtype=np.uint32), phones, fields, labels)
        texts = pa.array(["So it was."], pa.large_string())
        return processor_seconds(lambda: records.find(texts, np.zeros(1, dtype=np.uint32), num_threads=1))

    assert seconds(4_000) < 20 * seconds(500)


def test_full_names_that_share_their_first_names_cost_no_more_for_each() -> None:
    def seconds(num: int) -> float:
        names = [f"Maria del Carmen Roselstone{number}" for number in range(num)]
        gazetteer = _rust.Gazetteer(pa.array(names), pa.array(["NAME"] * num))
        texts = pa.array([f"So {names[3]} came, and Maria del Carmen left. " * 500], pa.large_string())
        assert pa.record_batch(gazetteer.find(texts)).num_rows == 500
        return processor_seconds(lambda: gazetteer.find(texts, num_threads=1))

    assert seconds(8_000) < 3 * seconds(1_000)


def test_names_beside_characters_of_several_pieces_cost_no_more_for_each() -> None:
    def seconds(num: int) -> float:
        text = (
            "Roselstone, " * num
            + "\N{VULGAR FRACTION ONE HALF}" * 8 * num
            + "a"
            + "\N{COMBINING ACUTE ACCENT}" * 8 * num
        )
        starts = np.arange(0, 12 * num, 12, dtype=np.int32)
        of_names = (np.zeros(num, dtype=np.uint32), np.ones(num, dtype=np.uint8), np.ones(num, dtype=np.uint8))
        spans = (np.array([0, num]), starts, starts + 10, *of_names, of_names[0])
        texts, units = pa.array([text], pa.large_string()), np.zeros(1, dtype=np.uint32)
        return processor_seconds(lambda: _rust.Surfaces().add(texts, units, *spans, num_threads=1))

    assert seconds(2_000) < 20 * seconds(250)
