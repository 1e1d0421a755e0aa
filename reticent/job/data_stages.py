"""From documents to protected tokens: the stages of a job that need no trained model, each one artefact.

Members alone shape the protection that training sees. For the audit a second, *joint* index over members and held-out
individuals flags both sides by the same rule, so that their leak rates can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.audit.membership.validity import USER_INFERENCE
from reticent.core.progress import Progress
from reticent.engine.schema import HELDOUT, MEMBERS, REFERENCE
from reticent.job.config import Job, ModelSection
from reticent.job.run_folder import RunFolder

if TYPE_CHECKING:
    from reticent._rust import NgramIndex
    from reticent.engine.index import IndexConfig
    from reticent.engine.pseudonymize import Style
    from reticent.engine.rewrite import TextStyle

__all__ = ["INDEXES", "Preparation"]

#: Artefact -> the sides whose documents it counts.
INDEXES = {"index": (MEMBERS,), "index-joint": (MEMBERS, HELDOUT)}

#: From this share of words on that are single letters of scripts without spaces, a run warns.
UNSPACED_SHARE = 0.01
#: Tokens of the members' documents in another style than the original's.
REWRITTEN: dict[str, Style] = {"train-pseudonymised": "x", "train-tag": "tag"}


class Preparation(RunFolder):
    """The stages of a job up to its protected tokens and the models that they are trained into."""

    def __init__(self, job: Job, progress: Progress | None = None, *, fresh: bool = False):
        super().__init__(job, progress, fresh=fresh)
        # One pass counts for both indexes; the second one waits here until the first is written.
        self._counted: dict[str, NgramIndex] = {}

    def dedup(self) -> None:
        """Documents -> copies that no later stage sees, where the job asks for it: it takes 8 bytes a word."""
        from reticent.engine.dedup import find_copies, write_left_out

        settings, config = self.job.dedup, self.dedup_config
        if settings.mode == "off":
            return

        def build(folder: Path, counts: dict[str, Any]) -> None:
            with self.progress.task("dedup", self.whole_corpus.num_documents, "documents") as advance:
                found = find_copies(self.whole_corpus, config, progress=advance)
            write_left_out(found.left_out, folder)
            counts.update(found.counts)

        kept = {**settings.model_dump(), "k": config.k, "surface": config.surface}
        self.make("dedup", kept, {"corpus": self.whole_corpus.fingerprint()}, build)
        self.invalidate("deduplicated", "parted", "documents", "corpus")

    def split(self) -> None:
        """Individuals -> members, held-out, reference."""
        from reticent import _rust
        from reticent.engine.split import SplitConfig, split_individuals, write_individuals

        settings = self.job.split
        config = SplitConfig(heldout=settings.heldout, reference=settings.reference, by=settings.by, seed=self.job.seed)

        def build(folder: Path, counts: dict[str, Any]) -> None:
            num_threads = _rust.resolve_threads(self.job.num_threads)
            self.deduplicated.check(num_threads=num_threads, frugal=self.job.memory_limit is not None)
            individuals = split_individuals(self.deduplicated, config)
            write_individuals(individuals, folder)
            for name in (MEMBERS, HELDOUT, REFERENCE):
                counts[name] = int(individuals.mask(name).sum())
            counts["documents"] = self.deduplicated.num_documents
            if settings.fresh:
                counts["fresh"] = self.fresh_documents.num_documents
            self._tell_recovered(counts)
            counts.update(self.whole_corpus.reading.skipped(), reading=self.whole_corpus.reading.counts())
            self._warn_of_owners()

        self.make(
            "split",
            {**settings.model_dump(), "seed": self.job.seed},
            {"corpus": self.deduplicated.fingerprint()},
            build,
        )
        self.invalidate("individuals")
        self._plant_canaries()

    def _warn_of_owners(self) -> None:
        """Warn where every document counts as somebody else's: people with several are protected too little."""
        corpus, settings = self.whole_corpus, self.job.corpus
        if corpus.format in ("i2b2-2006", "meddocan", "brat") and not settings.individual:
            self.progress.warn(
                f"format {corpus.format} does not say whose a document is: each counts as an individual "
                "of its own, which protects people with several too little; corpus.individual says otherwise"
            )
        elif (settings.individual or not settings.marked) and corpus.num_individuals == corpus.num_documents:
            how = "corpus.individual" if settings.individual else f"column {settings.individual_id}"
            self.progress.warn(
                f"{how}: each of the {corpus.num_documents:,} documents has an individual of its own. If these are ids "
                "of documents, people with several are protected too little; choose what says whose a document is"
            )

    def _tell_recovered(self, counts: dict[str, Any]) -> None:
        for what, count in self.deduplicated.mended.items():
            counts[what] = count
            self.progress.warn(f"{what}: {count:,}")

    def _plant_canaries(self) -> None:
        """Members and documents -> the same documents with canaries, where the job wants some."""
        from reticent.engine.canaries import CanaryConfig, common_words, draw_canaries, plant, write_canaries

        settings = self.job.canaries
        if settings is None:
            return
        config = CanaryConfig(
            num=settings.num,
            arms=tuple(settings.arms),
            repetitions=settings.repetitions,
            num_references=settings.num_references,
            k=self.job.protect.k,
            seed=self.job.seed if settings.seed is None else settings.seed,
        )

        more = [str(column) for column in self.job.detect.records.get("columns", {}).values()]

        def build(folder: Path, counts: dict[str, Any]) -> None:
            words = common_words(self.remaining, self.individuals, config)
            canaries = draw_canaries(self.individuals, words, config)
            write_canaries(canaries, folder)
            planted = plant(self.remaining, self.individuals, canaries, folder, config, more_columns=more)
            counts.update(canaries=canaries.num_rows, included=sum(canaries.column("included").to_pylist()), **planted)
            self.progress.warn("canaries stand in the documents: what is trained on them is for measuring only")

        inputs = {"corpus": self.remaining.fingerprint(), "split": self.fingerprint_of("split")}
        self.make("canaries", {**asdict(config), **({"columns": more} if more else {})}, inputs, build)
        self.invalidate("documents", "corpus")

    def detect(self) -> None:
        """Documents -> spans of direct identifiers, and the documents a detector failed on, if these are left out."""
        from reticent.core.artifact import fingerprint
        from reticent.engine.detect import make_detectors, option_files
        from reticent.job.engine_stages import find_identifiers

        settings = self.job.detect
        files = dict(option_files(settings.options))
        inputs = self._documents_input() | {option: fingerprint(path) for option, path in files.items()}

        def build(folder: Path, counts: dict[str, Any]) -> None:
            detectors = make_detectors(
                settings.detectors, settings.options, num_threads=self.job.num_threads, ids=self.job.corpus.ids
            )
            find_identifiers(self, detectors, folder, counts)

        config = settings.model_dump(include={"detectors", "on_error", "propagate"})
        config["options"] = {
            name: {
                key: value
                for key, value in table.items()
                if not any(f"{file}.".startswith(f"{name}.{key}.") for file in files)
            }
            for name, table in settings.options.items()
        }
        if settings.propagate:
            config["scopes"] = self.job.protect.scopes
        self.make("spans", config, inputs, build)
        self.invalidate("corpus")

    def index(self) -> None:
        """Documents of members -> supports of words and n-grams; the same over members and held-out for the audit."""
        from reticent.engine.index import IndexConfig, write_index

        config = IndexConfig(
            max_n=self.job.index.max_n,
            surface=self.job.index.surface,
            min_support=1 if self.job.index.updatable else 2,
            num_threads=self.job.num_threads,
            memory_limit=self.job.memory_limit,
        )
        inputs = self.index_inputs()
        for name, splits in INDEXES.items():

            def build(folder: Path, counts: dict[str, Any], name: str = name) -> None:
                with self.progress.task(
                    f"index of {' and '.join(INDEXES[name])}", self.corpus.num_documents, "documents"
                ) as advance:
                    index = self._count_ngrams(name, replace(config, spill_folder=folder), counts, advance)
                counts.update(words=index.num_words, occurrences=index.num_occurrences, individuals=index.num_units)
                counts["unspaced"] = index.num_unspaced
                write_index(index, folder)
                if name == "index":
                    self._tell_unspaced(counts)

            try:
                self.make(name, self.index_config(splits), inputs, build, kind="index")
            except BaseException:
                self._counted.clear()
                raise

    def _tell_unspaced(self, counts: dict[str, Any]) -> None:
        share = counts["unspaced"] / max(counts["occurrences"], 1)
        if share > UNSPACED_SHARE:
            self.progress.warn(
                f"{share:.0%} of the words are single letters of scripts without spaces (Han, Hiragana, Thai, Lao, "
                "Khmer, Burmese), where counting words protects almost nothing: rely on records and a trained NER for "
                "names, and set protect.n to 3 or more (index.max_n too), so that rare runs of letters are counted"
            )

    def index_config(self, splits: tuple[str, ...]) -> dict[str, Any]:
        """Settings that an index depends on; one that was made before there was a choice to keep more is still good."""
        kept = self.job.index.model_dump(exclude=set() if self.job.index.updatable else {"updatable"})
        return {**kept, "splits": list(splits)}

    def index_inputs(self) -> dict[str, str]:
        """What an index is made from."""
        return {**self._corpus_input(), "split": self.fingerprint_of("split")}

    def _count_ngrams(
        self, name: str, config: IndexConfig, counts: dict[str, Any], progress: Callable[[int], None]
    ) -> NgramIndex:
        """Return the index of this name; ``counts`` takes more than every index has."""
        from reticent.engine.index import build_index, build_nested_indexes

        (inner, within), (outer, splits) = INDEXES.items()
        if name == inner and not self.is_index_current(outer):
            self._counted[inner], self._counted[outer] = build_nested_indexes(
                self.corpus, self.individuals, splits=splits, within=within, config=config, progress=progress
            )
        if name in self._counted:
            progress(self.corpus.num_documents)
            return self._counted.pop(name)
        return build_index(self.corpus, self.individuals, splits=INDEXES[name], config=config, progress=progress)

    def is_index_current(self, name: str) -> bool:
        """Whether the index of this name was made with the job's settings from its documents, by its manifest alone."""
        return self.looks_current(name, self.index_config(INDEXES[name]), self.index_inputs(), kind="index")

    def protect(self) -> None:
        """Documents, spans and index -> protected tokens, once for each tokenizer."""
        from reticent.engine.detect.spans import SpanReader
        from reticent.engine.index import open_index
        from reticent.engine.tokens import write_tokens
        from reticent.engine.verify import TextSample

        settings, policy = self.job.protect, self.policy
        for model in self.job.model:
            tokenizer = self._tokenizer_json(model)
            needed = {self.job.recipe(recipe).tokens for recipe in model.recipes}
            variants: list[tuple[str, str, tuple[str, ...], TextStyle | None]] = [
                ("train", "index", (MEMBERS,), None),
                ("audit", "index-joint", (MEMBERS, HELDOUT), None),
                *((name, "index", (MEMBERS,), style) for name, style in REWRITTEN.items() if name in needed),
            ]
            if "lowercase" in self.job.audit.attacks:
                variants.append(("lowercase", "index-joint", (MEMBERS, HELDOUT), "lower"))
            for variant, index_name, splits, style in variants:

                def build(
                    folder: Path,
                    counts: dict[str, Any],
                    *,
                    variant: str = variant,
                    index_name: str = index_name,
                    splits: tuple[str, ...] = splits,
                    style: TextStyle | None = style,
                    tokenizer: str = tokenizer,
                    model: ModelSection = model,
                ) -> None:
                    sample = None if style else TextSample(self.corpus, self.individuals, splits, self.job.seed)
                    with self.progress.task(
                        f"protect {variant} tokens", self.corpus.num_documents, "documents"
                    ) as advance:
                        counts.update(
                            write_tokens(
                                folder,
                                self.corpus,
                                self.individuals,
                                tokenizer,
                                splits=splits,
                                policy=policy,
                                index=None if style == "lower" else open_index(self.folder / index_name),
                                spans=None if style == "lower" else SpanReader(self.folder / "spans"),
                                style=style,
                                text_sizes=variant == "audit",
                                sample=sample,
                                progress=advance,
                                num_threads=self.job.num_threads,
                            )
                        )
                    if counts["retention"] < 0.4 and variant == "train":
                        self.progress.warn(
                            f"only {counts['retention']:.0%} of the words stay usable as targets "
                            f"(k={settings.k}, n={settings.n}, policy {settings.policy}); "
                            "try policy cover, a smaller n, or more documents"
                        )
                    if settings.policy == "last" and settings.n > 1 and model.objective == "mlm" and variant == "train":
                        self.progress.warn(
                            f"{model.name} is a masked model, which predicts a word from those after it too: "
                            "policy last protects one direction only; use all"
                        )

                config = {
                    **settings.model_dump(),
                    "splits": list(splits),
                    "style": style,
                    "tokenizer": _digest(tokenizer),
                }
                inputs = {
                    **self._corpus_input(),
                    "split": self.fingerprint_of("split"),
                    "spans": self.fingerprint_of("spans"),
                    "index": self.fingerprint_of(index_name),
                }
                self.make(f"tokens/{model.name}/{variant}", config, inputs, build, kind="tokens")
            if USER_INFERENCE in self.job.audit.attacks:
                self._tokenise_fresh(model, tokenizer)

    def _tokenise_fresh(self, model: ModelSection, tokenizer: str) -> None:
        """Fresh documents of both sides -> tokens without flags: nothing is trained on them, and all are asked for."""
        from reticent.engine.tokens import write_tokens

        def build(folder: Path, counts: dict[str, Any]) -> None:
            corpus = self.fresh_documents
            with self.progress.task("tokens of fresh documents", corpus.num_documents, "documents") as advance:
                counts.update(
                    write_tokens(
                        folder, corpus, self.individuals, tokenizer, splits=(MEMBERS, HELDOUT), progress=advance,
                        num_threads=self.job.num_threads,
                    )
                )  # fmt: skip

        config = {"splits": [MEMBERS, HELDOUT], "tokenizer": _digest(tokenizer)}
        inputs = {"corpus": self.fresh_documents.fingerprint(), "split": self.fingerprint_of("split")}
        self.make(f"tokens/{model.name}/fresh", config, inputs, build, kind="tokens")

    def foundation(self) -> None:
        """Text that is nobody's -> the stand-in for a foundation model, where the job asks for one."""
        from reticent.core.artifact import fingerprint
        from reticent.engine.corpus import open_corpus

        for model in self.job.model:
            if model.foundation is None:
                continue
            reference = model.foundation.text == "reference"
            inputs = (
                {**self._corpus_input(), "split": self.fingerprint_of("split")}
                if reference
                else {"text": open_corpus(model.foundation.text, ids="exact").fingerprint()}
            )
            if model.foundation.vocabulary is not None:
                inputs["vocabulary"] = fingerprint(model.foundation.vocabulary)
            config = {
                **model.foundation.model_dump(exclude={"text"}),
                "vocabulary": None,  # by its content, among the inputs
                "objective": model.objective,
                "seed": self.job.seed,
                "window_length": self.job.train.window_length,
            }

            def build(folder: Path, counts: dict[str, Any], model: ModelSection = model) -> None:
                from reticent.job.engine_stages import build_foundation

                build_foundation(self, model, folder, counts)

            self.make(f"foundation/{model.name}", config, inputs, build, kind="foundation")

    # ---------------------------------------------------------------- of a model

    def _base(self, model: ModelSection) -> str:
        return model.base if model.base is not None else str(self.folder / "foundation" / model.name / "model")

    def _base_input(self, model: ModelSection) -> dict[str, str]:
        if model.foundation is not None:
            return {"foundation": self.fingerprint_of(f"foundation/{model.name}")}
        base = str(model.base)
        return {"base": self.fingerprint_at(Path(base)) if Path(base).exists() else base}

    def _tokenizer_json(self, model: ModelSection) -> str:
        from reticent.trainer.tokenizer_json import tokenizer_json_of

        return tokenizer_json_of(self._base(model))

    def _documents_input(self) -> dict[str, str]:
        own = {} if self.job.canaries is None else {"canaries": self.fingerprint_of("canaries")}
        return {"corpus": self.documents.fingerprint(), **own}

    def _corpus_input(self) -> dict[str, str]:
        return {"corpus": self.corpus.fingerprint()}


def _digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()
