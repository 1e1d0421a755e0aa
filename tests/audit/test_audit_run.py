"""audit_models from stores and models on disk to JSON: a model that learnt its documents by heart, and its base."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from fixtures import packing
from tokenizers import Tokenizer, decoders
from tokenizers.models import WordPiece
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

from reticent.audit import evaluate
from reticent.audit.config import AuditConfig, GenerationConfig
from reticent.audit.evaluate import ModelEntry, audit_models
from reticent.audit.evidence.json_form import to_json
from reticent.audit.evidence.leakage import Ledger
from reticent.audit.membership.attacks import ATTACKS, needing
from reticent.audit.membership.measure import MembershipAudit
from reticent.audit.membership.names import (
    CHECKPOINTS,
    COVERAGE,
    DIFFERENCES,
    GRADIENT,
    INFORMATION,
    PROBING,
    SELF_CALIBRATION,
    STATES,
)
from reticent.audit.membership.table import Need
from reticent.audit.scoring.scores import score_masked
from reticent.core.errors import ArtifactError, PolicyError, TrainingError
from reticent.engine import split
from reticent.engine.schema import DIRECT, INDIRECT
from reticent.engine.store import TokenStore, open_tokens
from reticent.ext.inversion import measure as inversion_measure
from reticent.ext.inversion.inversion import InversionConfig
from reticent.trainer.models import load_model, load_tokenizer
from reticent.trainer.windows import SpecialIds

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")

NUM_INDIVIDUALS = 12  # even ones are members, odd ones held out; two documents each
COMMON = [f"qwcommon{i}" for i in range(10)]
NAMES = [f"zqname{i}" for i in range(NUM_INDIVIDUALS)]  # direct: two tokens, "zqname" and its number
TRADES = [f"xjtrade{i}" for i in range(NUM_INDIVIDUALS)]  # indirect: one token
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>"]
VOCABULARY = [*SPECIAL, *COMMON, "zqname", *(f"##{i}" for i in range(NUM_INDIVIDUALS)), *TRADES]
ID = {piece: number for number, piece in enumerate(VOCABULARY)}
#: Strings that must never leave: surfaces, parts of them, and ids of documents.
SENTINELS = ("zqname", "xjtrade", "qwcommon", "secretdoc")
#: Attacks on the audit's own documents, and those of them that a causal model can be attacked with.
DOCUMENTS = tuple(name for name in ATTACKS if name not in needing(Need.HOLDOUT))
#: The tokenizer here has no end of a text.
CAUSAL = {name for name in DOCUMENTS if "clm" in ATTACKS[name].objectives} - needing(Need.ENDS)
CONFIG = AuditConfig(num_bootstrap=100, batch_size=5, window_length=32, folds=3, graph_shares=(1.0, 0.5), device="cpu")


def documents_of(individual: int) -> list[list[tuple[list[str], int]]]:
    """Two documents as words, each (pieces, flags)."""
    random = np.random.default_rng(individual)
    name: tuple[list[str], int] = (["zqname", f"##{individual}"], DIRECT | INDIRECT)  # one individual's word alone
    trade: tuple[list[str], int] = ([TRADES[individual]], INDIRECT)
    found = []
    for identifier in (name, trade):
        words: list[tuple[list[str], int]] = [([COMMON[i]], 0) for i in random.integers(0, len(COMMON), 6)]
        words.insert(int(random.integers(1, 6)), identifier)
        found.append(words)
    return found


def write_store(folder: Path, individuals: list[int]) -> TokenStore:
    corpus = [(individual, words) for individual in individuals for words in documents_of(individual)]
    pieces = [[(piece, n, flags) for n, (word, flags) in enumerate(words) for piece in word] for _, words in corpus]
    tokens = list(itertools.chain.from_iterable(pieces))
    word_ids = np.array([n for _, n, _ in tokens])
    flags = np.array([flag for _, _, flag in tokens])
    begins = np.concatenate([[True], word_ids[1:] != word_ids[:-1]])
    store = TokenStore(
        np.array([ID[piece] for piece, _, _ in tokens]),
        word_ids,
        flags,
        np.where(begins & (flags & INDIRECT > 0), 1, 0),
        np.cumsum([0, *map(len, pieces)]),
        np.array([individual for individual, _ in corpus], dtype=np.uint32),
        pa.array([f"secretdoc-{individual}-{i % 2}" for i, (individual, _) in enumerate(corpus)]),
    )
    packing.write_store(store, folder, len(VOCABULARY))
    tokenizer = Tokenizer(WordPiece(ID, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    return open_tokens(folder)


def bert(seed: int) -> Any:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return BertForMaskedLM(
        BertConfig(vocab_size=len(VOCABULARY), max_position_embeddings=32, initializer_range=0.5, **sizes)
    )


def gpt2(seed: int) -> Any:
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=len(VOCABULARY), n_embd=32, n_layer=1, n_head=2, n_positions=32, bos_token_id=5, eos_token_id=5,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def memorise(model: Any, store: TokenStore) -> Any:
    """Overfit on a store's documents, identifiers and all."""
    rows = [store.input_ids[a:b].tolist() for a, b in itertools.pairwise(store.doc_offsets)]
    width = max(map(len, rows))
    inputs = torch.tensor([[ID["<s>"], *row, *[0] * (width - len(row))] for row in rows])
    labels = torch.tensor([[-100, *row, *[-100] * (width - len(row))] for row in rows])
    for step in range(100):
        model.zero_grad()
        model(input_ids=inputs, labels=labels).loss.backward()
        with torch.no_grad():
            for weights in model.parameters():
                weights -= 0.01 * (1 - step / 100) * weights.grad.sign()
    return model


@dataclass
class Ground:
    """Everything an audit takes, on disk."""

    train: TokenStore
    audit: TokenStore
    members: np.ndarray
    bases: dict[str, Path]
    models: list[ModelEntry]
    sizes: np.ndarray

    def run(self, config: AuditConfig = CONFIG, **changed: Any) -> dict[str, Any]:
        given = {field.name: getattr(self, field.name) for field in fields(self)} | changed
        measured = audit_models(
            train_store=given["train"],
            audit_store=given["audit"],
            members=given["members"],
            models=given["models"],
            bases=given["bases"],
            config=config,
            lowercase_store=given.get("lowercase_store"),
            zlib_bytes=given["sizes"],
            units=given.get("units"),
            copied=given.get("copied"),
            split_given=given.get("split_given", False),
            progress=given.get("progress"),
        )
        found: dict[str, Any] = to_json(measured)
        return found


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    folder = tmp_path_factory.mktemp("audit")
    everyone = list(range(NUM_INDIVIDUALS))
    train, audit = write_store(folder / "train", everyone[::2]), write_store(folder / "audit", everyone)
    paths = {name: folder / name for name in ("bert", "bert-other", "gpt2", "gpt2-memoriser")}
    bert(0).save_pretrained(paths["bert"])
    bert(1).save_pretrained(paths["bert-other"])
    gpt2(0).save_pretrained(paths["gpt2"])
    memorise(gpt2(0), train).save_pretrained(paths["gpt2-memoriser"])
    for path in paths.values():
        load_tokenizer(train.tokenizer_path).save_pretrained(path)
    ledger = Ledger(eligible=9, protected=2, targets=7, violations=0)
    models = [
        ModelEntry(name="clm", recipe="clm", objective="clm", epoch=8, path=paths["gpt2-memoriser"], ledger=ledger),
        ModelEntry(name="clm", recipe="clm", objective="clm", epoch=4, path=paths["gpt2"]),
        ModelEntry(name="ppmlm", recipe="ppmlm", objective="mlm", epoch=4, path=paths["bert-other"]),
    ]
    sizes = np.arange(audit.num_documents) % 3 + 40
    return Ground(train, audit, audit.individual % 2 == 0, {"mlm": paths["bert"], "clm": paths["gpt2"]}, models, sizes)


@pytest.fixture(scope="module")
def evidence(ground: Ground) -> dict[str, Any]:
    return ground.run()


@pytest.fixture(scope="module")
def of_households(ground: Ground) -> dict[str, Any]:
    """The same audit where two individuals on a side are a household."""
    units = np.array([2 * (i // 4) + i % 2 for i in range(NUM_INDIVIDUALS)])
    return ground.run(units=units)


def model_of(evidence: dict[str, Any], recipe: str, objective: str, epoch: int) -> dict[str, Any]:
    (model,) = [
        m for m in evidence["models"] if (m["recipe"], m["objective"], m["epoch"]) == (recipe, objective, epoch)
    ]
    return model


@pytest.fixture(scope="module")
def memoriser(evidence: dict[str, Any]) -> dict[str, Any]:
    return model_of(evidence, "clm", "clm", 8)


def estimates(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every dictionary that holds a measured value, with its path."""
    if isinstance(value, dict):
        if "value" in value:
            yield path, value
        for key, inner in value.items():
            yield from estimates(inner, f"{path}/{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from estimates(inner, f"{path}/{number}")


# --------------------------------------------------------------------- what is there


def test_each_base_is_measured_first_as_negative_control(evidence: dict[str, Any]) -> None:
    order = [(m["objective"], m["recipe"], m["epoch"]) for m in evidence["models"]]
    assert order == [("mlm", "base", 0), ("mlm", "ppmlm", 4), ("clm", "base", 0), ("clm", "clm", 8), ("clm", "clm", 4)]
    for model in evidence["models"]:
        # Attacks that compare with the base have nothing to say of it; every other attack is run on it.
        assert set(model["membership"]) | {GRADIENT} == set(CONFIG.attacks) - needing(Need.ENDS) - (
            needing(Need.BASE) if model["recipe"] == "base" else set()
        )


def test_a_split_that_was_given_is_one_whose_sides_may_differ(ground: Ground, evidence: dict[str, Any]) -> None:
    assert all("split_given" not in model for model in evidence["models"])
    given = ground.run(split_given=True, models=ground.models[:1])
    assert [model["split_given"] for model in given["models"]] == [True] * len(given["models"])


def test_every_measure_is_there_for_every_model(evidence: dict[str, Any]) -> None:
    utility = {
        "mlm": {"ordinary_word_accuracy", "masked_word_accuracy", "masked_token_accuracy"},
        "clm": {"ordinary_token_accuracy", "token_accuracy", "ordinary_perplexity", "perplexity"},
    }
    for model in evidence["models"]:
        paths = {path for path, _ in estimates(model)}
        expected = {
            f"/utility/{side}/{name}" for side in ("heldout", "members") for name in utility[model["objective"]]
        }
        parts, levels = ("direct", "indirect", "both"), ("types", "occurrences", "individuals", "in_place")
        expected |= {f"/privacy/{part}/{level}" for part in parts for level in (*levels, "unseen")}
        sides = [f"{over}{name}" for over in ("", "unshared/") for name in ("members", "heldout", "excess")]
        expected |= {f"/excess/{part}/{name}" for part in parts for name in sides}
        expected |= {f"/membership/{name}{of}/auc" for name in model["membership"] for of in ("", "/documents")}
        expected |= {"/best_attack/auc"} | ({"/blind/auc"} if model["recipe"] == "base" else set())
        if model["recipe"] != "base":
            expected |= {f"/over_base/{part}/{name}" for part in parts for name in sides}
            expected |= {"/exposed/members", "/exposed/heldout", "/exposed/excess", "/beside/shared_over_base"}
        expected |= {f"/low_cost/{name}" for name in ("precision", "recall", "f1")}
        expected |= {f"/low_cost/by_graph_share/{i}/{name}" for i in (0, 1) for name in ("precision", "recall", "f1")}
        attacks = ("loss",) if model["recipe"] == "base" else ("loss", "reference")
        kinds = ("all", "ordinary", "rare", "direct")
        made = {(kind, name) for kind in kinds for name in attacks}
        taught = [kind for kind in ("ordinary", "targets") if kind in model["by_kind"]]
        made |= {(kind, name) for kind in taught for name in (*model["membership"], *attacks, GRADIENT)}
        if "targets" in taught:
            made |= {("targets", name) for name in attacks}
        expected |= {f"/by_kind/{kind}/attacks/{name}/{of}" for kind, name in made for of in ("auc", "told/rate")}
        expected |= {f"/membership/{name}/told/rate" for name in model["membership"]}
        if model["recipe"] != "base":  # what the sides show without the model is taken away
            expected |= {f"/membership/{name}/over_base" for name in set(model["membership"]) - DIFFERENCES}
            expected |= {f"/by_kind/{kind}/attacks/{name}/over_base" for kind, name in made if name not in DIFFERENCES}
        expected |= {f"/threshold/{name}/auc" for name in ("at_threshold", "above")}
        if model["threshold"].get("by_likelihood"):  # enough words are targets, and enough are none
            expected |= {"/threshold/by_likelihood/auc"}
        expected |= {f"/low_cost/training_graph/{name}" for name in ("precision", "recall", "f1")}
        expected |= {f"/beside/loss_gap/{name}" for name in ("members", "heldout", "gap")}
        assert paths == expected | {"/privacy_by_n/1"}


def test_every_number_has_its_interval_its_n_and_how_it_was_made(evidence: dict[str, Any]) -> None:
    found = list(estimates(evidence))
    assert len(found) > 150
    for path, estimate in found:
        assert {"value", "low", "high", "n", "unit", "method", "level"} <= set(estimate), path
        assert (estimate["unit"], estimate["level"]) == ("individuals", 0.95), path
        if estimate["value"] is None:
            assert estimate["low"] is estimate["high"] is None, path
            few = {"one side has no individual"} if "/threshold/" in path else set()  # no word of just k users here
            assert estimate["method"] in {"no individual was called a member", "no individual has any"} | few, path
            continue
        assert 0 < estimate["n"] <= NUM_INDIVIDUALS, path
        assert estimate["low"] <= estimate["value"] <= estimate["high"], path
        if estimate["value"] == 0.0 and not path.endswith("/excess"):
            assert estimate["high"] > 0.0, path


def test_settings_stand_beside_the_numbers(evidence: dict[str, Any]) -> None:
    of_the_job = {
        "every_checkpoint",
        "shadow",
        "small_cell",
        "heads",
        "explained",
        "earlier",
        "groups",
    }  # which checkpoints there are, and what may leave
    settings = {name: getattr(CONFIG, name) for name in AuditConfig.model_fields.keys() - of_the_job}
    assert evidence["settings"] == to_json(settings)
    assert {"seed", "num_bootstrap", "folds", "window_length", "attacks", "graph_shares"} <= set(evidence["settings"])
    for model in evidence["models"]:
        assert [row["share"] for row in model["low_cost"]["by_graph_share"]] == [1.0, 0.5]
    assert model_of(evidence, "clm", "clm", 8)["ledger"] == {
        "eligible": 9,
        "protected": 2,
        "targets": 7,
        "violations": 0,
    }
    assert model_of(evidence, "base", "clm", 0)["ledger"] is None


def test_the_evidence_names_nobody(evidence: dict[str, Any]) -> None:
    text = json.dumps(evidence, allow_nan=False).lower()
    for sentinel in SENTINELS:
        assert sentinel not in text


def test_two_runs_are_the_same_bytes(ground: Ground, evidence: dict[str, Any]) -> None:
    assert json.dumps(ground.run()) == json.dumps(evidence)


def test_numbers_do_not_change_with_batch_size(ground: Ground, evidence: dict[str, Any]) -> None:
    again = ground.run(CONFIG.replace(batch_size=64))
    for (path, first), (_, second) in zip(estimates(evidence["models"]), estimates(again["models"]), strict=True):
        for key in ("value", "low", "high"):
            assert first[key] == second[key] or first[key] == pytest.approx(second[key], abs=1e-4), path


def test_another_seed_moves_intervals_and_no_causal_value(ground: Ground, evidence: dict[str, Any]) -> None:
    again = ground.run(CONFIG.replace(seed=1))
    moved = 0
    for first, second in zip(evidence["models"], again["models"], strict=True):
        for (path, a), (_, b) in zip(estimates(first), estimates(second), strict=True):
            # The blind baseline deals people to folds by the seed.
            if first["objective"] == "clm" and "by_graph_share/1" not in path and "blind" not in path:
                assert a["value"] == b["value"], path
                moved += (a["low"], a["high"]) != (b["low"], b["high"])
    assert moved > 10


def test_every_interval_of_an_audit_resamples_households(
    evidence: dict[str, Any], of_households: dict[str, Any]
) -> None:
    """All with the same values as over individuals, of whom two are a household; subjects of the threshold are
    households themselves. An attack on as few as these has the interval of few, which must be wider."""
    alone, found = dict(estimates(evidence["models"])), dict(estimates(of_households["models"]))
    assert len(found) > 200
    for path, estimate in found.items():
        if "/threshold/" in path:
            assert estimate["unit"] == "households", path
        elif estimate["value"] is not None and "/worst_subgroup/" not in path:
            assert estimate["num_households"] <= estimate["n"], path
            assert "individual" not in estimate["method"], path
    wider = 0
    for path in alone.keys() & found.keys():
        one, other = alone[path], found[path]
        if one["value"] is not None and one["value"] == other["value"] and path.endswith("/auc"):
            assert other["n"] == one["n"] == 2 * other["num_households"], path
            wider += other["high"] - other["low"] > one["high"] - one["low"]
    assert wider > 10


def test_an_audit_without_households_is_the_same_with_units(ground: Ground, evidence: dict[str, Any]) -> None:
    same = ground.run(units=np.arange(NUM_INDIVIDUALS))
    assert json.dumps(same) == json.dumps(evidence)


def without_ends(found: Any) -> Any:
    """Evidence without what near-copies are left out of, and without ends, which hold for these numbers too."""
    left = {"low", "high", "method", "best_attack", "without_copies", "auc_without_copies", "told", "verdict", "why"}
    if isinstance(found, dict):
        return {name: without_ends(value) for name, value in found.items() if name not in left}
    return [without_ends(value) for value in found] if isinstance(found, list) else found


def test_areas_are_given_without_held_out_individuals_who_hold_near_copies(
    ground: Ground, evidence: dict[str, Any]
) -> None:
    copied = np.zeros(NUM_INDIVIDUALS, dtype=bool)
    copied[[1, 3]] = True
    found, before = ground.run(copied=copied), evidence
    for model, old in zip(found["models"], before["models"], strict=True):
        attacks = [
            *model["membership"].values(),
            *(a for kind in model["by_kind"].values() for a in kind["attacks"].values()),
        ]
        assert attacks
        for attack in attacks:
            assert attack["auc_without_copies"]["n"] == attack["auc"]["n"] - 2
        for sides in model["excess"].values():
            assert sides["without_copies"]["n"] in (sides["excess"]["n"] - 2, 0)
        assert without_ends(model) == without_ends(old)
    assert json.dumps(ground.run(copied=np.zeros(NUM_INDIVIDUALS, dtype=bool))) == json.dumps(ground.run())


# ------------------------------------------------------------- a memoriser is found out


def test_an_audit_decides_once_which_units_are_resampled_and_who_is_left_out(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, real = list[str](), split.households_of

    class Counted(np.ndarray):
        def __getitem__(self, key: Any) -> Any:
            asked.append("left out")
            return np.asarray(self)[key]

    def households(units: np.ndarray | None) -> np.ndarray | None:
        asked.append("units")
        return real(units)

    monkeypatch.setattr("reticent.audit.stats.intervals.households_of", households)
    copied = (np.arange(len(ground.members)) % 3 == 0).view(Counted)
    config = AuditConfig(num_bootstrap=100, attacks=("loss",), batch_size=5, window_length=32, device="cpu")
    ground.run(config, models=[], copied=copied)
    assert sorted(asked) == ["left out", "units"]


def test_the_memoriser_is_found_out_by_every_measure(memoriser: dict[str, Any], evidence: dict[str, Any]) -> None:
    base = model_of(evidence, "base", "clm", 0)
    assert memoriser["privacy"]["both"]["types"]["value"] < 0.25
    assert memoriser["excess"]["both"]["excess"]["low"] > 0.25
    assert memoriser["membership"]["loss"]["auc"]["value"] == 1.0
    assert memoriser["low_cost"]["recall"]["value"] > 0.8
    assert memoriser["utility"]["members"]["token_accuracy"]["value"] > 0.8
    assert memoriser["utility"]["heldout"]["token_accuracy"]["value"] < 0.5
    assert base["privacy"]["both"]["types"]["value"] > 0.4  # untrained, it hits some identifiers by chance
    assert base["excess"]["both"]["excess"]["low"] <= 0
    assert base["membership"]["loss"]["auc"]["low"] < 0.5 < base["membership"]["loss"]["auc"]["high"]


def test_numbers_of_the_memoriser_match_plain_transformers(ground: Ground, memoriser: dict[str, Any]) -> None:
    """Privacy, excess, calls and accuracy from strings and one forward pass a document."""
    model: Any = GPT2LMHeadModel.from_pretrained(ground.models[0].path).eval()
    predicted: set[str] = set()
    right = {True: [0, 0], False: [0, 0]}  # member -> tokens predicted right, tokens
    losses: dict[int, list[float]] = {}
    for individual in range(NUM_INDIVIDUALS):
        for words in documents_of(individual):
            ids = [ID[piece] for word, _ in words for piece in word]
            with torch.inference_mode():
                log_p = torch.log_softmax(model(torch.tensor([[ID["<s>"], *ids]])).logits[0, :-1].double(), dim=-1)
            guesses = [VOCABULARY[i] for i in log_p.argmax(-1).tolist()]
            losses.setdefault(individual, []).append(-float(log_p[range(len(ids)), ids].mean()))
            right[individual % 2 == 0][0] += sum(ID[g] == i for g, i in zip(guesses, ids, strict=True))
            right[individual % 2 == 0][1] += len(ids)
            at = 0
            for word, _ in words:
                first, *rest = guesses[at : at + len(word)]
                predicted.add(first + "".join(piece.removeprefix("##") for piece in rest))
                at += len(word)
    sides = {True: range(0, NUM_INDIVIDUALS, 2), False: range(1, NUM_INDIVIDUALS, 2)}
    leaked = {
        (part, side): np.mean([name in predicted for i in sides[side] for name in names(i)])
        for part, names in (
            ("direct", lambda i: [NAMES[i]]),
            ("indirect", lambda i: [NAMES[i], TRADES[i]]),
            ("both", lambda i: [NAMES[i], TRADES[i]]),
        )
        for side in sides
    }
    for part in ("direct", "indirect", "both"):
        assert memoriser["privacy"][part]["types"]["value"] == pytest.approx(1 - leaked[part, True])
        assert memoriser["excess"][part]["members"]["value"] == pytest.approx(leaked[part, True])
        assert memoriser["excess"][part]["heldout"]["value"] == pytest.approx(leaked[part, False])
    assert memoriser["privacy"]["both"]["num_identifiers"] == NUM_INDIVIDUALS
    called = [bool({NAMES[i], TRADES[i]} & predicted) for i in range(NUM_INDIVIDUALS)]
    hits = sum(called[::2])
    assert memoriser["low_cost"]["recall"]["value"] == pytest.approx(hits / len(sides[True]))
    assert memoriser["low_cost"]["precision"]["value"] == pytest.approx(hits / sum(called))
    for side, name in ((True, "members"), (False, "heldout")):
        accuracy = memoriser["utility"][name]["token_accuracy"]["value"]
        assert accuracy == pytest.approx(right[side][0] / right[side][1])
    means = [np.mean(losses[i]) for i in range(NUM_INDIVIDUALS)]
    wins = [means[m] < means[h] for m in sides[True] for h in sides[False]]
    assert memoriser["membership"]["loss"]["auc"]["value"] == pytest.approx(np.mean(wins))


@pytest.mark.parametrize("config", [CONFIG, CONFIG.replace(folds=2, window_length=5, seed=4)])
def test_masked_models_are_scored_with_the_settings_of_the_audit(ground: Ground, config: AuditConfig) -> None:
    measured = model_of(ground.run(config, models=[]), "base", "mlm", 0)
    special = SpecialIds(prefix=ID["[CLS]"], suffix=ID["[SEP]"], pad=0, mask=ID["[MASK]"])
    scores = score_masked(
        bert(0), ground.audit, special, folds=config.folds, window_length=config.window_length, seed=config.seed,
        device="cpu",
    )  # fmt: skip
    right = (scores.argmax == ground.audit.input_ids)[np.repeat(~ground.members, np.diff(ground.audit.doc_offsets))]
    assert measured["utility"]["heldout"]["masked_token_accuracy"]["value"] == pytest.approx(right.mean())
    losses = -scores.log_probs.astype(np.float64)
    means = [losses[a:b].mean() for a, b in itertools.pairwise(ground.audit.doc_offsets)]
    by_individual = np.array(means).reshape(NUM_INDIVIDUALS, 2).mean(axis=1)
    wins = by_individual[::2, None] < by_individual[None, 1::2]
    assert measured["membership"]["loss"]["auc"]["value"] == pytest.approx(wins.mean())


def test_the_folds_are_drawn_again_for_masked_models_at_their_last_checkpoint(ground: Ground) -> None:
    models = [replace(entry, is_last=entry.epoch == 4) for entry in ground.models if entry.objective == "mlm"]
    models.append(replace(models[0], epoch=2, is_last=False))
    found = ground.run(models=models)["models"]
    spreads = [one["privacy"]["both"].get("fold_spread") for one in found if one["objective"] == "mlm"]
    assert [spread is not None for spread in spreads] == [False, True, False], "base, last, earlier"
    once = ground.run(CONFIG.replace(folds=1), models=models[:1])["models"]
    assert all("fold_spread" not in one["privacy"]["both"] for one in once), "there is one draw alone"


def test_attacks_on_the_base_model_itself_are_made_once_for_all_checkpoints(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored, asked = MembershipAudit.document_scores, []

    def counted(self: MembershipAudit, *given: Any, **more: Any) -> Any:
        asked.append(given[2] is None)
        return scored(self, *given, **more)

    monkeypatch.setattr(MembershipAudit, "document_scores", counted)
    counts = []
    for num in (1, 3):
        models = [replace(ground.models[0], epoch=epoch, is_last=False) for epoch in range(1, num + 1)]
        ground.run(CONFIG.replace(attacks=("loss", "reference")), models=models, bases={"clm": ground.bases["clm"]})
        counts.append((sum(asked), len(asked) - sum(asked)))
        asked.clear()
    assert counts[0][0] == counts[1][0] > 0
    assert counts[1][1] == 3 * counts[0][1] > 0


def test_direct_identifiers_are_those_that_are_flagged_and_indirect_ones_those_that_few_use(
    ground: Ground, memoriser: dict[str, Any]
) -> None:
    unprotected = ground.train.with_columns(flags=np.zeros_like(ground.train.flags))
    changed = model_of(ground.run(train=unprotected), "clm", "clm", 8)
    assert changed["privacy"]["direct"]["types"]["value"] is None
    assert changed["privacy"]["indirect"]["types"] == memoriser["privacy"]["indirect"]["types"]
    assert changed["excess"] == memoriser["excess"]
    assert changed["low_cost"] == memoriser["low_cost"]
    unflagged = ground.audit.with_columns(flags=np.zeros_like(ground.audit.flags))
    changed = model_of(ground.run(audit=unflagged), "clm", "clm", 8)
    assert changed["privacy"] == memoriser["privacy"]
    assert changed["excess"]["direct"]["excess"]["value"] is None
    assert changed["excess"]["indirect"] == memoriser["excess"]["indirect"]
    assert changed["low_cost"] == memoriser["low_cost"]


def test_every_attack_there_is_can_be_run(ground: Ground) -> None:
    lowercase = ground.audit.with_columns(input_ids=np.roll(ground.audit.input_ids, 3))  # any other tokens
    models = ground.run(CONFIG.replace(attacks=DOCUMENTS), lowercase_store=lowercase)["models"]
    assert set(model_of({"models": models}, "clm", "clm", 8)["membership"]) == CAUSAL
    assert set(model_of({"models": models}, "ppmlm", "mlm", 4)["membership"]) == set(DOCUMENTS) - needing(Need.ENDS)
    best = model_of({"models": models}, "clm", "clm", 8)["best_attack"]
    assert (best["auc"]["value"], best["num_attacks"]) == (1.0, len(CAUSAL))
    assert model_of({"models": models}, "ppmlm", "mlm", 4)["membership"]["lowercase"]["over_base"]["value"] is not None
    for name, measured in model_of({"models": models}, "clm", "clm", 8)["membership"].items():
        assert measured["auc"]["value"] > 0.9, name
        assert (measured["num_members"], measured["num_nonmembers"]) == (6, 6)
        assert measured["tpr_at_fpr"] == {"0.01": None, "0.001": None}  # 6 of the 1,000 non-members it would take


def test_a_checkpoint_is_read_once_for_all_that_is_asked_of_it(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Path] = []

    def load(path: Path, objective: str) -> Any:
        loaded.append(path)
        return load_model(path, objective)

    for module in (evaluate, inversion_measure):
        monkeypatch.setattr(module, "load_model", load)
    monkeypatch.setattr("reticent.audit.membership.self_calibration.CALIBRATION_TEXTS", 8)
    more = {"inversion": InversionConfig(num_decoys=3), "generation": GenerationConfig(num_prompts=2, num_tokens=4)}
    attacks = ("loss", GRADIENT, STATES, INFORMATION, COVERAGE, PROBING, SELF_CALIBRATION)
    ground.run(CONFIG.replace(attacks=attacks, all_occurrences=True, **more))
    trained = [entry.path for entry in ground.models if entry.path not in ground.bases.values()]
    assert [loaded.count(path) for path in trained] == [1] * len(trained) != []


def test_information_by_token_tells_the_members_of_the_memoriser_and_which_words_do(ground: Ground) -> None:
    models = ground.run(CONFIG.replace(attacks=("loss", INFORMATION)))["models"]
    memoriser = model_of({"models": models}, "clm", "clm", 8)
    assert memoriser["membership"][INFORMATION]["auc"]["value"] == 1.0
    assert "no control" in memoriser["membership"][INFORMATION]["why"]
    for kind in ("direct", "rare", "ordinary"):
        assert memoriser["by_kind"][kind]["attacks"][INFORMATION]["auc"]["value"] > 0.9
    assert not any(INFORMATION in str(model) for model in models if model["recipe"] == "base")


def test_hidden_states_are_probed_of_every_model_and_of_the_base(ground: Ground) -> None:
    models = ground.run(CONFIG.replace(attacks=("loss", STATES)))["models"]
    assert len(models) == 5
    for model in models:
        assert model["membership"][STATES]["num_members"] == 3  # the classifier learned from the others
        assert ("over_base" in model["membership"][STATES]) == (model["recipe"] != "base")


def test_earlier_checkpoints_tell_the_members_of_the_last_and_of_no_other(ground: Ground) -> None:
    config, last = CONFIG.replace(attacks=("loss", CHECKPOINTS)), max(ground.models, key=lambda entry: entry.epoch)
    (first,) = (entry for entry in ground.models if entry.recipe == last.recipe and entry is not last)
    entries = [replace(e, earlier=(first.path,)) if e is last else e for e in ground.models]
    for model in ground.run(config, models=entries)["models"]:
        found = model["membership"].get(CHECKPOINTS)
        assert (found is not None) == (model["epoch"] == last.epoch)
        if found:
            assert found["auc"]["value"] == 1.0
            assert "over_base" not in found  # the base has no earlier checkpoints


def test_a_reference_of_ones_own_writing_is_made_for_the_last_checkpoint_and_for_the_base(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent.audit.membership.self_calibration.CALIBRATION_TEXTS", 50)
    models = ground.run(CONFIG.replace(attacks=("loss", SELF_CALIBRATION)))["models"]
    found = {(m["recipe"], m["objective"], m["epoch"]): m["membership"].get(SELF_CALIBRATION) for m in models}
    made = {of for of, own in found.items() if own}
    assert made == {of for of in found if of[1] == "clm"} != set()
    assert found["clm", "clm", 8]["auc"]["value"] == 1.0
    assert found["clm", "clm", 8]["over_base"]["value"] > 0.5


def test_masked_models_can_be_asked_with_nothing_to_copy(ground: Ground) -> None:
    measured = ground.run(CONFIG.replace(all_occurrences=True))["models"]
    for model in measured:
        assert ("all_occurrences" in model) == (model["objective"] == "mlm")
    again = model_of({"models": measured}, "ppmlm", "mlm", 4)["all_occurrences"]
    assert set(again) == {"privacy", "excess", "exposed"}
    assert again["privacy"]["both"]["num_identifiers"] == NUM_INDIVIDUALS


def test_the_memoriser_ties_names_to_the_words_after_them(ground: Ground) -> None:
    config = CONFIG.replace(inversion=InversionConfig(num_decoys=3, per_individual=2))
    models = {(m["recipe"], m["objective"], m["epoch"]): m["inversion"] for m in ground.run(config)["models"]}
    memoriser, base = models["clm", "clm", 8], models["base", "clm", 0]
    assert (memoriser["direct"]["score"], base["direct"]["score"]) == ("difference", "likelihood")
    assert memoriser["direct"]["num_targets"] == base["direct"]["num_targets"]
    assert memoriser["direct"]["all"]["top1"]["members"]["value"] > 0.8
    assert memoriser["direct"]["all"]["top1"]["members"]["low"] > memoriser["direct"]["chance"]["top1"]
    place, of_base = memoriser["direct"]["in_place"], base["direct"]["in_place"]
    assert place["extracted"]["1"]["members"]["value"] > 0.8
    assert of_base["extracted"]["1"]["members"]["value"] == 0.0
    assert place["ranked"]["top1"]["members"]["value"] > 0.8
    assert ("own" in place, "own" in of_base) == (True, False)
    assert "association" not in memoriser  # nobody said which identifiers are names
    assert memoriser["embedding_shift"]["tied"]
    assert "embedding_shift" not in base
    assert models["clm", "clm", 4]["direct"]["all"]["top1"]["members"]["value"] == pytest.approx(
        0.25
    )  # the base itself


# ------------------------------------------------------------------- what is refused


def test_other_documents_than_those_trained_on_are_refused(ground: Ground) -> None:
    with pytest.raises(ArtifactError, match="not the documents the models were trained on"):
        ground.run(members=~ground.members)
    other = ground.train.with_columns(input_ids=ground.train.input_ids[::-1].copy())
    with pytest.raises(ArtifactError, match="not the documents the models were trained on"):
        ground.run(train=other)
    with pytest.raises(ArtifactError, match="23 flags for 24 documents"):
        ground.run(members=ground.members[1:])


def test_an_individual_on_both_sides_is_refused(ground: Ground) -> None:
    individual = ground.audit.individual.copy()
    individual[individual == 1] = 0
    with pytest.raises(ArtifactError, match="1 individuals are members and held out"):
        ground.run(audit=ground.audit.with_columns(individual=individual))


def test_an_attack_that_cannot_be_run_is_not_left_out_in_silence(ground: Ground) -> None:
    for sizes, told in ((None, "needs the compressed sizes"), (ground.sizes[1:], "compressed sizes for")):
        with pytest.raises(ArtifactError, match=told):
            ground.run(sizes=sizes)
    other = ground.audit.with_columns(doc_ids=ground.audit.doc_ids[::-1])
    for lowercase, said in ((None, "needs the tokens"), (other, "not the documents of the audit")):
        with pytest.raises(ArtifactError, match=said):
            ground.run(CONFIG.replace(attacks=("lowercase",)), lowercase_store=lowercase)
    without = ground.run(CONFIG.replace(attacks=("loss",)), sizes=None, models=[])
    assert set(without["models"][0]["membership"]) == {"loss"}


def test_a_model_without_its_base_is_not_left_out_in_silence(ground: Ground) -> None:
    with pytest.raises(PolicyError, match="no base model to compare the mlm models with"):
        ground.run(bases={"clm": ground.bases["clm"]})


def test_windows_longer_than_the_model_are_refused(ground: Ground) -> None:
    with pytest.raises(TrainingError, match="window_length 33 is longer than the model's 32 positions"):
        ground.run(CONFIG.replace(window_length=33))


# ------------------------------------------------------------------------ the summary


def test_weights_that_a_base_model_lacks_are_counted(ground: Ground, tmp_path: Path) -> None:
    bert(0).bert.save_pretrained(tmp_path)
    load_tokenizer(ground.train.tokenizer_path).save_pretrained(tmp_path)
    found = ground.run(bases={"mlm": tmp_path}, models=ground.models[2:])
    assert [entry.get("num_drawn") for entry in found["models"]] == [6, None]
