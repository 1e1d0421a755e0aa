"""Evaluation of classifiers on held-out documents: F1, intervals clustered by individual, and baselines.

Every document has one class, so micro F1 is the accuracy. Macro F1 is the plain mean over the classes, rare or not. The
two baselines use no model: the commonest class, and a logistic regression on bags of words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_matrix

from reticent.audit.evidence.classification import ClassRow, MeasuredClasses
from reticent.audit.evidence.rules import publish
from reticent.audit.stats.intervals import EXACT, Estimate, ratio_estimate, ratio_estimates
from reticent.engine.kernels import number_tuples, word_slots
from reticent.engine.store import TokenStore

#: Inverse strength of the baseline's penalty: rows of tf-idf have length 1, for which scikit-learn's 1 is too strong.
BAG_OF_WORDS_C = 10.0


@dataclass(frozen=True, slots=True)
class Truth:
    """True classes (int64) and individuals of the held-out documents, and the number of classes."""

    classes: np.ndarray
    individual: np.ndarray
    num_classes: int

    def f1_counts(self, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return numerator and denominator of F1 by class and individual, two arrays (C, individuals): 2 · true
        positives, and true plus predicted documents.

        Their ratio, summed over individuals, is the F1 of each class.
        """
        codes, row = np.unique(self.individual, return_inverse=True)
        num = len(codes)

        def count_documents(class_numbers: np.ndarray, individual_rows: np.ndarray) -> np.ndarray:
            """Count documents by class and individual, (C, individuals), given the class number and the individual's
            row of each document."""
            return np.bincount(class_numbers * num + individual_rows, minlength=self.num_classes * num).reshape(-1, num)

        right = predicted == self.classes
        either = count_documents(self.classes, row) + count_documents(predicted, row)
        return 2 * count_documents(predicted[right], row[right]), either


def measure(truth: Truth, predicted: np.ndarray, *, num_bootstrap: int, seed: int, small_cell: int) -> MeasuredClasses:
    """Return macro and micro F1, F1 by class and the confusion matrix of predicted classes of held-out documents, with
    bootstrap intervals over individuals. Counts of fewer than ``small_cell`` individuals are hidden.

    Parameters
    ----------
    predicted : int64 array, shape (D,), a class for each held-out document
    small_cell : int
        Counts of fewer individuals become None, as in the report.
    """
    codes, row = np.unique(truth.individual, return_inverse=True)
    right = np.bincount(row, predicted == truth.classes, minlength=len(codes))
    micro = ratio_estimate(right, np.bincount(row, minlength=len(codes)), num_bootstrap=num_bootstrap, seed=seed)
    tops, bottoms = truth.f1_counts(predicted)
    by_class, draws = ratio_estimates(tops, bottoms, num_bootstrap=num_bootstrap, seed=seed)
    confusion, individuals_per_cell = _confusion_matrices(truth, predicted)
    individuals = np.count_nonzero(
        np.bincount(truth.classes * len(codes) + row, minlength=truth.num_classes * len(codes)).reshape(-1, len(codes)),
        axis=1,
    )
    rows = [
        ClassRow(f1=estimate, documents=int(confusion[number].sum()), individuals=int(individuals[number]))
        for number, estimate in enumerate(by_class)
    ]
    hidden = _classes_to_hide(individuals, small_cell)
    return MeasuredClasses(
        macro_f1=estimate_macro_f1(by_class, draws, len(codes)),
        micro_f1=micro,
        classes=[
            replace(row, f1=row.f1.withheld(small_cell), documents=None, individuals=None)
            if is_hidden
            else publish(row, small_cell)
            for row, is_hidden in zip(rows, hidden, strict=True)
        ],
        confusion=_hide_small_cells(confusion, individuals_per_cell, hidden, small_cell),
        documents=len(truth.classes),
        individuals=len(codes),
    )


def compare(truth: Truth, first: np.ndarray, second: np.ndarray, *, num_bootstrap: int, seed: int) -> Estimate:
    """Return the macro F1 of one prediction minus that of another on the same documents, with a bootstrap interval over
    individuals.
    """
    values, draws = [], []
    for predicted in (first, second):
        tops, bottoms = truth.f1_counts(predicted)
        with np.errstate(invalid="ignore"):
            values.append(float(np.nanmean(tops.sum(axis=1) / bottoms.sum(axis=1))))
        draws.append(ratio_estimates(tops, bottoms, num_bootstrap=num_bootstrap, seed=seed)[1])
    n = len(np.unique(truth.individual))
    low, high = np.quantile(np.nanmean(draws[0], axis=1) - np.nanmean(draws[1], axis=1), [0.025, 0.975])
    return Estimate(value=values[0] - values[1], low=float(low), high=float(high), n=n)


def estimate_macro_f1(by_class: list[Estimate], draws: np.ndarray, n: int) -> Estimate:
    """Return the mean F1 over classes with its interval from bootstrap draws (replicates, C) of ``n`` individuals. If
    every F1 is 0 or 1, the interval is the mean of the classes' exact ones, which is wider than necessary.
    """
    known = [estimate for estimate in by_class if estimate.value is not None]
    value = float(np.mean([estimate.value for estimate in known]))
    if all(estimate.value in (0.0, 1.0) for estimate in known) or n == 1:
        low, high = (float(np.mean([getattr(estimate, end) for estimate in known])) for end in ("low", "high"))
        return Estimate(value=value, low=low, high=high, n=n, method=f"mean of the classes' bounds ({EXACT})")
    low, high = np.quantile(np.nanmean(draws, axis=1), [0.025, 0.975])
    return Estimate(value=value, low=float(low), high=float(high), n=n)


def _confusion_matrices(truth: Truth, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two int64 matrices (true class, predicted class): numbers of documents, and of distinct individuals."""
    num = truth.num_classes
    cell = truth.classes * num + predicted
    documents = np.bincount(cell, minlength=num * num).reshape(num, num)
    pairs = np.unique(np.stack([cell, truth.individual.astype(np.int64)], axis=1), axis=0)
    return documents, np.bincount(pairs[:, 0], minlength=num * num).reshape(num, num)


def _classes_to_hide(individuals: np.ndarray, cell: int) -> np.ndarray:
    """Return which classes must be hidden because they have from 1 to ``cell`` - 1 ``individuals`` (a number for each
    class), bool (C,). If only one must, the next larger class is hidden too, since totals would reveal the first.
    """
    hidden = (individuals > 0) & (individuals < cell)
    others = np.flatnonzero(individuals >= cell)
    if hidden.sum() == 1 and len(others):
        hidden[others[np.argmin(individuals[others])]] = True
    return hidden


def _hide_small_cells(
    documents: np.ndarray, individuals_per_cell: np.ndarray, hidden_classes: np.ndarray, cell: int
) -> list[list[int | None]]:
    """Return the confusion matrix as lists, with None in place of each count of 1 to ``cell`` - 1 individuals. Further
    counts are hidden (complementary suppression) where the sum of a row or column, or the F1, would reveal a hidden
    one.
    """
    closed = (individuals_per_cell > 0) & (individuals_per_cell < cell)
    is_changed = True
    while is_changed:
        is_changed = False
        for hidden, found, is_row in ((closed, individuals_per_cell, 1), (closed.T, individuals_per_cell.T, 0)):
            revealing = np.where(hidden_classes, 0 if is_row else -1, 1)  # number of hidden cells that is too few
            for line in np.flatnonzero(hidden.sum(axis=1) == revealing):
                candidates = np.flatnonzero(~hidden[line])
                if len(candidates):  # rather one that is not zero
                    least = min(candidates, key=lambda at: (found[line, at] == 0, found[line, at]))
                    hidden[line, least] = is_changed = True
    return [
        [None if is_hidden else count for count, is_hidden in zip(*line, strict=True)]
        for line in zip(documents.tolist(), closed.tolist(), strict=True)
    ]


# ------------------------------------------------------------------------------------------------------------ baselines


def predict_majority(classes: np.ndarray, is_train: np.ndarray) -> np.ndarray:
    """Predict for every held-out document the commonest class of the training documents, int64; ties go to the lowest
    number.
    """
    commonest = np.bincount(classes[is_train]).argmax()
    return np.full(np.count_nonzero(~is_train), commonest, dtype=np.int64)


def predict_from_words(store: TokenStore, classes: np.ndarray, is_train: np.ndarray) -> np.ndarray:
    """Predict the class of each held-out document by logistic regression on tf-idf of its words, int64.

    Words are the store's, distinguished by their tokens; those that no training document has are not seen.
    """
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression

    starts, lengths, documents = word_slots(store.word_ids, store.doc_offsets)
    numbers, first = number_tuples(store.input_ids, starts, lengths)
    counts = csr_matrix((np.ones(len(numbers)), (documents, numbers)), shape=(store.num_documents, len(first)))
    seen = np.unique(numbers[is_train[documents]])
    weighting = TfidfTransformer(sublinear_tf=True)
    if not len(seen):  # no word at all: there is no feature
        return predict_majority(classes, is_train)
    train = weighting.fit_transform(counts[is_train][:, seen])
    regression = LogisticRegression(C=BAG_OF_WORDS_C, max_iter=5000).fit(train, classes[is_train])
    return np.asarray(regression.predict(weighting.transform(counts[~is_train][:, seen])), dtype=np.int64)
