"""Sentences of a dossier on facts that are no estimates: the documents, what was protected, the tests, the files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from reticent.audit.report.findings import explain_epsilon, joint_epsilon_sentence, random_weights_sentences
from reticent.audit.report.selectors import broken_rule
from reticent.audit.stats.seeds import max_num_trainings
from reticent.audit.texts import STATED, Marked, capital

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence
    from reticent.audit.evidence.dossier import DossierEvidence
    from reticent.audit.report.risk_text import ShownModel
    from reticent.audit.texts import Texts


class Context(NamedTuple):
    """All that a sentence is made from: the evidence, the models shown, and the texts in one language."""

    evidence: DossierEvidence
    models: list[ShownModel]
    words: Texts

    @property
    def audit(self) -> AuditEvidence:
        """The audit's evidence, a part of the dossier's evidence."""
        return self.evidence.audit


def setting(audit: AuditEvidence, *names: str) -> object:
    """Return the published value of a setting of the audited job, found by its section and field names; None if there
    is none.
    """
    found: object = audit.settings
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _sentences_on_documents(context: Context) -> Iterator[str]:
    """Yield sentences on how many documents and words the models were trained on, and how many documents were
    skipped.
    """
    corpus, t = context.audit.corpus, context.words
    given = setting(context.audit, "subject") is not None
    yield t(
        "facts.documents_of_the_people_on_the_list" if given else "facts.the_models_were_trained_on_documents",
        documents=t.count(corpus.num_documents),
        words=t.count(corpus.num_words),
    )
    if corpus.reading and corpus.reading.skipped != 0:  # None: too few to publish
        number = t.count(corpus.reading.skipped, context.audit.cell)
        yield t("common.n_documents_without_a_text_were_left_out", n=capital(number), count=corpus.reading.skipped)


def _sentences_on_split(context: Context) -> Iterator[str]:
    """Yield sentences on the numbers of members and held-out individuals, on the source of the list of members, and on
    households.
    """
    sides, t, cell = context.audit.corpus.num_individuals, context.words, context.audit.cell
    counts = {"members": t.count(sides.members, cell), "heldout": t.count(sides.heldout, cell)}
    if (statement := setting(context.audit, "subject", "statement")) is None:
        yield t("facts.documents_of_members_people_were_trained_on", **counts)
    else:
        yield t("facts.by_the_list_members_were_trained_on", **counts)
        yield t("facts.where_the_list_comes_from", statement=statement)
        if host := setting(context.audit, "subject", "allow_sending"):
            yield t("facts.texts_were_sent", host=host)
    together = context.audit.over_households
    if together is not None:
        yield t(
            "facts.members_of_one_household_are_alike_and_were",
            n=t.count(together.n, cell),
            households=t.count(together.num_households, cell),
        )


#: Detectors in plain words; one that is not here is named.
DETECTORS = {
    "gold": "facts.marks_that_came_with_the_documents",
    "rules": "facts.rules_on_the_form_of_dates_numbers_and",
    "records": "facts.the_person_s_own_record",
    "gazetteer": "facts.lists_of_names",
    "shipped": "facts.a_model_of_reticent_that_finds_names",
    "spacy": "facts.a_trained_model_that_finds_names_spacy",
    "transformers": "facts.a_trained_model_that_finds_names",
    "presidio": "facts.a_public_program_that_finds_names_presidio",
    "eds": "facts.a_public_program_that_finds_names_eds_nlp",
}


def _sentences_on_duplicates(context: Context) -> Iterator[str]:
    """Yield sentences on duplicate text that was left out of training."""
    copies, t = context.audit.corpus.copies, context.words
    if copies is None:
        yield t("facts.copies_were_not_looked_for_and_so_not")
    elif copies.left_out.words_share is None:
        yield t("facts.copies_were_left_out_a_small_share_of")
    else:
        yield t("facts.copies_were_left_out_share_of_all_words", share=t.percent(copies.left_out.words_share))
    if copies is not None and copies.left_out.individuals:
        num = copies.left_out.individuals
        yield t("report.n_individuals_have_no_document_left", n=t.count(num), count=num)


def _sentences_on_detection(context: Context) -> Iterator[str]:
    """Yield sentences on the detectors that looked for identifiers, and on whether their recall was measured."""
    t, names = context.words, setting(context.audit, "detect", "detectors")
    if isinstance(names, list | tuple) and names:
        said = [t(DETECTORS[name]) if name in DETECTORS else str(name) for name in names]
        yield t("facts.names_and_numbers_were_looked_for_by", detectors=t.listed(said))
    if context.audit.sampled_recall is None:
        yield t("facts.how_many_of_them_were_missed_was_not")


def _sentences_on_protection(context: Context) -> Iterator[str]:
    """Yield sentences on the rule that protects words (k and n), and on the share of words that it protects."""
    corpus, t = context.audit.corpus, context.words
    yield t("facts.a_word_that_fewer_than_k_people_use", k=corpus.k)
    if corpus.n > 1:
        yield t("facts.so_was_a_sequence_of_up_to_n", n=corpus.n, k=corpus.k)
    if corpus.protected:
        yield t(
            "facts.both_of_all_words_were_marked_as_identifying",
            both=t.percent(corpus.protected.both),
            direct=t.percent(corpus.protected.direct),
            indirect=t.percent(corpus.protected.indirect),
        )


def _sentences_on_recipes(context: Context) -> Iterator[str]:
    """Yield a sentence for each model on the recipe of its training."""
    for model in context.models:
        text = context.words("facts.model_letter_about", letter=model.letter, about=model.about)
        yield Marked(text, model.mark("recipe", STATED))
    yield from random_weights_sentences(context.audit.models, context.words)


def _sentences_on_targets(context: Context) -> Iterator[str]:
    """Yield a sentence for each model on the number of its training targets, and of protected ones among them
    (violations).
    """
    t = context.words
    for model in context.models:
        ledger = model.evidence.ledger
        if ledger is None:
            continue
        outcome = "broken" if ledger.violations else "kept" if ledger.protected else STATED
        counts = {"targets": t.count(ledger.targets), "violations": t.count(ledger.violations)}
        if outcome == STATED:
            text = t("facts.model_letter_no_word_was_protected_in_its", letter=model.letter)
        elif (trainings := model.evidence.num_trainings or 1) > 1:  # the ledger is the sum of theirs
            key = "facts.ledger_of_trainings"
            text = t(key, letter=model.letter, n=trainings, **counts)
        else:
            text = t("facts.ledger_of_one_training", letter=model.letter, **counts)
        yield Marked(text, model.mark("protected targets", outcome))


def _sentences_on_epsilon(context: Context) -> Iterator[str]:
    """Yield sentences on differential privacy: the epsilon of each private model, and that of all together."""
    t = context.words
    private = [model for model in context.models if model.evidence.guarantee]
    for model in private:
        guarantee = t.evidence(model.evidence.guarantee or "")
        text = t("facts.model_letter_was_trained_with_differential", letter=model.letter, guarantee=guarantee)
        text += explain_epsilon(model.evidence.guarantee or "", t)
        yield Marked(text, model.mark("epsilon", "bound"))
    if private:
        yield from joint_epsilon_sentence(context.audit, t)
    if context.models and not private and setting(context.audit, "subject") is None:
        yield t("facts.no_model_was_trained_with_differential")


def _sentences_on_digests(context: Context) -> Iterator[str]:
    """Yield the sentence that lists the digests in the dossier."""
    yield context.words("facts.documents_split_indexes_protected_texts_the")


def _sentences_on_canaries(context: Context) -> Iterator[str]:
    """Yield the sentence that canaries were planted in the training documents, if they were."""
    if context.audit.extraction and context.audit.extraction.has_canaries:
        yield context.words("facts.made_up_secrets_were_planted_in_the_training")


def _sentences_on_seeds(context: Context) -> Iterator[str]:
    """Yield the sentence that numbers are means over trainings with several seeds, if they are."""
    seeds = max_num_trainings([model.evidence for model in context.models])
    if seeds > 1:
        yield context.words("facts.each_model_was_trained_n_times_numbers_are", n=seeds)


def _sentences_on_tests(context: Context) -> Iterator[str]:
    """Yield sentences on the audit: its date and version, its seeds, preregistered rules and intervals."""
    audit, t = context.audit, context.words
    yield t(
        "facts.the_tests_were_run_on_day_by_reticent",
        day=t.date(audit.created),
        version=audit.versions.get("reticent", "–"),
    )
    yield from _sentences_on_seeds(context)
    if (rules := context.evidence.rules) is None:
        yield t("facts.no_rules_before")
    else:
        signed = t("facts.rules_signed", key=rules.signed_by) if rules.signed_by else t("facts.rules_not_signed")
        counts = {"after": t.count(rules.scored_after), "before": t.count(rules.scored_before)}
        yield t(
            "facts.rules_before",
            when=rules.created,
            digest=rules.digest,
            signed=signed,
            count=rules.scored_after,
            **counts,
        )
        if rules.scored_before or not rules.is_kept:
            yield t("facts.rules_after_scores", count=rules.scored_before, before=t.count(rules.scored_before))
        yield t("facts.rules_of_one_folder")
    yield t("facts.each_number_has_an_interval_where_the_test")


def _sentences_on_measures(context: Context) -> Iterator[str]:
    """Yield sentences on the measures that protect individuals, from the documents to the training."""
    yield from _sentences_on_protection(context)
    if setting(context.audit, "subject") is None:
        if not any(broken_rule(model.evidence) for model in context.models):
            yield context.words("facts.a_word_that_was_protected_was_never_a")
        yield context.words("facts.only_listed_files_leave")


def _sentences_on_capacity(context: Context) -> Iterator[str]:
    """Yield a sentence for each model on its numbers of parameters, training targets and epochs."""
    t = context.words
    for model in context.models:
        own = [
            tested
            for tested in context.evidence.models
            if (tested.model, tested.recipe, tested.epoch)
            == (model.evidence.model, model.evidence.recipe, model.evidence.epoch)
        ]
        if own and model.evidence.ledger:
            targets = math.ceil(model.evidence.ledger.targets / (model.evidence.num_trainings or 1))
            text = t(
                "facts.model_letter_parameters_parameters_trained",
                letter=model.letter,
                parameters=t.count(own[0].num_parameters),
                targets=t.count(targets),
                count=t.epochs(max(tested.trained_epochs for tested in own)),
            )
            best = sorted({tested.best_epoch for tested in own if tested.best_epoch is not None})
            if best:
                text += " " + t("facts.kept_after_epoch", epochs=t.listed([str(epoch) for epoch in best]))
            yield Marked(text, model.mark("parameters", STATED))


def _sentences_on_model_card(context: Context) -> Iterator[str]:
    """Yield the sentence that an exported model carries a model card."""
    yield context.words("facts.a_model_that_is_exported_carries_a_card")


#: Who gets the model -> the sentence on it.
RELEASES = {
    "public": "dossier.access_public",
    "named": "dossier.access_named",
    "questions": "dossier.access_questions",
    "inside": "dossier.access_inside",
}


def _sentences_on_release(context: Context) -> Iterator[str]:
    """Yield the sentence on who will have access to the model, if the job declares it."""
    if sentence := RELEASES.get(str(setting(context.audit, "dossier", "access"))):
        yield f"{context.words(sentence)} {context.words('dossier.access_decides')}"


def _sentences_on_model_copies(context: Context) -> Iterator[str]:
    """Yield the sentence that names the copies of a model (merged, quantised …) that were attacked too, if any."""
    letters = [
        model.letter
        for model in context.models
        if any(attack.over_source for attack in model.evidence.membership.values())
    ]
    if letters:
        t = context.words
        yield t("crosswalk.copies", models=t.listed([t("common.model_letter", letter=each) for each in letters]))


def _sentences_on_export_check(context: Context) -> Iterator[str]:
    """Yield the sentence that the dossier has files for the export check of a secure environment, if the job asks for
    them.
    """
    if setting(context.audit, "dossier", "secure_environment"):
        yield context.words("crosswalk.secure_environment")


def _sentences_on_repetition(context: Context) -> Iterator[str]:
    """Yield the sentence that refers to the section on when to repeat the tests."""
    yield context.words("crosswalk.again")


FACTS: Mapping[str, Callable[[Context], Iterator[str]]] = MappingProxyType(
    {
        "documents": _sentences_on_documents,
        "split": _sentences_on_split,
        "copies": _sentences_on_duplicates,
        "detection": _sentences_on_detection,
        "protection": _sentences_on_protection,
        "recipes": _sentences_on_recipes,
        "ledger": _sentences_on_targets,
        "guarantee": _sentences_on_epsilon,
        "digests": _sentences_on_digests,
        "canaries": _sentences_on_canaries,
        "means": _sentences_on_seeds,
        "tests": _sentences_on_tests,
        "life_cycle": _sentences_on_measures,
        "capacity": _sentences_on_capacity,
        "card": _sentences_on_model_card,
        "release": _sentences_on_release,
        "copies_of_it": _sentences_on_model_copies,
        "secure_environment": _sentences_on_export_check,
        "again": _sentences_on_repetition,
    }
)
