"""Association: how strongly an individual's name is tied to the contents of their documents.

log p(term | name, template) for the individual's own name and for decoy names. A *term* is a word of the individual's
documents that identifies no individual and whose support (number of individuals) lies in a band: rarer words are
identifiers themselves, commoner ones are shared by all. It need not be a diagnosis; it is a word in which the
individual's documents differ from others'. A decoy is the name of an individual on the same side (member or held-out)
who does not use the term; it has as many tokens and the same shape. The name of an individual is the direct identifier
of category NAME that the fewest others have, and among these the longest and most frequent one.

The rate is the share of decoys whose name makes the term less likely (ties count half): an AUROC within each term,
0.5 for a model that ties nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from reticent.audit.config import InversionConfig
from reticent.audit.evidence.inversion import Association
from reticent.audit.evidence.leakage import Sides
from reticent.audit.leakage.words import Words
from reticent.audit.scoring.rows import DIGITS, padded_rows, sum_log_probs
from reticent.audit.stats.intervals import Bootstrap, two_sides
from reticent.core.errors import PolicyError, TrainingError
from reticent.core.json_toml import read_toml
from reticent.engine.document_kernels import document_ranks
from reticent.engine.kernels import number_tuples
from reticent.engine.randomness import generator
from reticent.engine.store import TokenStore
from reticent.engine.tokenizer_library import core_tokenizer
from reticent.ext.inversion.identifiers import Runs
from reticent.trainer.models import max_positions
from reticent.trainer.windows import SpecialIds

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from reticent import _rust

TEMPLATES = Path(__file__).parent / "association.toml"
#: Letters of the shortest word that counts as a term: shorter ones are function words and abbreviations.
MIN_LETTERS = 4


@dataclass(frozen=True, slots=True)
class Pairs:
    """Terms with names: P terms, each with the individual's true name (column 0) and m decoy names.

    ``terms`` are places (first token, length) in the store, shape (P, 2); ``names`` first tokens, shape (P, m + 1), and
    ``name_lengths`` their tokens, shape (P,).
    """

    individuals: np.ndarray
    terms: np.ndarray
    names: np.ndarray
    name_lengths: np.ndarray
    num_eligible: int
    num_unmatched: int


def read_association_templates(language: str, path: Path = TEMPLATES) -> list[str]:
    """Return the sentence templates of a language, each with {name} before {term}.

    Raises
    ------
    PolicyError
        There is none, or one does not have {name} and, at its end, {term}.
    """
    tables = read_toml(path)["template"]
    texts = [text for table in tables if table["language"] == language for text in table["texts"]]
    if not texts:
        known = ", ".join(sorted({table["language"] for table in tables}))
        raise PolicyError(f"inversion.language: expected one of {known}, got {language!r}")
    for text in texts:
        before, _, after = text.partition("{name}")
        if text.count("{name}") != 1 or after.count("{term}") != 1 or "{term}" in before:
            raise PolicyError(f"template {text!r}: expected {{name}} and then {{term}}, once each")
    return texts


def draw_name_term_pairs(
    store: TokenStore,
    words: Words,
    surfaces: np.ndarray,
    runs: Runs,
    is_name: np.ndarray,
    is_member: np.ndarray,
    config: InversionConfig,
    tokenizer: PreTrainedTokenizerFast,
    *,
    seed: int,
) -> Pairs:
    """Draw random words that several individuals use ("terms") from each individual's documents. Pair each with the
    name of that individual and with decoy names: those of other members for a member, of other held-out individuals for
    a held-out one.

    Parameters
    ----------
    surfaces : int64 array, shape (S,), of the words
    runs : direct identifiers; is_name : bool array, shape (R,), true for those of category NAME
    is_member : bool array, shape (number of individual codes,)
    """
    random = generator(seed, 22)
    name_of = _choose_name_runs(runs, is_name, len(is_member))
    num_individuals = len(np.unique(words.individuals))
    low, high = (share * num_individuals for share in config.term_support)
    # Distinct (word, individual) pairs, and the number of individuals of each word.
    plain = np.flatnonzero((words.flags == 0) & (surfaces >= 0) & _is_alphabetic(store, words, tokenizer))
    width = int(surfaces.max(initial=0)) + 1
    uses, first = np.unique(words.individuals[plain].astype(np.int64) * width + surfaces[plain], return_index=True)
    who, word = np.divmod(uses, width)
    support = np.bincount(word, minlength=width)
    # At least two individuals: a word of one individual alone is an identifier, not a term.
    usable = (support[word] >= max(low, 2)) & (support[word] <= high) & (name_of[who] >= 0)
    who, word, spot = who[usable], word[usable], plain[first[usable]]
    order = np.lexsort((random.random(len(who)), who))
    bounds = np.flatnonzero(np.diff(who[order], prepend=-1, append=-1))
    order = order[document_ranks(np.zeros(len(order)), bounds) < config.terms_per_individual]
    who, word, spot = who[order], word[order], spot[order]
    named = np.flatnonzero(name_of >= 0)
    of = name_of[named]
    names = np.full((len(who), config.num_decoys + 1), -1, dtype=np.int64)
    traits = np.stack([is_member[named], runs.lengths[of], runs.shapes[of]])
    _, group = np.unique(traits, axis=1, return_inverse=True)
    group = group.reshape(-1)
    mine_of = group[np.searchsorted(named, who)]
    for number in np.unique(mine_of).tolist():
        mine = np.flatnonzero(mine_of == number)
        pool = named[group == number]
        if len(pool) < config.num_decoys:
            continue
        allowed = runs.surfaces[name_of[who[mine]]][:, None] != runs.surfaces[name_of[pool]]
        allowed &= ~np.isin(pool * width + word[mine, None], uses)
        lots = np.where(allowed, random.random(allowed.shape), np.inf)
        best = np.argsort(lots, axis=1, kind="stable")[:, : config.num_decoys]
        enough = np.flatnonzero(allowed.sum(axis=1) >= config.num_decoys)
        names[mine[enough], 1:] = runs.starts[name_of[pool[best[enough]]]]
        names[mine, 0] = runs.starts[name_of[who[mine]]]
    matched = (names >= 0).all(axis=1)
    terms = np.stack([words.starts[spot], words.lengths[spot].astype(np.int64)], axis=1)
    return Pairs(
        who[matched],
        terms[matched],
        names[matched],
        runs.lengths[name_of[who[matched]]],
        len(who),
        int(np.count_nonzero(~matched)),
    )


def _is_alphabetic(store: TokenStore, words: Words, tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """Return whether each of the ``words`` consists of letters and has at least `MIN_LETTERS` of them, bool (num
    words,).
    """
    numbers, first = number_tuples(store.input_ids, words.starts, words.lengths)
    texts = _decode_spans(store, words.starts[first], words.lengths[first], core_tokenizer(tokenizer))
    return np.array([len(text) >= MIN_LETTERS and text.isalpha() for text in texts], dtype=bool)[numbers]


def _choose_name_runs(runs: Runs, is_name: np.ndarray, num_codes: int) -> np.ndarray:
    """Return for each individual the index in ``runs`` (identifier occurrences) of the name to use, -1 for none. Rare,
    full names are preferred.
    """
    name_of = np.full(num_codes, -1, dtype=np.int64)
    chosen = np.flatnonzero(is_name & (runs.surfaces >= 0))
    if len(chosen) == 0:
        return name_of
    width = int(runs.surfaces.max()) + 1
    pairs, first, counts = np.unique(
        runs.individuals[chosen] * width + runs.surfaces[chosen], return_index=True, return_counts=True
    )
    who, surface = np.divmod(pairs, width)
    owners = np.bincount(surface, minlength=width)[surface]
    # The last one that is written stays: fewest owners, then most tokens (a full name), then most occurrences.
    order = np.lexsort((counts, runs.lengths[chosen[first]], -owners, who))
    name_of[who[order]] = chosen[first][order]
    return name_of


def association(
    model: PreTrainedModel,
    store: TokenStore,
    pairs: Pairs,
    tokenizer: PreTrainedTokenizerFast,
    special: SpecialIds,
    templates: list[str],
    *,
    causal: bool,
    batch_size: int = 64,
) -> np.ndarray:
    """Return the model's log p(term | name) of each term after its true name and each decoy name in template sentences,
    averaged over templates; float64 (P, m + 1).

    The row of a term is NaN if one of its sentences is longer than the model's positions. A masked model predicts all
    tokens of the term at once. Cost: one forward pass for each term, candidate and template; texts are tokenised in
    batches of ``batch_size``.
    """
    mask = special.mask
    if not causal and mask is None:
        raise TrainingError("association of a masked model needs a mask token and the tokenizer has none")
    num_candidates = pairs.names.shape[1]
    scores = np.zeros(pairs.names.shape)
    backend = core_tokenizer(tokenizer)
    step = max(1, batch_size // num_candidates)
    for first in range(0, len(pairs.individuals), step):
        rows = slice(first, first + step)
        lengths = np.repeat(pairs.name_lengths[rows], num_candidates)
        names = _decode_spans(store, pairs.names[rows].reshape(-1), lengths, backend)
        terms = np.repeat(_decode_spans(store, pairs.terms[rows, 0], pairs.terms[rows, 1], backend), num_candidates)
        for template in templates:
            before = [template.partition("{term}")[0].replace("{name}", name) for name in names]
            after = template.partition("{term}")[2]
            texts = [b + t + after for b, t in zip(before, terms.tolist(), strict=True)]
            spans = np.array([(len(b), len(b) + len(t)) for b, t in zip(before, terms.tolist(), strict=True)])
            ids, groups, attention = padded_rows(backend.encode(texts), spans, special)
            lengths = attention.sum(axis=1)
            # A term is compared among its names: if one of them does not fit, the scores of the others have no use.
            fits = (lengths <= max_positions(model)).reshape(-1, num_candidates).all(axis=1).repeat(num_candidates)
            width = int(lengths[fits].max(initial=1))
            ids, groups, attention = (array[fits, :width] for array in (ids, groups, attention))
            read = ids if causal or mask is None else np.where(groups >= 0, mask, ids)
            found = np.full((len(fits), 1), np.nan)
            found[fits] = sum_log_probs(
                model, read, ids, groups, causal=causal, attention=None if causal else attention
            )  # fmt: skip
            scores[rows] += found.reshape(-1, num_candidates) / len(templates)
    return scores


def _decode_spans(
    store: TokenStore, starts: np.ndarray, lengths: np.ndarray, backend: _rust.LibraryTokenizer
) -> np.ndarray:
    """Return the decoded text of these token spans of a store, an object array."""
    rows = [store.input_ids[s : s + n].tolist() for s, n in zip(starts.tolist(), lengths.tolist(), strict=True)]
    return np.array([text.strip() for text in backend.decode(rows, skip_special_tokens=True)], dtype=object)


def pair_rates(
    pairs: Pairs,
    scores: np.ndarray,
    is_member: np.ndarray,
    kept: np.ndarray | None = None,
    **bootstrap: Unpack[Bootstrap],
) -> Association:
    """Return how often the model finds a term likelier after its individual's true name than after a decoy name, for
    members and for held-out individuals. It is also given without the held-out individuals whose documents resemble a
    member's (False in ``kept``).

    Parameters
    ----------
    scores : shape (P, m + 1), of `association`; rows of NaN are left out and counted
    is_member : bool array, shape (P,)
    kept : as for `two_sides`
    """
    fits = ~np.isnan(scores).any(axis=1)
    scores, individuals, is_member = np.round(scores[fits], DIGITS), pairs.individuals[fits], is_member[fits]
    below, ties = ((compare(scores[:, 1:], scores[:, :1])).mean(axis=1) for compare in (np.less, np.equal))
    return Association(
        rate=two_sides(below + ties / 2, individuals, is_member, limit=1.0, kept=kept, **bootstrap),
        num_decoys=scores.shape[1] - 1,
        num_terms=Sides.of(is_member),
        num_eligible=pairs.num_eligible,
        num_unmatched=pairs.num_unmatched,
        num_too_long=int(np.count_nonzero(~fits)),
    )
