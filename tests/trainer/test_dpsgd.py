"""DP-SGD against a hand-clipped oracle: one unit at a time backward, clip, sum. Noise 0 unless a test is about it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fixtures.models import toy_model, toy_tokenizer
from fixtures.private import uneven_individuals
from fixtures.stores import make_store
from torch.utils._python_dispatch import TorchDispatchMode

from reticent.core.device import full_float32
from reticent.core.errors import TrainingError
from reticent.engine.schema import IGNORE_INDEX
from reticent.engine.store import TokenStore
from reticent.ext.dp.dpsgd import find_units
from reticent.trainer import ghost_norms
from reticent.trainer.labels import Targets, make_targets
from reticent.trainer.ledger import Ledger
from reticent.trainer.models import load_tokenizer, special_ids
from reticent.trainer.privacy import PrivacyConfig, plan_privacy
from reticent.trainer.recipes import get_recipe
from reticent.trainer.windows import Batch, Windows, cut_windows

pytest.importorskip("opacus")
from reticent.ext.dp import dpsgd
from reticent.ext.dp.dpsgd import NoisyGradient, Part, PhysicalBatches

pytestmark = pytest.mark.usefixtures("one_thread")

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA")),
]
OBJECTIVES = {"gpt2": "clm", "bert": "mlm"}
KINDS = ["gpt2", "bert"]
MODES = ["hooks", "ghost"]


def cut(kind: str, store: TokenStore) -> Windows:
    return cut_windows(store, 16, special_ids(load_tokenizer(toy_tokenizer(kind)), OBJECTIVES[kind]))


def untied(model: Any, kind: str) -> Any:
    head = model.lm_head if kind == "gpt2" else model.cls.predictions.decoder
    head.weight = torch.nn.Parameter(head.weight.detach().clone())
    if kind == "bert":
        model.cls.predictions.bias = torch.nn.Parameter(head.bias.detach().clone())
    return model


def with_adapters(model: Any, kind: str) -> Any:
    """LoRA whose second matrix is not 0, so that both have a gradient."""
    peft = pytest.importorskip("peft")
    targets = ["c_attn"] if kind == "gpt2" else ["query", "value"]
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=targets, fan_in_fan_out=kind == "gpt2")
    adapted = peft.get_peft_model(model, config).get_base_model()
    torch.manual_seed(0)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    return adapted


def built(kind: str, weights: str, device: str = "cpu") -> Any:
    model = toy_model(kind)
    model = with_adapters(model, kind) if weights == "lora" else untied(model, kind) if weights == "untied" else model
    return model.to(device).train()


def trained(model: Any) -> list[torch.nn.Parameter]:
    return [weight for weight in model.parameters() if weight.requires_grad]


def flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors]).cpu().double()


def unit_gradient(model: Any, kind: str, batch: Batch, targets: Targets) -> torch.Tensor:
    """The gradient of the mean loss over these rows' targets, by one plain backward pass."""
    device = model.device
    labels = torch.from_numpy(targets.labels).to(device)
    logits = model(
        input_ids=torch.from_numpy(targets.input_ids).to(device),
        attention_mask=torch.from_numpy(batch.attention).to(device),
    ).logits
    if kind == "gpt2":
        logits, labels = logits[:, :-1], labels[:, 1:]
    count = int((labels != IGNORE_INDEX).sum())
    loss = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=IGNORE_INDEX, reduction="sum") / max(count, 1)
    model.zero_grad()
    loss.backward()
    gradient = flat([weight.grad if weight.grad is not None else 0 * weight for weight in trained(model)])
    model.zero_grad()
    return gradient


def rows(part: Part, wanted: np.ndarray) -> tuple[Batch, Targets]:
    batch = Batch(*(getattr(part.batch, name)[wanted] for name in Batch.__slots__))
    return batch, Targets(part.targets.input_ids[wanted], part.targets.labels[wanted])


def oracle(model: Any, kind: str, parts: list[Part], bound: float | None) -> tuple[torch.Tensor, float]:
    """Sum of every unit's gradient clipped to ``bound`` (None: the median norm, which is returned)."""
    gradients = [
        unit_gradient(model, kind, *rows(part, part.units == unit)) for part in parts for unit in np.unique(part.units)
    ]
    norms = [float(gradient.norm()) for gradient in gradients]
    bound = bound if bound is not None else float(np.median(norms))
    return sum(
        (gradient * min(1.0, bound / (norm + 1e-6)) for gradient, norm in zip(gradients, norms, strict=True)),
        torch.zeros_like(gradients[0]),
    ), bound


def start(
    kind: str, model: Any, store: TokenStore, clipping: str, *, bound: float = 1.0, rate: float = 1.0, **changes: Any
) -> tuple[NoisyGradient, Any]:
    """Return the steps of a toy training, and a function that gives their parts."""
    noise = changes.pop("noise_multiplier", 0.0)
    ranks = {name: changes.pop(name) for name in ("rank", "num_ranks", "autocast") if name in changes}
    seed = changes.pop("seed", 5)
    config = PrivacyConfig(noise_multiplier=noise, max_grad_norm=bound, clipping=clipping, sample_rate=rate, **changes)
    windows = cut(kind, store)
    units = find_units(windows, config.unit, config.max_documents)
    plan = plan_privacy(config, len(units), 1, 1)
    steps = NoisyGradient(model, OBJECTIVES[kind], config, plan, model.device, seed=seed, **ranks)
    steps.wrap(torch.optim.SGD(trained(model), lr=1.0))

    def make(batch: Batch, ledger: Ledger) -> Targets:
        recipe = get_recipe(OBJECTIVES[kind])
        return make_targets(batch, recipe, ledger, mask_id=windows.special.mask, mask_share=0.3, seed=0, epoch=1)

    def parts(step: int = 0) -> list[Part]:
        return next(steps.iter_steps(windows, units, make, first=step, last=step + 1)).parts

    return steps, parts


def given(steps: NoisyGradient, parts: list[Part]) -> PhysicalBatches:
    rows = [steps.make_rows(part.batch, part.targets, part.units) for part in parts]
    return PhysicalBatches(parts, rows, Ledger())


def update(steps: NoisyGradient, parts: list[Part], step: int = 0) -> torch.Tensor:
    """Gradient of the optimizer, times the expected number of units: the noisy sum."""
    steps.add_gradients(given(steps, parts), step)
    return flat([weight.grad for weight in trained(steps.model)]) * steps.plan.expected_units


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("weights", ["tied", "untied", "lora"])
@pytest.mark.parametrize("clipping", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_update_of_individuals_equals_the_hand_clipped_one(kind: str, clipping: str, weights: str, device: str) -> None:
    store = uneven_individuals()
    model = built(kind, weights, device)
    probe, parts = start(kind, model, store, clipping, max_documents=3, max_physical_batch_size=9)
    batches = parts()
    probe.close()
    assert len(batches) > 1
    assert max(np.bincount(part.units).max() for part in batches) > 3  # windows of several documents
    expected, bound = oracle(model, kind, batches, None)
    steps, _ = start(kind, model, store, clipping, bound=bound, max_documents=3)
    found = update(steps, batches)
    steps.close()
    assert float(expected.abs().max()) > 1e-3
    assert float((found - expected).abs().max()) <= 1e-6 * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize("clipping", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_update_of_records_equals_the_hand_clipped_one(kind: str, clipping: str) -> None:
    store, model = uneven_individuals(8), built(kind, "tied")
    probe, parts = start(kind, model, store, clipping, unit="record")
    batches = parts()
    probe.close()
    assert max(np.bincount(part.units).max() for part in batches) > 1
    expected, bound = oracle(model, kind, batches, None)
    steps, _ = start(kind, model, store, clipping, bound=bound, unit="record")
    found = update(steps, batches)
    assert float((found - expected).abs().max()) <= 1e-6 * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize(("by_household", "unit"), [(False, "household"), (True, "individual")])
def test_tokens_of_another_unit_than_that_of_epsilon_are_refused(by_household: bool, unit: dpsgd.Unit) -> None:
    store = uneven_individuals(8)
    store = store.with_units_as_individuals(np.arange(99)) if by_household else store
    with pytest.raises(TrainingError, match=f"epsilon is per {unit}, and the tokens of this epoch are by"):
        find_units(cut("bert", store.select(np.arange(2)).with_columns(path=None)), unit)


@pytest.mark.parametrize("clipping", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_one_unit_more_moves_the_sum_by_at_most_the_clip(kind: str, clipping: str) -> None:
    """The sensitivity itself: with and without one individual, all else drawn alike."""
    model, bound = built(kind, "tied"), 0.05
    steps, parts = start(kind, model, uneven_individuals(), clipping, bound=bound, max_physical_batch_size=1000)
    (part,) = parts()
    whole = update(steps, [part])
    for unit in np.unique(part.units):
        batch, targets = rows(part, part.units != unit)
        kept = np.unique(part.units[part.units != unit], return_inverse=True)[1]
        less = update(steps, [Part(batch, targets, kept)])
        assert float((whole - less).norm()) <= bound * (1 + 1e-4)
        assert float((whole - less).norm()) > 0.9 * bound  # every unit is clipped here
    steps.close()


@pytest.mark.parametrize("clipping", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_passes_in_bfloat16_have_clips_and_sums_in_float32(kind: str, clipping: str) -> None:
    """One unit less is exactly one clipped gradient less, and the sum is near that of passes in float32."""
    half, bound = partial(torch.autocast, "cpu", dtype=torch.bfloat16), 0.05
    found = {}
    for name, more in (("exact", {}), ("half", {"autocast": half})):
        steps, parts = start(
            kind, built(kind, "tied"), uneven_individuals(), clipping, bound=bound, max_physical_batch_size=1000, **more
        )
        (part,) = parts()
        found[name] = update(steps, [part])
        if name == "half":
            assert {weight.grad.dtype for weight in trained(steps.model)} == {torch.float32}
            for unit in np.unique(part.units):
                batch, targets = rows(part, part.units != unit)
                kept = np.unique(part.units[part.units != unit], return_inverse=True)[1]
                less = float((found[name] - update(steps, [Part(batch, targets, kept)])).norm())
                assert less == pytest.approx(bound, rel=1e-4)  # every unit is clipped here
        steps.close()
    off = float((found["half"] - found["exact"]).norm() / found["exact"].norm())
    assert 0 < off < 0.03


def test_clipped_gradients_are_added_up_in_all_their_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clip factor of 10 bits (TF32) would let a unit's gradient be longer than the bound."""
    products, seen = torch.backends.cuda.matmul, list[bool]()
    steps, parts = start("gpt2", built("gpt2", "tied"), uneven_individuals(), "hooks", max_physical_batch_size=1000)
    clip = type(steps.optimizer).clip_and_accumulate

    def spy(optimizer: Any) -> None:
        seen.append(products.allow_tf32)
        clip(optimizer)

    monkeypatch.setattr(type(steps.optimizer), "clip_and_accumulate", spy)
    with full_float32():  # and whatever was before, afterwards
        products.allow_tf32 = True
        update(steps, parts())
        assert products.allow_tf32
    assert seen == [False]


@pytest.mark.parametrize("clipping", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_update_does_not_change_with_the_size_of_physical_batches(kind: str, clipping: str) -> None:
    updates = []
    for size in (1, 7, 1000):
        model = built(kind, "tied")
        steps, parts = start(kind, model, uneven_individuals(), clipping, max_physical_batch_size=size)
        batches = parts()
        assert (len(batches) == 1) == (size == 1000)
        updates.append(update(steps, batches))
    for other in updates[1:]:
        assert float((other - updates[0]).abs().max()) <= 1e-6


@pytest.mark.parametrize("clipping", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_empty_sample_moves_nothing_but_by_its_noise(kind: str, clipping: str) -> None:
    for noise, moved in ((0.0, False), (1.0, True)):
        model = built(kind, "tied")
        steps, parts = start(kind, model, uneven_individuals(), clipping, rate=1e-3, noise_multiplier=noise)
        (part,) = parts()
        assert part.targets.num_targets == 0
        assert bool(update(steps, [part]).abs().max() > 0) == moved


@pytest.mark.parametrize("clipping", MODES)
def test_noise_has_the_promised_size_and_repeats_by_step_and_seed(clipping: str) -> None:
    found = {}
    for seed, step in ((1, 0), (1, 0), (1, 1), (2, 0), (1 + 2**32, 0)):
        model = built("gpt2", "tied")
        steps, parts = start(
            "gpt2",
            model,
            uneven_individuals(),
            clipping,
            rate=1e-3,
            noise_multiplier=2.0,
            bound=0.5,
            seed=seed,
            unit="record",
        )
        noise = update(steps, parts(), step)
        if (seed, step) in found:
            assert torch.equal(found[seed, step], noise)
        found[seed, step] = noise
    sizes = [float(noise.std()) for noise in found.values()]
    assert sizes == pytest.approx([1.0] * 4, rel=0.05)  # sigma * C, and no two alike
    assert all(abs(float(torch.corrcoef(torch.stack(pair))[0, 1])) < 0.1 for pair in _pairs(list(found.values())))


def _pairs(items: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    return [[one, other] for place, one in enumerate(items) for other in items[:place]]


@pytest.mark.parametrize("clipping", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_together_take_the_step_of_one_process(kind: str, clipping: str) -> None:
    """Shares of a sample are disjoint and whole; what each rank sums is what one process sums."""
    alone, parts = start(kind, built(kind, "tied"), uneven_individuals(), clipping, rate=0.8)
    batches = parts()
    expected, total = update(alone, batches), 0.0
    seen = []
    for rank in range(2):
        steps, parts = start(kind, built(kind, "tied"), uneven_individuals(), clipping, rate=0.8)
        steps.rank, steps.num_ranks = rank, 2
        share = parts()
        steps.rank, steps.num_ranks = 0, 1  # no other process is there to speak to
        seen += [number for part in share for number in part.batch.windows.tolist()]
        total = total + update(steps, share)
    assert sorted(seen) == sorted(number for part in batches for number in part.batch.windows.tolist())
    assert float((total - expected).abs().max()) <= 1e-6


@pytest.mark.parametrize("clipping", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_closing_leaves_a_plain_model(kind: str, clipping: str) -> None:
    model = built(kind, "tied")
    kinds = [type(module) for module in model.modules()]
    steps, parts = start(kind, model, uneven_individuals(), clipping)
    steps.add_gradients(given(steps, parts()), 0)
    steps.close()
    assert [type(module) for module in model.modules()] == kinds
    assert not any(module._forward_hooks or module._backward_hooks for module in model.modules())
    assert not any(hasattr(weight, "grad_sample") or hasattr(weight, "_norm_sample") for weight in model.parameters())


@pytest.mark.parametrize(("num_cells", "size"), [(3, 9), (12, 5)])  # few positions of a large weight, and the reverse
@pytest.mark.parametrize("kinds", ["e", "l", "p", "el", "lp", "lee", "lle"])
def test_norms_of_tied_weights_are_those_of_whole_gradients(
    kinds: str, num_cells: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    uses: dpsgd.Uses = []
    whole = torch.zeros(3, size + 2, size)
    for kind in kinds:
        if kind in "ep":  # with a padding token, whose row learns nothing, the first of each unit
            ids, b = torch.randint(0, size + 2, (3, num_cells)), torch.randn(3, num_cells, size)
            ids[:, 0] = 1
            uses.append((torch.nn.Embedding(2, 1, padding_idx=1 if kind == "p" else None), ids, b))
            for unit in range(3):
                learns = ids[unit] != 1 if kind == "p" else slice(None)
                whole[unit].index_add_(0, ids[unit][learns], b[unit][learns])
        else:
            h, along = torch.randn(3, num_cells + 1, size), torch.randn(3, num_cells + 1, size + 2)
            uses.append((torch.nn.Linear(1, 1), h, along))
            whole += along.mT @ h
    for most in (1 << 27, 1):  # all units at once, and one by one
        monkeypatch.setitem(ghost_norms.MOST_NUMBERS, "cpu", most)
        assert torch.allclose(dpsgd._weight_norms_of_uses(uses), whole.flatten(1).norm(dim=1), rtol=1e-5)


class Stacked(TorchDispatchMode):
    """Counts the tensors of several gradients of one shape."""

    def __init__(self, shape: torch.Size):
        super().__init__()
        self.shape, self.found = shape, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        shapes = [x.shape for x in (made if isinstance(made, tuple) else (made,)) if isinstance(x, torch.Tensor)]
        gradients = (self.shape, self.shape[::-1])
        self.found += sum(len(shape) == 3 and shape[0] > 1 and shape[1:] in gradients for shape in shapes)
        return made


@pytest.mark.parametrize("kind", KINDS)
def test_ghost_clipping_makes_no_gradients_of_tied_embeddings_at_once(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ghost_norms.MOST_NUMBERS, "cpu", 8000)  # a gradient has 5,280 numbers
    found = {}
    for clipping in MODES:
        model = built(kind, "tied")
        steps, parts = start(kind, model, uneven_individuals(), clipping, unit="record")
        data = given(steps, parts())
        with Stacked(model.get_input_embeddings().weight.shape) as stacked:
            steps.add_gradients(data, 0)
        found[clipping] = stacked.found
    assert found["hooks"] > 0
    assert found["ghost"] == 0


class Flipped(torch.nn.Module):
    """Runs a layer on the rows of a batch from the last to the first."""

    def __init__(self, layer: torch.nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.layer(states.flip(0)).flip(0)


@pytest.mark.parametrize("clipping", MODES)
def test_layer_that_mixes_rows_stops_the_run(clipping: str) -> None:
    """The norm of each unit would be another unit's."""
    model = built("gpt2", "tied")
    model.transformer.h[0].mlp = Flipped(model.transformer.h[0].mlp)
    store = uneven_individuals()
    steps, _ = start("gpt2", model, store, clipping)
    with pytest.raises(TrainingError, match="clipping does not see"):
        steps.check_clipping(cut("gpt2", store))


def test_layer_that_a_batch_does_not_reach_has_no_gradient_there() -> None:
    model, is_cut = built("gpt2", "tied"), [False]
    block = model.transformer.h[0].mlp
    block.register_forward_hook(lambda _, __, out: out.detach() if is_cut[0] else out)
    steps, parts = start("gpt2", model, uneven_individuals(), "ghost")
    batches = parts()
    assert update(steps, batches).isfinite().all()
    assert block.c_fc.weight.grad.abs().max() > 0
    is_cut[0] = True
    assert update(steps, batches).abs().max() > 0
    assert block.c_fc.weight.grad.abs().max() == 0
    steps.close()


class Scaled(torch.nn.Module):
    """A layer with a weight of its own, over a layer that is not trained."""

    def __init__(self, size: int):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(size))
        self.linear = torch.nn.Linear(size, size).requires_grad_(False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.linear(states) * self.gain


def test_weights_that_are_not_trained_get_no_gradient_and_nothing_is_held_after_a_step() -> None:
    model = built("gpt2", "tied")
    model.transformer.ln_f = own = Scaled(model.config.n_embd)
    steps, parts = start("gpt2", model, uneven_individuals(), "ghost")
    batches = parts()
    update(steps, batches)
    assert own.linear.weight.grad is None
    assert own.gain.grad is not None
    assert not any(weight.grad.requires_grad for weight in trained(model))
    steps._losses(given(steps, batches).rows[0])  # a pass that ends here, as by an error
    assert steps.hooks._uses
    steps.close()
    assert not steps.hooks._uses


@pytest.mark.parametrize("clipping", MODES)
def test_layer_that_clipping_does_not_see_stops_the_run(clipping: str) -> None:
    """A weight that is also used past its module: its hooks see half of its gradient."""
    model = built("gpt2", "tied")
    layer = model.transformer.h[0].mlp.c_fc
    model.transformer.ln_f.register_forward_hook(lambda _, __, out: out + 0.5 * layer.weight.sum() * out)
    steps, parts = start("gpt2", model, uneven_individuals(), clipping)
    with pytest.raises(TrainingError, match="clipping does not see"):
        steps.add_gradients(given(steps, parts()), 0)


@pytest.mark.parametrize("clipping", MODES)
def test_document_without_a_target_adds_nothing(clipping: str) -> None:
    """A document of one token predicts nothing where windows have no prefix; it must not divide by 0 either."""
    store = make_store([(7, 0, 0)], [(7, 0, 0), (8, 1, 0), (9, 2, 0)])
    model = built("gpt2", "tied")
    steps, parts = start("gpt2", model, store, clipping, unit="record")
    (part,) = parts()
    part.targets.labels[part.units == 0] = IGNORE_INDEX
    expected, _ = oracle(built("gpt2", "tied"), "gpt2", [part], 1.0)
    assert float((update(steps, [part]) - expected).abs().max()) <= 1e-6
