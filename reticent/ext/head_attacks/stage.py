"""Attacks on the heads that a job keeps: an artefact for each of a head's shadow heads, and one for the attacks on the
head::

    head-shadows/classify/MODEL/RECIPE/NN     scores.npz: what a shadow head says of the labels, secret like the tokens
    heads/classify/MODEL/RECIPE               measures.json

Taggers stand under ``tag``. RECIPE is that of the checkpoint that a head was trained on, or "base". A shadow head is
trained on the same checkpoint, with the settings of the head but a seed of its own, on a random half of the members and
held-out individuals. So what the checkpoint itself knows of its members is no part of the difference: that is judged in
its own row. Where heads protect, an unprotected one on the base model is their control, as a plain recipe is that of
language models: it is trained here, attacked, and not kept.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.audit.evidence.json_form import from_json, to_json
from reticent.audit.evidence.model import ModelEvidence
from reticent.audit.membership.names import CLASSIFIER, TAGGER
from reticent.audit.membership.validity import index_mask_by_code, keep_without_near_copies, with_attack_verdicts
from reticent.audit.stats.intervals import bootstrap_of
from reticent.core.artifact import read_manifest
from reticent.core.errors import CorpusError
from reticent.core.eta import Work
from reticent.core.json_toml import read_json
from reticent.engine.detect.spans import SpanReader
from reticent.engine.schema import MEMBERS
from reticent.engine.sources.columns import SOURCE_COLUMN
from reticent.ext.classify.documents import FILE, labelled_documents
from reticent.ext.classify.labels import LabelledTokens
from reticent.ext.classify.stage import FOLDERS, privacy_settings
from reticent.ext.head_attacks.attributes import attack_attribute, make_questions
from reticent.ext.ladder.questions import add_field, add_fields_from_table, check_fields, drawn_individuals
from reticent.ext.tagger.sets import AttackSet, build_attack_set, names_of_corpus
from reticent.job.artefact import Artefact, Step, Training, head_starts
from reticent.job.auditing import resampling_settings
from reticent.job.outcomes import with_digests
from reticent.job.stages.near_copies import copied_individuals, near_copies_input
from reticent.job.stages.shadows import Shadow, shadows_of_heads, unspent_privacy, write_shadow_tokens
from reticent.job.training_tokens import Drawn, training_tokens

if TYPE_CHECKING:
    from reticent.audit.config import HeadsConfig
    from reticent.audit.evidence.heads import ToldAttribute, ToldNames
    from reticent.engine.store import TokenStore
    from reticent.ext.classify.tags import TaggedTokens
    from reticent.ext.head_attacks.scores import Classifier, Tagger
    from reticent.job.config import ModelSection
    from reticent.job.run import Run
    from reticent.trainer.config import HeadConfig

SCORES, MEASURES = "scores.npz", "measures.json"
#: The start of the control of heads that protect.
UNPROTECTED = "unprotected"


@dataclass(frozen=True, slots=True)
class Head:
    """The classifier or tagger head (``section``) on the last start checkpoint of a training, or (None) on the base."""

    run: Run
    section: HeadConfig
    model: ModelSection
    training: Training | None = None
    is_control: bool = False

    @property
    def start(self) -> str:
        """Return the recipe of the checkpoint that the head was trained on; "base" for the base model."""
        return "base" if self.training is None else self.training.recipe

    @property
    def recipe(self) -> str:
        """Name of the head in the results: section and recipe, such as "classify/base"."""
        return f"{self.section.section}/{UNPROTECTED if self.is_control else self.start}"

    @property
    def made(self) -> str:
        """Name of the artefact with the trained head."""
        return self._artefact_name(FOLDERS[self.section.section])

    def _artefact_name(self, kind: str) -> str:
        """Return the name of this head's artefact in the folder ``kind`` of the run."""
        if self.training is not None:
            return self.training.name.replace("models", kind, 1)
        return f"{kind}/{self.model.name}/{UNPROTECTED if self.is_control else 'base'}"

    @property
    def name(self) -> str:
        """Name of the artefact with the results of the attacks on the head."""
        return self._artefact_name(f"heads/{self.section.section}")

    @property
    def title(self) -> str:
        """Return the head's title for progress output, such as "classifier on ..."."""
        on = self.training.title if self.training else f"base of {self.model.name}"
        return f"{'classifier' if self.is_classifier else 'tagger'} on {on}{', unprotected' if self.is_control else ''}"

    @property
    def is_classifier(self) -> bool:
        """Return whether the head classifies documents; otherwise it tags tokens."""
        return self.section.section == "classify"

    @property
    def measured(self) -> dict[str, Any]:
        """The head's row (a dict) in the results file ``classification.json`` of its artefact, which must exist."""
        rows = read_json(self.run.folder / self.made / FILE)["results"]
        return max((row for row in rows if row["recipe"] == self.start), key=lambda row: int(row["epoch"]))

    @property
    def epoch(self) -> int:
        """Epoch of the checkpoint that the head was trained on; 0 for the base model."""
        return 0 if self.training is None else int(self.measured["epoch"])

    @property
    def place(self) -> str:
        """Name of the head's subfolder in its artefact."""
        return f"epoch-{self.epoch:04d}" if self.training else "base"

    @property
    def config(self) -> HeadConfig:
        """Settings of the head's training."""
        own = self.run.job.of_model(self.section, self.model)
        return own.model_copy(update={"text": "keep", "private": False}) if self.is_control else own

    @property
    def checkpoint(self) -> Path:
        """Folder of the model that the head was trained on."""
        run, training = self.run, self.training
        if training is None:
            return Path(run.base_of(self.model))
        return run.checkpoints(self.model, training.recipe, training.seed)[self.epoch]

    def inputs(self) -> dict[str, str]:
        """Return name -> fingerprint of what the head is trained from: checkpoint, labels, tokens, corpus and split."""
        run, training, of = self.run, self.training, self.run.fingerprints.of
        start = run.base_input(self.model)
        if training is not None:
            start = {"checkpoint": run.fingerprints.of_checkpoint(training.name, self.epoch)}
        labels = {} if self.is_classifier else {"word spans": of("word-spans")}
        tokens = {"tokens": of(f"tokens/{self.model.name}/audit")}
        return {**start, **labels, **tokens, "corpus": run.corpus.fingerprint(), "split": of("split")}

    def settings(self) -> dict[str, Any]:
        """Return the settings of the head's training, and for a private head of DP-SGD. The attacks on the head are run
        again if one of them changes.
        """
        job, config = self.run.job, self.config
        found = {**config.all_values(without=("save_model", "save_minutes", "device")), "seed": job.seed}
        if self.is_classifier:
            found["label"] = job.classifying().label or job.corpus.label
        if config.private:
            found["dp"] = privacy_settings(job, self.model)
        return found

    def documents(self) -> LabelledTokens | TaggedTokens:
        """Return the tokenised documents with their class labels or tags; those of members are marked as training
        documents, the others as held out.
        """
        return labelled_documents(self.run, self.model, self.config)

    def open_head(self, folder: Path) -> Classifier | Tagger:
        """Return the trained head in a folder as a `Classifier` or `Tagger` that scores documents."""
        from reticent.ext.head_attacks.scores import Classifier, Tagger

        kind = Classifier if self.is_classifier else Tagger
        return kind(folder, self.model.objective, self.config, self.run.job.audit.batch_size)

    def train(
        self,
        documents: LabelledTokens | TaggedTokens,
        config: HeadConfig,
        folder: Path,
        epoch_store: Callable[[int], TokenStore] | None = None,
    ) -> None:
        """Train a shadow model of this head: from the same checkpoint, on other ``documents``, written to a new
        ``folder``. ``epoch_store`` is a function epoch -> tokens for text that is rewritten in each epoch (None: it is
        not).
        """
        from reticent.ext.classify.tags import tag
        from reticent.ext.classify.training import classify

        train: Any = classify if self.is_classifier else tag
        privacy = unspent_privacy(self.run, self.model, None) if config.private else None
        with self.run.progress.task(f"train a {self.title}", None, "steps") as advance:
            train(
                self.checkpoint, documents, config, out=folder, progress=advance, epoch_store=epoch_store,
                privacy=privacy,
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ShadowHead:
    """One shadow head: trained as a head is, on a random half of the individuals."""

    head: Head
    number: int

    @property
    def name(self) -> str:
        """Name of the shadow head's artefact."""
        return f"{self.head._artefact_name(f'head-shadows/{self.head.section.section}')}/{self.number:02d}"

    @property
    def drawn(self) -> Shadow:
        """The `Shadow` that draws the random half of the individuals on which this shadow head is trained, and its
        seed.
        """
        return Shadow(self.head.run, self.head.model, self.head.section.section, self.number)

    def artefact(self) -> Artefact:
        """Return the artefact with the shadow head's scores, its settings and input fingerprints."""
        head, settings = self.head, {**self.head.settings(), "shadow": self.number}
        texts = {} if head.config.text == "keep" else {"text": head.run.fingerprints.of(self.drawn.tokens)}
        return Artefact(self.name, "head-shadows", settings, {**head.inputs(), **texts})

    def build(self, folder: Path, counts: dict[str, int]) -> None:
        """Train the shadow head on its half of the individuals and write its scores of all documents; the head is not
        kept.
        """
        head, drawn = self.head, self.drawn
        documents = head.documents()
        is_in = drawn.individuals.mask(MEMBERS)[documents.store.individual]
        config = head.config.model_copy(update={"seed": drawn.training.seed})
        with TemporaryDirectory(prefix=".shadow-", dir=folder) as place, self._epoch_stores(Path(place)) as epoch_store:
            trained = Path(place) / "model"
            head.train(replace(documents, is_train=is_in), config, trained, epoch_store)
            head.open_head(trained).scores(documents.store, _labels(documents)).save(folder / SCORES, is_in)
        counts["documents_in"] = int(is_in.sum())

    @contextmanager
    def _epoch_stores(self, place: Path) -> Iterator[Callable[[int], TokenStore] | None]:
        """Context manager for training the shadow head on text in which surrogates or tags replace the identifiers: it
        yields a function epoch -> token store of that text, built in ``place``. For training on the original text it
        yields None.
        """
        head, drawn = self.head, self.drawn
        if head.config.text == "keep":
            yield None
            return
        of = Drawn(drawn.individuals, drawn.tokens, lambda: drawn.index(place))
        recipe = head.config.recipe()
        with training_tokens(head.run, head.model, recipe, place, head.config.num_epochs, of=of) as (store, epochs):
            yield epochs or (lambda _: store)


def _labels(documents: LabelledTokens | TaggedTokens) -> np.ndarray:
    """Return the class of each document, or the tag of each token; int64."""
    return documents.classes if isinstance(documents, LabelledTokens) else documents.tags


def _config(run: Run) -> HeadsConfig:
    """Return the job's settings of the attacks on heads, which must exist."""
    assert run.job.audit.heads is not None  # else there is no step
    return run.job.audit.heads


def _heads(run: Run) -> list[Head]:
    """Return the classification and tagging heads that a job attacks, one for each model and checkpoint that heads
    start from. Where heads are trained with protection, a head trained without it is added first, as a control.
    """
    if run.job.audit.heads is None:
        return []
    found = []
    for section in run.job.heads:
        for model in run.job.model:
            own = [Head(run, section, model, start) for start in head_starts(run.job, section, model)]
            if own and section.protects:
                own.insert(0, Head(run, section, model, is_control=True))
            found += own
    return found


def _shadows(head: Head) -> list[ShadowHead]:
    """Return the shadow models of a classification or tagging head: heads trained on random halves of the
    individuals."""
    return [ShadowHead(head, number) for number in range(_config(head.run).num_shadows)]


def head_steps(run: Run) -> Iterator[Step]:
    """Yield the build steps of the attacks on classification and tagging heads: tokens of the shadow models, shadow
    models, and the attacks on each head."""
    for drawn in shadows_of_heads(run):
        yield Step.of(drawn.tokens_artefact(), partial(write_shadow_tokens, drawn))
    for head in _heads(run):
        for shadow in _shadows(head):
            yield Step.of(shadow.artefact(), shadow.build, work=partial(_work, shadow))
        yield Step.of(_artefact(head), partial(_build, head))


def _work(shadow: ShadowHead) -> Work:
    """Return the amount of work of a shadow head's training in tokens, by which the remaining time is estimated."""
    head, run = shadow.head, shadow.head.run
    tokens = float(read_manifest(run.folder / f"tokens/{head.model.name}/audit").counts["tokens"])
    title, work = f"shadow {shadow.number + 1} of the {head.title}", tokens / 2 * head.config.num_epochs
    section = head.section.section
    return Work(name=shadow.name, title=title, kind="classify", model=head.model.name, recipe=section, work=work)


def _artefact(head: Head) -> Artefact:
    """Return the artefact with the attack results of a head, its settings and input fingerprints."""
    run, config = head.run, _config(head.run)
    settings = {**config.model_dump(), **resampling_settings(run), "epoch": head.epoch, "seed": run.job.seed}
    settings |= {"num_bootstrap": run.job.audit.num_bootstrap}
    inputs = {**head.inputs(), **near_copies_input(run)}
    if head.is_control:
        settings["head"] = head.settings()
    else:
        inputs["head"] = run.fingerprints.of(head.made)
    inputs |= {shadow.name: run.fingerprints.of(shadow.name) for shadow in _shadows(head)}
    if config.records is not None:
        inputs["records"] = run.fingerprints.at(Path(config.records))
    return Artefact(head.name, "heads", settings, inputs)


def shadow_names(run: Run) -> list[str]:
    """Return the artefact names of the shadow models of all classification and tagging heads of a job."""
    return [shadow.name for head in _heads(run) for shadow in _shadows(head)]


def head_inputs(run: Run) -> dict[str, str]:
    """Return artefact name -> fingerprint of the results of the attacks on a run's classification and tagging heads."""
    return {head.name: run.fingerprints.of(head.name) for head in _heads(run)}


def read_head_evidence(run: Run) -> list[ModelEvidence]:
    """Return the attack results on every classification and tagging head of a run, with the digests of each head's
    files and the verdict on each attack."""
    found = []
    for head in _heads(run):
        path = run.folder / head.name / MEASURES
        measured = replace(from_json(ModelEvidence, read_json(path), str(path)), model=head.model.name)
        measured = replace(measured, seed=None if head.training is None else head.training.seed)
        if not head.is_control:
            measured = with_digests(measured, read_manifest(run.folder / head.made), head.place)
            measured = replace(measured, guarantee=head.measured["training"].get("guarantee"))
        found.append(measured)
    return with_attack_verdicts(found)


def _build(head: Head, folder: Path, counts: dict[str, Any]) -> None:
    """Run all attacks on one classification or tagging head and write the results as JSON into ``folder``; a control is
    trained first and deleted after."""
    from reticent.audit.membership.heads import HeadScores, HeadShadows
    from reticent.ext.head_attacks.measure import head_evidence

    run, documents = head.run, head.documents()
    place = run.folder / head.made / head.place
    if head.is_control:
        place = folder / "model"
        head.train(documents, head.config, place)
    opened = head.open_head(place)
    scores = opened.scores(documents.store, _labels(documents))
    shadows = [HeadScores.load(run.folder / shadow.name / SCORES) for shadow in _shadows(head)]
    found = head_evidence(
        documents.store,
        documents.is_train,
        scores,
        HeadShadows(shadows) if shadows else None,
        labels=_labels_of_documents(documents),
        objective=CLASSIFIER if head.is_classifier else TAGGER,
        recipe=head.recipe,
        epoch=head.epoch,
        start=head.start,
        protects=head.config.protects,
        bootstrap=bootstrap_of(run.job.audit.num_bootstrap, run.job.seed, run.individuals.units),
        copied=copied_individuals(run),
        attributes=_attack_attributes(head, opened, documents) if isinstance(documents, LabelledTokens) else None,
        names=None if head.is_classifier else _attack_names(head, opened),
    )
    if head.is_control:
        shutil.rmtree(place)
    (folder / MEASURES).write_text(json.dumps(to_json(found), indent=1, allow_nan=False))
    counts.update(epoch=head.epoch, shadows=len(shadows))


def _labels_of_documents(documents: LabelledTokens | TaggedTokens) -> tuple[np.ndarray, np.ndarray]:
    """Return (documents, labels), two int64 arrays of one length. A classifier has one label for each document, a
    tagger one for each identifier.
    """
    if isinstance(documents, LabelledTokens):
        return np.arange(len(documents.classes)), documents.classes
    begins = np.flatnonzero((documents.tags > 0) & (documents.tags % 2 == 1))
    of_token = np.repeat(np.arange(documents.store.num_documents), np.diff(documents.store.doc_offsets))
    return of_token[begins], documents.tags[begins]


# ---------------------------------------------------------------------------------------------------------------- names


def _attack_names(head: Head, tagger: Any) -> ToldNames | None:
    """Run the name attack on a tagger and return its result. Return None if too few individuals have a name that occurs
    in nobody else's documents.
    """
    from reticent.ext.head_attacks.names import attack_names

    run = head.run
    try:
        names = run.memoize("names of the tagger attack", b"", partial(_pair_names, run))
    except CorpusError as error:
        run.progress.warn_once(f"audit.heads: names are not asked of taggers: {error}")
        return None
    audit, config = run.job.audit, _config(run)
    with run.progress.task(f"ask the {head.title} for names", None, "texts") as advance:
        return attack_names(
            tagger.model, tagger.tokenizer, names, language=config.language, device=head.config.device,
            num_bootstrap=audit.num_bootstrap, seed=run.job.seed, progress=advance,
        )  # fmt: skip


def _pair_names(run: Run) -> AttackSet:
    """Return pairs of names for the attack on a tagger: a member's name and a similar name of a held-out individual,
    each unique to its owner, from the detected spans.
    """
    detected = SpanReader(run.folder / "spans")
    training, candidates = names_of_corpus(run.corpus, run.individuals, seed=run.job.seed, detected=detected)
    return build_attack_set(training, candidates, fewer=True, seed=run.job.seed, unit="pairs of individuals")


# ----------------------------------------------------------------------------------------------------------- attributes


def _attack_attributes(head: Head, classifier: Any, documents: LabelledTokens) -> dict[str, ToldAttribute]:
    """Run the attribute-inference attack on a classifier; return attribute -> success rates. An attribute that gives
    questions about members only, or about held-out individuals only, is left out.
    """
    run, config = head.run, _config(head.run)
    if not config.attributes:
        return {}
    is_member, codes = run.individuals.mask(MEMBERS), np.arange(len(run.individuals.units))
    kept = index_mask_by_code(codes, keep_without_near_copies(codes, is_member, copied_individuals(run)))
    bootstrap = bootstrap_of(run.job.audit.num_bootstrap, run.job.seed, run.individuals.units)
    values, texts = _attributes_and_texts(run, documents)
    found = {}
    for attribute in config.attributes:
        questions = make_questions(
            attribute, values[attribute], texts, num_alternatives=config.num_alternatives, seed=run.job.seed
        )
        if len({bool(is_member[question.code]) for question in questions}) < 2:
            run.progress.warn_once(
                f"audit.heads: {attribute} is not asked, as no question arises for members, or none for held-out people"
            )
            continue
        with run.progress.task(f"ask the {head.title} for {attribute}", len(questions), "values") as advance:
            found[attribute] = attack_attribute(
                questions, classifier.log_probs_of, is_member, kept=kept, progress=advance, **bootstrap
            )
    return found


def _attributes_and_texts(
    run: Run, documents: LabelledTokens
) -> tuple[dict[str, dict[int, list[str]]], dict[int, list[tuple[str, int]]]]:
    """Draw individuals at random for the attribute attack, and return two dicts: attribute -> individual code -> values
    in the individual's record, and individual code -> list of (text, class label) of the individual's documents.
    """
    config, store = _config(run), documents.store
    drawn = drawn_individuals(run.individuals, config.num_individuals, run.job.seed, None)
    row_of = np.full(len(run.individuals.units), -1)
    row_of[drawn] = np.arange(len(drawn))
    fields: list[dict[str, list[str]]] = [{} for _ in drawn]
    if config.records is not None:
        add_fields_from_table(config.records, run.job.corpus.ids, run.individuals, row_of, config.attributes, fields)
    own = () if config.records is not None else config.attributes
    label_of = dict(zip(store.doc_ids.to_pylist(), documents.classes.tolist(), strict=True))
    texts: dict[int, list[tuple[str, int]]] = {}
    columns = ("doc_id", "individual_id", "text", *(f"{SOURCE_COLUMN}{name}" for name in own))
    for batch in run.unplanted.batches(columns=columns):
        codes = run.individuals.individual_codes(batch.column("individual_id"))
        for number in np.flatnonzero(row_of[codes] >= 0).tolist():
            code = int(codes[number])
            for name in own:
                add_field(fields[row_of[code]], name, batch.column(f"{SOURCE_COLUMN}{name}")[number].as_py())
            label = label_of.get(batch.column("doc_id")[number].as_py())
            if label is not None:
                texts.setdefault(code, []).append((batch.column("text")[number].as_py(), label))
    values: dict[str, dict[int, list[str]]] = {name: {} for name in config.attributes}
    for code, known in zip(drawn.tolist(), fields, strict=True):
        for name in known:
            parts = (part.strip() for value in known[name] for part in value.split(";"))
            values[name][code] = list(dict.fromkeys(part for part in parts if part))
    return values, texts


def check_attributes(run: Run) -> None:
    """Raise `CorpusError` if the values of an attribute cannot be read from the documents or the table of records."""
    config = _config(run)
    check_fields(run.whole_corpus, config.records, run.job.corpus.ids, config.attributes)
