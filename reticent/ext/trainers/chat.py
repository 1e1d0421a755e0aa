"""Conversations for any trainer, written by a chat template: only answers are targets, and
protected tokens never are.

The documents of a run are the contents of their turns, joined by `text_of_turns`: they are searched, counted and
protected as any text. A conversation is then written by the template of a tokenizer. What the template adds is no word
and no target, except the token by which it ends an answer. A token that shares a character with a protected word is
protected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.detect.spans import SpanReader
from reticent.engine.flagged_words import FlaggedWords
from reticent.engine.schema import DIRECT, IGNORE_INDEX
from reticent.ext.trainers.dataset import PERMITTED, PROTECTED, TOKEN_INDEX, require_protected
from reticent.job.variants import TRAIN, Variant
from reticent.job.views import index_of

if TYPE_CHECKING:
    import datasets
    from transformers import PreTrainedTokenizerFast

    from reticent.engine.flagged_words import Flagged
    from reticent.job.run import Run

#: Between the contents of two turns, in the text of a document.
BETWEEN = "\n\n"
#: Signs of private use, between which a turn's number stands while a template is asked where it puts contents.
OPEN, CLOSE = "\uf8f2", "\uf8f3"
#: White space around such a sign: a template takes it off where it takes it off a content.
SPACE = "\u2003"

Turns = Sequence[Mapping[str, Any]]


def text_of_turns(turns: Turns) -> str:
    """Return the text of a conversation: the contents of its turns, joined by blank lines.

    Raises
    ------
    CorpusError
        A content is no text, as of a picture; or a turn has more than a role and a content, as a call of a tool: a
        template may write it, and it would be neither searched nor counted.

    >>> text_of_turns([{"role": "user", "content": "Fever?"}, {"role": "assistant", "content": "Since Monday."}])
    'Fever?\\n\\nSince Monday.'
    """
    contents: list[Any] = [turn.get("content") for turn in turns]
    if not all(isinstance(content, str) for content in contents):
        raise CorpusError("a turn of a conversation whose content is no text")
    if any(value for turn in turns for name, value in turn.items() if name not in ("role", "content")):
        raise CorpusError(
            "a turn of a conversation with more beside its role and content (tool_calls, name, reasoning_content or "
            "such): a template may write it, and it is not searched; write what is to be learned into the content"
        )
    return BETWEEN.join(contents)


def chat_dataset(
    run: Run,
    recipe: str,
    conversations: Mapping[str, Turns],
    tokenizer: PreTrainedTokenizerFast,
    *,
    window_length: int = 512,
) -> datasets.Dataset:
    """Return the members' conversations as a Hugging Face dataset of tokens in the tokenizer's chat template, with
    labels only on unprotected tokens of answers.

    Columns: ``input_ids``, ``attention_mask``, ``labels`` (the answers' tokens that may be targets), ``permitted`` and
    ``token_index`` (:mod:`reticent.ext.trainers.dataset`; its numbers are of the tokens of all conversations). A row is
    a conversation or, of a long one, a window of it; one without a target is left out. Collate with
    ``with_permitted(DataCollatorForSeq2Seq(tokenizer))``, and guard the trainer.

    Parameters
    ----------
    run : a run that is done until protect, whose documents' texts are `text_of_turns` of their conversations
    conversations : id of a document -> turns with ``role`` and ``content``; those of role "assistant" are answers
    tokenizer : with a chat template, which is in the sandbox of transformers; its ids need not be those of the run
    window_length : tokens of a row at most

    Raises
    ------
    PolicyError
        The recipe is for masked models, rewrites its text, drops targets or promises DP-SGD; the job plants canaries;
        there is no template, or it changes, repeats or leaves out a content.
    CorpusError
        A document has no conversation, or another text than it, or the template raises an error at it.
    ArtifactError
        The run is not done until protect.

    Cost: Python's time for each conversation, as the library's templates take it; tokens are held, 16 bytes each.
    """
    from datasets import Dataset
    from jinja2 import TemplateError

    chosen = run.job.recipe(recipe)
    if chosen.objective != "clm" or chosen.tokens != "train" or chosen.private or chosen.goldfish_k is not None:
        raise PolicyError(
            f"recipe {recipe}: conversations are for causal recipes that keep the text, drop no target and promise no "
            "DP-SGD, such as clm, dppclm or ppclm"
        )
    if not tokenizer.chat_template:
        raise PolicyError("the tokenizer has no chat template; set tokenizer.chat_template to that of the model")
    if run.job.canaries is not None:
        raise PolicyError("the job plants canaries, and canaries are no conversations: leave [canaries] out")
    require_protected(run)
    policy = run.job.protection(recipe)
    flagged = FlaggedWords(
        run.corpus,
        run.individuals,
        splits=TRAIN,
        index=index_of(run, Variant("train"), policy),
        spans=SpanReader(run.folder / "spans"),
        policy=policy,
        num_threads=run.job.num_threads,
    )
    ids: list[np.ndarray] = []
    permitted: list[np.ndarray] = []
    starts: list[int] = []
    num_tokens = 0
    for documents in flagged:
        part = documents.part
        found = zip(part.doc_ids.to_pylist(), part.texts.to_pylist(), strict=True)
        characters = _protected_characters(documents, chosen.protected_flags)
        for row, ((doc_id, text), protected) in enumerate(zip(found, characters, strict=True)):
            turns = conversations.get(doc_id)
            try:
                if turns is None or text_of_turns(turns) != text:
                    what = "no conversation of its id" if turns is None else "another text than its conversation"
                    raise CorpusError(what)
                made = _tokenise_conversation(turns, protected, tokenizer)
            except (CorpusError, TemplateError) as error:  # the message of a template may hold a content
                refused = "the chat template refuses it (roles or order?)"
                what = str(error) if isinstance(error, CorpusError) else refused
                raise CorpusError(f"{flagged.describe_place(part, row)}: {what}") from None
            for first in range(0, len(made[0]), window_length):
                own = [values[first : first + window_length] for values in made]
                if (own[1][1:] >= 0).any():  # nothing predicts the first
                    ids.append(own[0])
                    permitted.append(own[1])
                    starts.append(num_tokens + first)
            num_tokens += len(made[0])
    rows = _Rows(ids, permitted, starts)
    return Dataset.from_dict({"window": np.arange(len(ids))}).with_transform(rows)


@dataclass(frozen=True, slots=True, repr=False)
class _Rows:
    """Transform of the dataset: takes rows ``{"window": numbers}`` and returns their token columns."""

    ids: list[np.ndarray]
    permitted: list[np.ndarray]
    #: Number of each window's first token among the tokens of all conversations.
    starts: list[int]

    def __repr__(self) -> str:  # `datasets` prints it in a warning
        return f"Conversations({len(self.ids)} windows)"

    def __call__(self, rows: Mapping[str, Sequence[int]]) -> dict[str, list[Any]]:
        ids, permitted = ([of[number].tolist() for number in rows["window"]] for of in (self.ids, self.permitted))
        labels = [[IGNORE_INDEX if value == PROTECTED else value for value in row] for row in permitted]
        ones = [[1] * len(row) for row in ids]
        index = [
            [*range(self.starts[number], self.starts[number] + len(self.ids[number]))] for number in rows["window"]
        ]
        return {"input_ids": ids, "attention_mask": ones, "labels": labels, PERMITTED: permitted, TOKEN_INDEX: index}


def _protected_characters(documents: Flagged, flags: int) -> list[np.ndarray]:
    """Return for each document of a batch whether each character is in a word with one of these protection flags, or in
    a direct identifier between words, bool (characters,).
    """
    part, words, of_words, _, gaps = documents
    ends = np.cumsum(pc.utf8_length(part.texts).to_numpy())
    marks = np.zeros(int(ends[-1]) + 1, dtype=np.int64)
    firsts = np.concatenate([[0], ends[:-1]])
    for spans, chosen in ((words, (of_words & flags) > 0), (gaps, slice(None))):
        if spans is not None and (spans is words or flags & DIRECT):
            before = np.repeat(firsts, np.diff(spans.doc_offsets))
            for bound, step in zip(spans.char_spans(part.texts), (1, -1), strict=True):
                np.add.at(marks, (before + bound)[chosen], step)
    return np.split(np.cumsum(marks[:-1]) > 0, ends[:-1])


def _tokenise_conversation(
    turns: Turns, protected: np.ndarray, tokenizer: PreTrainedTokenizerFast
) -> tuple[np.ndarray, np.ndarray]:
    """Tokenise a conversation; return its token ids, and for each the id if it may be a target, else `PROTECTED` or
    -100; both int64 (T,).

    Parameters
    ----------
    protected : bool array, of the characters of `text_of_turns`
    """
    written = _apply_template(turns, tokenizer)
    is_answer, is_protected = (np.zeros(len(written), bool) for _ in range(2))
    place = 0
    starts = _locate_contents(turns, written, tokenizer)
    for turn, (start, content) in zip(turns, starts, strict=True):
        own = slice(start, start + len(content))
        is_answer[own] = turn["role"] == "assistant"
        skipped = place + turn["content"].index(content)
        is_protected[own] = protected[skipped : skipped + len(content)]
        place += len(turn["content"]) + len(BETWEEN)
    encoded = tokenizer(written, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ids, spans = np.array(encoded["input_ids"], np.int64), np.array(encoded["offset_mapping"], np.int64).reshape(-1, 2)
    # A tokenizer that trims its spans leaves nothing of a token of spaces: it begins where the one before ends.
    spans[1:, 0] = np.where(spans[1:, 0] == spans[1:, 1], spans[:-1, 1], spans[1:, 0])
    in_answer, in_protected = (_touches(spans, of) for of in (is_answer, is_protected))
    # A special token right behind an answer ends it: what a model must learn to stop.
    is_special = np.isin(ids, [*tokenizer.added_tokens_decoder])
    ends = is_special & np.concatenate([[False], in_answer[:-1]])
    permitted = np.where(in_protected, PROTECTED, np.where(in_answer | ends, ids, IGNORE_INDEX))
    return ids, permitted


def _apply_template(turns: Turns, tokenizer: Any) -> str:
    """Return the conversation as the tokenizer's chat template writes it."""
    written: str = tokenizer.apply_chat_template(list(turns), tokenize=False)
    return written


def _touches(spans: np.ndarray, characters: np.ndarray) -> np.ndarray:
    """Return whether each token span, (T, 2), covers one of the chosen characters, bool (T,)."""
    counted = np.concatenate([[0], np.cumsum(characters)])
    return counted[spans[:, 1]] > counted[spans[:, 0]]


def _locate_contents(turns: Turns, written: str, tokenizer: PreTrainedTokenizerFast) -> list[tuple[int, str]]:
    """Return (start, content) of each turn of a chat in ``written``, the text that the tokenizer's chat template made
    of the turns; ``start`` counts characters. The template may strip white space from a content.

    The template is asked with a sign for each content, in white space, and what it writes must be what it wrote, sign
    for content.
    """
    signs = [f"{OPEN}{number}{CLOSE}" for number in range(len(turns))]
    asked = [{**turn, "content": f"{SPACE}{sign}{SPACE}"} for turn, sign in zip(turns, signs, strict=True)]
    pieces = re.split(f"({SPACE}?{OPEN}\\d+{CLOSE}{SPACE}?)", _apply_template(asked, tokenizer))
    found = [piece.strip(SPACE) for piece in pieces[1::2]]
    if sorted(found) != sorted(signs):
        raise PolicyError("the chat template repeats or leaves out a content, so nothing says where it stands")
    contents = dict(zip(signs, (turn["content"] for turn in turns), strict=True))
    for at, sign in enumerate(found):
        content, piece = contents[sign], pieces[2 * at + 1]
        content = content if piece.startswith(SPACE) else content.lstrip()
        pieces[2 * at + 1] = content if piece.endswith(SPACE) else content.rstrip()
    if "".join(pieces) != written:
        raise PolicyError(
            "the chat template changes a content beyond its white space, so nothing says what is protected"
        )
    starts = np.cumsum([0, *map(len, pieces)])[1:-1:2].tolist()
    places = dict(zip(found, zip(starts, pieces[1::2], strict=True), strict=True))
    return [places[sign] for sign in signs]
