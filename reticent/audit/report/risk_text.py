"""The models and the verdict on each of them in plain words: every recipe explained, and outcomes without names of
attacks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from reticent.audit.config import SUBJECT, WHOLE_PASSAGE
from reticent.audit.judgement.rows import (
    ABOVE,
    BEYOND,
    FEW_DIAGNOSED,
    NO_BASE_PASSAGES,
    NO_HEAD,
    NO_WHOLE_PASSAGES,
    NOT_SHOWN,
    ONE_SIDE,
    PLAIN,
    RISKS,
    TOLD,
    WITHIN,
    advice,
)
from reticent.audit.judgement.verdict import (
    BESIDE_KNOWN,
    BY_CHANCE,
    CANNOT,
    EARLIER,
    FAULT_OF_THE_RUN,
    FEW,
    NOTHING_FOUND,
    OF_SOURCE,
    SIDES_DIFFER,
    UNKNOWN_RECALL,
    UNSURE,
    WIDE,
    WITHOUT_POWER,
    WITHOUT_SHADOWS,
    WITHOUT_TWIN,
)
from reticent.audit.membership.names import CLASSIFIER, TAGGER
from reticent.audit.membership.validity import OVER_BASE, WITHOUT_COPIES
from reticent.audit.recipes import is_elsewhere, is_unprotected, job_recipes, recipe_of, settings_by_section
from reticent.audit.report.selectors import broken_rule
from reticent.audit.stats.seeds import last_checkpoints, passages_over_seeds
from reticent.audit.texts import (
    FOUND,
    NOT_FOUND,
    NOT_MEASURED,
    STATED,
    Mark,
    Marked,
    Texts,
    capital,
    marks_of,
    model_name,
)
from reticent.engine.schema import DIRECT, INDIRECT
from reticent.trainer.recipes import parted_name

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence, ModelEvidence
    from reticent.audit.evidence.extraction import ExtractedModel
    from reticent.audit.evidence.risks import ModelRisks, RiskResult, RiskTable
    from reticent.trainer.recipes import Recipe

# ------------------------------------------------------------------ models

#: Sentences about a recipe. ``{k}``: what fewer than k individuals use identifies them.
NEVER_TARGET = {
    DIRECT | INDIRECT: "verdict.never_trained_to_predict_a_word_that",
    DIRECT: "verdict.never_trained_to_predict_a_name_or_number",
    INDIRECT: "verdict.never_trained_to_predict_a_word_that_fewer",
}
LISTED = {"public": "verdict.targets_of_a_public_list", "private": "verdict.targets_of_a_private_vocabulary"}
OBJECTIVES = {
    "mlm": "verdict.it_fills_in_masked_words_bert_like",
    "clm": "verdict.it_continues_a_text_gpt_like",
    CLASSIFIER: "verdict.it_says_the_class_of_a_document",
    TAGGER: "verdict.it_marks_names_in_a_text",
}
CONTEXTS = {
    "tag": "verdict.names_and_numbers_stand_as_a_tag",
    "surrogate": "verdict.names_and_numbers_stand_as_surrogates",
}
CONTEXTS_INDIRECT = {
    "tag": "verdict.blanks_stand_in_its_texts_for_rare_words",
    "surrogate": "verdict.public_words_other_ones_in_each_epoch_stand",
}


@dataclass(frozen=True, slots=True)
class ShownModel:
    """One trained model at its last checkpoint, as it is printed; several trainings are shown by their means."""

    evidence: ModelEvidence
    risks: ModelRisks | None
    extracted: ExtractedModel | None
    #: Short name in the tables: A, B, … in the order of the audit.
    letter: str
    about: str
    recipe: Recipe | None
    is_unprotected: bool
    #: Whether who reads this cannot train it again.
    is_elsewhere: bool

    @property
    def name(self) -> str:
        """Name of the model in machine-readable marks: recipe and model section."""
        return model_name(self.evidence.recipe, self.evidence.model)

    @property
    def verdict_mark(self) -> Mark:
        """`Mark` (model, risk, number, outcome) of sentences on the overall verdict, for programs."""
        return Mark(self.name, "all", "verdict", self.risks.outcome if self.risks else NOT_SHOWN)

    def mark(self, number: str, outcome: str) -> Mark:
        """Return a machine-readable `Mark` of a statement on this model's training; ``number`` names the figure."""
        return Mark(self.name, "training", number, outcome)

    @property
    def is_twin(self) -> bool:
        """Whether the model is an unprotected twin, with which others are compared."""
        return self.is_unprotected and self.evidence.recipe in PLAIN


def shown_models(audit: AuditEvidence, words: Texts) -> list[ShownModel]:
    """Return the trained models of a published audit at their last checkpoints, in the audit's order, each with its
    verdict, letter and an explanation of its recipe."""
    trained = [model for model in last_checkpoints(audit.every_model, audit.cell) if model.recipe != "base"]
    rows = {(row.model, row.objective, row.recipe): row for row in (audit.risks.rows if audit.risks else ())}
    found = []
    for number, model in enumerate(trained):
        recipe = recipe_of(model.recipe, audit)
        found.append(
            ShownModel(
                evidence=model,
                risks=rows.get((model.model, model.objective, model.recipe)),
                extracted=_last_extraction(model, audit),
                letter=_letter(number),
                about=Marked(
                    _explanation(recipe, model, audit, words),
                    Mark(model_name(model.recipe, model.model), "training", "recipe", STATED),
                ),
                recipe=recipe,
                is_unprotected=is_unprotected(recipe, model),
                is_elsewhere=is_elsewhere(audit),
            )
        )
    return found


def explained(recipe: Recipe, k: int, words: Texts, *, n: int = 1) -> str:
    """Return a sentence that explains what a model trained by this recipe learns to predict and what not. Words and
    n-grams of up to ``n`` words count as rare if fewer than ``k`` individuals use them."""
    parts = []
    if recipe.text == "pseudonymised":
        parts.append(words("verdict.names_and_numbers_that_were_found_were"))
    if recipe.words != "counted" and recipe.never_target & INDIRECT:
        parts.append(words(LISTED[recipe.words]))
        parts += [words("verdict.targets_are_no_name_or_number")] if recipe.never_target & DIRECT else []
    elif recipe.never_target in NEVER_TARGET:
        rare = words("verdict.a_word") if n == 1 else words("verdict.a_word_or_a_sequence", n=n)
        parts.append(words(NEVER_TARGET[recipe.never_target], k=k, rare=rare))
    if recipe.context in CONTEXTS:
        parts.append(words(CONTEXTS[recipe.context]))
    if recipe.context_indirect in CONTEXTS_INDIRECT:
        parts.append(words(CONTEXTS_INDIRECT[recipe.context_indirect]))
    if recipe.goldfish_k is not None:
        parts.append(words("verdict.one_token_in_k_was_left_out_of", k=recipe.goldfish_k))
    if recipe.private:
        parts.append(words("verdict.trained_with_differential_privacy"))
    if not parts and recipe.name in PLAIN:
        parts.append(words("verdict.trained_without_any_protection_made_for"))
    elif not parts:
        parts.append(words("verdict.trained_without_any_protection"))
    return words("verdict.objective_recipe", objective=words(OBJECTIVES[recipe.objective]), recipe=words.apart(parts))


def _explanation(recipe: Recipe | None, model: ModelEvidence, audit: AuditEvidence, words: Texts) -> str:
    """Return the sentence that explains how a model was trained: by its recipe, its starting model, or its origin if
    the recipe is unknown."""
    if model.start is not None:
        made = "verdict.on_top_of_start_protected" if model.protects else "verdict.on_top_of_start"
        start = words("evidence.the_base_model") if model.start == "base" else model.start
        return words(made, objective=words(OBJECTIVES[model.objective]), start=start)
    if recipe is None and is_elsewhere(audit):
        made = "verdict.objective_trained_elsewhere" if model.recipe == SUBJECT else "verdict.objective_copy_of_it"
        return words(made, objective=words(OBJECTIVES[model.objective]), name=model.recipe)
    if recipe is None:
        return words("verdict.objective_its_recipe_is_the_institution_s", objective=words(OBJECTIVES[model.objective]))
    own = job_recipes(audit).get(parted_name(model.recipe)[0])
    of_corpus = {"k": audit.corpus.k, "n": audit.corpus.n}
    given = (
        {name: own[name] for name in of_corpus if isinstance(own.get(name), int)} if isinstance(own, Mapping) else {}
    )
    about = of_corpus | given
    said = explained(recipe, about["k"], words, n=about["n"])
    num = settings_by_section(audit).get(model.model or "", {}).get("repeated")
    return f"{said} {words('verdict.control', num=num)}" if num else said


def _last_extraction(model: ModelEvidence, audit: AuditEvidence) -> ExtractedModel | None:
    """Return a model's extraction results at its last checkpoint, as means over its trainings; None without any."""
    rows = audit.extraction.models if audit.extraction else ()
    found = [row for row in rows if (row.model, row.recipe) == (model.model, model.recipe)]
    last = max((row.epoch or 0 for row in found), default=0)
    return passages_over_seeds([row for row in found if (row.epoch or 0) == last], audit.cell)


def _letter(number: int) -> str:
    """Return the ``number``-th short name of a model: A, B, …, Z, A2, B2, …"""
    return chr(ord("A") + number % 26) + (str(number // 26 + 1) if number >= 26 else "")


# ----------------------------------------------------------------- verdicts

#: Outcome -> (sign, key of its text); the sign carries the outcome without colour.
OUTCOMES = {
    WITHIN: ("✓", "verdict.within_the_threshold"),
    BEYOND: ("✗", "verdict.beyond_the_threshold"),
    NOT_SHOWN: ("?", "verdict.not_shown"),
}
#: Reason in the evidence -> key of its plain text; empty where the outcome says it already.
REASONS = {
    "beyond the threshold": "",
    FEW: "verdict.too_few_people_to_say",
    BY_CHANCE: "verdict.of_so_many_tests_one_is_so_by_chance",
    UNSURE: "verdict.the_estimate_is_beyond_the_threshold_and_its",
    WIDE: "verdict.the_interval_is_too_wide_its_upper_end",
    WITHOUT_TWIN: "verdict.nothing_proves_that_the_test_would_have",
    OF_SOURCE: "verdict.it_is_so_of_its_source",
    NOTHING_FOUND: "verdict.nothing_was_found_over_it",
    WITHOUT_POWER: "verdict.the_test_does_not_find_more_than_the",
    WITHOUT_SHADOWS: "verdict.no_attack_with_shadow_models_was_made_on",
    NO_HEAD: "evidence.no_head",
    NO_WHOLE_PASSAGES: "evidence.no_whole_passages",
    NO_BASE_PASSAGES: "evidence.no_base_passages",
    FEW_DIAGNOSED: "evidence.few_diagnosed",
    EARLIER: "verdict.an_earlier_audit_of_these_files_found_more",
    BESIDE_KNOWN: "verdict.it_is_a_difference_to_the_base_model_which",
    "its upper end is within the threshold, and the attack succeeds on the twin": "verdict.the_upper_end_is_within",
    "a gate of the job failed": "verdict.a_condition_that_was_set_before_the_tests",
    "a required gate of the job has no power": "verdict.a_condition_that_had_to_be_judged_could",
    CANNOT: "verdict.a_condition_that_had_to_be_judged_cannot",
    "a masked model writes no text": "verdict.a_model_that_fills_in_masked_words_writes",
    "a classifier says no words": "verdict.a_classifier_says_no_words",
    "a tagger says no words": "verdict.a_tagger_says_no_words",
}
#: Risks whose numbers are areas under a curve.
AREAS = ("words", "individual")
NEARLY = re.compile(r"passages that nearly come back, given (\d+) tokens")
PASSAGES = re.compile(r"passages that come back, given (\d+) tokens(?: and ([\d,]+) draws)?")


class Cell(NamedTuple):
    """One risk of one model, as it is printed."""

    title: str
    sign: str
    outcome: str
    relevant: bool
    #: The deciding number, its value and its interval; empty if it may not be published.
    what: str
    value: str
    interval: str
    threshold: str
    reason: str
    mark: Mark
    #: A sentence on the surest finding, if another number decides.
    found: str = ""


def risk_mark(row: ModelRisks, result: RiskResult) -> Mark:
    """Return a machine-readable `Mark` that states the outcome of one risk of a model and the figure that decided
    it."""
    return Mark(model_name(row.recipe, row.model), result.risk, result.what or NOT_MEASURED, result.outcome)


def is_found(result: RiskResult) -> bool:
    """Return whether a leak of this risk was measured, whether or not it is beyond the threshold."""
    return result.found is not None or result.outcome == BEYOND


def found_mark(row: ModelRisks, result: RiskResult) -> Mark:
    """Return a machine-readable `Mark` that states whether a leak of this risk was measured on a model, and by which
    figure."""
    number = result.found or result.what or NOT_MEASURED
    return Mark(model_name(row.recipe, row.model), result.risk, number, FOUND if is_found(result) else NOT_FOUND)


def outcome_in_words(result: RiskResult, words: Texts) -> tuple[str, str]:
    """Return (symbol, words) for the outcome of a risk. The words also say so if a leak was measured that is not beyond
    the threshold."""
    sign, outcome = OUTCOMES[result.outcome]
    if result.reason == NOTHING_FOUND and not is_found(result):
        outcome = "verdict.nothing_found"
    if result.outcome != BEYOND and is_found(result):
        outcome = "verdict.found_within" if result.outcome == WITHIN else "verdict.found_not_shown"
    return sign, words(outcome)


def found_in_words(row: ModelRisks, result: RiskResult, words: Texts) -> str:
    """Return a sentence on the figure that shows a leak of this risk most clearly; empty if no leak was measured or if
    that figure already decides the outcome."""
    if result.found is None or result.found == result.what or result.outcome == BEYOND:
        return ""
    return Marked(words("verdict.found", number=found_number(result, words)), found_mark(row, result))


def found_number(result: RiskResult, words: Texts) -> str:
    """Return words for the figure that shows a measured leak of this risk most clearly, with its value or the reason
    why the value is not published."""
    assert result.found is not None
    number, estimate = number_in_words(result.found, words), result.found_estimate
    if estimate is None or estimate.value is None:
        return words("verdict.found_of_too_few", number=number)
    area = result.risk in AREAS and result.found_at_most is None
    value, interval = words.value(estimate, area=area), words.interval(estimate, area=area)
    return words("verdict.found_number", number=number, value=f"{value} ({interval})" if interval else value)


def deciding_marks(row: ModelRisks) -> list[Mark]:
    """Return the `Mark` (model, risk, number, outcome) of each risk that decides the verdict on a model, as its outcome
    equals the verdict; if there is none, that of the verdict itself."""
    found = [risk_mark(row, r) for r in row.results if r.relevant and r.outcome == row.outcome]
    return found or [Mark(model_name(row.recipe, row.model), "all", "verdict", row.outcome)]


class ShownVerdict(NamedTuple):
    """The verdict on one model as it is printed: sign and outcome, the risks, and sentences on the reason and on what
    would change it."""

    model: ShownModel
    sign: str
    outcome: str
    cells: list[Cell]
    reason: tuple[str, str]
    change: str


def verdicts_on(models: Sequence[ShownModel], words: Texts) -> list[ShownVerdict]:
    """Return the verdict on each model with all its texts (outcome, table cells, reasons, what would change it), for
    the page and the terminal."""
    found = []
    for model in models:
        sign, outcome = OUTCOMES[model.risks.outcome if model.risks else NOT_SHOWN]
        cells = list(cells_of(model, words))
        found.append(ShownVerdict(model, sign, words(outcome), cells, reason_of(model, words), change_of(model, words)))
    return found


def note_of_all(table: RiskTable, risk: str) -> str | None:
    """Return the note on a risk that holds of all models alike, which a page shows once, in the risk's head; None
    without one."""
    results = (result for row in table.rows for result in row.results if result.risk == risk)
    return UNKNOWN_RECALL if any(UNKNOWN_RECALL in (result.notes or ()) for result in results) else None


def notes_of_model(result: RiskResult) -> list[str]:
    """Return the notes on a risk of one model, without the one of `note_of_all`."""
    return [note for note in result.notes or () if note != UNKNOWN_RECALL]


def cells_of(model: ShownModel, words: Texts) -> Iterator[Cell]:
    """Yield a table cell for each risk of a model: title, sign, outcome, deciding figure with interval and threshold,
    reason."""
    if model.risks is None:
        return
    for result in model.risks.results:
        sign, outcome = outcome_in_words(result, words)
        area = result.risk in AREAS and result.number_at_most is None
        at_most = result.deciding_threshold
        what = number_in_words(result.what, words) if result.what else ""
        if what and result.differs_in_threshold:
            own = words("common.at_most", value=words.threshold(at_most, area=area))
            what = f"{what} ({own})"
        yield Cell(
            title=words.evidence(RISKS[result.risk].title),
            sign=sign,
            outcome=outcome,
            relevant=result.relevant,
            what=what,
            value=words.value(result.estimate, area=area, threshold=at_most) if result.estimate else "",
            interval=words.interval(result.estimate, area=area, threshold=at_most),
            threshold=words("common.at_most", value=words.threshold(result.at_most, area=result.risk in AREAS)),
            reason=words.apart(
                filter(None, (_plain_reason(result, words), *map(words.evidence, notes_of_model(result))))
            ),
            mark=risk_mark(model.risks, result),
            found=found_in_words(model.risks, result, words),
        )


def epochs_in_words(row: ModelRisks | ModelEvidence, words: Texts) -> str:
    """Return text on how many epochs a model was trained; for a classifier or tagger, on the epoch of the language
    model that it starts from."""
    if row.objective not in (CLASSIFIER, TAGGER):
        return words("risks.n_epochs", count=row.epoch)
    return words("risks.head_on_epoch", n=row.epoch) if row.epoch else words("risks.head_on_base")


def reason_of(model: ShownModel, words: Texts) -> tuple[str, str]:
    """Return two texts on the verdict on a model: its main reason, and further reasons with the audit's notes."""
    said, more = _verdict_reason(model, words)
    notes = [words.evidence(note) for note in (model.risks and model.risks.notes) or ()]
    if not notes:
        return said, more
    marks = marks_of(more) or (model.verdict_mark,)
    return said, Marked(" ".join(filter(None, (more, *(f"{capital(note)}." for note in notes)))), *marks)


def _verdict_reason(model: ShownModel, words: Texts) -> tuple[str, str]:
    """Return two marked texts on the verdict on a model: its main reason, and why further risks are undecided or not
    counted."""
    row = model.risks
    if row is None:
        return "", ""
    if broken_rule(model.evidence):
        return Marked(words("verdict.training_broke_its_own_rule"), _broken_mark(model)), ""
    deciding = _deciding_results(model)
    marks = _result_marks(model, deciding)
    if not deciding and model.is_unprotected and row.outcome == NOT_SHOWN:
        return Marked(words("verdict.not_shown_unprotected"), *marks), ""
    if not deciding:
        return Marked(words("verdict.no_risk_was_declared_relevant"), *marks), ""
    titles = words.listed([words.evidence(RISKS[result.risk].title) for result in deciding])
    if row.outcome == BEYOND:
        return Marked(words("verdict.beyond_the_threshold_risks", risks=titles), *marks), ""
    if row.outcome == WITHIN:
        others = [result for result in row.results if not result.relevant and result.outcome == BEYOND]
        named = words.listed([words.evidence(RISKS[result.risk].title) for result in others])
        uncounted = words("verdict.beyond_the_threshold_but_not_counted_risks", risks=named)
        within = Marked(words("verdict.within_every_threshold_risks", risks=titles), *marks)
        return within, Marked(uncounted, *_result_marks(model, others)) if others else ""
    reasons = words.apart(dict.fromkeys(_plain_reason(result, words) for result in deciding))
    return (
        Marked(words("verdict.not_shown_risks", risks=titles), *marks),
        Marked(words("verdict.the_reason_reasons", reasons=reasons), *marks),
    )


def change_of(model: ShownModel, words: Texts) -> str:
    """Return a sentence on what would change the verdict on a model or, if no risk is beyond its threshold, on how long
    the verdict holds; empty without a verdict."""
    row = model.risks
    if row is None:
        return ""
    if broken_rule(model.evidence):
        return Marked(words("verdict.report_it_and_train_again"), _broken_mark(model))
    deciding = _deciding_results(model)
    marks = _result_marks(model, deciding)
    if row.outcome == WITHIN:
        return Marked(words("verdict.it_holds_until_there_is_new_data_a"), *marks)
    if row.outcome == BEYOND:
        changes = list(dict.fromkeys(words.evidence(advice(r.risk, model.evidence, model.recipe)) for r in deciding))
    elif deciding or not model.is_unprotected:
        changes = _needed_changes(deciding, words)
    else:
        changes = [words.evidence(advice("emission", model.evidence, None))]
    if row.outcome == BEYOND and model.is_elsewhere:
        return Marked(words("verdict.refuse_it_or_ask_for_another", changes=words.apart(changes)), *marks)
    return Marked(words("verdict.what_would_change_it_changes", changes=words.apart(changes)), *marks)


def _result_marks(model: ShownModel, results: Sequence[RiskResult]) -> list[Mark]:
    """Return machine-readable marks of these results of a model's risks; without any, of its overall verdict."""
    return [risk_mark(model.risks, result) for result in results if model.risks] or [model.verdict_mark]


def _broken_mark(model: ShownModel) -> Mark:
    """Return a machine-readable mark that states that the model's prediction targets included protected tokens."""
    return model.mark("protected targets", "broken")


def _needed_changes(deciding: list[RiskResult], words: Texts) -> list[str]:
    """Return sentences on what to do so that these undecided risks of a model can be decided."""
    reasons = {result.reason for result in deciding}
    found = []
    if WITHOUT_TWIN in reasons:
        found.append(words("verdict.train_the_same_model_without_protection"))
    if NOTHING_FOUND in reasons:
        found.append(words("verdict.ask_who_trained_it_to_audit_it"))
    if WITHOUT_POWER in reasons:
        found.append(words("verdict.train_the_model_without_protection_until_a"))
    if WITHOUT_SHADOWS in reasons:
        found.append(words("verdict.attack_it_and_the_model_without_protection"))
    if reasons & {WIDE, UNSURE, BY_CHANCE, FEW}:
        found.append(words("verdict.ask_about_more_people"))
    if BESIDE_KNOWN in reasons:
        found.append(words("verdict.train_from_a_base_that_did_not_see_them"))
    if NO_WHOLE_PASSAGES in reasons:
        found.append(words("verdict.ask_for_whole_passages", tokens=WHOLE_PASSAGE))
    if EARLIER in reasons:
        found.append(words("verdict.say_why_the_earlier_audit_does_not_hold"))
    if CANNOT in reasons:
        found.append(words("verdict.set_no_condition_on_passages_for_a_model"))
    unmeasured = [words.evidence(RISKS[r.risk].title) for r in deciding if r.reason.startswith("not measured")]
    if unmeasured:
        found.append(words("verdict.measure_risks", risks=words.listed(unmeasured)))
    return found or [words("verdict.a_valid_comparison_of_the_two_sides")]


def _deciding_results(model: ShownModel) -> list[RiskResult]:
    """Return the results of a model's relevant risks whose outcome is that of the overall verdict."""
    row = model.risks
    return [r for r in row.results if r.relevant and r.outcome == row.outcome] if row else []


def _plain_reason(result: RiskResult, words: Texts) -> str:
    """Return the reason of a risk's outcome in plain words of the language of ``words``."""
    if result.reason.startswith("not measured"):
        return words("common.not_measured")
    if result.reason.startswith(SIDES_DIFFER):
        return words("verdict.the_test_is_not_valid_here_the_two")
    if result.reason.startswith(FAULT_OF_THE_RUN):
        return words("verdict.something_other_than_the_model_tells")
    said = REASONS.get(result.reason, "verdict.see_the_report")  # an unknown reason of the report does not stop a run
    return words(said) if said else ""


def number_in_words(what: str, words: Texts) -> str:
    """Return plain words, in the language of ``words``, for a figure with the technical description ``what``; the name
    of the attack is left out."""
    what = re.sub(", attack .*", "", what)  # the name of the attack at its end
    for over in (ONE_SIDE, WITHOUT_COPIES, OVER_BASE, TOLD, ABOVE):
        if what.endswith(f", {over}"):
            return f"{number_in_words(what.removesuffix(f', {over}'), words)}, {words.evidence(over)}"
    if found := PASSAGES.fullmatch(what):
        if found[2]:
            draws, key = int(found[2].replace(",", "")), "common.passages_that_come_back_within_draws_tries"
            return words(key, draws=words.count(draws), count=draws, tokens=found[1])
        return words("common.passages_that_come_back_word_for_word_given", tokens=found[1], count=int(found[1]))
    if found := NEARLY.fullmatch(what):
        return words("common.passages_that_nearly_come_back_given", tokens=found[1], count=int(found[1]))
    return words.evidence(what)
