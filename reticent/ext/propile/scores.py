"""Log-likelihoods of targets after prompts, and generated texts: the part of ProPILE that runs a model.

*Tokens.* A prompt and its target are tokenised together, because the probability is that of the whole text: separately,
the first token of the target would lack its space. The boundary is found by offsets. Tokens that end at or before the
last visible character of the prompt are the prompt; the rest, with the space between them, is the target. If one token
would hold visible characters of both, the two are tokenised separately (``num_apart`` counts these).

*Speed.* Rows of equally long prompts share a batch, so that no prompt is padded. Each distinct prompt runs once; its
keys and values are handed to all of its targets, true, null or a whole reference list. Logits are made at the tokens
of targets only. Scores do not depend on the batch size, up to rounding.

Shapes: P prompts, R rows (pairs of a prompt and a target), L tokens, S soft tokens, D dimensions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from reticent.audit.config import Masking
from reticent.audit.scoring.endpoint import Server
from reticent.audit.scoring.generate import end_ids
from reticent.audit.scoring.rows import is_shareable, states_of
from reticent.core.errors import PolicyError, TrainingError
from reticent.engine.tokenizer_library import core_tokenizer
from reticent.trainer.models import lm_head, logits_at, max_positions, special_ids, without_own_settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

#: Tokens of prompts and targets that run at once.
BATCH_TOKENS = {"cuda": 1 << 14, "cpu": 1 << 12}
#: Logits held at once, in numbers.
MAX_LOGITS = {"cuda": 1 << 26, "cpu": 1 << 22}


@dataclass(frozen=True, slots=True)
class Pairs:
    """Token ids of prompts and of their targets, in equal order; a prompt starts with the beginning-of-text token, and
    ``num_apart`` counts pairs tokenised separately."""

    prompts: list[list[int]]
    targets: list[list[int]]
    num_apart: int = 0

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def num_target_tokens(self) -> np.ndarray:
        """Number of tokens of each target, int64 (R,)."""
        return np.array([len(target) for target in self.targets], dtype=np.int64)


def encode_pairs(
    tokenizer: PreTrainedTokenizerFast, prompts: Sequence[str], targets: Sequence[str], objective: str
) -> Pairs:
    """Return the token ids of each prompt and of its target, split where the target begins; white space at the prompt's
    end counts to the target.
    """
    bare = [prompt.rstrip() for prompt in prompts]
    joint = [prompt if prompt[len(cut) :] else cut for prompt, cut in zip(prompts, bare, strict=True)]
    backend = core_tokenizer(tokenizer)
    encodings = backend.encode([text + target for text, target in zip(joint, targets, strict=True)])
    prefix = special_ids(tokenizer, objective).prefix
    first = [] if prefix is None else [prefix]
    left, right, mixed = [], [], []
    for number, (encoding, cut) in enumerate(zip(encodings, bare, strict=True)):
        bounds, end = encoding.offsets, len(cut)
        at = next((i for i, (_, stop) in enumerate(bounds) if stop > end), len(bounds))
        if at < len(bounds) and bounds[at][0] < end:
            mixed.append(number)
        left.append(first + encoding.ids[:at])
        right.append(encoding.ids[at:])
    for number in mixed:
        separator = joint[number][len(bare[number]) :]
        own, other = backend.encode([bare[number], separator + targets[number]])
        left[number], right[number] = first + own.ids, other.ids
    return Pairs(left, right, len(mixed))


def _batch_by_length(lengths: np.ndarray, groups: np.ndarray, num_extra: int, budget: int) -> Iterator[np.ndarray]:
    """Yield batches of row indices. The rows of a batch have equal length and, each extended by ``num_extra`` tokens,
    together at most ``budget`` tokens; rows of equal length are sorted by ``groups``.
    """
    order = np.lexsort((groups, lengths))
    values, starts = np.unique(lengths[order], return_index=True)
    for length, run in zip(values, np.split(order, starts[1:]), strict=False):
        room = max(1, budget // max(1, int(length) + num_extra))
        for start in range(0, len(run), room):
            yield run[start : start + room]


@torch.inference_mode()
def score_causal_pairs(
    model: PreTrainedModel | Server,
    pairs: Pairs,
    *,
    soft: torch.Tensor | None = None,
    batch_tokens: int | None = None,
    bf16: bool = False,
    progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Return log Pr(target | prompt) under a causal model, summed over the target's tokens (ProPILE Eq. 2); float64
    (R,).

    NaN where prompt and target are longer than the model's context, or the target has no token.

    Parameters
    ----------
    soft : float tensor (S, D), optional
        Embeddings put before every prompt.
    """
    if isinstance(model, Server):
        return model.score(pairs.prompts, pairs.targets, progress)
    device: Any = model.device
    kind = "cuda" if device.type == "cuda" else "cpu"
    model.eval()
    numbers: dict[tuple[int, ...], int] = {}
    prompt_of = np.array([numbers.setdefault(tuple(ids), len(numbers)) for ids in pairs.prompts], dtype=np.int64)
    prompts = list(numbers)
    lengths = np.array([len(ids) for ids in prompts], dtype=np.int64)[prompt_of]
    num_targets = pairs.num_target_tokens
    num_soft = 0 if soft is None else len(soft)
    scores = np.full(len(pairs), np.nan)
    fits = (lengths + num_targets + num_soft <= max_positions(model)) & (num_targets > 0) & (lengths + num_soft > 0)
    usable, done = np.flatnonzero(fits), 0
    longest = int(num_targets.max(initial=0)) + num_soft
    for chosen in _batch_by_length(lengths[usable], prompt_of[usable], longest, batch_tokens or BATCH_TOKENS[kind]):
        rows = usable[chosen]
        distinct, of_prompt = np.unique(prompt_of[rows], return_inverse=True)
        prompt_PL = torch.tensor([prompts[number] for number in distinct], dtype=torch.int64, device=device)
        target_RL, row_N, column_N = _pad_rows([pairs.targets[row] for row in rows], device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
            state_RLD, head = _target_states(
                model, prompt_PL, torch.as_tensor(of_prompt, device=device), target_RL, soft
            )
            total_R = torch.zeros(len(rows), dtype=torch.float64, device=device)
            at_once = max(1, MAX_LOGITS[kind] // model.config.vocab_size)
            for state, true, row in zip(
                state_RLD[row_N, column_N].split(at_once), target_RL[row_N, column_N].split(at_once),
                row_N.split(at_once), strict=True,
            ):  # fmt: skip
                loss = F.cross_entropy(head(state).float(), true, reduction="none")
                total_R.index_add_(0, row, -loss.double())
        scores[rows] = total_R.cpu().numpy()
        done += len(rows)
        if progress:
            progress(done)
    if np.isnan(scores[fits]).any():
        raise TrainingError("probe: the model's logits are not numbers; did training diverge?")
    return scores


def _pad_rows(ids: Sequence[Sequence[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return token ids zero-padded on the right, (R, L), and row and column of each token that is not padding, as
    tensors on the device.
    """
    lengths = np.array([len(row) for row in ids])
    held = np.arange(lengths.max(initial=1))[None, :] < lengths[:, None]
    values = np.zeros(held.shape, dtype=np.int64)
    values[held] = np.concatenate([np.asarray(row, dtype=np.int64) for row in ids])
    rows, columns = np.nonzero(held)
    return torch.from_numpy(values).to(device), torch.from_numpy(rows).to(device), torch.from_numpy(columns).to(device)


def with_soft_prompt(model: PreTrainedModel, ids_PL: torch.Tensor, soft_SD: torch.Tensor) -> torch.Tensor:
    """Return the input embeddings of prompts with a soft prompt before them, (P, S + L, D)."""
    embedding: Any = model.get_input_embeddings()
    words = embedding(ids_PL)
    return torch.cat([soft_SD.to(words.dtype).expand(len(ids_PL), -1, -1), words], dim=1)


def _target_states(
    model: Any,
    prompt_PL: torch.Tensor,
    of_prompt_R: torch.Tensor,
    target_RL: torch.Tensor,
    soft: torch.Tensor | None,
) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]:
    """Return the last hidden states from which the tokens of each target are predicted, (R, L, D), and the function
    that turns them into logits. ``of_prompt_R`` has for each target the row of its prompt, and ``soft`` is a soft
    prompt put before all prompts.
    """
    head = lm_head(model)

    def model_inputs(ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the model's keyword arguments for token ids: the ids, or with a soft prompt their embeddings after
        it.
        """
        return {"input_ids": ids} if soft is None else {"inputs_embeds": with_soft_prompt(model, ids, soft)}

    make_logits = head if head is not None else (lambda logits: logits)
    cache: Any = None
    if len(prompt_PL) < len(target_RL):
        state, cache = states_of(model, head, **model_inputs(prompt_PL), use_cache=True)
    if not is_shareable(cache):  # no shared prompts, or a model whose keys and values cannot be passed on
        whole = torch.cat([prompt_PL[of_prompt_R], target_RL[:, :-1]], dim=1)
        state, _ = states_of(model, head, **model_inputs(whole), use_cache=False)
        return state[:, state.shape[1] - target_RL.shape[1] :], make_logits
    first = state[of_prompt_R, -1:]
    if target_RL.shape[1] == 1:
        return first, make_logits
    cache.batch_select_indices(of_prompt_R)
    rest, _ = states_of(model, head, input_ids=target_RL[:, :-1], past_key_values=cache, use_cache=True)
    return torch.cat([first, rest], dim=1), make_logits


@torch.inference_mode()
def score_masked_pairs(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    pairs: Pairs,
    *,
    masking: Masking = "together",
    batch_tokens: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[np.ndarray, list[list[int]]]:
    """Return the pseudo-log-likelihood of each target under a masked model, float64 (R,), and the likeliest token at
    each of its positions.

    The target is replaced by as many masks as it has tokens; the score is the sum of log p(token | prompt, unmasked
    tokens). NaN as in `score_causal_pairs`.

    Parameters
    ----------
    masking : {"together", "one_by_one", "left_to_right"}
        "together" masks the whole target. "one_by_one" shows the model the other tokens (Salazar et al. 2020),
        "left_to_right" those before, which makes the sum a true log-likelihood given the length. These two cost one
        row for each token.
    """
    special = special_ids(tokenizer, "mlm")
    if special.mask is None:
        raise PolicyError("a masked model needs a mask token and the tokenizer has none")
    device: Any = model.device
    kind = "cuda" if device.type == "cuda" else "cpu"
    model.eval()
    suffix = [] if special.suffix is None else [special.suffix]
    scores, guesses = np.full(len(pairs), np.nan), [[-1] * len(target) for target in pairs.targets]
    lengths = np.array([len(p) + len(t) for p, t in zip(pairs.prompts, pairs.targets, strict=True)]) + len(suffix)
    usable = np.flatnonzero((pairs.num_target_tokens > 0) & (lengths <= max_positions(model)))
    scores[usable] = 0.0
    # A row for each pair, or for each token of its target.
    if masking == "together":
        row_pair, row_token = usable, np.full(len(usable), -1)
    else:
        row_pair = np.repeat(usable, pairs.num_target_tokens[usable])
        row_token = np.concatenate([np.arange(n) for n in pairs.num_target_tokens[usable]] or [np.empty(0, int)])
    done = 0
    for chosen in _batch_by_length(lengths[row_pair], row_pair, 0, batch_tokens or BATCH_TOKENS[kind]):
        which, token = row_pair[chosen], row_token[chosen]
        true_RL = np.array([[*pairs.prompts[i], *pairs.targets[i], *suffix] for i in which], dtype=np.int64)
        start = np.array([len(pairs.prompts[i]) for i in which])[:, None]
        place = np.arange(true_RL.shape[1])[None, :] - start
        inside = (place >= 0) & (place < pairs.num_target_tokens[which][:, None])
        one = token[:, None]
        hidden = {"together": inside, "one_by_one": place == one, "left_to_right": inside & (place >= one)}[masking]
        wanted = inside if masking == "together" else place == one
        ids = torch.from_numpy(np.where(hidden, special.mask, true_RL)).to(device)
        at = torch.from_numpy(np.flatnonzero(wanted)).to(device)
        logits = logits_at(model, ids, torch.ones_like(ids), at).float()
        true_N = torch.from_numpy(true_RL[wanted]).to(device)
        log_p = -F.cross_entropy(logits, true_N, reduction="none").double().cpu().numpy()
        best = logits.argmax(-1).cpu().numpy()
        rows, columns = np.nonzero(wanted)
        np.add.at(scores, which[rows], log_p)
        for pair, position, guess in zip(which[rows], place[rows, columns], best, strict=True):
            guesses[pair][position] = int(guess)
        done += len(chosen)
        if progress:
            progress(done)
    return scores, guesses


def group_by_room(
    prompts: Sequence[Sequence[int]], max_new_tokens: int, num_positions: int
) -> Iterator[tuple[int, list[int]]]:
    """Group prompts by how many tokens can be generated after them: ``max_new_tokens``, or fewer if the model's
    ``num_positions`` leave less. Yield (number of tokens, indices of the prompts); empty and too long prompts are left
    out.

    >>> list(group_by_room([[1], [], [1, 2, 3], [5] * 8, [4]], 6, 8))
    [(5, [2]), (6, [0, 4])]
    """
    rooms = [min(max_new_tokens, num_positions - len(ids)) if ids else 0 for ids in prompts]
    for room in sorted({room for room in rooms if room > 0}):
        yield room, [row for row, own in enumerate(rooms) if own == room]


@torch.inference_mode()
def generate_texts(
    model: PreTrainedModel | Server,
    tokenizer: PreTrainedTokenizerFast,
    prompts: Sequence[Sequence[int]],
    *,
    num_beams: int = 3,
    max_new_tokens: int,
    soft: torch.Tensor | None = None,
    batch_tokens: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[str]:
    """Return the text that a model generates after each prompt by beam search (1 beam: greedy decoding).

    An empty prompt, and one that leaves no room for a token in the model's context, has the continuation "". A server
    writes greedily, whatever the beams.
    """
    from transformers import GenerationConfig

    special = special_ids(tokenizer, "clm")
    if isinstance(model, Server):
        said = [""] * len(prompts)
        for room, asked in group_by_room(prompts, max_new_tokens, model.num_positions):
            made = model.write(
                [np.array(prompts[row], dtype=np.int64) for row in asked], special=replace(special, prefix=None),
                num_tokens=room, progress=progress,
            )[:, 0]  # fmt: skip
            written = tokenizer.batch_decode([ids[ids >= 0] for ids in made], skip_special_tokens=True)
            for row, text in zip(asked, written, strict=True):
                said[row] = text
        return said
    model.eval()
    device: Any = model.device
    ends = end_ids(model, special)
    numbers: dict[tuple[int, ...], int] = {}
    of = [numbers.setdefault(tuple(ids), len(numbers)) for ids in prompts]
    distinct = list(numbers)
    lengths = np.array([len(ids) for ids in distinct], dtype=np.int64)
    num_soft = 0 if soft is None else len(soft)
    texts = [""] * len(distinct)
    kind = "cuda" if device.type == "cuda" else "cpu"
    room = max_positions(model) - num_soft
    usable = np.flatnonzero((lengths > 0) & (lengths < room))
    budget, done = max(1, (batch_tokens or BATCH_TOKENS[kind]) // num_beams), 0
    for chosen in _batch_by_length(lengths[usable], usable, max_new_tokens + num_soft, budget):
        batch = usable[chosen]
        ids = torch.tensor([distinct[number] for number in batch], dtype=torch.int64, device=device)
        settings = GenerationConfig(
            num_beams=num_beams, do_sample=False, max_new_tokens=min(max_new_tokens, room - ids.shape[1]),
            pad_token_id=special.pad, suppress_tokens=ends or None, bos_token_id=tokenizer.bos_token_id,
        )  # fmt: skip
        if soft is None:
            inputs = {"inputs": ids, "attention_mask": torch.ones_like(ids)}
        else:
            embeddings = with_soft_prompt(model, ids, soft)
            mask = torch.ones(embeddings.shape[:2], dtype=torch.int64, device=device)
            inputs = {"inputs_embeds": embeddings, "attention_mask": mask}
        generator: Any = model
        with without_own_settings(generator):
            out = generator.generate(**inputs, generation_config=settings)
        new = out[:, ids.shape[1] :] if soft is None else out
        for number, text in zip(batch, tokenizer.batch_decode(new, skip_special_tokens=True), strict=True):
            texts[number] = text
        done += len(batch)
        if progress:
            progress(done)
    return [texts[number] for number in of]
