"""One epsilon from documents to weights: an individual more moves nothing of another, unless a stage is put back.

Documents D and D + x go through the real stages, up to the gradients of the first step. Vocabulary and keys are held
fixed. What is recorded of every other individual (samples, text, flags, public words, masks, targets, clipped
gradients) is equal bit by bit; with any stage of the table put back, it is not.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.drawing import share_of
from fixtures.jobs import Values
from fixtures.models import toy_model, toy_tokenizer

from reticent.core.errors import PolicyError
from reticent.engine.dp_vocabulary import gaussian_sigma
from reticent.engine.ngrams import NgramIndex
from reticent.engine.protect import Policy
from reticent.engine.schema import INDIRECT, MEMBERS
from reticent.engine.store import TokenStore, open_tokens
from reticent.ext.dp import dpsgd
from reticent.ext.dp.budget import read_budget, totals
from reticent.ext.dp.charges import require_room
from reticent.ext.dp.dpsgd import PhysicalBatches
from reticent.job import checks, noise, training_tokens
from reticent.job.config import parse_job
from reticent.job.dependencies import privacy_of
from reticent.job.noise import noise_of
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.text_checks import check_text
from reticent.trainer import labels, loop
from reticent.trainer.ledger import Ledger
from reticent.trainer.privacy import STAGES
from reticent.trainer.steps import PlainStep
from reticent.trainer.windows import Windows

pytest.importorskip("opacus")
pytestmark = [pytest.mark.usefixtures("one_thread", "without_figures"), pytest.mark.heavy]

PUBLIC = ["the", "patient", "was", "seen", "with", "pain", "today", "and", "heart", "fever", "cough", "stable", "no"]
RARE = ["zoster", "quinsy", "scurvy", "ague", "dropsy", "catarrh", "lumbago", "croup"]
#: By individual; the name of p02 is a word that x writes small, and three others write the name of x.
NAMES = ["Marlow", "Brandt", "Winter", "Okafor", "Lindqvist", "Moreau", "Tanaka", "Novak", "Petrov", "Silva"]
#: The words of the private vocabulary, where it is held fixed.
VOCABULARY = ("zoster", "ague")
#: All draws of the words of texts together.
SURROGATES = {
    "base": "dp-mlm-public",
    "context": "surrogate",
    "context_indirect": "surrogate",
    "mask_split": [0.5, 0.5, 0.0],
}
#: Recipes that tell no word by a list.
COUNTED = ("dp-mlm", "counted-mlm")
Seen = dict[str, list[Any]]
_TAKE_STEPS = loop._take_steps


def documents(seed: int) -> list[dict[str, str]]:
    """Documents of ten individuals, and of x, whose come first."""
    random = np.random.default_rng(seed)
    rows = []
    for number, name in enumerate(NAMES):
        for document in range(1 + int(random.integers(3))):
            others = ["Hargrove"] if 4 <= number <= 6 else []
            words = [*random.choice(PUBLIC, 9), *random.choice(RARE, 2), name, *others, *random.choice(PUBLIC, 3)]
            text = f"Seen for {' '.join(words)}.{f' Mrs. {name} called.' if number != 2 else ''}"
            rows.append({"doc_id": f"p{number:02}-{document}", "individual_id": f"p{number:02}", "text": text})
    copied = next(row["text"] for row in rows if row["individual_id"] == "p03")
    own = f"Note of Hargrove with {' '.join(RARE)}. {'In winter the winter was no winter. ' * 9}Mrs. Hargrove."
    texts = enumerate((copied, f"{own} Seen by Okafor.", own.replace("Note", "Letter")))
    return [*({"doc_id": f"a-{n}", "individual_id": "a", "text": text} for n, text in texts), *rows]


def hospital(folder: Path, rows: list[dict[str, str]], households: dict[str, str] | None = None) -> Path:
    """Documents, records and lists, of the people of these rows alone."""
    folder.mkdir(parents=True)
    if households is not None:
        rows = [{**row, "household_id": households.get(who := row["individual_id"], who)} for row in rows]
    pq.write_table(pa.Table.from_pylist(rows), folder / "documents.parquet")
    people = [{"individual_id": f"p{number:02}", "last_name": name} for number, name in enumerate(NAMES)]
    there = {row["individual_id"] for row in rows}
    people = [
        row for row in ({"individual_id": "a", "last_name": "Hargrove"}, *people) if row["individual_id"] in there
    ]
    pq.write_table(pa.Table.from_pylist(people), folder / "records.parquet")
    (folder / "names.txt").write_text("\n".join(row["last_name"] for row in people))
    (folder / "all-names.txt").write_text("\n".join(NAMES))
    (folder / "public.txt").write_text("\n".join(PUBLIC))
    for kind in ("bert", "gpt2"):
        toy_model(kind).save_pretrained(folder / kind)
        (folder / kind / "tokenizer.json").write_text(toy_tokenizer(kind))
    return folder


def job(place: Path, recipe: str, **changes: Any) -> Values:
    kind, objective = ("gpt2", "clm") if "clm" in recipe else ("bert", "mlm")
    dp = {"noise_multiplier": 1.0, "sample_rate": 0.5, "max_documents": 2, "max_physical_batch_size": 1}
    values: Values = {
        "out": str(place / "run"),
        "seed": 12,
        "corpus": {"source": str(place / "documents.parquet")},
        "split": {"heldout": 0.1},
        "detect": {
            "detectors": ["rules", "records"],
            "records": {"table": str(place / "records.parquet"), "common": str(place / "public.txt")},
        },
        "protect": {"public_words": str(place / "public.txt")} if recipe not in COUNTED else {},
        "surrogates": {"names": "syllables"},
        "threshold": {"epsilon": 500.0, "unit": "individual", "max_words": 60, "delta": 1e-4},
        "recipes": {"text-mlm": SURROGATES, "counted-mlm": {"base": "ppmlm", "private": True}},
        "model": [{"name": "toy", "base": str(place / kind), "objective": objective, "recipes": [recipe]}],
        "train": {
            "num_epochs": 2,
            "window_length": 16,
            **({"mask_share": 0.5} if objective == "mlm" else {}),
            "device": "cpu",
            "dp": {**dp, "clipping": "hooks", "num_units": 12},
        },
    }
    for name, value in changes.items():
        section, _, rest = name.partition("__")
        target = values
        for key in [section, *rest.split("__")][:-1] if rest else ():
            target = target.setdefault(key, {})
        target[name.rpartition("__")[2]] = value
    return values


def seen(values: Values, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What a training sees of each individual in two epochs, and its plan."""
    found: Seen = {}

    def take_steps(run: Any, windows: Windows, make: Any, progress: Any) -> None:
        if isinstance(run.step, PlainStep):  # of a base
            _TAKE_STEPS(run, windows, make, progress)
            return
        plan, step, store = run.step.plan_epoch(windows, make, run.state), run.step, windows.store
        found.setdefault("plan", [step.plan.sample_rate, step.plan.num_steps, step.plan.expected_units])
        found["plan"].append(step.plan.guarantee.delta)
        for number, data in enumerate(plan.data):
            for part, rows in zip(data.parts, data.rows, strict=True):
                if not part.num_units:
                    continue
                ids = store.doc_ids_of(windows.documents[part.batch.windows])
                about = [run.state.epoch, number, ids]
                flags = part.batch.flags & step.recipe.protected_flags
                arrays = [part.batch.input_ids, flags, part.targets.input_ids, part.targets.labels]
                if run.state.epoch == 1 and number == 0:
                    step.noisy.add_gradients(PhysicalBatches([part], [rows], Ledger()), 0)
                    arrays += [weight.grad.numpy() for weight in run.model.parameters() if weight.grad is not None]
                own = found.setdefault(ids[0] if step.plan.guarantee.unit == "record" else ids[0].partition("-")[0], [])
                own.append((*about, [array.tobytes() for array in arrays]))
        run.state.step, run.state.num_cells = run.state.step + 1, 1

    monkeypatch.setattr(loop, "_take_steps", take_steps)
    monkeypatch.setattr(secrets, "randbits", lambda bits: (1 << bits) // 3)
    monkeypatch.setattr(training_tokens, "read_or_draw_key", lambda _: bytes(32))
    execute(Run(parse_job(values)), "train")
    return found


def fixed_vocabulary(_: Run, index: NgramIndex, k: int, *__: Any) -> NgramIndex:
    words = index.words()
    supports = words.column("support").to_numpy()
    shared = np.isin(np.array(words.column("word").to_pylist()), VOCABULARY)
    return index.with_supports(np.where(shared, np.maximum(supports, k), np.minimum(supports, k - 1)))


def both(
    folder: Path,
    seed: int,
    recipe: str,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    x: str = "a",
    households: dict[str, str] | None = None,
) -> tuple[Seen, Seen]:
    """What is seen of D, and of D + x but of x: an individual, or a document."""
    rows = documents(seed)
    sides = []
    for name, kept in (("without", [row for row in rows if not row["doc_id"].startswith(x)]), ("with", rows)):
        place = hospital(folder / name, kept, households)
        own = {key: value(place) if callable(value) else value for key, value in change.items()}
        sides.append(seen(job(place, recipe, **own), monkeypatch))
    assert x not in sides[0]
    sides[1].pop(x, None)
    return sides[0], sides[1]


RECIPES = ["dp-mlm", "dp-mlm-public", "private-mlm", "text-mlm", "dp-clm-public"]


@pytest.mark.parametrize("seed", share_of([0, 1]))
@pytest.mark.parametrize("recipe", RECIPES)
def test_an_individual_more_moves_nothing_of_another(
    recipe: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise, "_with_noisy_supports", fixed_vocabulary)
    without, with_x = both(tmp_path, seed, recipe, monkeypatch, {})
    assert len(without) > 5
    assert without == with_x


def _patched(owner: Any, name: str, value: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


def _by_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that follows from the documents."""
    make = training_tokens._surrogate_writer

    def made(run: Run, *more: Any) -> Any:
        key = run.corpus.fingerprint().encode()[:32]
        monkeypatch.setattr(training_tokens, "read_or_draw_key", lambda _: key)
        return make(run, *more)

    monkeypatch.setattr(training_tokens, "_surrogate_writer", made)


def _by_votes(monkeypatch: pytest.MonkeyPatch, draw: Any = noise._with_noisy_supports) -> None:
    """A vocabulary that is drawn, by the same noise on both sides."""
    monkeypatch.setattr(noise, "_with_noisy_supports", draw)
    monkeypatch.setattr(noise, "_derive_key", lambda *_: bytes(32))


def _of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Surrogates by what all documents hold."""
    whole = training_tokens.RewrittenTokens
    monkeypatch.setattr(
        training_tokens, "RewrittenTokens", lambda *a, **more: whole(*a, **{**more, "alone": False})
    )  # fmt: skip


def _by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = loop.cut_windows
    monkeypatch.setattr(loop, "cut_windows", lambda *a, **more: cut(*a, **{**more, "keyed": False}))


def _without_identifiers(store: TokenStore, recipe: Any, special: Any, vocab_size: int) -> np.ndarray:
    """The pool of a recipe that is not private."""
    return np.flatnonzero(~store.ids_with(recipe.protected_flags, vocab_size))


NOTHING: dict[str, Any] = {}
REFERENCE = {
    "name": "toy",
    "objective": "mlm",
    "recipes": ["dp-mlm"],
    "foundation": {
        "kind": "bert",
        "text": "reference",
        "hidden_size": 8,
        "num_layers": 1,
        "num_heads": 1,
        "num_epochs": 1,
    },
}
ALONE = {"detect__detectors": ["gazetteer"], "detect__records": NOTHING}
#: Stages of a document -> which it is; those of an individual are of x.
OF_RECORDS = {"the draw of the user-inference holdout": "p02-1", "the other documents of an individual": "a-0"}
#: Stage -> recipe, change of the job, what is put back.
PUT_BACK: dict[str, tuple[str, dict[str, Any], Callable[[pytest.MonkeyPatch], None] | None]] = {
    "deduplication": ("dp-mlm", {"dedup": {"mode": "exact", "scope": "corpus"}, "threshold": NOTHING}, None),
    "the draw of the user-inference holdout": (
        "dp-mlm",
        {"split__user_inference_holdout": 0.5, "train__dp__unit": "record", "train__dp__max_documents": 4},
        None,
    ),
    "the base model": ("dp-mlm", {"split__reference": 0.5, "model": [REFERENCE]}, None),
    "the planting of canaries": ("dp-mlm", {"canaries": {"num": 4, "arms": ["protected"]}}, None),
    "the choice of protected words": ("counted-mlm", {"threshold": NOTHING}, None),
    "the choice of protected words: the scope corpus": (
        "dp-mlm-public", {}, _patched(Policy, "scope_of", lambda *_: "corpus"),
    ),
    "the choice of replaced words": ("text-mlm", {}, _of_all),
    "the choice of replaced words: by a key of the documents": ("text-mlm", {}, _by_documents),
    "the other documents of an individual": (
        "dp-mlm-public",
        {"train__dp__unit": "record", "train__dp__max_documents": 4},
        None,
    ),
    "the propagation of identifiers": ("dp-mlm-public", {"detect__propagate": True}, None),
    "a detector that learns from all documents": (
        "dp-mlm-public",
        {**ALONE, "detect__gazetteer": lambda place: {"lists": {"NAME": str(place / "all-names.txt")}}},
        None,
    ),
    "a detector that learns from all documents: a tagger that these people teach": (
        "dp-mlm-public",
        {
            "detect__detectors": ["rules", "records", "learned"],
            "detect__learned": {"certain": True, "corpus": False},
        },
        _patched(secrets, "token_bytes", bytes),  # one key of its features on both sides
    ),
    "lists of names": (
        "dp-mlm-public",
        {**ALONE, "detect__gazetteer": lambda place: {"lists": {"NAME": str(place / "names.txt")}, "guard": False}},
        None,
    ),
    "the number of individuals": ("dp-mlm", {"train__dp__num_units": None, "train__dp__sample_rate": None}, None),
    "votes": ("private-mlm", {}, _by_votes),
    "draws": ("dp-mlm", {}, _by_number),
    "draws: samples by place": ("dp-mlm", {}, _patched(
        TokenStore, "doc_keys", property(lambda store: np.arange(store.num_documents)),
    )),
    "random tokens": ("text-mlm", {}, _patched(labels, "replacement_ids", _without_identifiers)),
}  # fmt: skip


@pytest.mark.parametrize("stage", PUT_BACK)
def test_with_a_stage_put_back_an_individual_more_moves_others(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, change, put_back = PUT_BACK[stage]
    assert stage.partition(":")[0] in STAGES
    monkeypatch.setattr(noise, "_with_noisy_supports", fixed_vocabulary)
    monkeypatch.setattr(checks, "refuse_promise", lambda *_: None)
    monkeypatch.setattr("reticent.trainer.privacy.refuse_promise", lambda *_: None)
    if put_back is not None:
        put_back(monkeypatch)
    x = OF_RECORDS.get(stage, "a")
    without, with_x = both(tmp_path, 0, recipe, monkeypatch, change, x)
    assert without != with_x


def test_every_stage_that_is_refused_is_put_back() -> None:
    of_heads = {"the training of its checkpoint"}
    refused = {stage.name for stage in STAGES.values() if not stage.accounted}
    assert refused - of_heads <= {key.partition(":")[0] for key in PUT_BACK}


@pytest.mark.parametrize("recipe", ["dp-mlm-public", "text-mlm"])  # tokens of all epochs, and of each
def test_a_household_is_the_unit_where_one_moves_another_of_it(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a span protects reaches the documents of the household: so x moves p01, and nobody outside."""
    change, found = {"corpus__household_id": "household_id"}, []
    monkeypatch.setattr(dpsgd, "find_units", lambda *a, of=dpsgd.find_units: found.append(of(*a)) or found[-1])
    without, with_x = both(tmp_path, 0, recipe, monkeypatch, change, households={"a": "h", "p01": "h"})
    assert without.pop("p01") != with_x.pop("p01")
    assert without == with_x
    run = Run(parse_job(job(tmp_path / "with", recipe, **change)))
    assert privacy_of(run, run.job.model[0], run.job.recipe(recipe)).unit == "household"
    num_households = len(np.unique(run.individuals.units[run.individuals.mask(MEMBERS)]))
    assert {len(units) for units in found} == {num_households}


def test_a_vocabulary_that_can_hold_no_word_is_not_drawn_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = hospital(tmp_path / "hospital", documents(0))
    drawn: list[NgramIndex] = []

    def noted(_: Run, index: NgramIndex, *__: Any) -> NgramIndex:
        drawn.append(index)
        return index

    monkeypatch.setattr(noise, "_with_noisy_supports", noted)
    models = ["dp-mlm-public", "private-mlm"]
    run = Run(parse_job(job(place, "private-mlm", threshold__epsilon=0.5, model=[
        {"name": "toy", "base": str(place / "bert"), "objective": "mlm", "recipes": models}
    ])))  # fmt: skip
    execute(run, "protect")
    public, private = (open_tokens(run.folder / "tokens/toy" / run.job.tokens(name)) for name in models)
    np.testing.assert_array_equal(public.flags, private.flags)
    assert (public.flags & INDIRECT).any()
    assert not (public.flags & INDIRECT).all()
    first, second = (privacy_of(run, run.job.model[0], run.job.recipe(name)) for name in models)
    assert first == second
    assert not drawn  # for words on no list, nor for counted ones, which no recipe has
    assert {noise_of(run, 2, run.job.protection(name).words) for name in models} == {None}  # nor said of the models
    checked = check_text(run)
    assert all(checked[f"tokens/toy/{run.job.tokens(name)}"] for name in models)  # held to the text, or it raises
    declared = Run(parse_job(job(place, "private-mlm", threshold__epsilon=0.5, train__dp__num_units=100_000)))
    found = privacy_of(declared, declared.job.model[0], declared.job.recipe("private-mlm"))
    assert found.vocabulary == (gaussian_sigma(0.5, 0.5e-4), 0.5e-4)


#: A vocabulary that holds words of so many individuals, and a total that includes it.
OF_MANY = {
    "threshold": {"epsilon": 0.5, "unit": "individual", "max_words": 60, "delta": 1e-7},
    "train__dp": {"target_epsilon": 8.0, "budget_epsilon": 8.0, "sample_rate": 0.5, "num_units": 100_000},
    "train__num_epochs": 1,
}


def test_a_budget_holds_a_private_arm_of_the_same_epsilon_which_includes_its_vocabulary(tmp_path: Path) -> None:
    run = Run(parse_job(job(hospital(tmp_path / "hospital", documents(0)), "private-mlm", **OF_MANY)))
    require_room(run)  # a look at a plan
    execute(run, "train")
    vocabulary, training = read_budget(run.folder / "privacy-budget.json")
    assert vocabulary.guarantee.epsilon == 0.5
    assert training.about["includes"] == [vocabulary.run, run.job.protect.k]
    (total,) = totals([vocabulary, training])
    assert (total["epsilon"], total["runs"]) == (training.guarantee.epsilon, 1)
    execute(Run(parse_job(job(tmp_path / "hospital", "private-mlm", **OF_MANY, protect__policy="all"))), "protect")


def test_a_budget_has_room_by_the_number_of_individuals_that_is_declared(tmp_path: Path) -> None:
    dp = {"target_epsilon": 8.0, "budget_epsilon": 1000.0, "target_delta": 0.15, "sample_rate": 0.5}
    folder = hospital(tmp_path / "hospital", documents(0))
    run = Run(parse_job(job(folder, "dp-mlm", train__dp={**dp, "num_units": 5})))
    require_room(run)
    with pytest.raises(PolicyError, match=r"target_delta: 1\.5e-1 is not below 1 /"):
        require_room(Run(parse_job(job(folder, "dp-mlm", train__dp=dp))))


def test_deltas_of_all_trainings_are_held_to_the_declared_number_of_units_at_once(tmp_path: Path) -> None:
    values = job(hospital(tmp_path / "hospital", documents(0)), "private-mlm", **OF_MANY)
    values["model"][0]["recipes"] = ["private-mlm", "dp-mlm-public"]
    values["train"]["dp"] |= {"target_delta": 6e-6, "budget_epsilon": 100.0}
    with pytest.raises(PolicyError, match=r"these 2 runs together .* at delta 1e-5 per individual"):
        require_room(Run(parse_job(values)))
    values["train"]["dp"]["target_delta"] = 4e-6
    require_room(Run(parse_job(values)))


def test_a_budget_has_room_by_the_numbers_that_its_own_trainings_declare(tmp_path: Path) -> None:
    dp = {"target_epsilon": 8.0, "budget_epsilon": 1000.0, "target_delta": 0.15, "sample_rate": 0.5}
    values = job(hospital(tmp_path / "hospital", documents(0)), "dp-mlm", train__dp=dp)
    (model,) = values["model"]
    few = {**model, "name": "few", "train": {"dp": {**dp, "num_units": 5, "budget_file": str(tmp_path / "few.json")}}}
    values["model"] = [few]
    require_room(Run(parse_job(values)))
    values["model"] = [few, model]
    with pytest.raises(PolicyError, match=r"target_delta: 1\.5e-1 is not below 1 /"):
        require_room(Run(parse_job(values)))
    values["train"]["dp"] = {**dp, "target_delta": 0.09}
    values["model"] = [few, model]
    require_room(Run(parse_job(values)))
    values["model"] = [few, model, {**model, "name": "second"}]
    with pytest.raises(PolicyError, match="privacy budget"):
        require_room(Run(parse_job(values)))


def test_votes_beside_a_list_and_beside_another_are_drawn_and_charged_anew(tmp_path: Path) -> None:
    """The same noise on other votes would cancel: a word that one set has and another has not tells who voted."""
    place = hospital(tmp_path / "hospital", documents(0))
    threshold = {"epsilon": 500.0, "unit": "individual", "max_words": 60, "delta": 1e-4}
    (place / "other.txt").write_text("\n".join(PUBLIC[1:]))
    names: list[set[str]] = []
    for recipes, words in (
        (["private-mlm"], "public"),
        (["private-mlm", "ppmlm"], "public"),
        (["private-mlm"], "other"),
    ):
        values = job(place, "private-mlm", threshold=threshold, protect__public_words=str(place / f"{words}.txt"))
        values["model"][0]["recipes"] = recipes
        execute(Run(parse_job(values)), "protect")
        names.append({each.run for each in read_budget(place / "run/privacy-budget.json")})
    assert list(map(len, names)) == [1, 2, 3]
