"""Class labels: the labelled documents that a classifier is trained and evaluated on.

Names of classes are not treated as private text: they become part of the classifier and of every result. So a column of
text or of ids is refused, and so is a class that only one individual has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent.core.errors import ArtifactError, CorpusError
from reticent.engine.store import TokenStore

#: More distinct labels, or longer ones, are taken for text or ids. They would be written into the model, so they are
#: refused.
MAX_CLASSES = 100
MAX_CLASS_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledTokens:
    """Tokenised documents with class labels, each on the training or the held-out side; see :func:`label_documents`.

    Attributes
    ----------
    store : TokenStore of the D documents that are used
    class_names : names of the C classes, sorted
    classes : int64 array, shape (D,), in 0..C-1
    is_train : bool array, shape (D,); the others are the held-out documents
    left_out : reason -> number of documents that are not used
    households : as for `label_documents`
    """

    store: TokenStore
    class_names: tuple[str, ...]
    classes: np.ndarray
    is_train: np.ndarray
    left_out: dict[str, int]
    households: np.ndarray | None = None


def label_documents(
    store: TokenStore,
    labels: pa.Array,
    is_train: np.ndarray,
    *,
    min_individuals: int | None = None,
    households: np.ndarray | None = None,
) -> LabelledTokens:
    """Return the tokenised documents that have at least one token and a class label, with class numbers; ``labels`` has
    one entry for each document (null: none). Classes of fewer than ``min_individuals`` training or held-out individuals
    are left out.

    Parameters
    ----------
    labels : string array, shape (store.num_documents,)
        Names of classes; null or blank for a document without one.
    is_train : bool array, shape (store.num_documents,)
    min_individuals : int, optional
        Leave out classes with fewer individuals on either side, or with a single one to train on. By default nothing is
        left out, and such a class is an error: it would single this individual out.
    households : uint32 array, shape (individuals,), optional
        The household of each individual, whose members have to be on one side.

    Raises
    ------
    CorpusError
        Fewer than two classes, a class without a document on one side or of a single individual, or labels that are too
        many or too long.
    ArtifactError
        The numbers of labels, sides and documents differ, or an individual or a household is on both sides.
    """
    is_train = np.asarray(is_train, dtype=bool)
    if not len(labels) == len(is_train) == store.num_documents:
        raise ArtifactError(f"{len(labels)} labels and {len(is_train)} sides for {store.num_documents} documents")
    check_sides(store, is_train, households)
    blank = pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(labels)), 0)
    unlabelled = pc.fill_null(blank, True).to_numpy(zero_copy_only=False)
    empty = ~unlabelled & (np.diff(store.doc_offsets) == 0)
    used = np.flatnonzero(~unlabelled & ~empty)
    encoded = labels.take(pa.array(used)).dictionary_encode()
    names = [str(name) for name in encoded.dictionary.to_pylist()]
    _check_names(names, len(used))
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(len(names))
    classes = rank[encoded.indices.to_numpy()]
    kept = _usable_classes(classes, len(names), store.individual[used], is_train[used], min_individuals)
    rare = ~kept[classes]
    used, classes = used[~rare], (np.cumsum(kept) - 1)[classes[~rare]]
    return LabelledTokens(
        store=store.select(used),
        class_names=tuple(names[number] for number, is_kept in zip(order, kept, strict=True) if is_kept),
        classes=classes,
        is_train=is_train[used],
        left_out={
            "unlabelled": int(np.count_nonzero(unlabelled)),
            "without_text": int(np.count_nonzero(empty)),
            "of_rare_classes": int(np.count_nonzero(rare)),
            "rare_classes": int(np.count_nonzero(~kept)),
        },
        households=households,
    )


def check_sides(store: TokenStore, is_train: np.ndarray, households: np.ndarray | None) -> None:
    """Raise `ArtifactError` if an individual (or a household, if given) has both training and held-out documents."""
    named = {"individuals": store.individual} | ({} if households is None else {"households": households})
    for kind, units in named.items():
        own = units if kind == "individuals" else units[store.individual]
        if both := len(np.intersect1d(own[is_train], own[~is_train])):
            raise ArtifactError(
                f"{both} {kind} are on both sides; sides are split by individual, and by household where there are any "
                "(split.by)"
            )


def _check_names(names: list[str], num_documents: int) -> None:
    """Raise `CorpusError` if there are too many class names or one is too long, as if the column held texts or ids. The
    message shows no name.
    """
    if not num_documents:
        raise CorpusError("labels: no document has one")
    if len(names) > MAX_CLASSES or max(map(len, names)) > MAX_CLASS_NAME:
        raise CorpusError(
            f"labels: {len(names):,} distinct ones among {num_documents:,} documents, the longest of "
            f"{max(map(len, names)):,} characters; expected the names of at most {MAX_CLASSES} classes, of at most "
            f"{MAX_CLASS_NAME} characters, as they are written into the model: is it a column of text or of ids?"
        )


def _usable_classes(
    classes: np.ndarray, num_classes: int, individual: np.ndarray, is_train: np.ndarray, at_least: int | None
) -> np.ndarray:
    """Return whether each class can be learned, bool (C,): it has ``at_least`` individuals (None: one) both in training
    and in held-out documents, and never fewer than two in training. Raise `CorpusError` if fewer than two classes can;
    with None, if any class cannot.
    """
    pairs = np.unique(np.stack([classes, is_train, individual.astype(np.int64)], axis=1), axis=0)
    num_individuals = np.bincount(pairs[:, 0] * 2 + pairs[:, 1], minlength=2 * num_classes).reshape(-1, 2)
    if at_least is None and num_classes > 1:
        for side, name, whose in ((0, "held-out", "heldout"), (1, "training", "members")):
            if missing := int(np.count_nonzero(num_individuals[:, side] == 0)):
                raise CorpusError(
                    f"labels: {missing} of {num_classes} classes have no {name} document (side {whose}); leave rare "
                    "classes out with classify.min_individuals (--min-individuals), or join them"
                )
        if single := int(np.count_nonzero(num_individuals[:, 1] == 1)):
            raise CorpusError(
                f"labels: {single} of {num_classes} classes are of a single individual to train on (side members), "
                "whom the class would single out; leave rare classes out with classify.min_individuals "
                "(--min-individuals), or join them"
            )
    kept: np.ndarray = np.all(num_individuals >= (at_least or 1), axis=1) & (num_individuals[:, 1] > 1)
    if np.count_nonzero(kept) < 2:
        rule = f" that {at_least} individuals on each side have" if at_least and num_classes > 1 else ""
        raise CorpusError(f"labels: expected at least two classes{rule}, got {np.count_nonzero(kept)} of {num_classes}")
    return kept
