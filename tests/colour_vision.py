"""How colours look to eyes that lack a cone, and how far apart they are: CIE 1976 differences in Lab.

The matrices are those of Machado, Oliveira and Fernandes (2009) for full severity, on linear RGB.
"""

from __future__ import annotations

import numpy as np

SIMULATED = {
    "all cones": np.eye(3),
    "no long": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no medium": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no short": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]


def lab(linear):
    x = linear @ np.array(_XYZ).T / [0.95047, 1.0, 1.08883]
    f = np.where(x > 216 / 24389, np.cbrt(x), (24389 / 27 * x + 16) / 116)
    return np.stack([116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], axis=-1)


def differences(colours):
    """The smallest difference of each pair of colours (n, 3) over the four kinds of eyes, (n, n)."""
    c = np.asarray(colours) / 255.0
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    found = []
    for matrix in SIMULATED.values():
        seen = lab(np.clip(linear @ np.asarray(matrix).T, 0.0, 1.0))
        found.append(np.linalg.norm(seen[:, None] - seen[None], axis=-1))
    return np.min(found, axis=0)
