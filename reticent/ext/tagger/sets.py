"""Attack sets: names that a tagger was trained on, paired with names it was not trained on ([@nussbaumer2023] §3.2).

Names have several words, can be encoded in CP-1252, and are in a set once; other names are counted by reason. A name is
absent from the training data if its words, in any case and with any punctuation between them, occur nowhere in the
text, annotated or not. Everything drawn is a function of the seed. The sets hold names: they never leave memory.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.core.errors import CorpusError, cause
from reticent.engine.detect.labels import category
from reticent.engine.randomness import generator
from reticent.engine.schema import HELDOUT, MEMBERS

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus
    from reticent.engine.detect.spans import SpanReader
    from reticent.engine.split import Individuals

#: Columns of `AttackSet.features`: the whole input of the blind baseline.
FEATURES = ("characters", "words", "longest word", "capitals", "least word count", "mean word count")
#: Columns of a CoNLL line: token and tag; with part of speech and chunk (English); with a lemma too (German).
NUM_COLUMNS = (2, 4, 5)
PREFIX = re.compile(r"([BIESLUM])[-_](.+)")


@dataclass(frozen=True, slots=True)
class Mentions:
    """The names in training data, one entry for each mention, and the texts of the training data."""

    names: Sequence[str]
    texts: Iterable[str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackSet:
    """Pairs of a name in the training data and a name that is not in it.

    Attributes
    ----------
    positives, negatives : str, one a pair
    occurrences : int64, shape (pairs,); how often the positive is mentioned in the training data
    is_dev : bool, shape (pairs,); the strategy is chosen on these, and verified on the others
    features : float64, shape (2, pairs, len(FEATURES)); positives first
    counts : names that were kept and left out
    """

    positives: tuple[str, ...]
    negatives: tuple[str, ...]
    occurrences: np.ndarray
    is_dev: np.ndarray
    features: np.ndarray
    counts: dict[str, int]
    unit: str = "pairs of names"

    def __post_init__(self) -> None:
        assert len(self.positives) == len(self.negatives) == len(self.occurrences) == len(self.is_dev)

    @property
    def names(self) -> tuple[str, ...]:
        """All names, members first, then held-out ones; attacks take their scores as (prompts, 2, pairs)."""
        return self.positives + self.negatives


def read_conll(path: Path | str, *, labels: Sequence[str] = ("PER",), encoding: str = "utf-8") -> Mentions:
    """Read the mentions of names (entities of these types) and the sentences in a CoNLL file.

    Lines have 2, 4 (CoNLL-2003, English) or 5 columns (German), parted by blanks, as many as the first line has;
    ``-DOCSTART-`` lines are skipped. Tags are BIO, IOB1 (B- only between neighbours), BIOES or bare types.

    Raises
    ------
    CorpusError
        The file cannot be read, a line has another number of columns, or there is none.
    """
    try:
        lines = Path(path).read_text(encoding=encoding).split("\n")
    except (OSError, UnicodeDecodeError, LookupError) as error:
        how = "" if isinstance(error, OSError) else f" as {encoding}"
        raise CorpusError(f"{path}: cannot be read{how} ({cause(error)})") from None
    tokens: list[str] = []
    tags: list[str] = []
    firsts: list[int] = []
    columns, new = 0, True
    for number, line in enumerate(lines, start=1):
        # Blanks of ASCII only: str.split takes a no-break space inside a token of CP-1252 text for one.
        cells = [cell for cell in re.split(r"[ \t\r]+", line) if cell]
        if not cells or cells[0] == "-DOCSTART-":
            new = True
            continue
        columns = columns or len(cells)
        if len(cells) != columns or columns not in NUM_COLUMNS:
            expected = str(columns) if columns in NUM_COLUMNS else "2, 4 or 5"
            raise CorpusError(f"{path}:{number}: expected {expected} columns, got {len(cells)}")
        if new:
            firsts.append(len(tokens))
            new = False
        tokens.append(cells[0])
        tags.append(cells[-1])
    if not tokens:
        raise CorpusError(f"{path}: no tagged token in it")
    bounds = decode_entities(tags, firsts, labels)
    ends = [*firsts[1:], len(tokens)]
    sentences = [" ".join(tokens[a:b]) for a, b in zip(firsts, ends, strict=True)]
    return Mentions([" ".join(tokens[a:b]) for a, b in bounds.tolist()], sentences)


def decode_entities(tags: Sequence[str], firsts: Sequence[int], labels: Sequence[str]) -> np.ndarray:
    """Return the token bounds of all entities of the types ``labels`` in BIO, IOB1 or BIOES tags, int64 (entities, 2),
    end exclusive; ``firsts`` are the first tokens of sentences.

    An entity begins at B- (S-, U-), at the first token of a sentence, after E- (L-, S-, U-), and where the type
    changes: so one rule reads BIO, IOB1 and BIOES.

    >>> decode_entities(["I-PER", "I-PER", "B-PER", "O", "I-ORG"], [0], ("PER",)).tolist()
    [[0, 2], [2, 3]]
    """
    distinct, code = np.unique(np.array(tags, dtype=object).astype(str), return_inverse=True)
    parts = [(m[1], m[2]) if (m := PREFIX.fullmatch(tag)) else ("I", tag) for tag in distinct.tolist()]
    types = sorted({kind for _, kind in parts})
    kind = np.array([types.index(kind) for _, kind in parts])[code]
    prefix = np.array([prefix for prefix, _ in parts])[code]
    first = np.zeros(len(tags), dtype=bool)
    first[list(firsts)] = True
    ended = np.concatenate([[True], np.isin(prefix[:-1], ["E", "L", "S", "U"])])
    changed = np.concatenate([[True], kind[1:] != kind[:-1]])
    begins = np.flatnonzero(first | ended | changed | np.isin(prefix, ["B", "S", "U"]))
    ends = np.concatenate([begins[1:], [len(tags)]])
    wanted = np.array([name in labels for name in types])[kind[begins]]
    return np.stack([begins[wanted], ends[wanted]], axis=1)


def read_names(path: Path | str, *, num: int = 100_000, seed: int = 0) -> list[str]:
    """Read a list of names from a text file, or draw names from a folder of US Census lists.

    Of census lists ``num`` pairs of a first and a last name are drawn by their frequencies.

    Raises
    ------
    CorpusError
        There is no such list, it is not UTF-8, or it is empty.
    """
    path = Path(path)
    try:
        if not path.is_dir():
            names = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        else:
            random = generator(seed, 31)
            drawn = []
            for pattern in ("dist.*.first", "dist.*.last"):
                rows = [line.split() for file in sorted(path.glob(pattern)) for line in file.read_text().splitlines()]
                weights = np.array([float(row[1]) for row in rows])
                kept = random.choice(len(rows), num, p=weights / weights.sum())
                drawn.append(np.array([row[0].title() for row in rows], dtype=object)[kept])
            names = (drawn[0] + " " + drawn[1]).tolist()
    except (OSError, ValueError, IndexError, ZeroDivisionError) as error:
        raise CorpusError(f"{path}: not a readable name list ({cause(error)})") from None
    if not names:
        raise CorpusError(f"{path}: no name in it")
    return names


def read_pairs(path: Path | str, *, seed: int = 0) -> AttackSet:
    """Read pairs of a member and a held-out name from a CSV file with the columns pair, name and label.

    A file of published scores, as `reticent tagger thesis` reads it, is one; its other columns are ignored. Without
    sides half of the pairs, drawn by ``seed``, are for development.

    Raises
    ------
    CorpusError
        The file is no such CSV, a pair has not one name of each label, a name, however it is spelt, is in two pairs or
        has both labels, or a side has fewer than two pairs.
    """
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CorpusError(f"{path}: cannot be read ({cause(error)})") from None
    for column in ("pair", "name", "label"):
        if column not in (reader.fieldnames or ()):
            raise CorpusError(f"{path}: no column {column}; expected pair, name, label and perhaps side")
    found: dict[str, dict[str, set[str]]] = {}
    places: dict[str, tuple[int, str, str]] = {}
    for line, row in rows:
        if not row["name"]:
            raise CorpusError(f"{path}:{line}: no name")
        if row["label"] in ("0", "1"):
            first, *own = places.setdefault(_name_key(row["name"]), (line, row["pair"], row["label"]))
            if own != [row["pair"], row["label"]]:
                raise CorpusError(f"{path}:{line}: the name of line {first} again, in another pair or of another label")
        pair = found.setdefault(row["pair"], {"1": set(), "0": set(), "side": set()})
        pair.get(row["label"], set()).add(row["name"])
        pair["side"].add(row.get("side") or "")
    for number, pair in found.items():
        if (len(pair["1"]), len(pair["0"])) != (1, 1):
            raise CorpusError(f"{path}: pair {number}: expected one name of label 1 and one of label 0")
        if len(pair["side"]) > 1 or not pair["side"] <= {"", "dev", "test"}:
            raise CorpusError(f"{path}: pair {number}: column side: expected dev or test")
    num = len(found)
    positives, negatives = (tuple(name for pair in found.values() for name in pair[label]) for label in "10")
    is_dev = np.array(["dev" in pair["side"] for pair in found.values()], dtype=bool)
    if all(pair["side"] == {""} for pair in found.values()):
        is_dev[generator(seed, 33).permutation(num)[: num // 2]] = True
    if min(is_dev.sum(), num - is_dev.sum()) < 2:
        raise CorpusError(f"{path}: expected two pairs or more on either side, got {num} in all")
    describe = _Describer([*positives, *negatives])
    return AttackSet(
        positives=positives,
        negatives=negatives,
        occurrences=np.zeros(num, dtype=np.int64),  # not known
        is_dev=is_dev,
        features=np.stack([describe(positives), describe(negatives)]),
        counts={"pairs": num, "dev_pairs": int(is_dev.sum()), "test_pairs": num - int(is_dev.sum())},
    )


def names_of_corpus(
    corpus: Corpus, individuals: Individuals, *, label: str = "NAME", seed: int = 0, detected: SpanReader | None = None
) -> tuple[Mentions, list[str]]:
    """Draw for each individual one name that occurs in no other individual's documents; return the mentions of members'
    names with members' texts, and the held-out individuals' names.

    One name an individual, drawn among the names that stand in no other individual's documents, so that names are as
    independent as individuals are.

    Raises
    ------
    CorpusError
        The documents have no marks.
    """
    names_of: dict[int, Counter[str]] = {}
    texts: list[str] = []
    is_member, is_heldout = individuals.mask(MEMBERS), individuals.mask(HELDOUT)
    columns, first = ("individual_id", "text", *(() if detected else ("spans",))), 0
    for batch in corpus.batches(columns=columns):
        if detected is not None:
            marks = _spans_of_documents(detected, first, batch.num_rows)
        elif "spans" in batch.schema.names:
            marks = batch.column("spans").to_pylist()
        else:
            raise CorpusError("names of documents need marks of people (spans); these documents have none")
        first += batch.num_rows
        codes = individuals.individual_codes(batch.column("individual_id"))
        for code, text, spans in zip(codes.tolist(), batch.column("text").to_pylist(), marks, strict=True):
            if is_member[code]:
                texts.append(text)
            elif not is_heldout[code]:
                continue
            found = (text[s["start"] : s["end"]] for s in spans or () if category(s["label"]) == category(label))
            names_of.setdefault(code, Counter()).update(" ".join(name.split()) for name in found)
    owners = Counter(key for names in names_of.values() for key in {_name_key(name) for name in names})
    random = generator(seed, 32)
    members: list[str] = []
    heldout: list[str] = []
    for code in sorted(names_of):
        own = sorted(
            name for name in names_of[code] if owners[_name_key(name)] == 1 and _exclusion_reason(name) is None
        )
        if own:
            name = own[int(random.integers(len(own)))]
            if is_member[code]:
                members += [name] * names_of[code][name]
            else:
                heldout.append(name)
    return Mentions(members, texts), heldout


def _spans_of_documents(detected: SpanReader, first: int, num: int) -> list[list[dict[str, Any]]]:
    """Return the detected spans of ``num`` documents from document ``first`` on, a list of dicts for each."""
    offsets, starts, ends, labels = detected.slice(first, num)
    found = [
        {"start": start, "end": end, "label": label}
        for start, end, label in zip(starts.tolist(), ends.tolist(), labels.to_pylist(), strict=True)
    ]
    return [found[a:b] for a, b in pairwise(offsets.tolist())]


def build_attack_set(
    training: Mentions,
    candidates: Iterable[str],
    *,
    max_pairs: int | None = None,
    fewer: bool = False,
    listed: bool = False,
    match: bool = True,
    seed: int = 0,
    unit: str = "pairs of names",
) -> AttackSet:
    """Pair each name in the training data with a name absent from it, similar in length and frequency or (``match``
    false) random. Half of the pairs are for development, the others for the test.

    Parameters
    ----------
    max_pairs : int, optional
        Draw so many of the training names.
    fewer : bool
        If there are too few absent names, take as many training names; false: that is an error.
    listed : bool
        Take only training names that the candidates hold too, as [@nussbaumer2023]: both sides then come of one source.
    match : bool
        Choose absent names that are like the training names in the features of a blind attacker: words, capitals,
        length, and frequency of their words. False: they are drawn at random.

    Raises
    ------
    CorpusError
        Names of several words are too few on either side.
    """
    counts: Counter[str] = Counter(training_mentions=len(training.names))
    mentioned = Counter(" ".join(name.split()) for name in training.names)
    positives, left_out = _usable_names(mentioned)
    counts.update({f"training_{why}": number for why, number in left_out.items()})
    pool, left_out = _usable_names(list(map(" ".join, map(str.split, candidates))))
    counts.update({f"list_{why}": number for why, number in left_out.items()})
    if listed:
        known = set(pool)
        counts["training_not_listed"] = sum(name not in known for name in positives)
        positives = [name for name in positives if name in known]
    own = {_name_key(name) for name in positives}
    present = _keys_in_texts({_name_key(name) for name in pool} - own, training.texts) | own
    absent = [name for name in pool if _name_key(name) not in present]
    counts["list_present_in_training"] = len(pool) - len(absent)
    counts.update(training_names=len(positives), list_names=len(absent))
    num = min(len(positives), max_pairs or len(positives))
    if fewer:
        num = min(num, len(absent))
    if num < 2 or len(absent) < num:
        raise CorpusError(
            f"attack set: {max(num, 2)} names of several words are needed on each side; the training data has "
            f"{len(positives)}, and {len(absent)} of the others are absent from it. Give a longer list, or ask for "
            "fewer pairs"
        )
    random = generator(seed, 33)
    positives = [positives[number] for number in random.permutation(len(positives))[:num]]
    describe = _Describer(pool)
    if match:
        negatives, matched = _match_names(positives, absent, describe, random)
        counts.update(matched)
    else:
        negatives = [absent[number] for number in random.permutation(len(absent))[:num]]
    negatives = [negatives[number] for number in random.permutation(num)]
    is_dev = np.zeros(num, dtype=bool)
    is_dev[random.permutation(num)[: num // 2]] = True
    counts.update(pairs=num, dev_pairs=int(is_dev.sum()), test_pairs=num - int(is_dev.sum()))
    return AttackSet(
        positives=tuple(positives),
        negatives=tuple(negatives),
        occurrences=np.array([mentioned[name] for name in positives], dtype=np.int64),
        is_dev=is_dev,
        features=np.stack([describe(positives), describe(negatives)]),
        counts=dict(counts),
        unit=unit,
    )


def _name_key(name: str) -> str:
    """Return a name in lower case without punctuation, by which spelling variants are equal."""
    return " ".join(re.findall(r"\w+", name.casefold()))


def _exclusion_reason(name: str) -> str | None:
    """Return why a name cannot be in an attack set ("single_token", "not_cp1252"); None if it can."""
    if len(name.split()) < 2 or " " not in _name_key(name):
        return "single_token"
    try:
        name.encode("cp1252")
    except UnicodeEncodeError:
        return "not_cp1252"
    return None


def _usable_names(names: Iterable[str]) -> tuple[list[str], Counter[str]]:
    """Return the names that can be in an attack set, each once, and the number of the others by reason."""
    kept: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for name in names:
        why = _exclusion_reason(name)
        if why is None and (key := _name_key(name)) in kept:
            why = "duplicate"
        if why is None:
            kept[key] = name
        else:
            left_out[why] += 1
    return list(kept.values()), left_out


def _keys_in_texts(keys: set[str], texts: Iterable[str]) -> set[str]:
    """Return the name keys whose words occur in sequence in one of the texts."""
    lengths = sorted({key.count(" ") + 1 for key in keys})
    found: set[str] = set()
    for text in texts:
        words = re.findall(r"\w+", text.casefold())
        for n in lengths:
            found.update(
                gram for gram in (" ".join(words[at : at + n]) for at in range(len(words) - n + 1)) if gram in keys
            )
    return found


class _Describer:
    """Computes the `FEATURES` of names, without the model; words are counted over the names of ``pool``."""

    def __init__(self, pool: Sequence[str]):
        self._count = Counter(word for name in pool for word in set(_name_key(name).split()))
        self._pool = set(map(_name_key, pool))

    def __call__(self, names: Sequence[str]) -> np.ndarray:
        rows = []
        for name in names:
            words = _name_key(name).split()
            # A name of the list is in its own words' counts, a name of the training data may not be.
            listed = " ".join(words) in self._pool
            logs = [np.log2(1 + self._count[word] - listed) for word in words]
            capitals = sum(letter.isupper() for letter in name) / len(name)
            longest = max(map(len, name.split()))
            rows.append((len(name), len(name.split()), longest, capitals, min(logs), sum(logs) / len(logs)))
        return np.array(rows, dtype=np.float64).reshape(-1, len(FEATURES))


def _match_names(
    positives: Sequence[str], absent: Sequence[str], describe: _Describer, random: np.random.Generator
) -> tuple[list[str], Counter[str]]:
    """Choose for each member name the most similar absent name, each used once. Return these names, and the number of
    pairs by degree of similarity.
    """
    wanted, offered = _matching_features(describe(positives)), _matching_features(describe(absent))
    order = random.permutation(len(absent))
    taken = np.zeros(len(absent), dtype=bool)
    chosen = np.full(len(positives), -1)
    counts: Counter[str] = Counter()
    # From all four (words, capitals, length, how common) down to nothing in common.
    for level, what in ((4, "fully"), (3, "in_length"), (2, "in_words"), (0, "in_none")):
        shelves: dict[tuple[int, ...], list[int]] = {}
        for number in order[~taken[order]].tolist():
            shelves.setdefault(tuple(offered[number, :level].tolist()), []).append(number)
        for row in np.flatnonzero(chosen < 0).tolist():
            if shelf := shelves.get(tuple(wanted[row, :level].tolist())):
                chosen[row] = shelf.pop()
                taken[chosen[row]] = True
                counts[f"matched_{what}"] += 1
    return [absent[number] for number in chosen.tolist()], counts


def _matching_features(features: np.ndarray) -> np.ndarray:
    """Return discretised features for matching, int64 (names, 4): words, capitals (none, some, all), length, frequency
    of the rarest word."""
    characters, words, _, capitals, least, _ = features.T
    cases = np.digitize(capitals, [1e-9, 0.5])
    return np.stack([words, cases, characters, np.minimum(least, 6)], axis=1).astype(np.int64)
