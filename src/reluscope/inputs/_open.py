"""Laws written by users: draws are enough for answers with a confidence level."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from reluscope._check import FloatArray
from reluscope.errors import InputError
from reluscope.inputs._law import Box, Law


class OpenLaw(Law):
    """A law of your own: write `n` and `_sample`, and `rs.probability` counts its draws.

    - `n` and `_sample(count, rng)`, which returns independent rows (count, n), give `law.sample` and `rs.probability`
      with the guarantee "confidence": counted draws and an exact binomial interval.
    - `_log_density(X)`, one number per row, gives `law.log_density`; `_cdf(t, i, strict)` gives `law.cdf`.
    - `mean`, `variance` (and `cov`) give moments; they are never used in place of draws.
    - `support()` is the box outside of which there is no mass: all of space unless you say so. Parts of an event that
      it excludes are dropped, so it must hold.

    The guarantees "exact" and "sound" need a law that the engines know: made of Gaussians, uniform or truncated ones,
    or points. `rs.Copula` makes such a law from any distributions of single inputs (`scipy.stats`), and states its
    error.

    Examples
    --------
    >>> import numpy as np, reluscope as rs
    >>> from reluscope.inputs import OpenLaw
    >>> class Laplace(OpenLaw):
    ...     n = 2
    ...     def _sample(self, count, rng):
    ...         return rng.laplace(size=(count, 2))
    >>> net = rs.Network([([[1.0, 1.0]], None)])
    >>> answer = rs.probability(net, Laplace(), "y[0] > 0", tolerance=0.02, rng=0)
    >>> answer.guarantee, bool(answer.lower <= 0.5 <= answer.upper)
    ('confidence', True)
    """

    kind: ClassVar[str] = "open"

    @abstractmethod
    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray: ...

    def sample(self, n: int, rng: Any = None) -> FloatArray:
        """Independent draws, checked: `n` rows of finite numbers.

        Parameters
        ----------
        n : int
            How many.
        rng : None, int, SeedSequence or Generator
            Source of randomness.

        Returns
        -------
        array, shape (n, inputs)
        """
        try:
            drawn = np.asarray(super().sample(n, rng), dtype=np.float64)
        except (AttributeError, TypeError) as error:
            raise InputError(
                f"_sample of {type(self).__name__} failed ({str(error)[:120]}); it is called as _sample(count, rng), a "
                "number and a numpy Generator, in this order"
            ) from error
        if drawn.shape != (n, self.n):
            raise InputError(
                f"_sample of {type(self).__name__} must return an array of shape ({n}, {self.n}), got {drawn.shape}"
            )
        if not np.isfinite(drawn).all():
            raise InputError(f"_sample of {type(self).__name__} must return finite numbers, got nan or inf")
        return drawn

    @property
    def mean(self) -> FloatArray:
        """E x, if the law says so."""
        raise self._unsaid("mean")

    @property
    def variance(self) -> FloatArray:
        """The variance of each input, if the law says so."""
        raise self._unsaid("variance")

    def support(self) -> Box:
        """All of space, unless the law says more."""
        return np.full(self.n, -np.inf), np.full(self.n, np.inf)

    def far_box(self) -> Box:
        """A finite box with all of the mass, if the law says so."""
        raise self._unsaid("far_box")

    def to_dict(self) -> dict[str, Any]:
        """Not for a law that is a piece of code."""
        raise InputError(f"{type(self).__name__} is code of your own: it cannot be written to JSON")

    def _log_density(self, x: FloatArray) -> FloatArray:
        raise self._unsaid("_log_density")

    def _cdf(self, t: FloatArray, i: int, strict: bool) -> FloatArray:
        raise self._unsaid("_cdf")

    def _unsaid(self, name: str) -> InputError:
        return InputError(
            f"the law {type(self).__name__} does not say its {name.strip('_').replace('_', ' ')}: write {name} in its "
            "class, or ask for what its draws can tell (rs.probability with guarantee='confidence')"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n} inputs, open)"
