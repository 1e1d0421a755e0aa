"""Who could learn something from a model, and which test stands for each; its name comes after its meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reticent.audit.dossier.facts import Told
    from reticent.audit.dossier.models import ShownModel

__all__ = ["ADVERSARIES", "Adversary", "Test", "tests_not_made"]


@dataclass(frozen=True, slots=True)
class Test:
    """One attack: its meaning in plain words, its name in the evidence, and whether the run made it."""

    __test__ = False  # no test of pytest

    meaning: str
    name: str
    made: Callable[[Told], bool]
    #: Section or setting of the job that makes it.
    by: str


@dataclass(frozen=True, slots=True)
class Adversary:
    """The means of an adversary, and the tests that represent this adversary."""

    title: str
    has: str
    tests: tuple[Test, ...]


def _any(test: Callable[[ShownModel], object]) -> Callable[[Told], bool]:
    return lambda told: any(bool(test(model)) for model in told.models)


def _attacked(*names: str) -> Callable[[Told], bool]:
    return _any(lambda model: any(name in model.evidence.membership for name in names))


SHADOWS = ("shadow", "lira_online", "lira_offline", "lira_sequence", "rmia", "rmia_online")

ADVERSARIES = (
    Adversary(
        "One who can put questions to the model",
        "its answers, and nothing else (black box)",
        (
            Test(
                "asks for the details of a person whose name is known",
                "ProPILE",
                lambda told: told.audit.probe is not None,
                "[probe]",
            ),
            Test(
                "lets it write, and looks for identifiers",
                "generation",
                _any(lambda m: m.evidence.generated),
                "[audit.generation]",
            ),
            Test(
                "lets it continue a person’s document, and sees how many runs of its words come back",
                "n-gram coverage",
                _attacked("ngram_coverage"),
                "[audit.generation]",
            ),
            Test(
                "gives the beginning of a passage, and sees whether the rest comes back",
                "extraction",
                _any(lambda m: m.extracted and m.extracted.passages),
                "[extraction]",
            ),
        ),
    ),
    Adversary(
        "One who has the files of the model",
        "all that it computes, for any text (white box)",
        (
            Test(
                "reads off every word that it predicts, wherever it is asked",
                "Privacy, excess leakage",
                _any(lambda m: m.evidence.excess),
                "the audit itself",
            ),
            Test(
                "looks at what training has moved in its files",
                "embedding shift",
                _any(lambda m: m.evidence.inversion and m.evidence.inversion.embedding_shift),
                "[audit.inversion]",
            ),
            Test(
                "trains a short instruction that makes it answer about people",
                "soft prompt",
                lambda told: (
                    any(model.soft_prompts for model in told.audit.probe.models) if told.audit.probe else False
                ),
                "[probe.soft_prompt]",
            ),
        ),
    ),
    Adversary(
        "One who knows documents of a person",
        "a text, and the question whether it was trained on",
        (
            Test(
                "sees how easily the model predicts the text",
                "loss, reference, min-k and others",
                _any(lambda m: m.evidence.membership),
                "audit.attacks",
            ),
            Test(
                "shows it the text with gaps first, and sees how little that helps",
                "in-context probing",
                _attacked("icp"),
                "audit.attacks",
            ),
            Test(
                "trains models of their own, with the person and without, and compares",
                "LiRA, RMIA",
                lambda told: (
                    _attacked(*SHADOWS)(told)
                    or any("lira" in kind.attacks for m in told.models for kind in (m.evidence.by_kind or {}).values())
                ),
                "[audit.shadow]",
            ),
            Test(
                "has other documents of the person, which were never trained on",
                "user inference",
                _attacked("user_inference", "user_inference_shadows"),
                "split.user_inference_holdout",
            ),
        ),
    ),
    Adversary(
        "One who knows a relation",
        "a name and what may belong to it, or a part of the documents",
        (
            Test(
                "asks whether a name makes an illness likelier than another name does",
                "association",
                _any(lambda m: m.evidence.inversion and m.evidence.inversion.association),
                "[audit.inversion]",
            ),
            Test(
                "asks which of many names belongs into a text",
                "inversion",
                _any(lambda m: m.evidence.inversion and (m.evidence.inversion.direct or m.evidence.inversion.indirect)),
                "[audit.inversion]",
            ),
            Test(
                "has the documents of all others who use a rare word, and asks the model for that word",
                "threshold",
                _any(lambda m: m.evidence.threshold),
                "the audit itself",
            ),
            Test(
                "has a part of the documents, and looks who has rare words that the model predicts",
                "low-cost membership",
                _any(lambda m: m.evidence.low_cost),
                "audit.graph_shares",
            ),
        ),
    ),
)


def tests_not_made(told: Told) -> Iterator[tuple[Adversary, Test]]:
    """Yield the tests that the run did not make."""
    for adversary in ADVERSARIES:
        for test in adversary.tests:
            if not test.made(told):
                yield adversary, test
