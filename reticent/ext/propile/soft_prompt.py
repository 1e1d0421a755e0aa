"""ProPILE, white box: train a soft prompt that makes a frozen model generate one type of item (Eq. 1), and measure it.

This is the worst case, an adversary with the weights: a few embeddings before the hand-written prompt are trained on
some subjects' items and measured on others'. Training, validation and evaluation subjects are disjoint; this is checked
again before the training. A learned prompt is an artefact: embeddings as safetensors, and a manifest.

Shapes: S soft tokens, D dimensions, B rows, L tokens, V vocabulary.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from reticent.core.artifact import require_kind, write_artifact
from reticent.core.errors import ArtifactError, CorpusError, PolicyError, TrainingError
from reticent.core.json_toml import parse_json
from reticent.engine.randomness import generator
from reticent.ext.propile.probe import Answers, probe_target
from reticent.ext.propile.prompts import ProbeConfig, Prompts, SoftPromptConfig, make_prompts
from reticent.ext.propile.scores import Pairs, encode_pairs, generate_texts, score_causal_pairs, with_soft_prompt
from reticent.ext.propile.string_metrics import contains
from reticent.ext.propile.subjects import Subjects, split_subjects
from reticent.ext.propile.templates import Template, new_tokens, pii_type
from reticent.trainer.models import lm_head, max_positions

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

_STREAM_ORDER, _STREAM_INIT = 41, 42


@dataclass(frozen=True, slots=True)
class SoftPrompt:
    """Learned embeddings, float32 (S, D), with their target type, template and training history (numbers only)."""

    embeddings: torch.Tensor
    target: str
    template: str
    history: list[dict[str, float]]
    best_epoch: int


@dataclass(frozen=True, slots=True)
class Sides:
    """Disjoint subjects for training, validation (choice of the epoch) and evaluation."""

    training: Subjects
    validation: Subjects
    evaluation: Subjects

    def __post_init__(self) -> None:
        rows = [set(side.rows.tolist()) for side in (self.training, self.validation, self.evaluation)]
        if rows[0] & rows[1] or rows[0] & rows[2] or rows[1] & rows[2]:
            raise CorpusError("soft prompt: a subject is on two of training, validation and evaluation")


def soft_prompt_sides(subjects: Subjects, target: str, config: SoftPromptConfig, *, pool: int | None = None) -> Sides:
    """Split the subjects who have an item of a type into disjoint training, validation and evaluation sets.

    Parameters
    ----------
    pool : int, optional
        Subjects to keep for training, of which the first ``config.num_subjects`` are used: with the same pool,
        prompts of different training sizes are measured on the same evaluation subjects.
    """
    subjects.require(target)
    having = np.flatnonzero([value is not None for value in subjects.items[target]])
    size = max(pool or 0, config.num_subjects)
    training, validation, evaluation = split_subjects(
        subjects.take(having), (size, config.held_for_validation), seed=config.seed
    )
    return Sides(training.take(np.arange(min(config.num_subjects, len(training)))), validation, evaluation)


def train_soft_prompt(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    sides: Sides,
    target: str,
    level: str,
    template: Template,
    config: SoftPromptConfig,
    probe: ProbeConfig,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> SoftPrompt:
    """Train a soft prompt (embeddings before the prompt) that makes the training subjects' items likeliest; return that
    of the epoch with the best validation score.

    AdamW on the mean negative log-likelihood of each target's tokens (Eq. 1); only the S embeddings have gradients.
    The evaluation subjects are not used.

    Raises
    ------
    PolicyError
        The model is no causal one, or the soft tokens leave no room in its context.
    TrainingError
        The loss is not finite.
    """
    device: Any = model.device
    prompts = [
        make_prompts(side, target, level, [template], probe, strict=True) for side in (sides.training, sides.validation)
    ]
    training, held = (_fitting_pairs(tokenizer, p, model, config.num_tokens) for p in prompts)
    train = RowsOfPairs.of(training, device)
    soft_SD = initial_embeddings(model, tokenizer, target, config).requires_grad_()
    optimizer = torch.optim.AdamW([soft_SD], lr=config.learning_rate)
    needs = [parameter.requires_grad for parameter in model.parameters()]
    model.requires_grad_(False).eval()
    best: tuple[float, float] = (-math.inf, -math.inf)
    kept, best_epoch, history, without = soft_SD.detach().clone(), 0, [], 0
    random = generator(config.seed, _STREAM_ORDER)
    try:
        for epoch in range(1, config.num_epochs + 1):
            total = torch.zeros((), device=device)
            order = random.permutation(len(train))
            for start in range(0, len(order), config.batch_size):
                loss = target_loss(model, train, order[start : start + config.batch_size], soft_SD)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                total += loss.detach() * len(order[start : start + config.batch_size])
            if epoch % config.eval_every and epoch != config.num_epochs:
                continue
            loss_value = total.item() / len(order)
            if not math.isfinite(loss_value):
                raise TrainingError(f"soft prompt: the loss at epoch {epoch} is not finite")
            score = _validation_score(model, tokenizer, held, soft_SD.detach(), config, target)
            history.append({"epoch": epoch, "loss": loss_value, "validation_loss": -score[1], "validation": score[0]})
            without = 0 if score > best else without + 1
            if score > best:
                best, best_epoch, kept = score, epoch, soft_SD.detach().clone()
            if progress:
                progress(epoch, config.num_epochs)
            if config.patience and without >= config.patience:
                break
    finally:
        for parameter, needed in zip(model.parameters(), needs, strict=True):
            parameter.requires_grad_(needed)
    return SoftPrompt(kept.float().cpu(), target, template.text, history, best_epoch)


def _fitting_pairs(tokenizer: PreTrainedTokenizerFast, prompts: Prompts, model: Any, num_soft: int) -> Pairs:
    """Return the prompts and items of one template as tokens, without those too long for the model's context with
    ``num_soft`` soft tokens.
    """

    asked = [(text, item) for text, item in zip(prompts.texts[0], prompts.items, strict=True) if text is not None]
    pairs = encode_pairs(tokenizer, [text for text, _ in asked], [item for _, item in asked], "clm")
    room = max_positions(model)
    rows = zip(pairs.prompts, pairs.targets, strict=True)
    fitting = [(p, t) for p, t in rows if t and num_soft + len(p) + len(t) <= room]
    if not fitting:
        raise PolicyError(f"soft prompt: {num_soft} soft tokens leave no room for a prompt in {room} positions")
    return Pairs([p for p, _ in fitting], [t for _, t in fitting])


def initial_embeddings(
    model: Any, tokenizer: PreTrainedTokenizerFast, target: str, config: SoftPromptConfig
) -> torch.Tensor:
    """Return the embeddings with which the training of a soft prompt begins, float32 (S, D): of the item type's word,
    the vocabulary's mean, or random, by ``config.init``.
    """
    weight_VD = model.get_input_embeddings().weight.detach()
    if config.init == "type":
        # The word as it stands inside a text; a word of several tokens gives them in turn.
        ids = tokenizer(" " + pii_type(target).word, add_special_tokens=False).input_ids
        start = weight_VD[torch.tensor(ids)].repeat(math.ceil(config.num_tokens / len(ids)), 1)[: config.num_tokens]
    elif config.init == "mean":
        start = weight_VD.mean(0, keepdim=True).repeat(config.num_tokens, 1)
    else:
        shape = (config.num_tokens, weight_VD.shape[1])
        start = torch.from_numpy(generator(config.seed, _STREAM_INIT).uniform(-1, 1, shape))
    return start.to(device=weight_VD.device, dtype=torch.float32).clone()


@dataclass(frozen=True, slots=True)
class RowsOfPairs:
    """Token ids of all prompt-target pairs, right-padded, on the device; each target's start and end on the host."""

    ids_RL: torch.Tensor
    starts_R: np.ndarray
    ends_R: np.ndarray

    def __len__(self) -> int:
        return len(self.ids_RL)

    @classmethod
    def of(cls, pairs: Pairs, device: torch.device) -> RowsOfPairs:
        """Return prompt-target pairs as one padded tensor of token ids on the device, with each target's
        start and end.
        """
        starts = np.array([len(prompt) for prompt in pairs.prompts], dtype=np.int64)
        ends = starts + pairs.num_target_tokens
        ids = np.zeros((len(pairs), ends.max(initial=1)), dtype=np.int64)
        for row, (prompt, target) in enumerate(zip(pairs.prompts, pairs.targets, strict=True)):
            ids[row, : ends[row]] = prompt + target
        return cls(torch.from_numpy(ids).to(device), starts, ends)


def target_loss(model: Any, pairs: RowsOfPairs, rows: np.ndarray, soft_SD: torch.Tensor) -> torch.Tensor:
    """Return the loss of a soft prompt: mean over rows of -log Pr(target | soft prompt, prompt) (Eq. 1)."""
    starts, ends = pairs.starts_R[rows], pairs.ends_R[rows]
    columns = np.arange(ends.max())
    wanted = np.nonzero((columns >= starts[:, None]) & (columns < ends[:, None]))
    row_N, column_N = (torch.from_numpy(at).to(model.device) for at in wanted)
    ids_BL = pairs.ids_RL[torch.from_numpy(rows).to(model.device), : len(columns)]
    embeddings = with_soft_prompt(model, ids_BL, soft_SD)
    head = lm_head(model)
    # With a cache: without one transformers looks on the device whether positions are those of packed rows.
    if head is None:
        states = model(inputs_embeds=embeddings, use_cache=True).logits
    else:
        states = model.base_model(inputs_embeds=embeddings, use_cache=True).last_hidden_state
    # The state before a token predicts it; there always is one, of a soft token at the least.
    states = states[row_N, column_N + len(soft_SD) - 1]
    logits = states if head is None else head(states)
    return F.cross_entropy(logits.float(), ids_BL[row_N, column_N], reduction="sum") / len(rows)


def _validation_score(
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    held: Pairs,
    soft: torch.Tensor,
    config: SoftPromptConfig,
    target: str,
) -> tuple[float, float]:
    """Return the score of a soft prompt on the validation pairs, by which the best epoch is chosen, as (exact-match
    rate, minus mean loss); higher is better. The rate is 0 if the settings select by loss.
    """
    loss = -float(score_causal_pairs(model, held, soft=soft).mean())
    if config.select_by == "loss":
        return 0.0, -loss
    limit = new_tokens(target, max(map(len, held.targets)))
    said = generate_texts(model, tokenizer, held.prompts, num_beams=1, max_new_tokens=limit, soft=soft)
    hits = [contains(text, true) for text, true in zip(said, tokenizer.batch_decode(held.targets), strict=True)]
    return float(np.mean(hits)), -loss


def probe_with_soft_prompt(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    sides: Sides,
    prompt: SoftPrompt,
    level: str,
    template: Template,
    config: ProbeConfig,
    *,
    text: str | None = None,
) -> tuple[Answers, Answers]:
    """Probe a model on the evaluation subjects without and with a soft prompt, by greedy decoding; return both answers.

    ``text`` replaces the soft prompt for a model that it was not trained on (:func:`nearest_text`).
    """
    greedy = config.replace(beam_sizes=(1,))
    questions = make_prompts(sides.evaluation, prompt.target, level, [template], config, strict=True)
    soft = prompt.embeddings.to(model.device) if text is None else None
    return (
        probe_target(model, tokenizer, "clm", questions, greedy),
        probe_target(model, tokenizer, "clm", questions, greedy, soft=soft, prefix=text or ""),
    )


def nearest_text(model: Any, tokenizer: PreTrainedTokenizerFast, prompt: SoftPrompt) -> str:
    """Decode a soft prompt to text: the vocabulary tokens whose embeddings are nearest to it.

    It goes before the query of another model. Special tokens are not among the candidates.
    """
    weight_VD = model.get_input_embeddings().weight.detach().float()
    distance_SV = torch.cdist(prompt.embeddings.to(weight_VD.device), weight_VD)
    special = [number for number in tokenizer.all_special_ids if number < weight_VD.shape[0]]
    distance_SV[:, special] = math.inf
    distance_SV[:, len(tokenizer) :] = math.inf  # rows that pad the table
    return str(tokenizer.decode(distance_SV.argmin(1).tolist())).strip() + " "


def write_soft_prompt(
    folder: Path | str, prompt: SoftPrompt, config: SoftPromptConfig, *, inputs: dict[str, str]
) -> None:
    """Write a soft prompt and its training history to a folder as a private artefact."""
    settings = {**config.all_values(), "target": prompt.target, "template": prompt.template}
    with write_artifact(folder, kind="soft_prompt", config=settings, inputs=inputs) as writer:
        save_file({"embeddings": prompt.embeddings.contiguous()}, writer.path / "soft_prompt.safetensors")
        content = {"history": prompt.history, "best_epoch": prompt.best_epoch}
        (writer.path / "history.json").write_text(json.dumps(content, indent=1))
        writer.counts.update(best_epoch=prompt.best_epoch, num_tokens=len(prompt.embeddings))


def read_soft_prompt(folder: Path | str) -> SoftPrompt:
    """Read a soft prompt that `write_soft_prompt` wrote."""
    folder = Path(folder)
    manifest = require_kind(folder, "soft_prompt")
    try:
        embeddings = load_file(folder / "soft_prompt.safetensors")["embeddings"]
        content = parse_json((folder / "history.json").read_bytes())
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        raise ArtifactError(f"{folder}: not a readable soft prompt ({type(error).__name__})") from None
    return SoftPrompt(
        embeddings, manifest.config["target"], manifest.config["template"], content["history"], content["best_epoch"]
    )
