"""What closes the three holes of protection by support, and what does it cost?

Arms (recipes and thresholds) are trained on random halves of the same individuals and on their complements, so every
model has a twin that saw none of its members. Every model is a target in turn. Beside utility (share of ippclm's gain
over the base, on held-out individuals) and retention stand the attacks on each hole: inversion of rare words (what is
only read), the threshold attack, and LiRA by kind of word (what the words in between remember).

Preregistered, before the first run (`CRITERIA`): surrogates in the context keep at least 97 % of the gain; the upper
end of inversion's excess is at most .03 with at least 1,000 targets a side; LiRA on rare words is at most .6; the upper
end of the threshold attack is at most .6. If the small models and the grid of real ones agree, surrogates become the
default; otherwise the default stays "keep".

Texts are MTSamples or MEDDOCAN (RETICENT_DATA, --corpus), a report an individual. A cell that is done is not run again:
stop it and call it again with the same --out. With --own-epochs each arm is attacked after its own best epoch.

    python -m studies.holes --size toy|quick|practical|cpu --out FOLDER [--arms ippclm,ippclm-surrogate,…]
    python -m studies.holes --size real --base smollm2=FOLDER --objective clm --out FOLDER   # two cores, LoRA
    python -m studies.holes --size real --base minilm=FOLDER --objective mlm --out FOLDER    # all weights; its head
                                                                                                # from public reports
    python -m studies.holes --size whole --base smollm2=FOLDER --objective clm --out FOLDER  # everybody, one GPU
    python -m studies.holes --size gpu --base smollm2=FOLDER --objective clm --out FOLDER    # the whole grid, with
                                                                                                # clma and dp-clm
--people, --epochs, --pairs and --models choose a part of a size, for example the cells that a night has time for. More
models are added to those that are there, and --record keeps the cells that an earlier call recorded.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer

from benchmarks.record_io import DATA, STUDIES, markdown, write_record
from reticent.audit.config import AuditConfig, GenerationConfig, InversionConfig
from reticent.audit.evaluate import Auditor, ModelEntry
from reticent.audit.scoring.token_scores import TokenScores
from reticent.audit.stats.intervals import TAILS, ratio_estimates, square_and_add
from reticent.core.device import pick_device
from reticent.engine.corpus import Corpus, open_corpus
from reticent.engine.detect import detect_spans, make_detectors
from reticent.engine.detect.spans import SpanReader
from reticent.engine.dp_vocabulary import count_voters, word_order
from reticent.engine.flagged_words import FlaggedWords
from reticent.engine.graph import WordIds
from reticent.engine.index import IndexConfig, build_index
from reticent.engine.noisy_threshold import Noise, noisy_index
from reticent.engine.protect import Policy
from reticent.engine.public_words import context_words, read_public_words
from reticent.engine.schema import HELDOUT, INDIVIDUALS, MEMBERS, SPLITS
from reticent.engine.split import Individuals
from reticent.engine.store import open_tokens
from reticent.engine.tokens import write_tokens
from reticent.ext.inversion.identifiers import draw_targets, runs_of
from reticent.ext.inversion.inversion import rank_first_scores, score_candidates
from reticent.trainer.config import LoraSettings, PrivacyConfig, TrainConfig
from reticent.trainer.export import write_model
from reticent.trainer.foundation import new_model, train_tokenizer
from reticent.trainer.loop import train
from reticent.trainer.models import load_model, load_tokenizer, special_ids
from reticent.trainer.recipes import get_recipe
from reticent.trainer.windows import cut_windows

#: Arm -> recipe, k, and what the threshold counts.
ARMS: dict[str, dict[str, Any]] = {
    "clm": {"recipe": "clm"},
    "ippclm": {"recipe": "ippclm"},
    "ippclm-surrogate": {"recipe": "ippclm-surrogate"},
    "k = 5": {"recipe": "ippclm", "k": 5},
    "k = 10": {"recipe": "ippclm", "k": 10},
    "noisy": {"recipe": "ippclm", "noise": (1.0, 0.05)},
    "with reference": {"recipe": "ippclm", "reference": True},
    "frozen embeddings": {"recipe": "ippclm", "freeze_embeddings": True},
    "noisy surrogate": {"recipe": "ippclm-surrogate", "noise": (1.0, 0.05)},
    "strict list": {"recipe": "ippclm", "list": True},
    "private vocabulary": {"recipe": "ippclm", "noise": (8.0, 1e-5, 100)},
    # Comparators: direct identifiers as X, and differential privacy for each individual.
    "clma": {"recipe": "clma"},
    "dp(8)": {"recipe": "dp-clm", "epsilon": 8.0},
    "dp(1000)": {"recipe": "dp-clm", "epsilon": 1000.0},
}
#: The attack of HT-MIA: the tokens that the base predicts worst.
HARD_TOKENS = "hard_tokens"
#: Attacks that ask the model, measured where a size says how.
ASKING = ("ngram_coverage", "icp")
#: One of each kind of arm; `studies.dp_baseline` tries private training.
TOY_ARMS = ("ippclm-surrogate", "with reference", "strict list", "private vocabulary", "clma")
COMPARATORS = ("clma", "dp(8)", "dp(1000)")
#: LiRA by turns needs another pair beside that of the target: of each individual a model with and one without.
LEAST_MODELS = 4
#: Public texts that an arm with a public side needs at least.
FEWEST_PUBLIC = 40
#: Corpus -> its files under RETICENT_DATA; a text is an individual.
CORPORA = {"mtsamples": ("mtsamples/mtsamples.jsonl",), "meddocan": ("meddocan/train.jsonl", "meddocan/dev.jsonl")}
#: Halves of the held-out individuals where each arm has its own epoch: one chooses it, the other measures the gain.
CHOOSING, MEASURING = 0, 1
#: Tokens of a window that are not text: the prefix of a causal model, or the ends of a masked one.
SPECIAL = 2


SIZES: dict[str, dict[str, Any]] = {
    "toy": {"people": [12], "epochs": [1], "pairs": 1, "characters": 300, "hidden": 16, "layers": 1, "vocab": 300,
            "public": 40, "draws": 100},
    # Without inversion: minutes.
    "quick": {"people": [100], "epochs": [8], "pairs": 1, "characters": 700, "hidden": 64, "layers": 2, "vocab": 1500,
              "public": 600, "draws": 500, "inversion": False,
              "asking": {"prefix_tokens": 32, "num_tokens": 64, "num_samples": 5}},
    "cpu": {"people": [200], "epochs": [16], "pairs": 3, "characters": 1500, "hidden": 64, "layers": 2, "vocab": 2000,
            "public": 2000, "draws": 1000},
    # Adapters and few epochs over everybody who is left where 600 reports pre-train the base.
    "practical": {"people": [292], "epochs": [3], "pairs": 2, "characters": 1500, "hidden": 64, "layers": 2,
                  "vocab": 2000, "public": 600, "lora": 8, "learning_rate": 2e-3, "draws": 1000, "inversion": False},
    # Inversion only by --invert: it reads sixteen copies of the window of each target, a masked model in every fold.
    "real": {"people": [100], "epochs": [3, 1], "pairs": 2, "characters": 2000, "one_window": True, "window": 128,
             "lora": 8, "draws": 1000, "inversion": False, "bf16": "on", "public": 600,
             "masked": {"lora": None, "learning_rate": 5e-4, "head_epochs": 3}},
    # Everybody, a window of 512 tokens each, on a GPU in minutes: without the attacks that ask the model.
    "whole": {"people": [592], "epochs": [3], "pairs": 2, "characters": 6000, "one_window": True, "window": 512,
              "lora": 8, "draws": 1000, "inversion": False, "public": 600},
    "gpu": {"people": [100, 300, 592], "epochs": [1, 2, 4, 8], "pairs": 8, "characters": 6000, "window": 512, "lora": 8,
            "draws": 1000, "public": 600, "asking": {"prefix_tokens": 128, "num_tokens": 128, "num_samples": 20},
            "masked": {"lora": None, "learning_rate": 5e-4, "head_epochs": 3}},
}  # fmt: skip
#: Measure -> what it must not be under (1) or over (-1), and the bound.
CRITERIA = {"gain": (1, 0.97), "inversion": (-1, 0.03), "rare": (-1, 0.6), "threshold": (-1, 0.6)}
LEAST_TARGETS = 1000
#: What the command line may choose of a size: a cell of a record says its people and epochs, and an arm its models and
#: whether it was trained in bf16.
PARTS = ("people", "epochs", "pairs", "models", "invert", "bf16")


def distinct_reports(files: Sequence[str], characters: int | None) -> list[str]:
    """Return the texts of files of a corpus, each once and cut to its first characters, in a random order."""
    reports = []
    for name in files:
        with (DATA / name).open(encoding="utf-8") as lines:
            reports += [json.loads(line)["text"].strip()[:characters] for line in lines]
    distinct = [text for text in dict.fromkeys(reports) if len(text) > 100]
    return [distinct[number] for number in np.random.default_rng(0).permutation(len(distinct))]


def open_texts(place: Path, texts: Sequence[str]) -> Corpus:
    """Write texts, each an individual's own, and open them."""
    place.mkdir(parents=True, exist_ok=True)
    ids = [f"p{number:05}" for number in range(len(texts))]
    table = pa.table({"doc_id": ids, "individual_id": ids, "text": pa.array(texts, pa.large_string())})
    pq.write_table(table, place / "part-0.parquet")
    return open_corpus(place)


def individuals_of(sides: np.ndarray) -> Individuals:
    """Return the individuals of such texts, on these sides (numbers of `SPLITS`)."""
    units = pa.array(range(len(sides)), pa.uint32())
    splits = pa.DictionaryArray.from_arrays(pa.array(sides, pa.int8()), pa.array(SPLITS))
    ids, ones = pa.array([f"p{code:05}" for code in range(len(sides))]), pa.array([1] * len(sides), pa.uint32())
    return Individuals(pa.table([ids, units, units, splits, ones], schema=INDIVIDUALS))


def common_words(index: Any, least: int) -> set[str]:
    """Return the words of an index with so many users or more."""
    words = index.words()
    return set(words.column("word").filter(pa.array(words.column("support").to_numpy() >= least)).to_pylist())


def words_of_users(corpus: Any, individuals: Any, index: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return whose word stands at each place of the members' documents, and its row in an index."""
    ids, unit, word = WordIds(index), [], []
    for part, words, *_ in FlaggedWords(corpus, individuals, splits=("members",)):
        word.append(ids.look_up(part.texts, words).astype(np.int64))
        unit.append(np.repeat(part.units.astype(np.int64), np.diff(words.doc_offsets)))
    return np.concatenate(unit), np.concatenate(word)


def voters_of(unit: np.ndarray, word: np.ndarray, index: Any, noise: Any, key: bytes) -> np.ndarray | None:
    """Return who votes for each word, where the noise is for individuals."""
    if noise.max_words is None:
        return None
    return count_voters([(unit, word)], word_order(key, index.words().column("word")), noise.max_words)


def listed_index(index: Any, listed: set[str]) -> Any:
    """Return an index by which only listed words keep their users; the others have one."""
    words = index.words()
    on_list = np.array([word in listed for word in words.column("word").to_pylist()], dtype=bool)
    supports = words.column("support").to_numpy()
    return index.with_supports(np.where(on_list, supports, np.minimum(supports, 1)))


@dataclass
class Grid:
    """One number of individuals and of epochs: its documents, models and results."""

    folder: Path
    size: dict[str, Any]
    people: int
    epochs: int
    objective: str = "clm"
    base: str | None = None
    source: str = "mtsamples"
    #: Whether each arm is attacked at its own best epoch, of all up to ``epochs``; otherwise after the last.
    own_epochs: bool = False
    auditors: dict[int, Any] = field(default_factory=dict)
    bases: dict[int, Any] = field(default_factory=dict)

    @cached_property
    def texts(self) -> list[str]:
        return [self._cut(text) for text in distinct_reports(CORPORA[self.source], self.size["characters"])]

    def _cut(self, text: str) -> str:
        """The first tokens of a text, as many as fit into ``one_window`` of the given model."""
        if not self.size.get("one_window"):
            return text
        end = self.window - SPECIAL
        offsets = self._tokenizer_of_base.encode(text, add_special_tokens=False).offsets
        return text if len(offsets) <= end else text[: offsets[end][0]].rstrip()

    @cached_property
    def _tokenizer_of_base(self) -> Any:
        return Tokenizer.from_str(self.tokenizer)

    @cached_property
    def corpus(self) -> Any:
        """The individuals to deal, then those whose texts are public."""
        return open_texts(self.folder / "documents", self.texts[: 2 * self.people + self.size.get("public", 0)])

    def sides(self, number: int) -> Any:
        """The individuals of a model: even ones draw a half, odd ones have its complement."""
        drawn = np.zeros(2 * self.people, dtype=bool)
        drawn[np.random.default_rng(100 + number // 2).permutation(2 * self.people)[: self.people]] = True
        is_member = drawn if number % 2 == 0 else ~drawn
        side = np.full(self.corpus.num_documents, 2, dtype=np.int8)
        side[: 2 * self.people] = np.where(is_member, 0, 1)
        return individuals_of(side)

    @cached_property
    def tokenizer(self) -> str:
        if self.base is not None:
            return (Path(self.base) / "tokenizer.json").read_text(encoding="utf-8")
        kind: Any = "bytelevel" if self.objective == "clm" else "wordpiece"
        return train_tokenizer([self.texts[2 * self.people :][: self.size["public"]]], kind, self.size["vocab"])

    @cached_property
    def spans(self) -> Any:
        """Direct identifiers that rules find; only the arms that replace them need any."""
        place = self.folder / "spans"
        if not place.exists():
            place.mkdir(parents=True)
            detect_spans(self.corpus, make_detectors(["rules"]), place)
        return SpanReader(place)

    def tokens(
        self, name: str, individuals: Any, splits: tuple[str, ...], index: Any, k: int, *, rewritten: bool = False
    ) -> Any:
        place = self.folder / "tokens" / name
        if not (place / "view.parquet").exists():
            place.mkdir(parents=True, exist_ok=True)
            write_tokens(
                place, self.corpus, individuals, self.tokenizer, splits=splits, index=index, policy=Policy(k=k),
                spans=self.spans if rewritten else None, style="x" if rewritten else None,
            )  # fmt: skip
        return open_tokens(place)

    @cached_property
    def base_folder(self) -> Path:
        """The base model: the one that was given, one with its head trained on the public texts where a masked one has
        none, or a small one trained on them.
        """
        if self.base is not None and not (self.objective == "mlm" and self.size.get("head_epochs")):
            return Path(self.base)
        epochs = 2 if self.base is None else self.size["head_epochs"]
        done = self.folder / "base" / f"epoch-{epochs:04}"
        if not done.exists():
            if self.base is None:
                kind: Any = "gpt2" if self.objective == "clm" else "bert"
                model = new_model(
                    kind, self.tokenizer, hidden_size=self.size["hidden"], num_layers=self.size["layers"],
                    max_length=self.window,
                )  # fmt: skip
            else:
                model = load_model(Path(self.base), "mlm")
            store = self.tokens("public", self.sides(0), ("reference",), None, 2)
            rate = 3e-3 if self.base is None else 5e-4
            config = TrainConfig(num_epochs=epochs, batch_size=16, learning_rate=rate, window_length=self.window,
                                 checkpoint_epochs=(), device="auto")  # fmt: skip
            train(model, store, get_recipe(self.objective), config, self.folder / "base", tokenizer=self.tokenizer)
            if not done.exists():
                recipe = get_recipe(self.objective)
                write_model(model, load_tokenizer(self.tokenizer), done, recipe=recipe, epoch=epochs)
        return done

    def is_possible(self, arm: str) -> bool:
        """Whether an arm that needs public texts has enough of them."""
        needs = any(ARMS[arm].get(name) for name in ("reference", "list"))
        return not needs or self.corpus.num_documents - 2 * self.people >= FEWEST_PUBLIC

    def public_list(self, individuals: Any) -> set[str]:
        """Words of a strict public list: those that one in a hundred public reports uses, and five at least."""
        public = build_index(self.corpus, individuals, splits=("reference",), config=IndexConfig(max_n=1))
        return common_words(public, max(5, public.num_units // 100))

    @property
    def window(self) -> int:
        return int(self.size.get("window", 256))

    def train(self, arm: str, number: int) -> dict[str, Any]:
        """Train a model of an arm where it is not there; returns what is kept of it."""
        place, settings = self.folder / "models" / arm / f"{number:02}", ARMS[arm]
        done = place / "done.json"
        if done.exists():
            found: dict[str, Any] = json.loads(done.read_text())
            return found
        individuals, k = self.sides(number), settings.get("k", 2)
        counted = (MEMBERS, "reference") if settings.get("reference") else (MEMBERS,)
        index = build_index(self.corpus, individuals, splits=counted, config=IndexConfig(max_n=1))
        if "noise" in settings:
            noise, key = Noise(*settings["noise"]), bytes([number + 1]) * 32
            voters = voters_of(*words_of_users(self.corpus, individuals, index), index, noise, key)
            index = noisy_index(index, k, noise, key, voters=voters)
        if "list" in settings:
            index = listed_index(index, self.public_list(individuals))
        recipe = replace(get_recipe(self.recipe(arm)), freeze_embeddings=bool(settings.get("freeze_embeddings")))
        rewritten = recipe.text == "pseudonymised"
        store = self.tokens(f"{arm} {number:02}", individuals, (MEMBERS,), index, k, rewritten=rewritten)
        words = None
        if recipe.replaces_indirect:
            words = context_words(self.tokenizer, read_public_words("generated"), index, k)
        lora = LoraSettings(r=self.size["lora"]) if self.size.get("lora") else None
        privacy = None
        if recipe.private:  # no fixed clip and rate is fair to both; these are those of the project's other runs
            privacy = PrivacyConfig(target_epsilon=settings["epsilon"], max_physical_batch_size=8)
        rate = self.size.get("learning_rate", 3e-4 if lora else 2e-3)
        config = TrainConfig(
            num_epochs=self.epochs, batch_size=8, window_length=self.window, seed=number,
            checkpoint_epochs=tuple(range(1, self.epochs + 1)) if self.own_epochs else (),
            learning_rate=1e-3 if privacy else rate, lora=lora, device="auto", bf16=self.size.get("bf16", "auto"),
        )  # fmt: skip
        started = time.perf_counter()
        result = train(
            load_model(self.base_folder, self.objective), store, recipe, config, place, tokenizer=self.tokenizer,
            context=words, privacy=privacy,
        )  # fmt: skip
        about = {
            "seconds": time.perf_counter() - started,
            "retention": float(np.mean((store.flags & recipe.never_target) == 0)),
            "ledger": result.ledger.to_dict(),
        }
        done.write_text(json.dumps(about))
        return about

    def recipe(self, arm: str) -> str:
        name: str = ARMS[arm]["recipe"]
        return name if self.objective == "clm" else name.replace("clm", "mlm")

    def auditor(self, number: int) -> Any:
        if number in self.auditors:
            return self.auditors[number]
        individuals, both = self.sides(number), (MEMBERS, HELDOUT)
        joint = build_index(self.corpus, individuals, splits=both, config=IndexConfig(max_n=1))
        own = build_index(self.corpus, individuals, splits=(MEMBERS,), config=IndexConfig(max_n=1))
        store = self.tokens(f"audit {number:02}", individuals, both, joint, 2)
        train_store = self.tokens(f"train {number:02}", individuals, (MEMBERS,), own, 2)
        members = individuals.mask(MEMBERS)[store.individual]
        asked = self.size.get("inversion", {})
        inversion = None if asked is False else InversionConfig(**asked)
        generation = None
        if self.size.get("asking") and self.objective == "clm":
            generation = GenerationConfig(**self.size["asking"])
        config = AuditConfig(
            attacks=("loss", "reference", HARD_TOKENS, *(ASKING if generation else ())),
            num_bootstrap=self.size["draws"], inversion=inversion, generation=generation,
            window_length=self.window, all_occurrences=False, bf16=self.size.get("bf16", "auto"),
        )  # fmt: skip
        self.auditors[number] = self._auditor(train_store, store, members, config)
        return self.auditors[number]

    @cached_property
    def _auditor(self) -> Any:
        """An auditor that keeps the scores of a model: the documents are the same whoever is a member."""
        folder = self.folder / "scores"

        class Kept(Auditor):
            def score(self, entry: Any, progress: Any = None, *, all_occurrences: bool = False) -> TokenScores:
                place = folder / f"{'-'.join(entry.path.parts[-3:])}.parquet"
                if not place.exists():
                    folder.mkdir(exist_ok=True)
                    super().score(entry, progress, all_occurrences=all_occurrences).to_parquet(place)
                return TokenScores.from_parquet(place)

            def side_utility(self, entry: Any, chosen: np.ndarray) -> Any:
                return self._utility(entry.objective, self.score(entry), chosen)

        return Kept

    def evaluate(self, arm: str) -> list[dict[str, Any]]:
        """Attack every model of an arm in turn; cells that are done are read."""
        numbers = list(range(self.num_models))
        trained = [self.train(arm, number) for number in numbers]
        results: list[dict[str, Any]] = []
        scored: list[Any] | None = None
        for number, about in zip(numbers, trained, strict=True):
            place = self.folder / "results" / arm / f"{number:02} of {len(numbers):02}.json"
            if not place.exists():
                if len(numbers) >= LEAST_MODELS:
                    scored = scored or [self._log_probs(arm, other) for other in numbers]
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(json.dumps({**self._evaluated(arm, number, scored), **about}))
                print(f"{arm} {number}", file=sys.stderr, flush=True)
            results.append(json.loads(place.read_text()))
        return results

    @cached_property
    def _questions(self) -> tuple[Any, Any, np.ndarray]:
        """Windows, rare words to find again there, and the models of each word's individual, as bits of the pairs.

        Every model is asked the same: a decoy is a word of somebody who is on the same side in each of them.
        """
        auditor = self.auditor(0)
        special = special_ids(load_tokenizer(self.base_folder), self.objective)
        windows = cut_windows(auditor.store, self.window, special)
        runs = runs_of(auditor.store, auditor.words, "indirect", auditor.tokenizer, auditor.table)
        pairs, num_words = range(0, self.num_models, 2), self.size["invert"]
        sides = sum(self.sides(number).mask(MEMBERS).astype(np.int64) << (number // 2) for number in pairs)
        targets = draw_targets(
            auditor.store, windows, runs, np.asarray(sides)[runs.individuals], num_decoys=InversionConfig().num_decoys,
            per_individual=math.ceil(num_words / (2 * self.people)), seed=0, needs_more=self.objective == "clm",
        )  # fmt: skip
        few = np.sort(np.random.default_rng(0).permutation(len(targets))[:num_words])
        names = ("windows", "individuals", "starts", "lengths", "candidates")
        targets = replace(targets, **{name: getattr(targets, name)[few] for name in names})
        return windows, targets, np.asarray(sides)[targets.individuals]

    def _candidates(self, path: Path, place: Path) -> np.ndarray:
        """Log-probabilities of the candidates' windows by the model in ``path``; float64, shape (I, C)."""
        windows, targets, _ = self._questions
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            model: Any = load_model(path, self.objective).to(device=pick_device("auto")).eval()  # type: ignore
            started, folds = time.perf_counter(), None if self.objective == "clm" else self.auditor(0).config.folds
            # Of a masked model bf16 errs by .06 nats where candidates differ by .96; of a causal one by .26 of .69.
            halved = folds is not None and self.size.get("bf16") == "on"
            with torch.autocast(model.device.type, dtype=torch.bfloat16, enabled=halved):
                sums = score_candidates(model, windows, targets, folds=folds)
            np.savez(place, candidates=targets.candidates, sums=sums.sum(axis=2))
            print(
                f"{place.parent.name} {place.stem}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True
            )
        kept = np.load(place)
        assert np.array_equal(kept["candidates"], targets.candidates), f"{place}: of other identifiers"
        return np.asarray(kept["sums"])

    def invert(self, arm: str, num_models: int | None = None) -> dict[str, Any]:
        """Inversion of rare words by the first models of an arm, all by default: how often the true word is first where
        its individual is a member, and where not. Individuals are resampled with all that each model says of them.
        """
        _, targets, sides = self._questions
        place, rows = self.folder / "inversion", targets.individuals
        base = self._candidates(self.base_folder, place / "base" / "00.npz")
        size = (2, int(rows.max()) + 1)  # members, then the others
        first, asked = np.zeros(size), np.zeros(size)
        for number in range(num_models or self.num_models):
            self.train(arm, number)
            path = self._checkpoint(arm, number, self.epoch_of(arm))
            _, share = rank_first_scores(self._candidates(path, place / arm / f"{number:02}.npz") - base)
            is_out = 1 - (sides >> (number // 2) & 1 ^ number % 2)
            np.add.at(first, (is_out, rows), share)
            np.add.at(asked, (is_out, rows), 1.0)
        rates, draws = ratio_estimates(first, asked, num_bootstrap=self.size["draws"])
        low, high = np.nanquantile(draws[:, 0] - draws[:, 1], TAILS)
        if low == high:  # nothing varies in a bootstrap
            low, high = square_and_add(*rates)
        found: list[list[Any]] = [[rate.value, rate.low, rate.high] for rate in rates]
        return {
            "inversion": [found[0][0] - found[1][0], float(low), float(high)],
            "inversion_sides": found, "inversion_targets": int(asked.sum(axis=1).min()),
            "inversion_models": num_models or self.num_models, "inversion_words": len(targets),
            "inversion_people": len(np.unique(rows)),
        }  # fmt: skip

    @property
    def num_models(self) -> int:
        return int(self.size.get("models") or 2 * self.size["pairs"])

    def _checkpoint(self, arm: str, number: int, epoch: int) -> Path:
        return self.folder / "models" / arm / f"{number:02}" / f"epoch-{epoch:04}"

    def epoch_of(self, arm: str) -> int:
        """The epoch after which an arm is attacked: its last, or of its own, the one of least loss on ordinary words of
        one half of the held-out individuals, mean over its models. The other half says what it reaches there.
        """
        if not self.own_epochs:
            return self.epochs
        place = self.folder / "epochs" / f"{arm}, {self.num_models} models.json"
        if not place.exists():
            place.parent.mkdir(exist_ok=True)
            losses = {epoch: [self._loss(self._entry(arm, number, epoch), number, CHOOSING)
                              for number in range(self.num_models)] for epoch in range(1, self.epochs + 1)}  # fmt: skip
            place.write_text(json.dumps(losses))
        losses = json.loads(place.read_text())
        return int(min(losses, key=lambda epoch: sum(losses[epoch])))

    def _loss(self, entry: Any, number: int, half: int | None) -> float:
        """Mean loss of ordinary tokens of held-out individuals; of a masked model the share of words that it misses."""
        auditor = self.auditor(number)
        chosen = ~auditor.members if half is None else ~auditor.members & (auditor.store.individual % 2 == half)
        side = auditor.side_utility(entry, chosen)
        if side.ordinary_perplexity is not None:
            return float(np.log(side.ordinary_perplexity.value))
        return 1 - float(side.ordinary_word_accuracy.value)

    def _entry(self, arm: str, number: int, epoch: int) -> Any:
        recipe = get_recipe(self.recipe(arm))
        return ModelEntry(
            name=arm, recipe=recipe.name, objective=self.objective, epoch=epoch,
            path=self._checkpoint(arm, number, epoch), never_target=recipe.never_target, k=ARMS[arm].get("k", 2),
            noise=Noise(*ARMS[arm]["noise"]) if "noise" in ARMS[arm] else None,
        )  # fmt: skip

    def _log_probs(self, arm: str, number: int) -> tuple[np.ndarray, np.ndarray]:
        auditor = self.auditor(number)  # documents are in one order whoever is a member
        is_in = self.sides(number).mask(MEMBERS)[auditor.store.individual]
        return auditor.score(self._entry(arm, number, self.epoch_of(arm))).log_probs, is_in

    @cached_property
    def _base(self) -> Any:
        return ModelEntry(name="base", recipe="base", objective=self.objective, epoch=0, path=self.base_folder)

    def base_scores(self, number: int) -> Any:
        if number not in self.bases:
            self.bases[number] = self.auditor(number).evaluate(self._base)
        return self.bases[number]

    def _evaluated(self, arm: str, number: int, scored: list[Any] | None) -> dict[str, Any]:
        base, scores = self.base_scores(number)
        shadows = None if scored is None else iter(scored)
        epoch, half = self.epoch_of(arm), MEASURING if self.own_epochs else None
        entry = self._entry(arm, number, epoch)
        found, _ = self.auditor(number).evaluate(entry, scores, shadow_tokens=shadows)
        kinds = found.by_kind
        indirect = found.inversion and found.inversion.indirect
        inverted = indirect and indirect.all

        def of(estimate: Any) -> list[float] | None:
            return None if estimate is None or estimate.value is None else [estimate.value, estimate.low, estimate.high]

        return {
            "epoch": epoch, "loss": self._loss(entry, number, half), "base_loss": self._loss(self._base, number, half),
            "n": self.people, "bf16": self.size.get("bf16", "auto"),
            "threshold": of(found.threshold.at_threshold.auc), "threshold_n": found.threshold.at_threshold.num_members,
            "above": of(found.threshold.above.auc), "base_threshold": of(base.threshold.at_threshold.auc),
            "likelihood": of(found.threshold.by_likelihood and found.threshold.by_likelihood.auc),
            "base_likelihood": of(base.threshold.by_likelihood and base.threshold.by_likelihood.auc),
            "membership": of(found.membership["reference"].auc),
            "hard_tokens": of(found.membership[HARD_TOKENS].auc),
            **{name: of(found.membership[name].auc) for name in ASKING if name in found.membership},
            **{f"base_{name}": of(base.membership[name].auc) for name in ASKING if name in base.membership},
            **{kind: of(own.attacks["lira"].auc_in_turn) for kind, own in kinds.items() if "lira" in own.attacks},
            **{f"reference, {kind}": of(own.attacks["reference"].auc) for kind, own in kinds.items()},
            "inversion": of(inverted.top1.excess) if inverted else None,
            "inversion_targets": indirect.num_targets.members if inverted else 0,
        }  # fmt: skip


# ------------------------------------------------- what was found


def summary(results: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return of each arm the mean over its models of every measure, and their least and greatest value."""
    usual = results.get("ippclm")
    gain_of_usual = mean(row["base_loss"] - row["loss"] for row in usual) if usual else 0.0
    found = {}
    for arm, rows in results.items():
        gains = [row["base_loss"] - row["loss"] for row in rows]
        of_arm: dict[str, Any] = {
            "models": len(rows),
            "epoch": rows[0]["epoch"],
            "bf16": rows[0]["bf16"],
            # In nats a token, or of a masked model in shares of the words.
            "loss_saved": [mean(gains), min(gains), max(gains)],
            # A share of nothing, or of a loss, says nothing.
            "gain": [mean(gains) / gain_of_usual, *_ends(gains, gain_of_usual)] if gain_of_usual > 0 else None,
            "retention": mean(row["retention"] for row in rows),
            "inversion_targets": sum(row["inversion_targets"] or 0 for row in rows),
        }
        asked = [*ASKING, *(f"base_{name}" for name in ASKING)]
        for name in ("threshold", "above", "base_threshold", "likelihood",
                     "base_likelihood", "membership", HARD_TOKENS, "all", "ordinary", "rare", "inversion",
                     "reference, ordinary", "reference, rare", *asked):  # fmt: skip
            values = [row[name] for row in rows if row.get(name)]
            # The mean of the ends is no interval of the mean, but wider than one: models share their individuals.
            of_arm[name] = [mean(value[place] for value in values) for place in range(3)] if values else None
        found[arm] = of_arm
    return found


def _ends(gains: list[float], usual: float) -> tuple[float, float]:
    return min(gains) / usual, max(gains) / usual


def verdicts(arm: dict[str, Any]) -> dict[str, bool | None]:
    """Return of each preregistered criterion whether an arm meets it; None where it was not measured or of too few."""
    found: dict[str, bool | None] = {}
    for name, (sign, bound) in CRITERIA.items():
        value = arm[name]
        end = None if value is None else value[0 if name in ("gain", "rare") else 2]
        too_few = name == "inversion" and arm["inversion_targets"] < LEAST_TARGETS
        found[name] = None if end is None or too_few else bool(sign * end >= sign * bound)
    return found


def recorded(about: str, size: dict[str, Any]) -> dict[str, Any]:
    """Return the cells of an earlier record of the same settings: a grid may be run in several sittings."""
    path = STUDIES / f"{about}.json"
    if not path.exists():
        return {}
    record = json.loads(path.read_text())
    settings = {key: value for key, value in record["settings"].items() if key not in PARTS}
    cells: dict[str, Any] = record["results"] if settings == json.loads(json.dumps(size)) else {}
    return cells


def iter_grids(
    size: dict[str, Any],
    out: Path,
    objective: str,
    base: str | None,
    source: str = "mtsamples",
    *,
    own_epochs: bool = False,
) -> Iterator[Grid]:
    for people in size["people"]:
        for epochs in size["epochs"]:
            cell = f"{people} people, {'up to ' if own_epochs else ''}{epochs} epochs"
            yield Grid(out / cell, size, people, epochs, objective, base, source, own_epochs)


def table(found: dict[str, dict[str, Any]]) -> str:
    def cell(value: Any) -> str:
        return "–" if value is None else f"{value[0]:.3f} [{value[1]:.3f}, {value[2]:.3f}]"

    columns = {"share of the gain": "gain", "threshold": "threshold", "control": "above",
               "threshold, weighed": "likelihood", "LiRA, ordinary": "ordinary",
               "LiRA, rare": "rare", "reference, ordinary": "reference, ordinary", "reference, rare": "reference, rare",
               "hard tokens": HARD_TOKENS,
               "inversion, excess": "inversion", **{name: name for name in ASKING}}  # fmt: skip
    used = {head: name for head, name in columns.items() if any(row[name] for row in found.values())}
    heads = ["arm", "models", "epoch", "retention", *used]
    rows = [
        [arm, row["models"], row["epoch"], f"{row['retention']:.3f}", *(cell(row[name]) for name in used.values())]
        for arm, row in found.items()
    ]
    return markdown(heads, rows)


def run(size: str) -> None:
    """Run some arms at toy size; larger sizes take a folder, so that they can be stopped, and are run by themselves."""
    if size != "toy" or not (DATA / "mtsamples").exists():
        print("skipped: run by itself, with --out" if size != "toy" else f"skipped: no mtsamples under {DATA}")
    else:
        with tempfile.TemporaryDirectory() as folder:
            for grid in iter_grids(SIZES["toy"], Path(folder), "clm", None):
                found = summary({arm: grid.evaluate(arm) for arm in TOY_ARMS})
                print(table(found))
                assert all(row["threshold"] for row in found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=sorted(SIZES), default="toy")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arms", help="default: all; without the comparators clma and dp where no GPU is asked for")
    parser.add_argument("--corpus", choices=sorted(CORPORA), default="mtsamples")
    for part in ("people", "epochs"):
        parser.add_argument(f"--{part}", type=int, nargs="+", help="instead of those of the size")
    parser.add_argument("--pairs", type=int, help="pairs of models an arm, instead of those of the size")
    parser.add_argument("--models", type=int, help="models an arm, instead of pairs")
    parser.add_argument("--objective", choices=["clm", "mlm"], default="clm")
    parser.add_argument("--base", help="NAME=FOLDER of a pre-trained model; sizes real and gpu need one")
    parser.add_argument("--bf16", choices=["on", "off"], help="instead of that of the size; off where it is emulated")
    parser.add_argument("--own-epochs", action="store_true",
                        help="attack each arm at its own best epoch, by one half of the held-out people")  # fmt: skip
    parser.add_argument("--invert", type=int, metavar="N", help="inversion of N rare words, the same for all models")
    parser.add_argument("--invert-arms", metavar="ARM[:MODELS],…", help="instead of all arms, and all of their models")
    parser.add_argument("--record", action="store_true", help="keep the result under benchmarks/record")
    arguments = parser.parse_args()
    if not (DATA / arguments.corpus).exists():
        print(f"skipped: no {arguments.corpus} under {DATA} (RETICENT_DATA)", file=sys.stderr)
        return
    given = {part: getattr(arguments, part) for part in PARTS}
    size = dict(SIZES[arguments.size])
    masked = size.pop("masked", {})
    if arguments.objective == "mlm":
        size |= masked
    size |= {part: value for part, value in given.items() if value}
    left_out = () if arguments.size == "gpu" else COMPARATORS
    arms = arguments.arms.split(",") if arguments.arms else [arm for arm in ARMS if arm not in left_out]
    name, _, base = (arguments.base or "").partition("=")
    if "vocab" not in size and not base:
        parser.error("this size needs --base NAME=FOLDER")
    results = {}
    grids = iter_grids(
        size, arguments.out, arguments.objective, base or None, arguments.corpus, own_epochs=arguments.own_epochs
    )
    for grid in grids:
        found = summary({arm: grid.evaluate(arm) for arm in arms if grid.is_possible(arm)})
        if arguments.invert:
            for arm, _, models in (
                name.partition(":") for name in (arguments.invert_arms or ",".join(found)).split(",")
            ):
                found[arm] |= grid.invert(arm, int(models) if models else None)
        print(f"{grid.folder.name}\n\n{table(found)}")
        results[grid.folder.name] = {arm: {**row, "criteria": verdicts(row)} for arm, row in found.items()}
    if arguments.record:
        about = f"holes-{arguments.size}-{name or 'small'}-{arguments.objective}"
        if arguments.corpus != "mtsamples":
            about = f"{about}-{arguments.corpus}"
        size = {key: value for key, value in size.items() if key not in PARTS}
        results = {**recorded(about, size), **results}
        write_record(about, {"settings": size, "criteria": CRITERIA, "results": results}, arguments.size, STUDIES)


if __name__ == "__main__":
    main()
