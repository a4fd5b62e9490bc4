"""Reluscope: what a trained ReLU network does, where, and how likely that is.

The public names below are imported when they are first used, so `import reluscope` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from reluscope._version import __version__ as __version__

if TYPE_CHECKING:
    from reluscope import invariance as invariance
    from reluscope import lens as lens
    from reluscope.activations import Activation as Activation
    from reluscope.answer import Answer as Answer
    from reluscope.answers.change import change as change
    from reluscope.answers.functions import functions as functions
    from reluscope.answers.outputs import error_rates as error_rates
    from reluscope.answers.outputs import outputs as outputs
    from reluscope.answers.probability import probability as probability
    from reluscope.answers.probable import probable as probable
    from reluscope.answers.sensitivity import compare as compare
    from reluscope.answers.sensitivity import sensitivity as sensitivity
    from reluscope.answers.spectrum import spectrum as spectrum
    from reluscope.answers.support import support as support
    from reluscope.answers.witness import witness as witness
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
    from reluscope.events.record import Event as Event
    from reluscope.events.record import event as event
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
    from reluscope.local_models.estimators import LocalLinearClassifier as LocalLinearClassifier
    from reluscope.local_models.estimators import LocalLinearRegressor as LocalLinearRegressor
    from reluscope.local_models.estimators import ReluClassifier as ReluClassifier
    from reluscope.local_models.estimators import ReluRegressor as ReluRegressor
    from reluscope.local_models.l1_path import l1_path as l1_path
    from reluscope.local_models.merge import MergedModels as MergedModels
    from reluscope.local_models.unwrap import unwrap as unwrap
    from reluscope.measure.regions.laws import mass as mass
    from reluscope.measure.regions.moments import moments as moments
    from reluscope.network import Network as Network
    from reluscope.recovery.oracle import Oracle as Oracle
    from reluscope.recovery.recover import Recovered as Recovered
    from reluscope.recovery.recover import recover as recover
    from reluscope.recovery.surrogate import Surrogate as Surrogate
    from reluscope.reporting.page import report as report
    from reluscope.representation.dimensions import dimensions as dimensions
    from reluscope.representation.distortion import distortion as distortion
    from reluscope.representation.layers import layers as layers
    from reluscope.representation.rays import rays as rays

_HOME = {
    "Activation": "reluscope.activations",
    "Answer": "reluscope.answer",
    "Event": "reluscope.events.record",
    "Gaussian": "reluscope.inputs",
    "GaussianMixture": "reluscope.inputs",
    "InputError": "reluscope.errors",
    "InputLimitError": "reluscope.errors",
    "Limits": "reluscope.limits",
    "LocalLinearClassifier": "reluscope.local_models.estimators",
    "LocalLinearRegressor": "reluscope.local_models.estimators",
    "MergedModels": "reluscope.local_models.merge",
    "MissingExtraError": "reluscope.errors",
    "Network": "reluscope.network",
    "Oracle": "reluscope.recovery.oracle",
    "Particles": "reluscope.inputs",
    "Recovered": "reluscope.recovery.recover",
    "Regions": "reluscope.cells.regions",
    "ReluClassifier": "reluscope.local_models.estimators",
    "ReluRegressor": "reluscope.local_models.estimators",
    "ReluscopeError": "reluscope.errors",
    "ReluscopeWarning": "reluscope.errors",
    "Surrogate": "reluscope.recovery.surrogate",
    "Truncated": "reluscope.inputs",
    "Uniform": "reluscope.inputs",
    "UnsupportedError": "reluscope.errors",
    "along": "reluscope.cells.along",
    "change": "reluscope.answers.change",
    "compare": "reluscope.answers.sensitivity",
    "dimensions": "reluscope.representation.dimensions",
    "distance": "reluscope.cells.compare",
    "distortion": "reluscope.representation.distortion",
    "equivalent": "reluscope.cells.compare",
    "error_rates": "reluscope.answers.outputs",
    "event": "reluscope.events.record",
    "example": "reluscope.examples",
    "functions": "reluscope.answers.functions",
    "hyperplane_intersection": "reluscope.cells.hyperplanes",
    "kde": "reluscope.inputs",
    "layers": "reluscope.representation.layers",
    "l1_path": "reluscope.local_models.l1_path",
    "load": "reluscope.formats",
    "mass": "reluscope.measure.regions.laws",
    "moments": "reluscope.measure.regions.moments",
    "outputs": "reluscope.answers.outputs",
    "polyhedral_complex": "reluscope.cells.complex",
    "probability": "reluscope.answers.probability",
    "probable": "reluscope.answers.probable",
    "rays": "reluscope.representation.rays",
    "recover": "reluscope.recovery.recover",
    "regions": "reluscope.cells.regions",
    "sensitivity": "reluscope.answers.sensitivity",
    "report": "reluscope.reporting.page",
    "spectrum": "reluscope.answers.spectrum",
    "standard": "reluscope.inputs",
    "support": "reluscope.answers.support",
    "stream_regions": "reluscope.cells.regions",
    "unwrap": "reluscope.local_models.unwrap",
    "vnnlib": "reluscope.formats.vnnlib",
    "witness": "reluscope.answers.witness",
}

_MODULES = ("invariance", "lens")
"""Sub-packages that are public as they are: `reluscope.invariance.is_invariant`."""

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"reluscope.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'reluscope' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
