"""Who could learn something from a model, and which test stands for each; its name comes after its meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reticent.audit.dossier.facts import Told
    from reticent.audit.report.risk_text import ShownModel

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
        "adversaries.one_who_can_put_questions_to_the_model",
        "adversaries.its_answers_and_nothing_else_black_box",
        (
            Test(
                "adversaries.asks_for_the_details_of_a_person_whose",
                "ProPILE",
                lambda told: told.audit.probe is not None,
                "adversaries.probe",
            ),
            Test(
                "adversaries.lets_it_write_and_looks_for_identifiers",
                "generation",
                _any(lambda m: m.evidence.generated),
                "adversaries.audit_generation",
            ),
            Test(
                "adversaries.lets_it_continue_a_person_s_document_and",
                "n-gram coverage",
                _attacked("ngram_coverage"),
                "adversaries.audit_generation",
            ),
            Test(
                "adversaries.gives_the_beginning_of_a_passage_and_sees",
                "extraction",
                _any(lambda m: m.extracted and m.extracted.passages),
                "adversaries.extraction",
            ),
        ),
    ),
    Adversary(
        "adversaries.one_who_has_the_files_of_the_model",
        "adversaries.all_that_it_computes_for_any_text_white",
        (
            Test(
                "adversaries.reads_off_every_word_that_it_predicts",
                "Privacy, excess leakage",
                _any(lambda m: m.evidence.excess),
                "adversaries.the_audit_itself",
            ),
            Test(
                "adversaries.looks_at_what_training_has_moved_in_its",
                "embedding shift",
                _any(lambda m: m.evidence.inversion and m.evidence.inversion.embedding_shift),
                "adversaries.audit_inversion",
            ),
            Test(
                "adversaries.trains_a_short_instruction_that_makes_it",
                "soft prompt",
                lambda told: (
                    any(model.soft_prompts for model in told.audit.probe.models) if told.audit.probe else False
                ),
                "adversaries.probe_soft_prompt",
            ),
        ),
    ),
    Adversary(
        "adversaries.one_who_knows_documents_of_a_person",
        "adversaries.a_text_and_the_question_whether_it_was",
        (
            Test(
                "adversaries.sees_how_easily_the_model_predicts_the_text",
                "loss, reference, min-k and others",
                _any(lambda m: m.evidence.membership),
                "adversaries.audit_attacks",
            ),
            Test(
                "adversaries.shows_it_the_text_with_gaps_first_and",
                "in-context probing",
                _attacked("icp"),
                "adversaries.audit_attacks",
            ),
            Test(
                "adversaries.trains_models_of_their_own_with_the_person",
                "LiRA, RMIA",
                lambda told: (
                    _attacked(*SHADOWS)(told)
                    or any("lira" in kind.attacks for m in told.models for kind in (m.evidence.by_kind or {}).values())
                ),
                "adversaries.audit_shadow",
            ),
            Test(
                "adversaries.has_other_documents_of_the_person_which_were",
                "user inference",
                _attacked("user_inference", "user_inference_shadows"),
                "adversaries.split_user_inference_holdout",
            ),
        ),
    ),
    Adversary(
        "adversaries.one_who_knows_a_relation",
        "adversaries.a_name_and_what_may_belong_to_it",
        (
            Test(
                "adversaries.asks_whether_a_name_makes_an_illness",
                "association",
                _any(lambda m: m.evidence.inversion and m.evidence.inversion.association),
                "adversaries.audit_inversion",
            ),
            Test(
                "adversaries.asks_which_of_many_names_belongs_into_a",
                "inversion",
                _any(lambda m: m.evidence.inversion and (m.evidence.inversion.direct or m.evidence.inversion.indirect)),
                "adversaries.audit_inversion",
            ),
            Test(
                "adversaries.has_the_documents_of_all_others_who_use",
                "threshold",
                _any(lambda m: m.evidence.threshold),
                "adversaries.the_audit_itself",
            ),
            Test(
                "adversaries.has_a_part_of_the_documents_and_looks",
                "low-cost membership",
                _any(lambda m: m.evidence.low_cost),
                "adversaries.audit_graph_shares",
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
