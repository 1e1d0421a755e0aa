"""Guard: generated text is checked before it is shown.

Two things must not get out: a stretch of training text of 50 characters or more, and a direct identifier that the
detectors know. :class:`Guard` finds both in finished texts; :class:`GuardStream` reads text as it comes and lets none
out that may still become part of a match; :class:`GuardedModel` wraps ``generate`` of transformers.

Three policies. "block": a text with a finding is replaced by a notice. "redact": each finding is replaced by its
category in brackets. "stop": the text ends before its first finding. What leaves by any of them is checked once more,
since a tag may complete what was cut out, and holds no such stretch. Only what is generated is read, not the prompt.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from reticent.core.errors import PolicyError
from reticent.engine.detect.labels import category
from reticent.engine.schema import DOCUMENTS

if TYPE_CHECKING:
    from reticent._rust import VerbatimFilter
    from reticent.engine.detect import Detector

__all__ = [
    "POLICIES",
    "Finding",
    "Guard",
    "GuardStream",
    "GuardedModel",
    "GuardedText",
    "built_detectors",
    "guard_detectors",
    "open_guard",
    "refuse_detectors",
]

Policy = Literal["block", "redact", "stop"]
POLICIES = ("block", "redact", "stop")
NOTICE = "[withheld]"
VERBATIM = "VERBATIM"
#: Detectors that find an individual's own fields, in the individual's own documents.
OWN = ("gold", "records")
#: Characters that a stream holds back for the detectors: the longest identifier that is found whole.
HELD_BACK = 200
#: Detectors that read annotations, or must know the individual of a document.
_NEED_MORE = frozenset({"gold", "records"})


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Kind and place of a finding (characters, end exclusive); never the text itself."""

    start: int
    end: int
    category: str
    detector: str


@dataclass(frozen=True, slots=True)
class GuardedText:
    """The part of one generated text that may be shown, and the places of the findings in the original."""

    text: str
    findings: tuple[Finding, ...]


class Guard:
    """Finds verbatim training text and direct identifiers.

    Parameters
    ----------
    verbatim : VerbatimFilter
        Index of the training documents (:mod:`reticent.engine.verbatim`).
    detectors : sequence of Detector
        Those that need nothing but the text; none: verbatim matches only.
    """

    def __init__(self, verbatim: VerbatimFilter, detectors: Sequence[Detector] = ()):
        self.verbatim, self.detectors = verbatim, tuple(detectors)
        needed = {column for detector in self.detectors for column in detector.columns} - {"doc_id", "text"}
        if needed:
            raise PolicyError(f"guard: generated text has no {', '.join(sorted(needed))}, which a detector needs")
        if any(detector.name in OWN for detector in self.detectors):
            raise PolicyError(
                "guard: generated text is a document of no individual, so a detector of known records would find "
                "nothing in it; list the names for a gazetteer"
            )

    def find(self, texts: Sequence[str]) -> list[list[Finding]]:
        """Return the findings in each text, ordered; those of different detectors may overlap."""
        column = pa.array(texts, pa.large_string())
        found: list[list[Finding]] = [[] for _ in texts]
        table = pa.record_batch(self.verbatim.find(column))
        for row in table.to_pylist():
            found[row["document"]].append(Finding(row["start"], row["end"], VERBATIM, "verbatim"))
        for number, findings in enumerate(self._identifiers(column)):
            found[number] = sorted(found[number] + findings)
        return found

    def apply(self, texts: Sequence[str], policy: Policy = "block", *, notice: str = NOTICE) -> list[GuardedText]:
        """Return what may be shown of each text."""
        _check(policy)
        return [
            GuardedText(self._shown(text, findings, policy, notice), tuple(findings))
            for text, findings in zip(texts, self.find(texts), strict=True)
        ]

    def stream(self, policy: Policy = "block", *, notice: str = NOTICE) -> GuardStream:
        """Return a reader of one text that comes in chunks."""
        return GuardStream(self, policy, notice)

    def _shown(self, text: str, findings: Sequence[Finding], policy: Policy, notice: str) -> str:
        if not findings:
            return text
        if policy == "block":
            return notice
        if policy == "stop":
            return text[: findings[0].start]
        shown = _redacted(text, findings)
        # A tag may complete a stretch of training text that holds such tags itself.
        return shown if self._clean(shown) else notice

    def _clean(self, text: str) -> bool:
        return pa.record_batch(self.verbatim.find(pa.array([text], pa.large_string()))).num_rows == 0

    def _identifiers(self, texts: pa.Array) -> list[list[Finding]]:
        found: list[list[Finding]] = [[] for _ in range(len(texts))]
        names = pa.array([str(number) for number in range(len(texts))], pa.string())
        schema = pa.schema([DOCUMENTS.field(name) for name in ("doc_id", "individual_id", "text")])
        batch = pa.RecordBatch.from_arrays([names, names, texts], schema=schema)
        for detector in self.detectors:
            for row in detector.detect(batch).to_pylist():
                finding = Finding(row["start"], row["end"], category(row["label"]), detector.name)
                found[row["document"]].append(finding)
        return found


class GuardStream:
    """One text that comes in chunks: what is returned may be shown at once.

    Held back is what may still become part of a match: at most one character less than its length, and from
    `HELD_BACK` to twice that where there are detectors.
    """

    def __init__(self, guard: Guard, policy: Policy = "block", notice: str = NOTICE):
        _check(policy)
        self.guard, self.policy, self.notice = guard, policy, notice
        self.findings: list[Finding] = []
        #: Nothing more comes out.
        self.ended = False
        self._verbatim, self._shown = guard.verbatim.stream(), guard.verbatim.stream()
        #: Text not yet shown, before it up to `HELD_BACK` characters that are; where both begin in the whole text.
        self._text, self._first, self._next = "", 0, 0
        self._matches: list[tuple[int, int]] = []

    def push(self, chunk: str) -> str:
        """Read on; returns what may be shown now."""
        if self.ended:
            return ""
        self._matches += self._verbatim.push(chunk)
        self._text += chunk
        limit = self._verbatim.pending
        if self.policy != "redact" and (self._matches or self._verbatim.open):
            return self._show(limit)
        if self.guard.detectors:
            limit = min(limit, self._first + len(self._text) - HELD_BACK)
            if limit - self._next < HELD_BACK:
                return ""
        return self._show(limit)

    def finish(self) -> str:
        """Return the rest of what may be shown."""
        if self.ended:
            return ""
        shown = self._show(self._first + len(self._text))
        self.ended = True
        return shown

    def _show(self, limit: int) -> str:
        """Show up to ``limit``, less what a finding reaches over it."""
        matches = [*self._matches, *([self._verbatim.open] if self._verbatim.open else [])]
        found = [Finding(start, end, VERBATIM, "verbatim") for start, end in matches]
        if self.guard.detectors:
            (inside,) = self.guard._identifiers(pa.array([self._text], pa.large_string()))
            found += [Finding(f.start + self._first, f.end + self._first, f.category, f.detector) for f in inside]
        found = sorted(finding for finding in found if finding.end > self._next)
        whole = limit == self._first + len(self._text)
        for finding in reversed(_merged(found)):  # what is cut in two is shown later, or not at all
            if finding.end > limit > finding.start and not whole:
                limit = finding.start
        ready = [finding for finding in found if finding.start < limit]
        if self.policy != "redact" and found:
            return self._end(found)
        self.findings += ready
        clipped = [
            Finding(max(f.start, self._next) - self._next, min(f.end, limit) - self._next, f.category, f.detector)
            for f in ready
        ]
        text = self._text[self._next - self._first : max(limit, self._next) - self._first]
        shown = _redacted(text, clipped)
        self._advance(max(limit, self._next))
        return self._checked(shown)

    def _end(self, found: list[Finding]) -> str:
        """Show what comes before the first finding, and nothing after it."""
        self.findings += found
        self.ended = True
        text = self._text[self._next - self._first : max(found[0].start, self._next) - self._first]
        return self._checked(text) + (self.notice if self.policy == "block" else "")

    def _checked(self, text: str) -> str:
        """The text, unless it completes a stretch of training text with what was shown before it."""
        if self._shown.push(text) or self._shown.open:
            self.ended = True
            return self.notice
        return text

    def _advance(self, shown: int) -> None:
        self._next = shown
        self._matches = [match for match in self._matches if match[1] > shown]
        keep = max(shown - HELD_BACK, self._first) if self.guard.detectors else shown
        self._text, self._first = self._text[keep - self._first :], keep


class GuardedModel:
    """A model of transformers whose ``generate`` returns guarded texts.

    Parameters
    ----------
    model, tokenizer
        As of transformers; the model decodes with a language model's head, with or without an encoder.
    guard : Guard
    policy : {"block", "redact", "stop"}
    """

    def __init__(self, model: Any, tokenizer: Any, guard: Guard, *, policy: Policy = "block", notice: str = NOTICE):
        _check(policy)
        self.model, self.tokenizer, self.guard = model, tokenizer, guard
        self.policy, self.notice = policy, notice

    def generate(self, input_ids: Any, **options: Any) -> list[GuardedText]:
        """Generate and return what may be shown of each text, in the order of ``model.generate``.

        With one beam and policy "block" or "stop" a text is not generated on once a match is complete.

        Raises
        ------
        PolicyError
            A streamer is given: it would show text before the check.
        """
        num_prompt = self._num_prompt(input_ids, options)
        if self.policy != "redact" and self._setting("num_beams", options) == 1:
            criteria = _criteria_list(_Complete(self, num_prompt), options.get("stopping_criteria"))
            options["stopping_criteria"] = criteria
        output = self.model.generate(input_ids, **options)
        sequences = getattr(output, "sequences", output)
        texts = [self._decode(row[num_prompt:].tolist()) for row in sequences]
        return self.guard.apply(texts, self.policy, notice=self.notice)

    def stream(self, input_ids: Any, **options: Any) -> Iterator[str]:
        """Generate one text and yield what may be shown, as soon as it may.

        Raises
        ------
        PolicyError
            Several texts or beams are asked for, or a streamer is given.
        """
        from transformers import TextIteratorStreamer

        self._num_prompt(input_ids, options)
        if len(input_ids) != 1 or any(
            self._setting(name, options) != 1 for name in ("num_beams", "num_return_sequences")
        ):
            raise PolicyError("guard: a stream is of one text, of one beam")
        chunks = TextIteratorStreamer(self.tokenizer, skip_prompt=True, **self._decoding())
        reader = self.guard.stream(self.policy, notice=self.notice)
        ended = _Ended()
        options["stopping_criteria"] = _criteria_list(ended, options.get("stopping_criteria"))
        failed: list[BaseException] = []

        def work() -> None:
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

    def _num_prompt(self, input_ids: Any, options: dict[str, Any]) -> int:
        if options.get("streamer") is not None:
            raise PolicyError("guard: a streamer would show text before it is checked; use GuardedModel.stream")
        return 0 if self.model.config.is_encoder_decoder else int(input_ids.shape[1])

    def _decoding(self) -> dict[str, Any]:
        return {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}

    def _decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, **self._decoding())

    def _setting(self, name: str, options: dict[str, Any]) -> int:
        """A setting of the generation: given, or the configuration's."""
        config = options.get("generation_config") or self.model.generation_config
        return int(options.get(name) or getattr(config, name, None) or 1)


class _Ended(threading.Event):
    """Stops every text once it is set."""

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        import torch

        return torch.full((len(input_ids),), self.is_set(), dtype=torch.bool, device=input_ids.device)


@dataclass(slots=True)
class _Row:
    """One text that is decoded token by token: text before `read` has been handed on; decoding begins at `prefix`."""

    stream: Any
    ids: list[int] = field(default_factory=list)
    prefix: int = 0
    read: int = 0
    complete: bool = False


class _Complete:
    """Stops each text that holds a match."""

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
        row.ids += ids
        text = self.model._decode(row.ids[row.prefix :])
        if text.endswith("\ufffd"):  # half a character
            return
        before = self.model._decode(row.ids[row.prefix : row.read])
        row.prefix, row.read = row.read, len(row.ids)
        row.complete = bool(row.stream.push(text[len(before) :])) or row.stream.open is not None


def _criteria_list(ours: Any, given: Any) -> Any:
    from transformers import StoppingCriteriaList

    return StoppingCriteriaList([*(given or []), ours])


def open_guard(path: Path | str, detectors: Sequence[Detector] | None = None) -> Guard:
    """Open the guard that ``reticent guard build`` wrote, with these detectors (None: those it was built with).

    Raises
    ------
    ArtifactError
        There is no guard, or it is not what was written.
    """
    from reticent.engine.detect import make_detectors
    from reticent.engine.verbatim import open_verbatim

    verbatim = open_verbatim(path)
    if detectors is None:
        options = built_detectors(path)
        detectors = make_detectors(list(options), options, num_threads=1)
    return Guard(verbatim, detectors)


def built_detectors(path: Path | str) -> dict[str, dict[str, Any]]:
    """Return the detectors that a guard was built with: name -> options."""
    from reticent.core.artifact import require_kind

    return dict(require_kind(Path(path), "guard").config.get("detect") or {"rules": {}})


def guard_detectors(options: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return those detectors of a job that need nothing but a text, with their options; rules where there is none."""
    return {name: dict(table) for name, table in options.items() if name not in _NEED_MORE} or {"rules": {}}


def refuse_detectors(names: Sequence[str]) -> None:
    """Raise `PolicyError` for a detector that needs more than a text."""
    for name in sorted(_NEED_MORE.intersection(names)):
        raise PolicyError(
            f"guard: detector {name} needs more than a text: generated text is a document of no individual"
        )


def _check(policy: str) -> None:
    if policy not in POLICIES:
        raise PolicyError(f"policy: expected one of {', '.join(POLICIES)}, got {policy!r}")


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that do not overlap; of several the first names the whole, a verbatim one before others."""
    merged: list[Finding] = []
    for finding in sorted(findings):
        if merged and finding.start < merged[-1].end:
            last = merged[-1]
            name = finding if finding.category == VERBATIM else last
            merged[-1] = Finding(last.start, max(last.end, finding.end), name.category, name.detector)
        else:
            merged.append(finding)
    return merged


def _redacted(text: str, findings: Sequence[Finding]) -> str:
    parts, at = [], 0
    for finding in _merged(findings):
        parts += [text[at : finding.start], f"[{finding.category}]"]
        at = finding.end
    return "".join([*parts, text[at:]])
