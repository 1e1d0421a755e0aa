"""A transformers model whose generated texts are checked by a guard before they are shown."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from reticent.core.errors import PolicyError
from reticent.ext.guard.texts import NOTICE, Guard, GuardedText, Policy, check_policy


class GuardedModel:
    """A transformers model whose ``generate`` returns guarded texts.

    Parameters
    ----------
    model, tokenizer
        As of transformers; the model decodes with a language model's head, with or without an encoder.
    guard : Guard
    policy : {"block", "redact", "stop"}
    """

    def __init__(self, model: Any, tokenizer: Any, guard: Guard, *, policy: Policy = "block", notice: str = NOTICE):
        check_policy(policy)
        self.model, self.tokenizer, self.guard = model, tokenizer, guard
        self.policy, self.notice = policy, notice

    def generate(self, input_ids: Any, **options: Any) -> list[GuardedText]:
        """Generate texts with the model, and return each with what the guard found in it and removed from it.

        With one beam and policy "block" or "stop" a text is not generated on once a match is complete.

        Raises
        ------
        PolicyError
            A streamer is given: it would show text before the check.
        """
        num_prompt = self._num_prompt_tokens(input_ids, options)
        if self.policy != "redact" and self._setting("num_beams", options) == 1:
            criteria = _criteria_list(_Complete(self, num_prompt), options.get("stopping_criteria"))
            options["stopping_criteria"] = criteria
        output = self.model.generate(input_ids, **options)
        sequences = getattr(output, "sequences", output)
        texts = [self._decode(row[num_prompt:].tolist()) for row in sequences]
        return self.guard.apply(texts, self.policy, notice=self.notice)

    def stream(self, input_ids: Any, **options: Any) -> Iterator[str]:
        """Generate one text, and yield it in parts as soon as the guard allows them to be shown.

        Raises
        ------
        PolicyError
            Several texts or beams are asked for, or a streamer is given.
        """
        from transformers import TextIteratorStreamer

        self._num_prompt_tokens(input_ids, options)
        if len(input_ids) != 1 or any(
            self._setting(name, options) != 1 for name in ("num_beams", "num_return_sequences")
        ):
            raise PolicyError("guard: a stream is of one text, of one beam")
        chunks = TextIteratorStreamer(self.tokenizer, skip_prompt=True, **self._decode_options())
        reader = self.guard.stream(self.policy, notice=self.notice)
        ended = _Ended()
        options["stopping_criteria"] = _criteria_list(ended, options.get("stopping_criteria"))
        failed: list[BaseException] = []

        def work() -> None:
            """Generate in the background thread; store an error for the main thread."""
            try:
                self.model.generate(input_ids, streamer=chunks, **options)
            except BaseException as error:
                failed.append(error)
                chunks.end()

        thread = threading.Thread(target=work, name="reticent-generate", daemon=True)
        thread.start()
        try:
            for chunk in chunks:
                if shown := reader.push(chunk):
                    yield shown
                if reader.ended:
                    break
            if failed:
                raise failed[0]
            if shown := reader.finish():
                yield shown
        finally:
            ended.set()
            thread.join()

    def _num_prompt_tokens(self, input_ids: Any, options: dict[str, Any]) -> int:
        """Return the number of prompt tokens at the beginning of each output. Raise `PolicyError` for a streamer, which
        would show text unchecked.
        """
        if options.get("streamer") is not None:
            raise PolicyError("guard: a streamer would show text before it is checked; use GuardedModel.stream")
        return 0 if self.model.config.is_encoder_decoder else int(input_ids.shape[1])

    def _decode_options(self) -> dict[str, Any]:
        """Return the options of the tokenizer's ``decode``."""
        return {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}

    def _decode(self, ids: list[int]) -> str:
        """Return the text of token ids, without special tokens."""
        return self.tokenizer.decode(ids, **self._decode_options())

    def _setting(self, name: str, options: dict[str, Any]) -> int:
        """Return an integer generation setting (``num_beams``, say) from the options, else from the model's
        configuration, else 1.
        """
        config = options.get("generation_config") or self.model.generation_config
        return int(options.get(name) or getattr(config, name, None) or 1)


class _Ended(threading.Event):
    """Stopping criterion: stops every text once it is set."""

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        import torch

        return torch.full((len(input_ids),), self.is_set(), dtype=torch.bool, device=input_ids.device)


@dataclass(slots=True)
class _Row:
    """Decoding state of one text: ids before ``read`` have been passed on; decoding starts at ``prefix``."""

    stream: Any
    ids: list[int] = field(default_factory=list)
    prefix: int = 0
    read: int = 0
    complete: bool = False


class _Complete:
    """Stopping criterion: stops each text that contains a complete match."""

    def __init__(self, model: GuardedModel, num_prompt: int):
        self.model, self.num_seen = model, num_prompt
        self.rows: list[_Row] = []

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        import torch

        new = input_ids[:, self.num_seen :].tolist()
        self.num_seen = input_ids.shape[1]
        self.rows = self.rows or [_Row(self.model.guard.verbatim.stream()) for _ in new]
        for row, ids in zip(self.rows, new, strict=True):
            if not row.complete:
                self._read(row, ids)
        return torch.tensor([row.complete for row in self.rows], device=input_ids.device)

    def _read(self, row: _Row, ids: list[int]) -> None:
        """Decode the new token ids of a generated text. Mark the text as complete, so that generation stops, once it
        contains a verbatim passage of training text.
        """
        row.ids += ids
        text = self.model._decode(row.ids[row.prefix :])
        if text.endswith("\ufffd"):  # half a character
            return
        before = self.model._decode(row.ids[row.prefix : row.read])
        row.prefix, row.read = row.read, len(row.ids)
        row.complete = bool(row.stream.push(text[len(before) :])) or row.stream.open is not None


def _criteria_list(ours: Any, given: Any) -> Any:
    """Return one list of stopping criteria: those of the caller (``given``), then ``ours``."""
    from transformers import StoppingCriteriaList

    return StoppingCriteriaList([*(given or []), ours])
