"""The last layer: the outputs as an affine function of the known features, by least squares on values.

If the fit is exact everywhere, all layers are known. If it is exact at most points only, a unit that matters in a
corner of the box is missing, and the misfits say where; if it is exact nowhere, there is a further layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reluscope._check import FloatArray
from reluscope.recovery.peel import with_one
from reluscope.recovery.trunk import Trunk
from reluscope.threads import look

_MANY, _ENOUGH, _FEW_ROUNDS = 300, 4, 3
"""Features from which least squares is dear: then so many samples for each are tried first, and few reweightings."""

_TRIMMED, _FAR = 4, 30.0
"""Fits without the samples that miss by so many times the median."""

_FEW_INPUTS = 6
"""Up to so many inputs random chords are cheap, and find more than those aimed at the samples left out."""


@dataclass(frozen=True, eq=False)
class OutputFit:
    """Rows (outputs, features + 1), the largest residual of each sample, and the share of samples that fit."""

    rows: FloatArray
    residual: FloatArray
    share: float


def fit_outputs(trunk: Trunk, U: FloatArray, Y: FloatArray, fits: float, rounds: int = 12) -> OutputFit:
    """Fit `Y = rows . (z, 1)`; reweighted so that a minority of misfits does not spoil the rest.

    Many samples of many features: if a part of the samples gives a fit of all of them, that is it.
    """
    A = with_one(trunk.features(U))
    norm = np.abs(A).max(axis=0)
    norm[norm == 0] = 1.0
    some = _ENOUGH * A.shape[1]
    if A.shape[1] > _MANY and len(A) > 2 * some and fits > 0:
        rows = (np.linalg.lstsq(A[:some] / norm, Y[:some], rcond=1e-12)[0] / norm[:, None]).T
        residual = np.abs(A @ rows.T - Y).max(axis=1)
        if residual.max() <= fits:
            return OutputFit(rows, residual, 1.0)
    weight = np.ones(len(A))
    rows, residual = np.zeros((Y.shape[1], A.shape[1])), np.full(len(A), np.inf)
    for _ in range(rounds if A.shape[1] <= _MANY else min(rounds, _FEW_ROUNDS)):
        look()
        found = np.linalg.lstsq(A / norm * weight[:, None], Y * weight[:, None], rcond=1e-12)[0]
        rows = (found / norm[:, None]).T
        residual = np.abs(A @ rows.T - Y).max(axis=1)
        if residual.max() <= fits:
            break
        weight = np.sqrt(1.0 / np.maximum(residual, max(0.1 * fits, 1e-300)))
    best = OutputFit(rows, residual, float((residual <= fits).mean()))
    for _ in range(
        _TRIMMED if rounds > 1 and best.share < 1 and A.shape[1] <= _MANY and U.shape[1] > _FEW_INPUTS else 0
    ):
        look()  # reweighting comes near to what most samples agree on; without the others it is there at once
        kept = residual <= max(_FAR * float(np.median(residual)), fits)
        if kept.all() or kept.sum() < 2 * A.shape[1]:
            break
        rows = (np.linalg.lstsq(A[kept] / norm, Y[kept], rcond=1e-12)[0] / norm[:, None]).T
        residual = np.abs(A @ rows.T - Y).max(axis=1)
        share = float((residual <= fits).mean())
        if share > best.share:
            best = OutputFit(rows, residual, share)
    return best
