"""Areas of the likelihood attacks against a plain computation: one text at a time, torch and loops, no code of ours."""

from __future__ import annotations

import itertools
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.stores import make_store
from transformers import GPT2Config, GPT2LMHeadModel

from reticent.audit.membership.attacks import ATTACKS, attack
from reticent.audit.scoring.scores import score_models
from reticent.trainer.windows import SpecialIds

pytestmark = pytest.mark.usefixtures("one_thread")

VOCAB, NUM_TEXTS = 97, 40


def fine_tuned(texts: list[list[int]], members: np.ndarray) -> tuple[Any, Any]:
    """A small model a little fine-tuned on the members' texts, and what it was before."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCAB, n_embd=32, n_layer=1, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=1
    )
    base, model = GPT2LMHeadModel(config).eval(), GPT2LMHeadModel(config).eval()
    model.load_state_dict(base.state_dict())
    for _ in range(2):
        for text in itertools.compress(texts, members):
            model.zero_grad()
            ids = torch.tensor([[1, *text]])
            model(input_ids=ids, labels=ids).loss.backward()
            with torch.no_grad():
                for weights in model.parameters():
                    weights -= 0.01 * weights.grad
    return model, base


@torch.no_grad()
def plain_scores(model: Any, base: Any, text: list[int]) -> dict[str, float]:
    ids = torch.tensor([[1, *text]])
    log_p, base_log_p = (torch.log_softmax(m.double()(ids).logits[0, :-1], -1) for m in (model, base))
    own, before, above = [], [], []
    for place, token in enumerate(text):
        own.append(log_p[place, token].item())
        before.append(base_log_p[place, token].item())
        p = log_p[place].exp()
        mean = (p * log_p[place]).sum()
        spread = ((p * log_p[place] ** 2).sum() - mean**2).sqrt()
        above.append(((log_p[place, token] - mean) / spread).item())
    lowest = max(1, len(text) // 5)
    return {
        "loss": sum(own) / len(own),
        "zlib": sum(own) / len(zlib.compress(bytes(text))),
        "reference": sum(own) / len(own) - sum(before) / len(before),
        "min_k": sum(sorted(own)[:lowest]) / lowest,
        "min_k_plus_plus": sum(sorted(above)[:lowest]) / lowest,
    }


def plain_area(members: list[float], others: list[float]) -> float:
    return sum((a > b) + 0.5 * (a == b) for a in members for b in others) / (len(members) * len(others))


def test_areas_equal_those_of_a_plain_computation() -> None:
    random = np.random.default_rng(7)
    texts = [random.integers(2, VOCAB, random.integers(3, 50)).tolist() for _ in range(NUM_TEXTS)]
    members = np.arange(NUM_TEXTS) % 2 == 0
    model, base = fine_tuned(texts, members)
    store = make_store(*([(token, place, 0) for place, token in enumerate(text)] for text in texts))
    special = SpecialIds(prefix=1, suffix=None, pad=0, mask=None)
    target, before = score_models([model, base], "clm", store, special, window_length=64, batch_size=7, device="cpu")
    sizes = np.array([len(zlib.compress(bytes(text))) for text in texts])
    plain = [plain_scores(model, base, text) for text in texts]
    areas = {}
    for name in plain[0]:
        measured = attack(
            ATTACKS[name].score(target, before, sizes), store.individual, members, num_bootstrap=20, seed=0
        ).auc.value
        sides = ([own[name] for own, member in zip(plain, members, strict=True) if member == side]
                 for side in (True, False))  # fmt: skip
        expected = plain_area(*sides)
        assert measured == pytest.approx(expected, abs=1e-3), name
        assert 0 < expected < 1, name  # there is something to get wrong
        areas[name] = expected
    assert min(areas["loss"], areas["reference"], areas["min_k_plus_plus"]) > 0.6
