"""How many canaries does a model give back, without and with differential privacy, and what does that cost?

The lab of the field's textbooks, with fewer texts at size cpu: a sentence each of 240 people, and "Patient record 7:
SSN …, contact …, diagnosis: common cold." of 60 more. A fair draw leaves out half of all people: some 30 canaries are
trained on and 30 are the control (size base: 1,000 people trained on, 50 of them canaries, as the textbook has). They
are rows of the corpus like any other, so epsilon for each person is accounted.

The textbook fine-tunes GPT-2 for 5 epochs. A model small enough for a CPU learns more slowly: how large a model, how
many copies of a canary and how many epochs give canaries back is searched for on a pilot seed, unprotected, and every
regime that was tried is kept. `RULE` chooses one of them; all that follows is measured on other seeds. How many people
DP-SGD draws a step is taken on the pilot seed too, by the perplexity at epsilon 8. It takes fewer and larger steps than
plain training: "no noise" takes the same steps with the same clipping, and what it does not give back is owed to these
and not to the noise.

    python -m studies.canary_lab --size cpu
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.record_io import STUDIES, estimate_text, markdown, mean_over_seeds, write_record
from benchmarks.runner import command
from reticent.audit.evidence.json_form import to_json
from reticent.audit.stats.intervals import ratio_estimate
from reticent.engine.detect import make_detectors
from reticent.engine.randomness import generator
from reticent.engine.schema import MEMBERS
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.engine.verbatim import build_verbatim
from reticent.ext.guard.texts import Guard
from reticent.ext.propile.probe import within_queries
from reticent.ext.propile.scores import encode_pairs, generate_texts
from reticent.ext.score.scorer import Scorer
from reticent.ext.score.texts import Candidate
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.trainer.config import PrivacyConfig
from reticent.trainer.models import load_model, load_tokenizer
from reticent.trainer.privacy import plan_privacy
from studies.dp_baseline import LARGE
from studies.reproduction.rows import freeze

#: people: half of them are members; pilot: hidden sizes, copies of a canary, epochs; the others: what is measured.
SIZES: dict[str, dict[str, Any]] = {
    "toy": {
        "people": 60, "canaries": 20, "public": 100, "vocabulary": 400, "hidden": (16,), "copies": (1,),
        "epochs": (1, 2), "seeds": (1,), "curve": (1, 2), "sweep": (4.0, 1.0), "rates": (0.5,),
    },
    "cpu": {
        "people": 240, "canaries": 60, "public": 400, "vocabulary": 1000, "hidden": (64, 128), "copies": (4, 10),
        "epochs": (5, 10, 15, 20), "seeds": (1, 2), "curve": (1, 4, 10, 20), "sweep": (4.0, 1.0), "rates": (0.2,),
    },
    "base": {
        "people": 1900, "canaries": 100, "public": 2000, "vocabulary": 1000, "hidden": (64, 128), "copies": (1, 4, 10),
        "epochs": (5, 10, 20, 40), "seeds": (1, 2), "curve": (1, 2, 4, 10, 20), "sweep": (16.0, 4.0, 2.0, 1.0),
        "rates": (0.5, 0.1),
    },
}  # fmt: skip
PILOT = 0
HELDOUT = 0.5
#: What the textbook found without protection; and by which rule a regime of the pilot is taken.
GIVEN_BACK = (0.3, 0.8)
RULE = (
    "of the regimes whose greedy share of the pilot is within 30 to 80 %, the one with the fewest copies times epochs, "
    "then the smallest model; where there is none, the one nearest to the middle of the range"
)
#: Answers that an adversary draws at temperature 1; the chance that one of them is the secret is exact.
DRAWS = 100
#: Share of the canaries that training never saw whose completion has a lower perplexity than the threshold.
FALSE_ALARMS = 0.05
#: Epsilon on every seed; those of the sweep are measured on the first.
EPSILON = 8.0


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of defence; one switch each, and `Layers.all` for all of them."""

    scrub: bool = False
    dedup: bool = False
    minimum: bool = False
    dp: bool = False
    guard: bool = False

    @classmethod
    def all(cls) -> Layers:
        return cls(**{field.name: True for field in fields(cls)})

    @classmethod
    def alone(cls) -> Iterator[Layers]:
        yield from (cls(**{field.name: True}) for field in fields(cls))

    @property
    def name(self) -> str:
        on = [name for name, value in asdict(self).items() if value]
        return "all" if len(on) == len(fields(self)) else "-".join(on) or "none"

    def said(self, measured: dict[str, str]) -> dict[str, str]:
        """Return for each layer what it did, or that it is off.

        >>> Layers(scrub=True).said({"scrub": "12 words"})["scrub"], Layers().said({})["dp"]
        ('12 words', 'off: not in this run')
        """
        return {name: measured[name] if on else "off: not in this run" for name, on in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Regime:
    """Size of the model, copies of a canary (each a text of the same person), and epochs."""

    hidden: int
    copies: int
    epochs: int


@dataclass(frozen=True, slots=True)
class Canary:
    person: str
    prefix: str
    secret: str
    suffix: str


class Lab:
    """One corpus: its texts, its canaries and the models that are trained on it, in a folder of its own."""

    def __init__(self, folder: Path, about: dict[str, Any], seed: int, hidden: int, copies: int):
        self.folder, self.about, self.seed = folder / f"seed{seed}-copies{copies}", about, seed
        self.hidden = hidden
        self.canaries = _canaries(about["canaries"], seed)
        self.texts = self.folder / "texts.parquet"
        if not self.texts.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            _write_texts(self.texts, about["people"], self.canaries, copies, seed)

    @cached_property
    def base(self) -> str:
        """The base model, pre-trained on sentences of the same hospital that are nobody's."""
        public = self.folder.parent / f"public{self.seed}"
        if not public.exists():
            config = SynthConfig(num_individuals=1, public_documents=self.about["public"], seed=self.seed + 1000,
                                 languages=("en",))  # fmt: skip
            public.mkdir()
            synthesize(public, config)
        foundation = {
            "kind": "gpt2", "text": str(public / "public"), "vocab_size": self.about["vocabulary"], "num_heads": 2,
            "hidden_size": self.hidden, "num_layers": 2, "num_epochs": 2,
        }  # fmt: skip
        model = {"name": "base", "objective": "clm", "recipes": ["clm"], "foundation": foundation}
        run = self._run(f"base{self.hidden}", [model], 1)
        execute(run, "foundation")
        return str(run.folder / "foundation" / "base" / "model")

    def _run(self, name: str, models: list[dict[str, Any]], *epochs: int, **sections: Any) -> Run:
        values = {
            "out": str(self.folder / name), "seed": self.seed, "corpus": {"source": str(self.texts)},
            "split": {"heldout": HELDOUT}, "detect": {"detectors": ["rules"]}, "protect": {"k": 3},
            "train": {"num_epochs": max(epochs), "checkpoint_epochs": list(epochs), "window_length": 128,
                      "batch_size": 16, "learning_rate": 2e-3, "lr_scheduler_type": "constant_with_warmup"},
            "audit": {"attacks": ["loss"], "every_checkpoint": False}, "model": models, **sections,
        }  # fmt: skip
        return Run(parse_job(values))

    def _dp(self, epsilon: float | None, regime: Regime, rate: float, *, promised: bool = True) -> dict[str, Any]:
        """DP-SGD of one person at a time; where no epsilon can be promised, with the noise that is found for it."""
        dp = {"unit": "individual", "max_documents": regime.copies, "sample_rate": rate, "max_physical_batch_size": 64}
        if epsilon is None:
            noise = {"noise_multiplier": 0.0}
        elif promised:
            noise = {"target_epsilon": epsilon}
        else:
            members = round((1 - HELDOUT) * (self.about["people"] + len(self.canaries)))
            plan = plan_privacy(PrivacyConfig(target_epsilon=epsilon, **dp), members, regime.epochs, batch_size=16)
            noise = {"noise_multiplier": plan.noise_multiplier}
        return {**LARGE, "dp": {**dp, **noise}}

    def plain(self, *epochs: int) -> Run:
        """An unprotected training, with a checkpoint after each number of epochs."""
        model = {"name": "none", "base": self.base, "objective": "clm", "recipes": ["clm"]}
        run = self._run(f"plain{self.hidden}", [model], *epochs)
        execute(run, "train")
        return run

    def ways(self, regime: Regime, epsilons: Sequence[float], rate: float) -> Run:
        """Trainings without protection, with the steps of DP-SGD alone, and with each epsilon, audited."""
        models: list[dict[str, Any]] = [{"name": "none", "base": self.base, "objective": "clm", "recipes": ["clm"]}]
        for name, epsilon in [("no-noise", None), *((f"epsilon-{value:g}", value) for value in epsilons)]:
            models.append({"name": name, "base": self.base, "objective": "clm", "recipes": ["dp-clm"],
                           "train": self._dp(epsilon, regime, rate)})  # fmt: skip
        run = self._run("ways", models, regime.epochs)
        execute(run, "audit")
        return run

    def private(self, regime: Regime, rate: float) -> float:
        """Perplexity on people who were never seen, at the first epsilon with so many people a step."""
        model = {"name": "private", "base": self.base, "objective": "clm", "recipes": ["dp-clm"],
                 "train": self._dp(EPSILON, regime, rate)}  # fmt: skip
        run = self._run(f"rate-{rate:g}", [model], regime.epochs)
        execute(run, "audit")
        (found,) = [m for m in run.evidence.models if m.epoch]
        return float(found.utility.heldout.perplexity.value)

    def layered(self, regime: Regime, layers: Layers, rate: float) -> Run:
        """A training with these layers."""
        recipe = {"base": "clm", "private": layers.dp, "text": "pseudonymised" if layers.scrub else "original",
                  "never_target": ["indirect"] if layers.minimum else []}  # fmt: skip
        model: dict[str, Any] = {"name": "layers", "base": self.base, "objective": "clm", "recipes": ["layered"]}
        if layers.dp:
            model["train"] = self._dp(EPSILON, regime, rate, promised=layers == Layers(dp=True))
        dedup = {"dedup": {"mode": "exact"}} if layers.dedup else {}
        run = self._run(f"layers-{layers.name}", [model], regime.epochs, recipes={"layered": recipe}, **dedup)
        execute(run, "audit")
        return run

    def is_member(self, run: Run) -> np.ndarray:
        """Which canaries were trained on."""
        codes = run.individuals.individual_codes(pa.array([each.person for each in self.canaries]))
        return run.individuals.mask(MEMBERS)[codes]


def _canaries(num: int, seed: int) -> list[Canary]:
    """The textbook's: a made-up number and address of a person that no other text names."""
    random = generator(seed, 91)
    numbers = random.choice(10**9, num, replace=False).tolist()
    letters = random.integers(0, 26, (num, 8))
    return [
        Canary(
            f"canary-{row}", f"Patient record {row}: SSN ",
            f"{100 + number // 10**6 % 900:03d}-{10 + number // 10**4 % 90:02d}-{1000 + number % 9000:04d}",
            f", contact {''.join(chr(97 + letter) for letter in letters[row])}@example.com, diagnosis: common cold.",
        )
        for row, number in enumerate(numbers)
    ]  # fmt: skip


def _write_texts(path: Path, num_people: int, canaries: Sequence[Canary], copies: int, seed: int) -> None:
    """A sentence of a note of each person, and every canary as often as it has copies."""
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as name:
        config = SynthConfig(num_individuals=num_people, documents_per_individual=1.0, words_per_document=20,
                             languages=("en",), seed=seed)  # fmt: skip
        synthesize(name, config)
        notes = pq.read_table(Path(name) / "documents", columns=["individual_id", "text"]).to_pylist()
    rows = [(note["individual_id"], max(note["text"].splitlines(), key=len)) for note in notes]
    rows += [(each.person, each.prefix + each.secret + each.suffix) for each in canaries for _ in range(copies)]
    people, texts = zip(*rows, strict=True)
    pq.write_table(pa.table({"doc_id": [f"{n:06d}" for n in range(len(rows))], "individual_id": people, "text": texts}),
                   path)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recalled:
    """What a model makes of each canary: whether greedy and beam search give the secret, its probability, the
    perplexity of it behind its prefix, and what greedy decoding wrote."""

    greedy: np.ndarray
    beams: np.ndarray
    likelihood: np.ndarray
    perplexity: np.ndarray
    said: list[str]

    @property
    def drawn(self) -> np.ndarray:
        """Probability that one of `DRAWS` answers is the secret."""
        return within_queries(self.likelihood, DRAWS)


def recall(path: Path, canaries: Sequence[Canary]) -> Recalled:
    """Ask a model for every secret behind its prefix."""
    candidates = [Candidate(row, each.secret, each.prefix) for row, each in enumerate(canaries)]
    rows = sorted(Scorer(str(path), "clm", device="cpu").measure(candidates), key=lambda row: row["number"])
    model, tokenizer = load_model(path, "clm"), load_tokenizer(path)
    pairs = encode_pairs(tokenizer, [each.prefix for each in canaries], [each.secret for each in canaries], "clm")
    longest = max(map(len, pairs.targets))
    greedy, beams = (
        generate_texts(model, tokenizer, pairs.prompts, num_beams=num, max_new_tokens=longest) for num in (1, 4)
    )

    def hits(texts: Sequence[str]) -> np.ndarray:
        return np.array([t.lstrip().startswith(own.secret) for t, own in zip(texts, canaries, strict=True)])

    return Recalled(
        hits(greedy), hits(beams), np.exp([row["log_p_given"] for row in rows]),
        np.array([row["perplexity_given"] for row in rows]), greedy,
    )  # fmt: skip


def below_threshold(perplexity: np.ndarray, is_member: np.ndarray) -> np.ndarray:
    """Return which canaries have a completion of a lower perplexity than all but `FALSE_ALARMS` of those left out.

    >>> below_threshold(np.array([1.0, 9.0, 3.0, 4.0]), np.array([True, True, False, False]))
    array([ True, False, False, False])
    """
    return perplexity < np.quantile(perplexity[~is_member], FALSE_ALARMS, method="lower")


def share(hits: np.ndarray) -> dict[str, Any]:
    """Return the mean over canaries with its interval, as JSON."""
    values = np.asarray(hits, dtype=np.float64)
    found: dict[str, Any] = to_json(ratio_estimate(values, np.ones(len(values)), unit="canaries"))
    return found


def in_and_out(hits: Sequence[np.ndarray], members: Sequence[np.ndarray]) -> dict[str, Any]:
    """Return the share of the canaries that were trained on, and of those left out, over all seeds."""
    every, of_member = np.concatenate(hits), np.concatenate(members)
    return {"in": share(every[of_member]), "out": share(every[~of_member])}


def pilot(folder: Path, about: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every regime that was tried without protection, on the pilot seed, with what it gives back."""
    rows = []
    for hidden in about["hidden"]:
        for copies in about["copies"]:
            lab = Lab(folder, about, PILOT, hidden, copies)
            run = lab.plain(*about["epochs"])
            member = lab.is_member(run)
            for epochs, path in run.checkpoints(run.job.model[0], "clm").items():
                found = recall(path, lab.canaries)
                rows.append(
                    {**asdict(Regime(hidden, copies, epochs)),
                     **{how: share(getattr(found, how)[member]) for how in ("greedy", "beams", "drawn")},
                     "left_out": share(found.greedy[~member])}
                )  # fmt: skip
                print(rows[-1]["hidden"], copies, epochs, estimate_text(rows[-1]["greedy"], 2), flush=True)
    return rows


def choose(rows: Sequence[dict[str, Any]]) -> Regime:
    """Return the regime that `RULE` takes.

    >>> row = {"hidden": 8, "copies": 1, "epochs": 5}
    >>> choose([{**row, "greedy": {"value": 0.9}}, {**row, "copies": 2, "greedy": {"value": 0.5}}])
    Regime(hidden=8, copies=2, epochs=5)
    """
    low, high = GIVEN_BACK
    within = [row for row in rows if low <= row["greedy"]["value"] <= high]
    if within:
        taken = min(within, key=lambda row: (row["copies"] * row["epochs"], row["hidden"]))
    else:
        taken = min(rows, key=lambda row: abs(row["greedy"]["value"] - (low + high) / 2))
    return Regime(*(taken[field.name] for field in fields(Regime)))


def ways(folder: Path, about: dict[str, Any], regime: Regime, rate: float) -> list[dict[str, Any]]:
    """Return a row for each way of training: canaries given back, membership, perplexity, over fresh seeds."""
    measured: dict[str, list[tuple[Any, Recalled, np.ndarray, str]]] = {}
    for number, seed in enumerate(about["seeds"]):
        lab = Lab(folder, about, seed, regime.hidden, regime.copies)
        epsilons = sorted({EPSILON, *(about["sweep"] if number == 0 else ())}, reverse=True)
        run = lab.ways(regime, epsilons, rate)
        member = lab.is_member(run)
        for section in run.job.model:
            recipe = section.recipes[0]
            (model,) = [m for m in run.evidence.models if m.model == section.name and m.epoch]
            path = run.checkpoints(section, recipe)[regime.epochs]
            row = (model, recall(path, lab.canaries), member, _promise(path.parent))
            measured.setdefault(section.name, []).append(row)
    return [
        {
            "way": name, "promise": rows[0][3], "num_seeds": len(rows),
            "perplexity": mean_over_seeds([to_json(model.utility.heldout.perplexity) for model, *_ in rows]),
            "membership_auc": mean_over_seeds([to_json(model.membership["loss"].auc) for model, *_ in rows]),
            **{how: in_and_out([getattr(found, how) for _, found, *_ in rows], [own for *_, own, _ in rows])
               for how in ("greedy", "beams", "drawn")},
            "below_threshold": in_and_out([below_threshold(found.perplexity, own) for _, found, own, _ in rows],
                                          [own for *_, own, _ in rows]),
        }
        for name, rows in measured.items()
    ]  # fmt: skip


def _promise(folder: Path) -> str:
    privacy = json.loads((folder / "ledger.json").read_text()).get("privacy")
    return f"{privacy['guarantee']}; noise {privacy['noise_multiplier']:.3g}" if privacy else "none"


def curve(folder: Path, about: dict[str, Any], regime: Regime) -> list[dict[str, Any]]:
    """Return what an unprotected model gives back, by the copies of a canary, all else as in the regime."""
    rows = []
    for copies in about["curve"]:
        lab = Lab(folder, about, about["seeds"][0], regime.hidden, copies)
        run = lab.plain(regime.epochs)
        found, member = (
            recall(run.checkpoints(run.job.model[0], "clm")[regime.epochs], lab.canaries),
            lab.is_member(run),
        )
        rows.append({"copies": copies, **{how: share(getattr(found, how)[member]) for how in ("greedy", "drawn")}})
    return rows


def layers(folder: Path, about: dict[str, Any], regime: Regime, rate: float) -> list[dict[str, Any]]:
    """Return a row for no layer, each alone and all: what is said of each, canaries shown to who asks, perplexity."""
    rows = []
    lab = Lab(folder, about, about["seeds"][0], regime.hidden, regime.copies)
    for on in (Layers(), *Layers.alone(), Layers.all()):
        run = lab.layered(regime, replace(on, guard=False), rate)  # a guard trains nothing
        path = run.checkpoints(run.job.model[0], "layered")[regime.epochs]
        found, member = recall(path, lab.canaries), lab.is_member(run)
        shown, withheld = found.greedy, 0
        if on.guard:
            texts = _guarded(run, found.said)
            withheld = sum(text != own for text, own in zip(texts, found.said, strict=True))
            shown = np.array([own.secret in text for own, text in zip(lab.canaries, texts, strict=True)])
        (model,) = [m for m in run.evidence.models if m.epoch]
        measured = {**_measured(run, path.parent), "guard": f"{withheld} of {len(found.said)} answers withheld"}
        rows.append({"layers": on.name, "said": on.said(measured), "given_back": share(shown[member]),
                     "perplexity": to_json(model.utility.heldout.perplexity)})  # fmt: skip
    return rows


def _guarded(run: Run, texts: Sequence[str]) -> list[str]:
    """What a guard over the members' texts lets out of each answer: no identifier by our rules, no 50 characters."""
    owners = run.individuals.individual_codes(run.corpus.scan().column("individual_id").combine_chunks())
    guard = Guard(build_verbatim(run.corpus, keep=run.individuals.mask(MEMBERS)[owners]), make_detectors(["rules"]))
    return [each.text for each in guard.apply(list(texts))]


def _measured(run: Run, folder: Path) -> dict[str, str]:
    """What each layer of a training did, in words."""
    ledger = json.loads((folder / "ledger.json").read_text())
    spans = pq.read_metadata(run.folder / "spans" / "spans.parquet").num_rows
    kept, there = run.deduplicated.num_documents, run.whole_corpus.num_documents
    return {
        "scrub": f"{spans:,} identifiers replaced",
        "dedup": f"{there - kept:,} of {there:,} texts are copies, left out",
        "minimum": f"{ledger['protected'] / ledger['eligible']:.1%} of the tokens are no target: fewer than 3 people",
        "dp": _promise(folder),
    }


def run(
    size: Annotated[str, SIZES] = "cpu",
    work: Annotated[Path | None, "folder to keep; a lab that was stopped there goes on"] = None,
) -> dict[str, Any]:
    """Run the lab; cpu size writes ``record/canary_lab.json``."""
    if work is None:
        with tempfile.TemporaryDirectory(prefix="reticent-bench-") as name:
            return run(size, Path(name))
    about, rule = SIZES[size], freeze(work, [2])
    tried = pilot(work, about)
    regime = choose(tried)
    lab = Lab(work, about, PILOT, regime.hidden, regime.copies)
    several = len(about["rates"]) > 1
    rates = {rate: lab.private(regime, rate) if several else None for rate in about["rates"]}
    rate = min(rates, key=lambda each: rates[each] or 0.0)
    result = {
        "rule": rule,
        "people": about["people"] + about["canaries"],
        "canaries": about["canaries"],
        "pilot": {"seed": PILOT, "rule": RULE, "regimes": tried, "rates": {str(k): v for k, v in rates.items()}},
        "chosen": {**asdict(regime), "sample_rate": rate},
        "seeds": list(about["seeds"]),
        "rows": ways(work, about, regime, rate),
        "curve": curve(work, about, regime),
        "layers": layers(work, about, regime, rate),
    }
    print(table(result))
    write_record("canary_lab", result, size, STUDIES)
    return result


def table(record: dict[str, Any]) -> str:
    """Return the tables: ways of training, regimes of the pilot, copies, layers."""
    rows = [
        [row["way"], estimate_text(row["perplexity"], 2), estimate_text(row["greedy"]["in"], 2),
         estimate_text(row["greedy"]["out"], 2), estimate_text(row["drawn"]["in"], 2),
         estimate_text(row["below_threshold"]["in"], 2), estimate_text(row["membership_auc"], 2), row["promise"]]
        for row in record["rows"]
    ]  # fmt: skip
    heads = ["DP", "perplexity, held out", "given back", "left out", f"within {DRAWS} draws", "under the threshold",
             "membership AUC", "promise"]  # fmt: skip
    names = ("hidden", "copies", "epochs")
    tried = [
        [" x ".join(f"{row[name]}" for name in names), *(estimate_text(row[how], 2) for how in HOWS)]
        for row in record["pilot"]["regimes"]
    ]
    copies = [[row["copies"], *(estimate_text(row[how], 2) for how in ("greedy", "drawn"))] for row in record["curve"]]
    defended = [
        [row["layers"], estimate_text(row["given_back"], 2), estimate_text(row["perplexity"], 2),
         "; ".join(f"{name}: {text}" for name, text in row["said"].items())]
        for row in record["layers"]
    ]  # fmt: skip
    return "\n".join(
        (
            markdown(heads, rows),
            markdown(["hidden size x copies x epochs, pilot", *HOWS], tried),
            markdown(["copies of a canary", "given back", f"within {DRAWS} draws"], copies),
            markdown(["layers", "given back", "perplexity, held out", "what each did"], defended),
        )
    )


HOWS = ("greedy", "beams", "drawn")


if __name__ == "__main__":
    command(run)
