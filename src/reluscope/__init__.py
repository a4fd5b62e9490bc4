"""Reluscope: what a trained ReLU network does, where, and how likely that is.

The public names below are imported when they are first used, so `import reluscope` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from reluscope._version import __version__ as __version__

if TYPE_CHECKING:
    from reluscope.activations import Activation as Activation
    from reluscope.answer import Answer as Answer
    from reluscope.answers.change import change as change
    from reluscope.answers.functions import functions as functions
    from reluscope.answers.outputs import error_rates as error_rates
    from reluscope.answers.outputs import outputs as outputs
    from reluscope.answers.probable import probable as probable
    from reluscope.answers.spectrum import spectrum as spectrum
    from reluscope.answers.support import support as support
    from reluscope.cells.along import along as along
    from reluscope.cells.compare import distance as distance
    from reluscope.cells.compare import equivalent as equivalent
    from reluscope.cells.complex import polyhedral_complex as polyhedral_complex
    from reluscope.cells.hyperplanes import hyperplane_intersection as hyperplane_intersection
    from reluscope.cells.regions import Regions as Regions
    from reluscope.cells.regions import regions as regions
    from reluscope.cells.regions import stream_regions as stream_regions
    from reluscope.errors import InputError as InputError
    from reluscope.errors import InputLimitError as InputLimitError
    from reluscope.errors import MissingExtraError as MissingExtraError
    from reluscope.errors import ReluscopeError as ReluscopeError
    from reluscope.errors import ReluscopeWarning as ReluscopeWarning
    from reluscope.errors import UnsupportedError as UnsupportedError
    from reluscope.examples import example as example
    from reluscope.formats import load as load
    from reluscope.formats.vnnlib import vnnlib as vnnlib
    from reluscope.inputs import Gaussian as Gaussian
    from reluscope.inputs import GaussianMixture as GaussianMixture
    from reluscope.inputs import Particles as Particles
    from reluscope.inputs import Truncated as Truncated
    from reluscope.inputs import Uniform as Uniform
    from reluscope.inputs import kde as kde
    from reluscope.inputs import standard as standard
    from reluscope.limits import Limits as Limits
    from reluscope.measure.moments import moments as moments
    from reluscope.measure.region_masses import mass as mass
    from reluscope.network import Network as Network

_HOME = {
    "Activation": "reluscope.activations",
    "Answer": "reluscope.answer",
    "Gaussian": "reluscope.inputs",
    "GaussianMixture": "reluscope.inputs",
    "InputError": "reluscope.errors",
    "InputLimitError": "reluscope.errors",
    "Limits": "reluscope.limits",
    "MissingExtraError": "reluscope.errors",
    "Network": "reluscope.network",
    "Particles": "reluscope.inputs",
    "Regions": "reluscope.cells.regions",
    "ReluscopeError": "reluscope.errors",
    "ReluscopeWarning": "reluscope.errors",
    "Truncated": "reluscope.inputs",
    "Uniform": "reluscope.inputs",
    "UnsupportedError": "reluscope.errors",
    "along": "reluscope.cells.along",
    "change": "reluscope.answers.change",
    "distance": "reluscope.cells.compare",
    "equivalent": "reluscope.cells.compare",
    "error_rates": "reluscope.answers.outputs",
    "example": "reluscope.examples",
    "functions": "reluscope.answers.functions",
    "hyperplane_intersection": "reluscope.cells.hyperplanes",
    "kde": "reluscope.inputs",
    "load": "reluscope.formats",
    "mass": "reluscope.measure.region_masses",
    "moments": "reluscope.measure.moments",
    "outputs": "reluscope.answers.outputs",
    "polyhedral_complex": "reluscope.cells.complex",
    "probable": "reluscope.answers.probable",
    "regions": "reluscope.cells.regions",
    "spectrum": "reluscope.answers.spectrum",
    "standard": "reluscope.inputs",
    "support": "reluscope.answers.support",
    "stream_regions": "reluscope.cells.regions",
    "vnnlib": "reluscope.formats.vnnlib",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'reluscope' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
