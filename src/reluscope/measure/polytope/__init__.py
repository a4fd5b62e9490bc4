"""Gaussian masses of polytopes in any dimension, by tilted quasi-Monte Carlo or rays.

- `masses`: the masses and moments that others ask for
- `shared_error`: one tolerance for the masses of many polytopes
- `estimate`: the kernel of one mass: pilot, replicates, stopping
- `families`, `lanes`: draws from the tilted and the guided family, many side by side
- `tilt`: rows made triangular, fitted Gaussians, the tilt
- `rays`: random directions with exact radial integration
- `nearest`: the distance to a polytope, for a bound of a mass that no point has met
- `sobol`: tables of Sobol points, and their scrambles
"""

from reluscope.measure.polytope.masses import METHODS, polytope_masses, polytope_moments
from reluscope.measure.polytope.shared_error import measure_together
from reluscope.measure.polytope.sobol import DIGITS, DirectionTable, direction_table, scramble, trailing_ones
from reluscope.measure.polytope.tilt import fast_quantile

__all__ = [
    "DIGITS",
    "METHODS",
    "DirectionTable",
    "direction_table",
    "fast_quantile",
    "measure_together",
    "polytope_masses",
    "polytope_moments",
    "scramble",
    "trailing_ones",
]
