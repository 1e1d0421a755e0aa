"""Self-calibration (definitions.md#attacks-that-ask-the-model): a reference model that knows the kind of text, and no
individual.

A reference model shows how hard a document is; the base model never saw such notes. An attacker without notes lets the
model write some, and trains the base on these [@fu2024]. Text generated from the first token alone is no document's
continuation, so neither side is nearer to the reference by the way in which it was made. Causal models only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from reticent.audit.membership.names import CALIBRATION_EPOCHS, CALIBRATION_TEXTS, CALIBRATION_TOKENS
from reticent.audit.scoring.generate import Decoding, generate
from reticent.core.device import autocast, pick_device
from reticent.engine.randomness import generator
from reticent.trainer.models import max_positions
from reticent.trainer.windows import SpecialIds

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Texts in a batch, and the learning rate of AdamW.
BATCH, LEARNING_RATE = 16, 1e-4
_STREAM = 89


def train_on_written(
    model: PreTrainedModel,
    base: PreTrainedModel,
    special: SpecialIds,
    *,
    batch_size: int,
    device: str,
    bf16: str,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> PreTrainedModel:
    """Fine-tune ``base`` in place on texts that ``model`` generates without a prompt; return it as a reference model
    for membership attacks.

    Parameters
    ----------
    progress : called with the texts written or read so far, and their total

    Cost: `CALIBRATION_TEXTS` texts are written, and read `CALIBRATION_EPOCHS` times with a backward pass.
    """
    where, total = pick_device(device), CALIBRATION_TEXTS * (1 + CALIBRATION_EPOCHS)

    def report_progress(done: int) -> None:
        """Report to ``progress`` that ``done`` of ``total`` texts are written or read."""
        if progress:
            progress(done, total)

    made = generate(
        model, [np.empty(0, dtype=np.int64)] * CALIBRATION_TEXTS, special=special, decoding=Decoding(),
        num_tokens=min(CALIBRATION_TOKENS, max_positions(model) - 1), batch_size=batch_size, seed=seed, device=device,
        bf16=bf16, progress=report_progress,
    )[:, 0]  # fmt: skip
    ids_NT = torch.from_numpy(np.insert(made, 0, special.prefix or 0, axis=1))
    net: Any = base.to(device=where).eval()  # type: ignore  # no dropout: the same reference each time
    steps, random = torch.optim.AdamW(net.parameters(), lr=LEARNING_RATE), generator(seed, _STREAM)
    for epoch in range(CALIBRATION_EPOCHS):
        for rows in np.array_split(random.permutation(len(made)), -(-len(made) // BATCH)):
            ids_BT = ids_NT[rows].to(where)
            with autocast(bf16, where):
                loss = net(input_ids=ids_BT, labels=ids_BT).loss
            steps.zero_grad(set_to_none=True)
            loss.backward()
            steps.step()
        report_progress(len(made) * (epoch + 2))
    return base
