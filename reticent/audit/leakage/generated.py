"""Identifiers in text that a causal model generates (definitions.md#leakage): the second half of the Privacy metric.

The model continues the beginnings of documents of both sides. An identifier counts as leaked if a continuation contains
it and its prompt does not: repeating the prompt is not a leak. The same identifiers are counted for members and
held-out individuals, so identifiers that are common in such documents cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.audit.config import GenerationConfig
from reticent.audit.evidence.leakage import Continuations, Generated, GenerationSettings, Sides
from reticent.audit.leakage.identifiers import Identifiers
from reticent.audit.leakage.leakage import Compared, excess_leakage, exposed_individuals
from reticent.audit.leakage.words import SurfaceTable
from reticent.audit.membership.coverage import words_of_text
from reticent.audit.scoring.generate import decoding_of, generate
from reticent.audit.stats.estimate import LEVEL, Estimate
from reticent.audit.stats.intervals import Bootstrap, cluster_sums, clusters_of, iter_resamples, ratio_estimate
from reticent.engine.randomness import generator
from reticent.engine.store import TokenStore
from reticent.engine.tokenizer_library import core_tokenizer
from reticent.trainer.windows import SpecialIds

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from reticent.audit.scoring.endpoint import Server


# ------------------------------------------------------------------------------------------------------- continuations
#
# BLEU and ROUGE of a causal model's continuations against those of the documents (definitions.md#utility).
#
# BLEU is computed by sacrebleu over all continuations of a side together (tokenizer "13a", exponential smoothing), on
# a scale from 0 to 1. ROUGE-1, -2 and -L are F-measures of rouge-score, as means over continuations. rouge-score's own
# tokenizer keeps ASCII letters and digits only; here tokens are sequences of letters and digits of any script, folded.


#: Longest n-gram of BLEU, and the columns of its counts: matches, n-grams, length of the text, length of the reference.
MAX_ORDER = 4
ROUGE = ("rouge1", "rouge2", "rougeL")
_TAILS = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]


def bleu_counts(texts: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str = "13a") -> np.ndarray:
    """Return sacrebleu's counts for each text, float64 (texts, 2 x MAX_ORDER + 2): number of matching n-grams and of
    all n-grams for each n, length of the text, length of the reference."""
    from sacrebleu.metrics import BLEU

    bleu = BLEU(effective_order=True, tokenize=tokenize, max_ngram_order=MAX_ORDER)
    rows = []
    for text, own in zip(texts, references, strict=True):
        score: Any = bleu.sentence_score(text, list(own))
        rows.append([*score.counts, *score.totals, score.sys_len, score.ref_len])
    return np.array(rows, dtype=np.float64).reshape(len(rows), 2 * MAX_ORDER + 2)


def bleu_of(counts: np.ndarray) -> np.ndarray:
    """Return the BLEU score, from 0 to 1, of each row of summed counts (as from `bleu_counts`); float64 (rows,).

    An order without a match is smoothed as by default in sacrebleu: it counts as 1/2, 1/4, … of a match.
    """
    found, total = counts[:, :MAX_ORDER], counts[:, MAX_ORDER : 2 * MAX_ORDER]
    length, reference = counts[:, -2], counts[:, -1]
    missed = (found == 0) & (total > 0)
    smooth = np.where(missed, 0.5 ** np.cumsum(missed, axis=1), found)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(total > 0, smooth / total, 0.0)
        brevity = np.where(length < reference, np.exp(1 - reference / length), 1.0)
        value = brevity * np.exp(np.log(precision).mean(axis=1))
    return np.where((length > 0) & (found[:, 0] > 0), value, 0.0)


def rouge_scores(texts: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Return the F-measures of ROUGE-1, -2 and -L: float64, shape (texts, 3)."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(list(ROUGE), tokenizer=SimpleNamespace(tokenize=words_of_text))
    scores = (scorer.score(reference, text) for text, reference in zip(texts, references, strict=True))
    rows = [[score[name].fmeasure for name in ROUGE] for score in scores]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(ROUGE))


def continuations(
    texts: Sequence[str], references: Sequence[str], individuals: np.ndarray, **bootstrap: Unpack[Bootstrap]
) -> Continuations:
    """Measure BLEU and ROUGE of generated texts against the true continuations (``references``), with bootstrap
    intervals over individuals.

    Parameters
    ----------
    individuals : int array, shape (texts,)

    Cost: about a millisecond a text.
    """
    codes, row = np.unique(individuals, return_inverse=True)
    row = row.reshape(-1)
    num = np.bincount(row, minlength=len(codes)).astype(np.float64)
    counts = np.zeros((len(codes), 2 * MAX_ORDER + 2))
    np.add.at(counts, row, bleu_counts(texts, [[reference] for reference in references]))
    rouge = rouge_scores(texts, references)
    sums = [np.bincount(row, weights=column, minlength=len(codes)) for column in rouge.T]
    rouge1, rouge2, rouge_l = (ratio_estimate(own, num, codes, **bootstrap) for own in sums)
    return Continuations(bleu=_bleu_estimate(counts, codes, **bootstrap), rouge1=rouge1, rouge2=rouge2, rouge_l=rouge_l)


def _bleu_estimate(
    counts: np.ndarray, codes: np.ndarray, *, num_bootstrap: int, seed: int, units: np.ndarray | None = None
) -> Estimate:
    """Return BLEU of all individuals together, from each individual's summed counts (a row of ``counts``), with a
    bootstrap interval over individuals or households."""
    clusters = clusters_of(codes, units)
    if clusters is not None:
        sums = cluster_sums(counts, clusters)
        return _bleu_estimate(sums, codes, num_bootstrap=num_bootstrap, seed=seed).over_households(len(counts))
    if not len(counts):
        return Estimate(value=None, n=0, method="no individual has any")
    value = float(bleu_of(counts.sum(axis=0, keepdims=True))[0])
    if len(counts) == 1:
        return Estimate(value=value, low=0.0, high=1.0, n=1, method="one individual: no interval")
    draws = [bleu_of(weights @ counts) for weights in iter_resamples(len(counts), num_bootstrap, seed)]
    low, high = np.quantile(np.concatenate(draws), _TAILS)
    return Estimate(value=value, low=float(min(low, value)), high=float(max(high, value)), n=len(counts))


@dataclass(frozen=True, slots=True)
class Written:
    """Generated continuations of the beginnings of documents.

    Attributes
    ----------
    documents : int64 (P,), numbers of the documents, ascending
    prompts : int64 (P, prefix tokens)
    made : int64 (P, samples, tokens), -1 after the end
    """

    documents: np.ndarray
    prompts: np.ndarray
    made: np.ndarray


def draw_prompts(store: TokenStore, members: np.ndarray, config: GenerationConfig, seed: int) -> np.ndarray:
    """Draw the documents whose beginnings become prompts; return their numbers, ascending int64. The same share of
    members' and of others' documents is drawn, at most ``num_prompts`` of either.

    The same share of both sides is drawn. The beginning of a document tends to elicit its own words, and rates are over
    all identifiers, so a side with more prompts per document would seem to leak more.

    Parameters
    ----------
    members : bool array, shape (num_documents,)
    """
    random = generator(seed, 23)
    long_enough = np.diff(store.doc_offsets) > config.prefix_tokens
    sides = [np.flatnonzero(side & long_enough) for side in (members, ~members)]
    share = min(1.0, config.num_prompts / max(1, *map(len, sides)))
    return np.sort(np.concatenate([random.permutation(side)[: round(share * len(side))] for side in sides]))


def newly_written(
    prompts: np.ndarray,
    generated: np.ndarray,
    identifiers: Identifiers,
    table: SurfaceTable,
    tokenizer: PreTrainedTokenizerFast,
) -> np.ndarray:
    """Return whether each identifier occurs in a generated continuation of a prompt that does not contain it, bool
    (num_identifiers,).

    Parameters
    ----------
    prompts : int array, shape (P, prefix tokens)
    generated : int array, shape (P, samples, tokens), -1 after the end
    """
    given, given_row = _find_in_token_rows(list(prompts.tolist()), identifiers, table, tokenizer)
    rows = [[token for token in row if token >= 0] for row in generated.reshape(-1, generated.shape[-1]).tolist()]
    written, row = _find_in_token_rows(rows, identifiers, table, tokenizer)
    row = row // generated.shape[1]
    new = ~np.isin(row * identifiers.num + written, given_row * identifiers.num + given)
    found = np.zeros(identifiers.num, dtype=bool)
    found[written[new]] = True
    return found


def _find_in_token_rows(
    rows: list[list[int]], identifiers: Identifiers, table: SurfaceTable, tokenizer: PreTrainedTokenizerFast
) -> tuple[np.ndarray, np.ndarray]:
    """Find identifiers in rows of token ids, which are decoded and split into words like documents. Return two arrays
    with one entry for each occurrence: number of the identifier, number of the row."""

    texts = pa.array(core_tokenizer(tokenizer).decode(rows, skip_special_tokens=True), pa.large_string())
    words = _rust.segment(texts)
    surfaces = table.look_up(pa.record_batch(words.surfaces(texts)).column("word").to_pylist())
    row = np.repeat(np.arange(len(rows)), np.diff(words.doc_offsets))
    following = np.diff(row, prepend=-1) == 0
    places, numbers, _ = identifiers.find(surfaces, following)
    return numbers, row[places]


def continue_documents(
    model: PreTrainedModel | Server,
    store: TokenStore,
    members: np.ndarray,
    special: SpecialIds,
    config: GenerationConfig,
    *,
    batch_size: int,
    device: str,
    bf16: str,
    seed: int,
) -> Written:
    """Generate continuations of the documents that `draw_prompts` chooses, each from the document's beginning.

    Cost: at most 2 x num_prompts x num_samples continuations of num_tokens tokens.
    """
    documents = draw_prompts(store, members, config, seed)
    prompts = store.input_ids[store.doc_offsets[documents][:, None] + np.arange(config.prefix_tokens)].astype(np.int64)
    made = np.empty((0, config.num_samples, config.num_tokens), dtype=np.int64)
    if len(documents):
        made = generate(
            model, list(prompts), special=special, num_tokens=config.num_tokens, decoding=decoding_of(config),
            num_samples=config.num_samples, batch_size=batch_size, seed=seed, device=device, bf16=bf16,
        )  # fmt: skip
    return Written(documents, prompts, made)


def texts_by_row(
    continued: Written, store: TokenStore, config: GenerationConfig, tokenizer: PreTrainedTokenizerFast
) -> tuple[list[str], list[list[str]]]:
    """Return two lists with one entry for each document used as a prompt: the true text after the prompt, as long as a
    continuation, and the generated continuations."""
    decode = core_tokenizer(tokenizer).decode
    first = store.doc_offsets[continued.documents] + config.prefix_tokens
    end = np.minimum(first + config.num_tokens, store.doc_offsets[continued.documents + 1])
    rest = decode([store.input_ids[a:b].tolist() for a, b in zip(first, end, strict=True)], skip_special_tokens=True)
    rows = [[token for token in sample if token >= 0] for own in continued.made.tolist() for sample in own]
    texts, num = decode(rows, skip_special_tokens=True), continued.made.shape[1]
    return list(rest), [list(texts[at : at + num]) for at in range(0, len(texts), num)]


def generated_leakage(
    continued: Written,
    store: TokenStore,
    members: np.ndarray,
    identifiers: Identifiers,
    table: SurfaceTable,
    tokenizer: PreTrainedTokenizerFast,
    config: GenerationConfig,
    compared: Compared | None = None,
    **bootstrap: Unpack[Bootstrap],
) -> Generated:
    """Return the share of members' and of held-out individuals' identifiers that appear in continuations generated by a
    model (unless the prompt has them), and BLEU and ROUGE of each side's continuations.

    Parameters
    ----------
    continued : continuations by `continue_documents` with the same ``config``
    identifiers : identifiers of the store, over the surfaces that ``table`` numbers
    compared : as for `excess_leakage`
    """
    documents = continued.documents
    heldout = of_members = None
    written = np.zeros(identifiers.num, dtype=bool)
    if len(documents):
        written = newly_written(continued.prompts, continued.made, identifiers, table, tokenizer)
        true, texts = texts_by_row(continued, store, config, tokenizer)
        heldout, of_members = (
            _measure_side(np.flatnonzero(side), store.individual[documents], true, texts, **bootstrap)
            if side.any()
            else None
            for side in (~members[documents], members[documents])
        )
    is_member = members[identifiers.words.documents]
    return Generated(
        settings=GenerationSettings(**config.model_dump()),
        decoding=str(decoding_of(config)),
        num_prompts=Sides.of(members[documents]),
        excess=excess_leakage(identifiers, written, is_member, compared, **bootstrap),
        exposed=exposed_individuals(identifiers, written, is_member, compared, **bootstrap),
        heldout=heldout,
        members=of_members,
    )


def _measure_side(
    documents: np.ndarray,
    individuals: np.ndarray,
    remainders: Sequence[str],
    generated: Sequence[Sequence[str]],
    **bootstrap: Unpack[Bootstrap],
) -> Continuations:
    """Return BLEU and ROUGE of the generated continuations of these ``documents`` (rows of one side, members or
    held-out) against the true ``remainders``."""
    num_samples = len(generated[0])
    return continuations(
        [text for i in documents for text in generated[i]],
        [remainders[i] for i in documents for _ in range(num_samples)],
        np.repeat(individuals[documents], num_samples),
        **bootstrap,
    )
