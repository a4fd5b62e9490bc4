"""Convenience methods that lead to a later layer: the one table of them.

`Regions.masses` needs the engines that measure, and every `.plot()` needs the pictures; both stand on what they serve.
Such a method calls the function that this table names, which is imported then and not before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reluscope._lazy import late

DOORS = {
    "Certificates.plot": "reluscope.plot.certificates:plot_certificates",
    "Complex.plot": "reluscope.plot.complexes:plot_complex",
    "Event.to_vnnlib": "reluscope.formats.vnnlib:write_vnnlib",
    "Explanation.plot": "reluscope.plot.explanations:plot_explanation",
    "Growth.plot": "reluscope.plot.invariance:plot_growth",
    "Images.plot": "reluscope.plot.regions:plot_images",
    "Intervals.plot": "reluscope.plot.explanations:plot_intervals",
    "L1Path.plot": "reluscope.plot.merged:plot_l1_path",
    "LawCheck.plot": "reluscope.plot.laws:plot_law_check",
    "Layers.plot": "reluscope.plot.layers:plot_layers",
    "Layers.plot_clouds": "reluscope.plot.layers:plot_clouds",
    "MergedModels.plot": "reluscope.plot.merged:plot_merged",
    "Network.__matmul__": "reluscope.algebra:compose",
    "Network.__sub__": "reluscope.algebra:subtract",
    "Network.save": "reluscope.formats:save",
    "Network.to_torch": "reluscope.formats.torch_module:torch_module",
    "Persistence.plot": "reluscope.plot.persistence:plot_persistence",
    "Regions.masses": "reluscope.measure.regions:region_masses",
    "Regions.plot": "reluscope.plot.regions:plot_regions",
    "Slice.plot": "reluscope.plot.regions:plot_slice",
    "Topology.plot": "reluscope.plot.complexes:plot_topology",
    "Unwrapped.plot": "reluscope.plot.local_models:plot",
}


def door(method: str) -> Callable[..., Any]:
    """The function behind a convenience method, by the name `Class.method`."""
    module, function = DOORS[method].split(":")
    return late(module, function)
