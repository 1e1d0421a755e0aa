"""The output guard: finds training text and identifiers in generated texts, finished or streamed, before they are
shown.

:class:`Guard` checks finished texts; :class:`GuardStream` reads text as it is generated and holds back what may still
become part of a match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from reticent.core.errors import PolicyError
from reticent.engine.detect import make_detectors
from reticent.engine.detect.detector import find_in_texts
from reticent.engine.detect.labels import category
from reticent.engine.verbatim import open_verbatim, require_guard

if TYPE_CHECKING:
    from reticent._rust import VerbatimFilter
    from reticent.engine.detect import Detector

Policy = Literal["block", "redact", "stop"]
POLICIES = ("block", "redact", "stop")
NOTICE = "[withheld]"
VERBATIM = "VERBATIM"
#: Detectors that find an individual's own fields, in the individual's own documents.
OWN = ("gold", "records")
#: Characters that a stream holds back for the detectors: the longest identifier that is found whole.
HELD_BACK = 200
#: Detectors that read annotations, must know the individual of a document, or read a corpus and what others find in it.
_NEED_MORE = frozenset({"gold", "records", "learned"})


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A span found in generated text: character offsets (end exclusive), category, detector; never the text."""

    start: int
    end: int
    category: str
    detector: str


@dataclass(frozen=True, slots=True)
class GuardedText:
    """The part of one generated text that may be shown, and the findings, with offsets in the original."""

    text: str
    findings: tuple[Finding, ...]


class Guard:
    """Finds verbatim training text and direct identifiers in generated text.

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
        """Return the verbatim training text and the identifiers found in each text, sorted by offset; they
        may overlap.
        """
        if isinstance(texts, str):  # whose letters would be texts in which nothing is found
            raise PolicyError("guard: expected a list of texts, got one text")
        column = pa.array(texts, pa.large_string())
        found: list[list[Finding]] = [[] for _ in texts]
        table = pa.record_batch(self.verbatim.find(column))
        for row in table.to_pylist():
            found[row["document"]].append(Finding(row["start"], row["end"], VERBATIM, "verbatim"))
        for number, findings in enumerate(self._find_identifiers(column)):
            found[number] = sorted(found[number] + findings)
        return found

    def apply(self, texts: Sequence[str], policy: Policy = "block", *, notice: str = NOTICE) -> list[GuardedText]:
        """Return each text as it may be shown under the policy (blocked, redacted or cut off), with its findings."""
        check_policy(policy)
        return [
            GuardedText(self._apply_policy(text, findings, policy, notice), tuple(findings))
            for text, findings in zip(texts, self.find(texts), strict=True)
        ]

    def stream(self, policy: Policy = "block", *, notice: str = NOTICE) -> GuardStream:
        """Return a `GuardStream`, which takes one generated text in chunks and returns what may be shown under
        ``policy`` (block, redact or stop); ``notice`` is the text shown in place of blocked text.
        """
        return GuardStream(self, policy, notice)

    def _apply_policy(self, text: str, findings: Sequence[Finding], policy: Policy, notice: str) -> str:
        """Return a text as it may be shown under the policy, given its findings."""
        if not findings:
            return text
        if policy == "block":
            return notice
        if policy == "stop":
            return text[: findings[0].start]
        shown = _redact(text, findings)
        # A tag may complete a stretch of training text that holds such tags itself.
        return shown if self._is_clean(shown) else notice

    def _is_clean(self, text: str) -> bool:
        """Return whether a text holds no verbatim training text."""
        return pa.record_batch(self.verbatim.find(pa.array([text], pa.large_string()))).num_rows == 0

    def _find_identifiers(self, texts: pa.Array) -> list[list[Finding]]:
        """Return the identifiers that the detectors find in each text."""
        found: list[list[Finding]] = [[] for _ in range(len(texts))]
        for row in find_in_texts(self.detectors, texts).to_pylist():
            finding = Finding(row["start"], row["end"], category(row["label"]), row["detector"])
            found[row["document"]].append(finding)
        return found


class GuardStream:
    """Guards one text that arrives in chunks: what `push` returns may be shown at once.

    Held back is what may still become part of a match: at most one character less than its length, and from
    `HELD_BACK` to twice that where there are detectors.
    """

    def __init__(self, guard: Guard, policy: Policy = "block", notice: str = NOTICE):
        check_policy(policy)
        self.guard, self.policy, self.notice = guard, policy, notice
        self.findings: list[Finding] = []
        #: Nothing more comes out.
        self.ended = False
        self._verbatim, self._shown = guard.verbatim.stream(), guard.verbatim.stream()
        #: Text not yet shown, before it up to `HELD_BACK` characters that are; where both begin in the whole text.
        self._text, self._first, self._next = "", 0, 0
        self._matches: list[tuple[int, int]] = []

    def push(self, chunk: str) -> str:
        """Add a chunk of generated text; return the text that may now be shown."""
        if self.ended:
            return ""
        self._matches += self._verbatim.push(chunk)
        self._text += chunk
        limit = self._verbatim.pending
        if self.policy != "redact" and (self._matches or self._verbatim.open):
            return self._take_guarded_text(limit)
        if self.guard.detectors:
            limit = min(limit, self._first + len(self._text) - HELD_BACK)
            if limit - self._next < HELD_BACK:
                return ""
        return self._take_guarded_text(limit)

    def finish(self) -> str:
        """Return the remaining text that may be shown; call it once at the end."""
        if self.ended:
            return ""
        shown = self._take_guarded_text(self._first + len(self._text))
        self.ended = True
        return shown

    def _take_guarded_text(self, limit: int) -> str:
        """Return the text between what was shown already and offset ``limit``, blocked, redacted or cut off by the
        policy. It ends before a finding (identifier or training text) that goes beyond ``limit``.
        """
        matches = [*self._matches, *([self._verbatim.open] if self._verbatim.open else [])]
        found = [Finding(start, end, VERBATIM, "verbatim") for start, end in matches]
        if self.guard.detectors:
            (inside,) = self.guard._find_identifiers(pa.array([self._text], pa.large_string()))
            found += [Finding(f.start + self._first, f.end + self._first, f.category, f.detector) for f in inside]
        found = sorted(finding for finding in found if finding.end > self._next)
        whole = limit == self._first + len(self._text)
        for finding in reversed(_merge_overlaps(found)):  # what is cut in two is shown later, or not at all
            if finding.end > limit > finding.start and not whole:
                limit = finding.start
        ready = [finding for finding in found if finding.start < limit]
        if self.policy != "redact" and found:
            return self._end_at_finding(found)
        self.findings += ready
        clipped = [
            Finding(max(f.start, self._next) - self._next, min(f.end, limit) - self._next, f.category, f.detector)
            for f in ready
        ]
        text = self._text[self._next - self._first : max(limit, self._next) - self._first]
        shown = _redact(text, clipped)
        self._drop_shown(max(limit, self._next))
        return self._replace_verbatim(shown)

    def _end_at_finding(self, findings: list[Finding]) -> str:
        """End the stream at the first of the findings. Return the text before it, with the notice if the policy is
        "block"."""
        self.findings += findings
        self.ended = True
        text = self._text[self._next - self._first : max(findings[0].start, self._next) - self._first]
        return self._replace_verbatim(text) + (self.notice if self.policy == "block" else "")

    def _replace_verbatim(self, text: str) -> str:
        """Return the notice instead of ``text`` if this text, appended to what was shown before, would complete a
        passage copied from the training documents; else return ``text``.
        """
        if self._shown.push(text) or self._shown.open:
            self.ended = True
            return self.notice
        return text

    def _drop_shown(self, shown: int) -> None:
        """Drop the text before offset ``shown`` from memory, except the part that detectors still need as context."""
        self._next = shown
        self._matches = [match for match in self._matches if match[1] > shown]
        keep = max(shown - HELD_BACK, self._first) if self.guard.detectors else shown
        self._text, self._first = self._text[keep - self._first :], keep


def open_guard(path: Path | str, detectors: Sequence[Detector] | None = None) -> Guard:
    """Open a guard written by ``reticent guard build``, with these detectors (None: those it was built with).

    Raises
    ------
    ArtifactError
        There is no guard, or it is not what was written.
    """

    verbatim = open_verbatim(path)
    if detectors is None:
        options = built_detectors(path)
        detectors = make_detectors(list(options), options, num_threads=1)
    return Guard(verbatim, detectors)


def built_detectors(path: Path | str) -> dict[str, dict[str, Any]]:
    """Return the detectors that a guard was built with: detector name -> options."""

    return dict(require_guard(path).config.get("detect") or {"rules": {}})


def guard_detectors(names: Sequence[str], options: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return detector name -> options, without detectors that need more than a text; ``rules`` if none is left.

    ``options`` are of the detectors that have some.
    """
    return {name: dict(options.get(name, {})) for name in names if name not in _NEED_MORE} or {"rules": {}}


def refuse_detectors(names: Sequence[str]) -> None:
    """Raise `PolicyError` for a detector that needs more than a text (an individual's records, say)."""
    for name in sorted(_NEED_MORE.intersection(names)):
        raise PolicyError(
            f"guard: detector {name} needs more than a text: generated text is a document of no individual or corpus"
        )


def check_policy(policy: str) -> None:
    """Raise `PolicyError` unless the policy is "block", "redact" or "stop"."""
    if policy not in POLICIES:
        raise PolicyError(f"policy: expected one of {', '.join(POLICIES)}, got {policy!r}")


def _merge_overlaps(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings with overlapping ones merged; the first one's category stays, or "verbatim" if any is
    verbatim.
    """
    merged: list[Finding] = []
    for finding in sorted(findings):
        if merged and finding.start < merged[-1].end:
            last = merged[-1]
            name = finding if finding.category == VERBATIM else last
            merged[-1] = Finding(last.start, max(last.end, finding.end), name.category, name.detector)
        else:
            merged.append(finding)
    return merged


def _redact(text: str, findings: Sequence[Finding]) -> str:
    """Return a text with each finding replaced by its category in brackets."""
    parts, at = [], 0
    for finding in _merge_overlaps(findings):
        parts += [text[at : finding.start], f"[{finding.category}]"]
        at = finding.end
    return "".join([*parts, text[at:]])
