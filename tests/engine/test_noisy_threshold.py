"""The noisy threshold: never below k, private word by word, drawn as its probabilities say."""

from __future__ import annotations

import math
import secrets
import stat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fixtures.indexes import build
from hypothesis import given
from hypothesis import strategies as st

from reticent import _rust
from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine.ngrams import NgramIndex
from reticent.engine.noisy_threshold import Noise, noisy_index, read_or_draw_key, unprotected_shares


@given(st.integers(2, 20), st.floats(0.01, 5), st.floats(1e-9, 0.5))
def test_one_user_more_changes_the_odds_by_no_more_than_epsilon_and_delta(k: int, epsilon: float, delta: float) -> None:
    shares = unprotected_shares(k, epsilon, delta, 400)
    assert (shares[:k] == 0).all()
    assert (np.diff(shares) >= 0).all()
    slack, factor = 1e-12, math.exp(epsilon)
    for one, other in ((shares[:-1], shares[1:]), (shares[1:], shares[:-1])):
        assert (one <= factor * other + delta + slack).all()
        assert (1 - one <= factor * (1 - other) + delta + slack).all()


def test_no_greater_share_would_be_private() -> None:
    shares = unprotected_shares(3, 0.7, 0.01, 40)
    for users in range(3, 41):
        before, greater = shares[users - 1], min(shares[users] * 1.001, 1.0)
        if shares[users] < 1:
            assert greater > math.exp(0.7) * before + 0.01 or 1 - before > math.exp(0.7) * (1 - greater) + 0.01


def indexed(num_words: int, users: int) -> NgramIndex:
    text = " ".join(f"w{number}" for number in range(num_words))
    return NgramIndex(build([(text, unit) for unit in range(users)] + [("alone", 0)], max_n=2))


@pytest.mark.parametrize("users", [2, 3, 4])
def test_words_are_protected_as_often_as_the_shares_say_and_never_spared_below_k(users: int) -> None:
    index = indexed(2000, users)
    noisy = noisy_index(index, 2, Noise(1.0, 0.1), bytes(32))
    supports = noisy.words().column("support").to_numpy()
    words = noisy.words().column("word").to_pylist()
    assert words == index.words().column("word").to_pylist()
    assert supports[words.index("alone")] == 1
    spared = (np.delete(supports, words.index("alone")) >= 2).mean()
    expected = unprotected_shares(2, 1.0, 0.1, users)[users]
    assert abs(spared - expected) < 4 * math.sqrt(expected * (1 - expected) / 2000)
    other = noisy_index(index, 2, Noise(1.0, 0.1), b"k" * 32).words().column("support").to_numpy()
    assert (other != supports).any()


def test_a_word_that_is_spared_with_fewer_users_is_spared_with_more() -> None:
    spared = []
    for users in (2, 3, 4, 5):
        table = noisy_index(indexed(500, users), 2, Noise(1.0, 0.1), bytes(32)).words()
        own = zip(table.column("word").to_pylist(), table.column("support").to_pylist(), strict=True)
        spared.append({word for word, support in own if support >= 2})
    assert spared[0] < spared[1] < spared[2] < spared[3]


def test_protection_goes_by_the_noisy_threshold() -> None:
    index = indexed(300, 2)
    noisy = noisy_index(index, 2, Noise(1.0, 0.1), bytes(32))
    texts = index.words().column("word").cast(pa.large_string())
    flags, _ = noisy.protect(texts, _rust.segment(texts, num_threads=1), k=2, n=1)
    assert ((flags > 0) == (noisy.words().column("support").to_numpy() < 2)).all()
    assert 0 < (flags == 0).sum() < 100


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 0.1), (-1, 0.1), (math.inf, 0.1), (1, 0), (1, 1), (math.nan, 0.1)])
def test_parameters_that_mean_nothing_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(PolicyError, match="threshold: expected an epsilon over 0"):
        unprotected_shares(2, epsilon, delta, 5)


def test_a_key_is_drawn_once_and_private(tmp_path: Path) -> None:
    key = read_or_draw_key(tmp_path / "key")
    assert read_or_draw_key(tmp_path / "key") == key != read_or_draw_key(tmp_path / "other")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(ArtifactError, match="32 bytes, got 5"):
        read_or_draw_key(tmp_path / "key")


def test_who_stops_while_a_key_is_drawn_leaves_no_part_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(_: int) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(secrets, "token_bytes", stopped)
        with pytest.raises(KeyboardInterrupt):
            read_or_draw_key(tmp_path / "key")
    assert len(read_or_draw_key(tmp_path / "key")) == 32
