"""Scores of predictions: area under the ROC curve (also group by group), R², log loss.

AUC = P(s⁺ > s⁻) + ½ P(s⁺ = s⁻) for a random positive and a random negative row (drawn by weight). It is exact,
ties included, and nan when a class is missing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from reluscope._check import FloatArray
from reluscope._lazy import late

Index = npt.NDArray[np.int64]


def auc(score: FloatArray, positive: npt.NDArray[np.bool_], weight: FloatArray | None = None) -> float:
    """Area under the ROC curve of a score; cost is that of sorting n numbers."""
    if weight is None:
        return float(_auc_two_sorted(np.sort(score[~positive]), np.sort(score[positive])))
    order = np.argsort(score, kind="stable")
    ends = np.array([0, len(score)])
    return float(_auc_segments(score[order], positive[order], weight[order], ends)[0])


def auc_by_group(
    score: FloatArray,
    positive: npt.NDArray[np.bool_],
    group: Index,
    n_groups: int,
    weight: FloatArray | None = None,
) -> FloatArray:
    """AUC within each group, shape (n_groups,); nan where a group lacks a class. One sort of all rows."""
    order = np.lexsort((score, group))
    ends = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=n_groups))])
    given = np.ones(len(score)) if weight is None else weight
    areas: FloatArray = _auc_segments(score[order], positive[order], given[order], ends)
    return areas


@njit(cache=True, error_model="numpy")
def _auc_two_sorted(low, high):  # type: ignore[no-untyped-def]
    """AUC from the sorted scores of negatives and of positives, by merging."""
    total = 0.0
    below = 0
    upto = 0
    for k in range(len(high)):
        s = high[k]
        while below < len(low) and low[below] < s:
            below += 1
        upto = max(upto, below)
        while upto < len(low) and low[upto] <= s:
            upto += 1
        total += 0.5 * (below + upto)
    return total / len(low) / len(high)


@njit(cache=True, error_model="numpy")
def _auc_segments(score, positive, weight, ends):  # type: ignore[no-untyped-def]
    """AUC of each segment of rows that are sorted by score within the segment."""
    out = np.empty(len(ends) - 1)
    for g in range(len(ends) - 1):
        total = 0.0
        negatives = 0.0
        positives = 0.0
        i = ends[g]
        while i < ends[g + 1]:
            j = i
            tied_negatives = 0.0
            tied_positives = 0.0
            while j < ends[g + 1] and score[j] == score[i]:
                if positive[j]:
                    tied_positives += weight[j]
                else:
                    tied_negatives += weight[j]
                j += 1
            total += tied_positives * (negatives + 0.5 * tied_negatives)
            negatives += tied_negatives
            positives += tied_positives
            i = j
        out[g] = total / (negatives * positives) if negatives > 0 and positives > 0 else np.nan
    return out


def mean(values: FloatArray, weight: FloatArray | None = None) -> float:
    """Mean, by weight if given; nan of nothing."""
    if not len(values):
        return float("nan")
    return float(values.mean() if weight is None else values @ weight / weight.sum())


def r2(target: FloatArray, prediction: FloatArray, weight: FloatArray | None = None) -> float:
    """R² = 1 - mean squared error / variance, averaged over outputs (n, outputs); nan for fewer than two rows.

    As in scikit-learn an output whose target is constant counts as 1 if it is met exactly, else as 0.
    """
    if len(target) < 2:
        return float("nan")
    error = np.average((target - prediction) ** 2, axis=0, weights=weight)
    spread = np.average((target - np.average(target, axis=0, weights=weight)) ** 2, axis=0, weights=weight)
    varied = spread > 0
    return float(np.where(varied, 1.0 - error / np.where(varied, spread, 1.0), error == 0.0).mean())


def log_losses(logits: FloatArray, code: Index) -> FloatArray:
    """-log P(class) of each row, under logits (n, 1) of class 1 or (n, classes) before softmax."""
    if logits.shape[1] == 1:
        signed = np.where(code == 1, -logits[:, 0], logits[:, 0])
        return np.logaddexp(0.0, signed)
    top = logits.max(axis=1, keepdims=True)
    total = top[:, 0] + np.log(np.exp(logits - top).sum(axis=1))
    return np.asarray(total - logits[np.arange(len(code)), code])


def winners(logits: FloatArray) -> Index:
    """Most probable class of each row from logits (n,) or (n, 1) of two classes, or (n, classes)."""
    one = logits if logits.ndim == 1 else logits[:, 0] if logits.shape[1] == 1 else None
    return logits.argmax(axis=1) if one is None else (one > 0).astype(np.int64)


def probabilities(logits: FloatArray) -> FloatArray:
    """Class probabilities (n, classes) from logits (n, 1) of two classes or (n, classes)."""
    if logits.shape[1] == 1:
        expit = late("scipy.special", "expit")

        one = expit(logits[:, 0])
        return np.column_stack([1.0 - one, one])
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))
