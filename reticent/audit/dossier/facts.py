"""Facts of a dossier that are no estimates: the documents, what was protected, the tests, the files; as sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from reticent.audit.stats.seeds import num_seeds

if TYPE_CHECKING:
    from reticent.audit.dossier.models import ShownModel
    from reticent.audit.evidence.audit import AuditEvidence
    from reticent.audit.evidence.dossier import DossierEvidence
    from reticent.audit.language import Words

__all__ = ["FACTS", "Told", "setting"]


class Told(NamedTuple):
    """Evidence, models and language: all that a sentence is made from."""

    evidence: DossierEvidence
    models: list[ShownModel]
    words: Words

    @property
    def audit(self) -> AuditEvidence:
        return self.evidence.audit


def setting(audit: AuditEvidence, *names: str) -> object:
    """Return a published setting of the run; None where there is none."""
    found: object = audit.settings
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _documents(told: Told) -> Iterator[str]:
    corpus, t = told.audit.corpus, told.words
    yield t(
        "The models were trained on {documents} documents with {words} words in all.",
        documents=t.count(corpus.num_documents),
        words=t.count(corpus.num_words),
    )
    if corpus.reading and corpus.reading.skipped != 0:  # None: too few to publish
        number = t.count(corpus.reading.skipped, told.audit.cell)
        yield t("{n} documents without a text were left out.", n=f"{number[:1].upper()}{number[1:]}")


def _split(told: Told) -> Iterator[str]:
    sides, t, cell = told.audit.corpus.num_individuals, told.words, told.audit.cell
    yield t(
        "Documents of {members} people were trained on. Those of {heldout} others were kept apart before anything was "
        "counted, never trained on, and serve the tests as a comparison.",
        members=t.count(sides.members, cell),
        heldout=t.count(sides.heldout, cell),
    )
    together = told.audit.over_households
    if together is not None:
        yield t(
            "Members of one household are alike and were kept on one side; intervals therefore count households: the "
            "{n} people of a test are of {households}.",
            n=t.count(together.n, cell),
            households=t.count(together.num_households, cell),
        )


#: Detectors in plain words; one that is not here is named.
DETECTORS = {
    "gold": "marks that came with the documents",
    "rules": "rules on the form of dates, numbers and addresses",
    "records": "the person’s own record",
    "gazetteer": "lists of names",
    "context": "words that announce a name",
    "spacy": "a trained model that finds names (spaCy)",
    "transformers": "a trained model that finds names (transformers)",
    "presidio": "a public program that finds names (Presidio)",
    "eds": "a public program that finds names (EDS-NLP)",
}


def _copies(told: Told) -> Iterator[str]:
    copies, t = told.audit.corpus.copies, told.words
    if copies is None:
        yield t("Copies were not looked for, and so not left out.")
    elif copies.left_out.words_share is None:
        yield t("Copies were left out: a small share of all words.")
    else:
        yield t("Copies were left out: {share} of all words.", share=t.percent(copies.left_out.words_share))


def _detection(told: Told) -> Iterator[str]:
    t, names = told.words, setting(told.audit, "detect", "detectors")
    if isinstance(names, list | tuple) and names:
        said = [t(DETECTORS[name]) if name in DETECTORS else str(name) for name in names]
        yield t("Names and numbers were looked for by: {detectors}.", detectors=t.listed(said))
    if told.audit.sampled_recall is None:
        yield t("How many of them were missed was not measured: no annotator read a sample.")


def _protection(told: Told) -> Iterator[str]:
    corpus, t = told.audit.corpus, told.words
    yield t("A word that fewer than {k} people use was taken for one that can identify a person.", k=corpus.k)
    if corpus.n > 1:
        yield t("So was a sequence of up to {n} words that fewer than {k} people use.", n=corpus.n, k=corpus.k)
    if corpus.protected:
        yield t(
            "{both} of all words were marked as identifying: {direct} as names and numbers that were found, {indirect} "
            "as rare words; a word may be both.",
            both=t.percent(corpus.protected.both),
            direct=t.percent(corpus.protected.direct),
            indirect=t.percent(corpus.protected.indirect),
        )


def _recipes(told: Told) -> Iterator[str]:
    for model in told.models:
        yield told.words("Model {letter}. {about}", letter=model.letter, about=model.about)


def _ledger(told: Told) -> Iterator[str]:
    t = told.words
    for model in told.models:
        ledger = model.evidence.ledger
        if ledger is None:
            continue
        if not ledger.protected and not ledger.violations:
            yield t("Model {letter}: no word was protected in its training.", letter=model.letter)
            continue
        counts = {"targets": t.count(ledger.targets), "violations": t.count(ledger.violations)}
        if (trainings := model.evidence.num_trainings or 1) > 1:  # the ledger is the sum of theirs
            yield t(
                "Model {letter}: of {targets} words or parts of words that its {n} trainings were to predict, "
                "{violations} were protected. Every one was checked, so this is a count and no estimate.",
                letter=model.letter,
                n=trainings,
                **counts,
            )
        else:
            yield t(
                "Model {letter}: of {targets} words or parts of words that it was trained to predict, {violations} "
                "were protected. Every one was checked, so this is a count and no estimate.",
                letter=model.letter,
                **counts,
            )


def _guarantee(told: Told) -> Iterator[str]:
    t = told.words
    private = [model for model in told.models if model.evidence.guarantee]
    for model in private:
        yield t(
            "Model {letter} was trained with differential privacy: {guarantee}. This holds for that training alone.",
            letter=model.letter,
            guarantee=_in_words(model.evidence.guarantee or "", t),
        )
    if told.models and not private:
        yield t("No model was trained with differential privacy, so no attack is excluded by proof.")


def _in_words(guarantee: str, words: Words) -> str:
    from reticent.audit.report.french import FrenchPage  # which has the French of what the trainer says

    return FrenchPage().translated(guarantee) or guarantee if words.language == "fr" else guarantee


def _digests(told: Told) -> Iterator[str]:
    yield told.words(
        "Documents, split, indexes, protected texts, the record of each training, every model file and the code are "
        "named by digests in the list at the end; evidence.json has all of them."
    )


def _canaries(told: Told) -> Iterator[str]:
    if told.audit.extraction and told.audit.extraction.has_canaries:
        yield told.words(
            "Made-up secrets were planted in the training documents, to measure what comes out. These models are for "
            "measuring, and not for release."
        )


def _means(told: Told) -> Iterator[str]:
    seeds = num_seeds([model.evidence for model in told.models])
    if seeds > 1:
        yield told.words("Each model was trained {n} times; numbers are means over these trainings.", n=seeds)


def _tests(told: Told) -> Iterator[str]:
    audit, t = told.audit, told.words
    yield t(
        "The tests were run on {day} by Reticent {version}, by the institution itself, with settings that are in "
        "evidence.json.",
        day=t.date(audit.created),
        version=audit.versions.get("reticent", "–"),
    )
    yield from _means(told)
    yield t(
        "Each number has an interval: where the test was repeated on other people of the same kind, 95 of 100 such "
        "intervals would hold the true value."
    )


def _life_cycle(told: Told) -> Iterator[str]:
    yield from _protection(told)
    yield told.words(
        "A word that was protected was never a target of training. Model files leave by a list of allowed files, which "
        "holds no list of identifiers. What happens after that, the tests do not know."
    )


def _capacity(told: Told) -> Iterator[str]:
    t = told.words
    for model in told.models:
        own = [
            tested
            for tested in told.evidence.models
            if (tested.model, tested.recipe, tested.epoch)
            == (model.evidence.model, model.evidence.recipe, model.evidence.epoch)
        ]
        if own and model.evidence.ledger:
            targets = math.ceil(model.evidence.ledger.targets / (model.evidence.num_trainings or 1))
            yield t(
                "Model {letter}: {parameters} parameters, trained on {targets} predictions of a word or a part of one, "
                "in {epochs} passes over the documents.",
                letter=model.letter,
                parameters=t.count(own[0].num_parameters),
                targets=t.count(targets),
                epochs=model.evidence.epoch,
            )


def _card(told: Told) -> Iterator[str]:
    yield told.words(
        "A model that is exported carries a card with its figures, the verdict and the digest of this dossier."
    )


FACTS: Mapping[str, Callable[[Told], Iterator[str]]] = MappingProxyType(
    {
        "documents": _documents,
        "split": _split,
        "copies": _copies,
        "detection": _detection,
        "protection": _protection,
        "recipes": _recipes,
        "ledger": _ledger,
        "guarantee": _guarantee,
        "digests": _digests,
        "canaries": _canaries,
        "means": _means,
        "tests": _tests,
        "life_cycle": _life_cycle,
        "capacity": _capacity,
        "card": _card,
    }
)
