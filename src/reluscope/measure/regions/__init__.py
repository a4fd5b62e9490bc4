"""Probability of regions and polytopes under any law: masses and moments in every dimension.

- `laws`: the mass of a polytope or of regions under a law
- `masses`: batches of cells in standard coordinates, by the room that suits their dimension
- `cell_moments`, `moments`: moments of cells; of a law restricted to a polytope
- `polytopes`: masses of single polytopes, and the domains of components
- `enumeration`: a law pushed through a network: the regions of each component and their masses
"""

from reluscope.measure.regions.cell_moments import gaussian_moments, volume_moments
from reluscope.measure.regions.enumeration import Enumerated, component_masses, enumerate_law
from reluscope.measure.regions.laws import mass, region_masses
from reluscope.measure.regions.masses import added, gaussian_masses, scaled, uniform_masses
from reluscope.measure.regions.moments import moments
from reluscope.measure.regions.polytopes import component_measure, gaussian_mass, standard_domain

__all__ = [
    "Enumerated",
    "added",
    "component_masses",
    "component_measure",
    "enumerate_law",
    "gaussian_mass",
    "gaussian_masses",
    "gaussian_moments",
    "mass",
    "moments",
    "region_masses",
    "scaled",
    "standard_domain",
    "uniform_masses",
    "volume_moments",
]
