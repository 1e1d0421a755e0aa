"""Protected tokens in other trainers: datasets and collators for transformers, TRL and accelerate, and their guard.

>>> dataset = run.dataset("ppclm")                                          # doctest: +SKIP
>>> trainer = Trainer(model, args, train_dataset=dataset, data_collator=ProtectedCollator(dataset))  # doctest: +SKIP
>>> guard_trainer(trainer, ledger="guarded.json")                           # doctest: +SKIP
>>> trainer.train()    # stops before a step that would teach a protected token   # doctest: +SKIP
>>> verify_guarded("guarded.json", dataset).holds    # its targets, looked up in the dataset   # doctest: +SKIP
"""

from __future__ import annotations

from reticent.ext.trainers.chat import chat_dataset, text_of_turns
from reticent.ext.trainers.dataset import (
    PERMITTED,
    PROTECTED,
    TOKEN_INDEX,
    ProtectedCollator,
    protected_dataset,
    with_permitted,
)
from reticent.ext.trainers.guard import TargetGuard, guard_model, guard_trainer
from reticent.ext.trainers.verify import verify_guarded

__all__ = [
    "PERMITTED",
    "PROTECTED",
    "TOKEN_INDEX",
    "ProtectedCollator",
    "TargetGuard",
    "chat_dataset",
    "guard_model",
    "guard_trainer",
    "protected_dataset",
    "text_of_turns",
    "verify_guarded",
    "with_permitted",
]
