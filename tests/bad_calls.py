"""Bad calls, made from signatures: one argument of a good call is replaced by something that cannot be meant.

`SUBJECTS` has a good call of every public function, class and method; `test_bad_calls.py` fails if one is missing.
As a program this makes all calls and prints each that ended in anything but an `InputError` (or a result).
"""

from __future__ import annotations

import inspect
import json
import re
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

import reluscope as rs
from reluscope import invariance, lens, recovery, representation
from reluscope.answer import Answers
from reluscope.lens.ablation import Ablation
from reluscope.lens.attribution import Attribution
from reluscope.lens.bridge import LocalMap
from reluscope.lens.channels import Strongest
from reluscope.lens.interventions import Patching
from reluscope.lens.logits import LogitLens
from reluscope.lens.receptive import EffectiveField, ReceptiveField

NET = rs.Network([([[1.0, 0.5], [-1.0, 1.0]], [0.1, 0.2]), ([[1.0, 1.0]], [0.0])])
TWO = rs.Network([([[1.0, 0.5], [-1.0, 1.0]], [0.1, 0.2]), ([[1.0, 1.0], [0.5, -1.0]], [0.0, 0.1])])
LAW = rs.Gaussian([0.0, 0.0])
MIXTURE = rs.GaussianMixture([0.5, 0.5], [LAW, rs.Gaussian([1.0, 0.0])])
X = np.random.default_rng(0).normal(size=(30, 2))
Y = (X[:, 0] > 0).astype(int)
ROWS = [[1.0, 0.0]]
PATTERN = NET.pattern(X[:1])[0]
BOX = (-1.0, 1.0)
MARGINAL = rs.Marginal([-1.0, 1.0], [0.0, 2.0])
FOLDER = Path(tempfile.mkdtemp(prefix="bad_calls_"))
(FOLDER / "law.json").write_text(json.dumps(LAW.to_dict()))
INSTANCE = {"network": NET, "law": LAW, "event": "y[0] > 1"}
FRAMES = FOLDER / "frames.npy"
np.save(FRAMES, np.zeros((3, 4, 4, 3), np.uint8))
TABLE = pd.DataFrame(X, columns=["a", "b"])
IMAGE = np.random.default_rng(1).random((8, 8, 3))


@dataclass(frozen=True)
class Subject:
    """A callable and the arguments of a good call."""

    call: Callable[..., Any]
    good: dict[str, Any]


# -- what methods belong to ---------------------------------------------------------------------------------------


FIELD = ReceptiveField("conv", "Conv", (3, 3), (1.0, 1.0), (0.0, 0.0), False, (), (), (8, 8))
RECORDING = lens.Recording(np.full((9, 2, 4), 0.25), ("0.0", "0.1"), "memory", np.ones((9, 2, 3)))


@cache
def found(name: str) -> Any:
    """A result that has methods, made once."""
    recipes: dict[str, Callable[[], Any]] = {
        "answer": lambda: rs.Answer(0.5, 0.4, 0.6, "sound"),
        "answers": lambda: Answers(np.full(3, 0.5), np.full(3, 0.4), np.full(3, 0.6), "sound"),
        "batch": lambda: rs.batch([INSTANCE], FOLDER / "kept.sqlite"),
        "certificates": lambda: rs.certify(TWO, X[:3], 0.1),
        "agreement": lambda: rs.agreement(NET, TWO.select_outputs(0), LAW, rng=0),
        "linear_models": lambda: rs.linear_models(NET, LAW, rng=0),
        "outputs": lambda: rs.outputs(NET, LAW, rng=0),
        "joint": lambda: rs.outputs(TWO, LAW, rng=0),
        "mixture": lambda: found("joint").mixture,
        "law": lambda: LAW,
        "spectrum": lambda: rs.spectrum(NET, LAW, draws=200, rng=0),
        "support": lambda: rs.support(NET, LAW),
        "paths": lambda: rs.along(NET, [0.0, 0.0], [1.0, 1.0]),
        "complex": lambda: rs.polyhedral_complex(NET, BOX),
        "persistence": lambda: rs.persistence(NET, BOX),
        "topology": lambda: rs.topology(NET, BOX),
        "slice": lambda: rs.slice(NET, [[0.0, 0.0], [1.0, 0.5], [0.0, 1.0]]),
        "bent": lambda: found("complex").bent_hyperplane(0, 0),
        "level set": lambda: found("complex").level_set(value=0.5),
        "regions": lambda: rs.regions(NET, BOX),
        "reachable": lambda: rs.reachable(NET, BOX),
        "images": lambda: found("reachable")[0],
        "event": lambda: rs.event("y[0] > 0.5", 2, 1),
        "coded": lambda: invariance.Coded.start(LAW),
        "clamped": lambda: invariance.Clamped(rs.Gaussian([0.0])),
        "schema": lambda: rs.Schema((rs.Column("a"), rs.Column("b")), (rs.Output("out"),)),
        "unwrapped": lambda: rs.unwrap(TWO, X, Y),
        "merged": lambda: found("unwrapped").merge(2),
        "outcome": lambda: found("unwrapped").outcome(X, Y, min_rows=2),
        "cluster explanation": lambda: found("merged").explain(X[0]),
        "surrogate": lambda: rs.recover(NET, BOX, method="regions", rng=0, budget="5s").result,
        "recovered": lambda: rs.recover(NET, BOX, rng=0, budget="5s"),
        "layers": lambda: rs.layers(NET, X, rng=0),
        "rays": lambda: representation.rays(NET),
        "recording": lambda: RECORDING,
        "report": lambda: rs.report(NET, LAW, budget="1s", rng=0),
        "profile": lambda: found("unwrapped").profile(0),
        "explanation": lambda: found("unwrapped").explain(X[0]),
        "contributions": lambda: found("unwrapped").contributions(X),
        "reasons": lambda: found("unwrapped").reasons(X),
        "intervals": lambda: found("unwrapped").intervals(0, penalty=1.0, rng=0),
        "path": lambda: rs.l1_path(X, Y, [0.0, 0.01], hidden=(4,), rng=0, epochs=2),
        "classifier": lambda: rs.ReluClassifier((4,), epochs=2, random_state=0).fit(X, Y),
        "regressor": lambda: rs.ReluRegressor((4,), epochs=2, random_state=0).fit(X, X[:, 0]),
        "local classifier": lambda: rs.LocalLinearClassifier(2, hidden=(4,), epochs=2, random_state=0).fit(X, Y),
        "oracle": lambda: rs.Oracle(NET, gradient=True),
        "polytope": lambda: NET.polytope(PATTERN),
        "patterns": lambda: lens.detect_patterns(found("recording")),
        "law check": lambda: LAW.check(X, draws=500, rng=0),
        "sequence": lambda: lens.Recording(np.full((5, 2, 5), 0.2), ("0.0", "0.1"), "sequence"),
        "ablation": lambda: Ablation(("0.0", "0.1"), np.ones((2, 3))),
        "patching": lambda: Patching(("a",), ("b", "c"), np.ones((1, 2)), 1.0, 0.0, "corrupted"),
        "logit lens": lambda: LogitLens(("a",), np.log(np.full((1, 2, 3), 1 / 3)), (), 0.0),
        "attribution": lambda: Attribution("exact", np.ones(3), 1.0, 0.0, 0.0, 0.0, 0, "exact"),
        "field": lambda: EffectiveField(FIELD, 1, 1, np.ones((8, 8)), 1.0, 0.0),
        "strongest": lambda: Strongest("conv", np.ones(1), np.array([[0, 1, 1]]), np.ones((8, 8)), FIELD),
        "local map": lambda: LocalMap(IMAGE, np.ones(1), (0,), np.ones((1, 8, 8, 3)), np.zeros(1), 0.0),
        "growth": lambda: invariance.growth(NET, rs.Gaussian([0.0, 0.0])),
        "evaluation": lambda: found("unwrapped").evaluate(X, Y),
        "colours": lambda: None,
        "domain": lambda: found("regions").domain,
        "onnx": lambda: _onnx(),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return recipes[name]()


def _onnx() -> Path:
    """A small convolution as an ONNX file."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    kernel = np.random.default_rng(0).normal(size=(2, 3, 3, 3)).astype(np.float32)
    dense = np.random.default_rng(1).normal(size=(2, 2 * 6 * 6)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "k"], ["c"], name="conv"),
            helper.make_node("Relu", ["c"], ["r"], name="relu"),
            helper.make_node("Flatten", ["r"], ["f"], name="flat"),
            helper.make_node("Gemm", ["f", "d"], ["y"], name="dense", transB=1),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])],
        [numpy_helper.from_array(kernel, "k"), numpy_helper.from_array(dense, "d")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = FOLDER / "small.onnx"
    onnx.save(model, path)
    return path


# -- good calls ---------------------------------------------------------------------------------------------------

KEPT = rs.record(NET, LAW, "y > 0", rs.probability(NET, LAW, "y > 0", rng=0))
QUESTION: dict[str, Any] = {"net": NET, "law": LAW, "event": "y > 0", "rng": 0}
RECIPE: dict[str, Any] = {"hidden": (4,), "epochs": 2}

FUNCTIONS: dict[str, dict[str, Any]] = {
    "Activation": {"breaks": (0.0,), "slopes": (0.0, 1.0), "intercepts": (0.0, 0.0)},
    "Answer": {"value": 0.5, "lower": 0.4, "upper": 0.6, "guarantee": "exact"},
    "Categorical": {"levels": ["a", "b"], "probabilities": [0.5, 0.5]},
    "Column": {"name": "a"},
    "Copula": {"marginals": [MARGINAL, MARGINAL]},
    "Event": {"text": "always", "n_inputs": 1, "n_outputs": 1, "cases": ()},
    "Gaussian": {"mean": [0.0, 0.0]},
    "GaussianMixture": {"weights": [1.0], "components": [LAW]},
    "Limits": {},
    "Marginal": {"scores": [-1.0, 1.0], "values": [0.0, 2.0]},
    "Mixture": {"weights": [1.0], "components": [LAW]},
    "Network": {"layers": [([[1.0]], [0.0]), ([[1.0]], [0.0])]},
    "Oracle": {"function": NET},
    "Output": {"name": "out"},
    "Particles": {"X": X},
    "Schema": {"columns": (rs.Column("a"),)},
    "Truncated": {"gaussian": LAW, "lower": [-1.0, -1.0], "upper": [1.0, 1.0]},
    "Uniform": {"lower": [0.0], "upper": [1.0]},
    "agreement": {"net": NET, "other": NET, "law": LAW, "budget": "1s", "rng": 0},
    "along": {"net": NET, "a": [0.0, 0.0], "b": [1.0, 1.0]},
    "batch": {"instances": [INSTANCE], "results": FOLDER / "batch.sqlite", "budget": "1s", "rng": 0},
    "certify": {"net": TWO, "X": X[:2], "sigma": 0.1},
    "change": {"net": NET, "law": LAW, "features": [0], "draws": 100, "rng": 0},
    "fairness": {
        "net": rs.Network(
            [([[0.5, 0.0, 1.0]], [-1.0])],
            schema=rs.Schema([rs.Column("SEX", "category", levels=["f", "m"]), "income"], ["score"], ["no", "yes"]),
        ),
        "law": np.array([[1.0, 0.0, 0.8], [0.0, 1.0, 0.8], [1.0, 0.0, 2.0], [0.0, 1.0, 2.0]]),
        "feature": "SEX",
        "y": ["no", "yes", "yes", "no"],
        "rng": 0,
    },
    "closed_loop": {"controller": NET, "A": np.eye(2), "B": [[0.0], [1.0]], "steps": 2, "disturbance": np.eye(2)},
    "compare": {"net": NET, "law": LAW, "other_law": LAW, "event": "y > 0", "rng": 0},
    "distance": {"net": NET, "other": NET, "box": BOX},
    "equivalent": {"net": NET, "other": NET, "box": BOX},
    "counterfactuals": {"net": NET, "X": X[:2], "budget": "1s"},
    "error_rates": {"net": NET, "laws": (LAW, LAW)},
    "event": {"text": "y > 0", "n_inputs": 2, "n_outputs": 1},
    "example": {"name": "moons"},
    "fit": {"table": TABLE},
    "kde": {"X": X},
    "l1_path": {"X": X, "y": Y, "penalties": [0.0], "rng": 0, **RECIPE},
    "layers": {"net": NET, "X": X, "rng": 0, "directions": 4, "pairs": 10, "jacobians": 2, "cloud": 10},
    "linear_models": {"net": NET, "law": LAW, "rng": 0},
    "load": {"model": NET},
    "monotone": {"net": NET, "law": LAW, "places": 0, "rng": 0},
    "mass": {"A": ROWS, "b": [0.0], "law": LAW, "rng": 0},
    "outputs": {"net": NET, "law": LAW, "rng": 0},
    "persistence": {"net": NET, "box": BOX},
    "polyhedral_complex": {"net": NET, "box": BOX},
    "reachable": {"net": NET, "box": BOX},
    "lipschitz": {"net": NET, "box": BOX},
    "sup_norm": {"net": NET, "radius": 1.0},
    "parallel": {"nets": [NET, NET]},
    "probability": QUESTION,
    "probable": {"net": NET, "law": LAW, "k": 2, "draws": 100, "rng": 0},
    "quantised": {"net": NET},
    "record": {"net": NET, "law": LAW, "event": "y > 0", "answer": rs.Answer(0.5, 0.4, 0.6, "sound")},
    "recover": {"oracle": NET, "box": BOX, "check": 100, "rng": 0, "budget": "2s"},
    "regions": {"net": NET, "box": BOX},
    "replay": {"record": KEPT, "net": NET},
    "report": {"net": NET, "law": LAW, "budget": "0.2s", "rng": 0},
    "robust": {"net": NET, "law": LAW, "radius": 0.1, "draws": 20, "rng": 0},
    "sensitivity": QUESTION,
    "slice": {"net": NET, "points": [[0.0, 0.0], [1.0, 0.5], [0.0, 1.0]]},
    "spectrum": {"net": NET, "law": LAW, "draws": 100, "rng": 0},
    "stack": {"nets": [NET, NET]},
    "stream_regions": {"net": NET, "box": BOX},
    "support": {"net": NET, "law": LAW},
    "topology": {"net": NET, "box": BOX},
    "unwrap": {"model": TWO, "X": X, "y": Y},
    "vnnlib": {"source": "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (<= Y_0 0))"},
    "witness": QUESTION,
    "cells.hyperplane_intersection": {"A": ROWS, "b": [0.0]},
    "cells.general_position": {"A": ROWS, "b": [0.0]},
    "cells.backward_patterns": {
        "net": rs.Network([([[1.0], [-1.0]], [0.0, 0.5]), ([[1.0, 1.0]], None)]),
        "box": (-1, 1),
    },
    "formats.save": {"net": NET, "path": FOLDER / "net.npz"},
    "inputs.check_law": {"law": LAW, "net": NET},
    "inputs.classes_from_dict": {"data": LAW.to_dict()},
    "inputs.classes_from_json": {"path": FOLDER / "law.json"},
    "inputs.known_law": {"law": LAW, "net": NET},
    "inputs.law_from_dict": {"data": LAW.to_dict()},
    "inputs.law_from_json": {"path": FOLDER / "law.json"},
    "inputs.standard": {"law": LAW, "net": NET},
    "invariance.Clamped": {"base": rs.Gaussian([0.0])},
    "invariance.CodedFamily": {"n": 2},
    "invariance.FiniteSupport": {"n": 2, "points": 3},
    "invariance.Gaussians": {"n": 2},
    "invariance.Mixtures": {"n": 2, "k": 2},
    "invariance.WidthOne": {},
    "invariance.decode": {"theta": invariance.encode([([[1.0]], [0.0])])},
    "invariance.encode": {"layers": [([[1.0]], [0.0])]},
    "invariance.growth": {"net": NET, "law": LAW},
    "invariance.is_invariant": {"family": invariance.Gaussians(2), "trials": 2, "rng": 0},
    "invariance.lipschitz_quotients": {"depths": (1, 2)},
    "invariance.push": {"law": rs.Particles(X), "net": NET},
    "invariance.relu_moments": {"mean": np.zeros(2), "cov": np.eye(2)},
    "formats.register_format": {"ending": ".nothing", "loader": print, "replace": True},
    "formats.register_operation": {
        "rule": rs.Activation((0.0,), (0.0, 1.0), (0.0, 0.0)),
        "onnx": "Nothing",
        "replace": True,
    },
    "lens.Recording": {"weights": np.full((6, 2, 4), 0.25), "heads": ("0.0", "0.1"), "kind": "memory"},
    "lens.channel": {"layer": "conv", "index": 0},
    "lens.attention_change": {"first": RECORDING, "second": RECORDING},
    "lens.edit_stream": {"frames": np.ones((6, 2)), "edit": "shuffle", "start": 1, "stop": 3, "rng": 0},
    "lens.crops": {"images": [IMAGE], "size": (4, 4), "count": 2, "rng": 0},
    "lens.direction": {"layer": "conv", "vector": [1.0, 0.0]},
    "lens.load_frames": {"source": FRAMES},
    "lens.load_recording": {"folder": FOLDER / "recording"},
    "lens.overlay": {"image": IMAGE, "maps": np.ones((2, 6, 6))},
    "lens.resize": {"images": IMAGE[None], "size": (4, 4)},
    "lens.write_study": {"path": FOLDER / "study.html", "title": "a study"},
    "measure.moments": {"A": ROWS, "b": [0.0], "law": LAW, "rng": 0},
    "plot.plot_attributions": {
        "attributions": [Attribution("occlusion", np.ones((8, 8, 3)), 1.0, 0.0, 0.0, 0.0, 0, "estimate")],
        "image": IMAGE,
    },
    "plot.plot_channels": {"maps": np.ones((2, 4, 4))},
    "plot.plot_kernels": {"kernels": np.ones((2, 3, 4, 4))},
    "plot.plot_pictures": {"pictures": np.ones((2, 4, 4, 3))},
    "plot.plot_frame_strip": {"frames": np.ones((9, 4, 4, 3))},
    "representation.dimensions": {"net": NET, "box": BOX},
    "representation.distortion": {"layer": NET},
    "representation.rays": {"net": NET, "rng": 0},
}
"""A good call of each public function, and of each class that users make themselves."""

LOCAL_PICTURES = [
    "models_2d",
    "parallel",
    "violin",
    "importance",
    "profile",
    "partial",
    "pair",
    "performance",
    "bubble",
    "instances",
    "local_lines",
]
LAYER_PICTURES = [
    "layers",
    "activity",
    "heat",
    "ranks",
    "width",
    "dimensions",
    "angles",
    "distances",
    "geometry",
    "clouds",
]

RECORDS: dict[str, tuple[str, dict[str, Any]]] = {
    "lens.detect_patterns": ("recording", {}),
    "lens.associate_events": ("recording", {"events": {"late": np.arange(9) > 4}}),
    "plot.plot_cdf": ("outputs", {}),
    "plot.plot_complex": ("complex", {}),
    "plot.plot_joint_pdf": ("joint", {}),
    "plot.plot_law": ("law", {}),
    "plot.plot_function": ("paths", {}),
    "plot.plot_masses": ("linear_models", {}),
    "plot.plot_pdf": ("outputs", {}),
    "plot.plot_regions": ("regions", {}),
    "plot.plot_images": ("images", {}),
    "plot.plot_spectrum": ("spectrum", {}),
    "plot.plot_slice": ("slice", {"box": BOX}),
    "plot.plot_persistence": ("persistence", {}),
    "plot.plot_topology": ("topology", {}),
    "plot.plot_certificates": ("certificates", {}),
    "plot.plot_growth": ("growth", {}),
    "plot.plot_law_check": ("law check", {}),
    **{f"plot.plot_{name}": ("unwrapped", {}) for name in LOCAL_PICTURES},
    **{f"plot.plot_{name}": ("layers", {}) for name in LAYER_PICTURES},
    "plot.plot_column": ("layers", {"column": "mean_norm"}),
    "plot.plot_merged": ("merged", {}),
    "plot.plot_l1_path": ("path", {}),
    "plot.plot_explanation": ("explanation", {}),
    "plot.plot_intervals": ("intervals", {}),
    "plot.plot_attention": ("recording", {}),
    "plot.plot_heads": ("recording", {}),
    "plot.plot_trajectory": ("recording", {"frames": np.ones((9, 4, 4, 3)), "head": "0.0"}),
    "plot.plot_attended": ("recording", {"frames": np.ones((9, 4, 4, 3)), "step": 3}),
    "plot.plot_z_scores": ("recording", {"head": "0.0"}),
    "plot.plot_on_image": ("sequence", {"image": IMAGE}),
    "plot.plot_ablation": ("ablation", {}),
    "plot.plot_patching": ("patching", {}),
    "plot.plot_logit_lens": ("logit lens", {}),
    "plot.plot_attribution": ("attribution", {}),
    "plot.plot_field": ("field", {}),
    "plot.plot_strongest": ("strongest", {"image": IMAGE}),
    "plot.plot_templates": ("local map", {}),
}
"""Functions whose first argument is a result."""

ESTIMATORS = ("LocalLinearClassifier", "LocalLinearRegressor", "ReluClassifier", "ReluRegressor")
"""scikit-learn checks arguments in `fit`: a bad one is given to the class, and the object is fitted."""

LAWS = {
    "Gaussian": LAW,
    "Mixture": MIXTURE,
    "Truncated": rs.Truncated(LAW, -1.0, 1.0),
    "Uniform": rs.Uniform([0, 0], 1),
}
METHODS: dict[str, dict[str, dict[str, Any]]] = {
    "outcome": {"calibration": {"bins": 3}, "weak": {"n": 2}},
    "cluster explanation": {"rows": {}},
    "batch": {
        "record": {"row": 0}, "__getitem__": {"row": 0},
        "save_csv": {"path": FOLDER / "batch.csv"},
        "save_page": {"path": FOLDER / "batch.html"},
    },
    "answer": {"certainly_above": {"x": 0.3}, "certainly_below": {"x": 0.7}},
    "answers": {"certainly_above": {"x": 0.3}, "certainly_below": {"x": 0.7}, "__getitem__": {"index": 0}},
    "agreement": {"distance": {"p": 2}},
    "certificates": {"share": {"sigma": 0.1}, "box_share": {"sigma": 0.1}},
    "linear_models": {
        "top": {"k": 3}, "mass": {"pattern": PATTERN}, "sample": {"n": 5, "rng": 0}, "distinct_linear_models": {},
    },
    "outputs": {
        "cdf": {"t": 0.5}, "sf": {"t": 0.5}, "pdf": {"t": 0.5}, "atoms": {}, "quantile": {"q": 0.5},
        "probability": {"rows": ([[1.0]], [0.5])}, "hidden": {"layer": 0}, "joint_pdf": {"y": [0.5]},
    },
    "spectrum": {
        "cdf": {"t": 0.5}, "tail": {"t": 0.5}, "band": {}, "quantile": {"q": 0.5}, "mean": {}, "histogram": {"bins": 3},
    },
    "mixture": {
        "density": {"i": 0, "y": [0.5, 0.5]}, "half_spaces": {"i": 0}, "subspace": {"i": 0}, "vertices": {"i": 0},
    },
    "support": {
        "contains": {"patterns": PATTERN[None]}, "coverage": {"X": X}, "count": {}, "top": {"k": 2},
        "mass": {"draws": 100, "rng": 0}, "sample": {"n": 3, "rng": 0},
    },
    "topology": {"plot": {}},
    "persistence": {"betti": {"value": 0.5}, "of_dimension": {"k": 0}, "plot": {}},
    "slice": {"to_inputs": {"u": [0.5, 0.5]}, "to_slice": {"x": [0.5, 0.5]}, "regions": {"box": BOX}, "plot": {}},
    "paths": {"breaks": {}, "values": {}, "at": {"t": 0.5}},
    "complex": {
        "labels": {"k": 1}, "sides": {"k": 1}, "on_boundary": {"k": 1}, "bounded": {"k": 1}, "incidence": {"k": 1},
        "face_vertices": {"k": 1}, "face": {"k": 1, "i": 0}, "bent_hyperplane": {"layer": 0, "unit": 0},
        "half_spaces": {"k": 1},
        "level_set": {"value": 0.5}, "plot": {},
    },
    "bent": {"segments": {}},
    "level set": {"piece": {"i": 0}, "segments": {}},
    "regions": {
        "vertices": {"i": 0}, "rays": {"i": 0}, "half_spaces": {"i": 0}, "facets": {"i": 0}, "find": {"X": X},
        "neighbours": {"i": 0}, "merge_equal": {}, "distinct_maps": {}, "masses": {"law": LAW, "rng": 0},
        "plot": {}, "to_dict": {}, "to_pandas": {}, "save": {"path": FOLDER / "regions.npz"}, "__getitem__": {"i": 0},
    },
    "domain": {"contains": {"X": X}},
    "event": {
        "below": {"G": [[1.0]], "g": [0.5], "n_inputs": 2}, "check": {"net": NET},
        "feature_values": {"net": NET, "pattern": PATTERN[None]}, "holds": {"net": NET, "X": X},
        "contains": {"x": X, "y": NET(X)}, "network": {"nets": NET}, "to_vnnlib": {"path": FOLDER / "event.vnnlib"},
    },
    "clamped": {
        "push": {"w": 1.0, "c": 0.0}, "through": {"net": rs.Network([([[1.0]], [0.0]), ([[1.0]], [0.0])])},
        "cdf": {"t": 0.5}, "sample": {"n": 5, "rng": 0},
    },
    "coded": {
        "start": {"base": LAW}, "push": {"W": np.eye(2), "b": np.zeros(2)}, "exact": {"x": [1, 2]},
        "sample": {"n": 2, "rng": 0},
    },
    "schema": {
        "place": {"name": "a"}, "column": {"name": "a"}, "members": {"name": "a"},
        "encode": {"table": TABLE}, "positional": {"X": X},
        "decode": {"X": X}, "warn": {"X": X}, "strange": {"X": X}, "of": {"table": TABLE},
        "decide": {"y": NET(X)}, "values": {"y": NET(X)}, "with_names": {"outputs": ["z"]}, "seen_in": {"table": TABLE},
        "check": {"n_inputs": 2, "n_outputs": 1}, "class_index": {"label": "a"}, "from_dict": {"fields_": {}},
        "in_units": {},
    },
    "unwrapped": {
        "patterns": {"regions": [0]}, "maps": {"regions": [0]}, "find": {"X": X}, "summary": {},
        "global_scores": {"regions": [0]},
        "evaluate": {"X": X, "y": Y}, "coverage": {"X": X, "draws": 100, "rng": 0}, "explain": {"x": X[0]},
        "contributions": {"X": X}, "reasons": {"X": X}, "counterfactuals": {"X": X[:1]},
        "outcome": {"X": X, "y": Y, "min_rows": 2}, "drift": {"X": X}, "benchmarks": {"X": X, "y": Y},
        "noise": {"draws": 5, "rng": 0}, "monotonicity": {}, "margins": {"X": X},
        "portrait": {"region": 0}, "portraits": {}, "importance": {}, "profile": {"feature": 0},
        "pair": {"first": 0, "second": 1}, "intervals": {"region": 0, "penalty": 1.0, "rng": 0}, "merge": {"n": 2},
        "prune": {"min_count": 3}, "flatten": {"n": 2}, "plot": {},
    },
    "merged": {
        "assign": {"X": X}, "decision_function": {"X": X}, "outputs": {"X": X}, "predict": {"X": X},
        "predict_proba": {"X": X}, "score": {"X": X, "y": Y}, "maps": {}, "table_rows": {}, "to_pandas": {},
        "intervals": {"cluster": 0, "penalty": 1.0}, "summary": {"X": X, "y": Y}, "importance": {},
        "portrait": {"cluster": 0}, "explain": {"x": X[0]}, "monotone": {}, "to_sql": {},
        "to_onnx": {"path": FOLDER / "merged.onnx"},
        "save": {"path": FOLDER / "merged.npz"}, "plot": {},
    },
    "surrogate": {
        "find": {"X": X}, "half_spaces": {"k": 0}, "unwrap": {"X": X}, "save": {"path": FOLDER / "surrogate.npz"},
    },
    "recovered": {"compare": {"known": NET, "budget": "1s"}},
    "layers": {"histogram": {}, "plot": {}, "plot_clouds": {}},
    "rays": {"at": {"directions": X[:1]}},
    "recording": {
        "index": {"head": "0.0"}, "lags": {"head": "0.0"}, "absolute": {"head": "0.0"}, "attended": {"step": 0},
        "top": {"k": 2},
        "z_scores": {"head": "0.0"}, "save": {"folder": FOLDER / "recording"},
    },
    "profile": {"binned": {}, "partial": {}},
    "explanation": {"neighbours": {}, "rows": {}, "to_pandas": {}},
    "contributions": {"rows": {}},
    "reasons": {"words": {"row": 0}},
    "path": {"sparsest": {}},
    "evaluation": {"summary": {}},
    "classifier": {
        "fit": {"X": X, "y": Y}, "decision_function": {"X": X}, "predict_proba": {"X": X}, "predict": {"X": X},
    },
    "regressor": {"fit": {"X": X, "y": X[:, 0]}, "predict": {"X": X}},
    "local classifier": {"fit": {"X": X, "y": Y}, "predict": {"X": X}},
    "oracle": {"both": {"X": X}, "__call__": {"X": X}},
    "polytope": {"contains": {"X": X}},
    "report": {"save": {"folder": FOLDER / "report"}},
}  # fmt: skip
"""A good call of each method with arguments, by the result it belongs to (see `found`)."""

OF_CLASSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "Batch.read": (rs.Batch.read, {"results": FOLDER / "kept.sqlite"}),
    "Gaussian.of_factor": (rs.Gaussian.of_factor, {"mean": np.zeros(2), "factor": LAW.factor}),
    "Gaussian.fit": (rs.Gaussian.fit, {"X": X}),
    "GaussianMixture.fit": (rs.GaussianMixture.fit, {"X": X, "components": 1, "rng": 0}),
    "GaussianMixture.fit_classes": (rs.GaussianMixture.fit_classes, {"X": X, "y": Y, "rng": 0}),
    "GaussianMixture.from_arrays": (
        rs.GaussianMixture.from_arrays,
        {"weights": [1.0], "means": [[0.0]], "covariances": [1.0], "covariance": "spherical"},
    ),
    "GaussianMixture.factor": (MIXTURE.factor, {"k": 0}),
    "Network.__call__": (NET, {"X": X}),
    "Network.preactivations": (NET.preactivations, {"X": X}),
    "Network.pattern": (NET.pattern, {"X": X}),
    "Network.key": (NET.key, {"pattern": PATTERN}),
    "Network.affine": (NET.affine, {"pattern": PATTERN}),
    "Network.output_maps": (NET.output_maps, {"patterns": PATTERN[None]}),
    "Network.local": (NET.local, {"X": X}),
    "Network.jacobian": (NET.jacobian, {"X": X}),
    "Network.polytope": (NET.polytope, {"pattern": PATTERN}),
    "Network.after": (NET.after, {"A": np.eye(2), "c": np.zeros(2)}),
    "Network.then": (NET.then, {"A": [[1.0]], "c": [0.0]}),
    "Network.fix": (NET.fix, {"values": {0: 1.0}}),
    "Network.origin": (NET.origin, {"unit": 1}),
    "Network.unit_name": (NET.unit_name, {"unit": 1}),
    "Network.spread": (NET.spread, {"error": np.ones(2)}),
    "Network.approximating": (NET.approximating, {"error": np.ones(NET.n_outputs)}),
    "Network.select_outputs": (NET.select_outputs, {"outputs": [0]}),
    "Network.with_schema": (NET.with_schema, {"schema": None}),
    "Network.in_units": (NET.with_schema(rs.Schema((rs.Column("a"), rs.Column("b")))).in_units, {}),
    "Network.save": (NET.save, {"path": FOLDER / "other.npz"}),
    "product": (lambda first, second: rs.product(first, second), {"first": LAW, "second": LAW}),
    "Categorical.fit": (rs.Categorical.fit, {"column": ["a", "b", "a"]}),
    "Gaussian.ar1": (rs.Gaussian.ar1, {"steps": 3, "coefficient": 0.5, "noise": 1.0}),
    "Gaussian.sequence": (
        rs.Gaussian.sequence,
        {"steps": 3, "transition": np.eye(2), "noise": np.eye(2), "start": [0.0, 0.0]},
    ),
    "Copula.of_scores": (rs.Copula.of_scores, {"scores": LAW, "marginals": [MARGINAL, MARGINAL]}),
    "Copula.fit": (rs.Copula.fit, {"X": X}),
    "Marginal.of": (rs.Marginal.of, {"distribution": stats.norm(0.0, 1.0)}),
    "Marginal.from_data": (rs.Marginal.from_data, {"column": X[:, 0]}),
    "Marginal.from_points": (rs.Marginal.from_points, {"values": [0.0, 1.0], "probabilities": [0.2, 0.9]}),
    "Marginal.score": (MARGINAL.score, {"x": 0.5}),
    "Marginal.inverse": (MARGINAL.inverse, {"x": 0.5}),
    "Marginal.cdf": (MARGINAL.cdf, {"t": 0.5}),
    "Marginal.quantile": (MARGINAL.quantile, {"q": 0.5}),
    "Marginal.moved": (MARGINAL.moved, {"scale": 2.0, "shift": 1.0}),
    "Regions.load": (rs.Regions.load, {"path": FOLDER / "regions.npz"}),
    "MergedModels.load": (rs.local_models.MergedModels.load, {"path": FOLDER / "merged.npz"}),
    "Surrogate.load": (recovery.Surrogate.load, {"path": FOLDER / "surrogate.npz"}),
    "Activation.piece": (rs.Activation((0.0,), (0.0, 1.0), (0.0, 0.0)).piece, {"h": 0.5}),
    "Column.encode": (rs.Column("a").encode, {"values": [0.5]}),
    "Column.decode": (rs.Column("a").decode, {"x": np.ones((3, 1))}),
    "Column.nearest": (rs.Column("a", "category", levels=("u", "v")).nearest, {"x": np.ones((3, 2))}),
    "Column.strange": (rs.Column("a").strange, {"x": np.ones((3, 1))}),
    "Column.level_index": (rs.Column("a", "category", levels=("u", "v")).level_index, {"level": "u"}),
    "Output.values": (rs.Output("out").values, {"y": np.ones(3)}),
    "Output.raw": (rs.Output("out").raw, {"op": ">", "value": 0.5}),
}
for _name, _law in LAWS.items():
    _noise = np.zeros((3, 2))
    OF_CLASSES |= {
        f"{_name}.restrict": (_law.restrict, {"lower": -1.0, "upper": 1.0}),
        f"{_name}.truncated": (_law.truncated, {"lower": -1.0, "upper": 1.0}),
        f"{_name}.given": (_law.given, {"values": {0: 0.5}}),
        f"{_name}.where": (_law.where, {"text": "x[0] > 0.2"}),
        f"{_name}.marginal": (_law.marginal, {"inputs": [0]}),
        f"{_name}.move": (_law.move, {"mean": [0.5, 0.5]}),
        f"{_name}.cdf": (_law.cdf, {"t": 0.5}),
        f"{_name}.sample": (_law.sample, {"n": 3, "rng": 0}),
        f"{_name}.log_density": (_law.log_density, {"X": X}),
        f"{_name}.density": (_law.density, {"X": X}),
        f"{_name}.from_dict": (type(_law).from_dict, {"data": _law.to_dict()}),
    }
    if _law.noise is not None:
        OF_CLASSES[f"{_name}.from_noise"] = (_law.from_noise, {"Z": np.zeros((3, 2))})

LEFT_OUT = {
    "records that calls give back and nobody makes by hand": {
        "Batch", "Persistence", "Regions", "Slice", "Topology",
        "inputs.ClassMixtures", "inputs.Component", "inputs.Factor", "inputs.Restriction",
        "inputs.Law", "inputs.LawCheck", "inputs.OpenLaw",
        "invariance.Coded", "invariance.Growth", "invariance.Invariance", "local_models.MergedModels",
        "recovery.BlackBox", "recovery.Boundary", "recovery.Comparison", "recovery.LocalFit", "recovery.Recovered",
        "recovery.Sampled", "recovery.Surrogate", "representation.Dimensions", "representation.Distortion",
        "representation.Layers", "representation.Rays",
    },
    "parts of other rooms, which check before they call": {
        "inputs.Box", "inputs.data_rows", "inputs.far_sides", "inputs.loading_factor", "inputs.restricted_moments",
        "inputs.restricted_normals", "inputs.FAR", "inputs.lifted", "inputs.own_pattern", "inputs.score_correlation",
        "inputs.only_draws",
    },
    "need torch, and have their own tests": {
        "lens.ablate", "lens.ablate_channels", "lens.ablate_heads", "lens.as_model", "lens.attribute", "lens.patch",
        "lens.channel_maps", "lens.colour_basis", "lens.logit_lens", "lens.patch_paths",
        "lens.dead_channels", "lens.effective_field", "lens.head_removed", "lens.kernels", "lens.load_vpt",
        "lens.local_map", "lens.measure", "lens.neuron", "lens.receptive_field", "lens.receptive_fields",
        "lens.record_attention", "lens.record_onnx", "lens.record_stream", "lens.strongest", "lens.visualise",
        "lens.vpt_cnn", "lens.vpt_policy",
    },
}  # fmt: skip


def _resolve(name: str) -> Any:
    out: Any = rs
    for word in name.split("."):
        out = getattr(out, word)
    return out


def _fitted(kind: str) -> Callable[..., Any]:
    def fit(**options: Any) -> Any:
        return _resolve(kind)(**options).fit(X, Y)

    fit.__signature__ = inspect.signature(_resolve(kind))  # type: ignore[attr-defined]
    return fit


def _listed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that gives an iterator, run to its end."""

    def run(**options: Any) -> Any:
        return list(function(**options))

    run.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return run


def names() -> list[str]:
    """All subjects, by name."""
    methods = [f"{owner}.{method}" for owner, known in METHODS.items() for method in known]
    return [*FUNCTIONS, *RECORDS, *ESTIMATORS, *OF_CLASSES, *methods]


def subject(name: str) -> Subject:
    """The good call of that name."""
    if name in FUNCTIONS:
        if name == "lens.load_recording":
            found("recording").save(FUNCTIONS[name]["folder"])
        call = _resolve(name)
        return Subject(_listed(call) if name == "stream_regions" else call, FUNCTIONS[name])
    if name in RECORDS:
        record, more = RECORDS[name]
        call = _resolve(name)
        first = next(iter(inspect.signature(call).parameters))
        return Subject(call, {first: found(record), **more})
    if name in ESTIMATORS:
        return Subject(_fitted(name), {**RECIPE, "random_state": 0})
    if name in OF_CLASSES:
        if name.endswith(".load"):  # what it reads
            record = {"Regions": "regions", "MergedModels": "merged", "Surrogate": "surrogate"}[name.split(".")[0]]
            found(record).save(OF_CLASSES[name][1]["path"])
        if name == "Batch.read":
            found("batch")
        return Subject(*OF_CLASSES[name])
    owner, method = name.rsplit(".", 1)
    return Subject(getattr(found(owner), method), METHODS[owner][method])


# -- bad arguments ------------------------------------------------------------------------------------------------


class Odd:
    """An object that nothing expects."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Weird:
    """An object whose repr is endless and whose comparisons, length and truth fail."""

    def __repr__(self) -> str:
        return "w" * 1_000_000

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")


BAD: dict[str, Any] = {
    "None": None,
    "complex": 1 + 2j,
    "complex array": np.array([1 + 2j, 0.5]),
    "complex rows": np.full((30, 2), 1 + 2j),
    "huge int": 10**5000,
    "large int": 1 << 70,
    "negative": -3,
    "zero": 0,
    "half": 0.5,
    "nan": float("nan"),
    "infinity": float("inf"),
    "nans": np.full((30, 2), np.nan),
    "text": "nonsense ((",
    "no text": "",
    "NUL": "a\x00b",
    "bytes": b"\x00\xff",
    "true": True,
    "cube": np.zeros((2, 3, 4)),
    "empty": [],
    "no rows": np.zeros((0, 2)),
    "no columns": np.zeros((30, 0)),
    "ragged": [[1.0], [1.0, 2.0]],
    "texts": ["a", "b"],
    "objects": np.array([None, "a"], dtype=object),
    "dict": {"a": 1},
    "set": {1, 2},
    "odd": Odd(),
    "weird": Weird(),
    "type": int,
    "function": len,
    "net": NET,
    "law": LAW,
    "masked": np.ma.masked_array(np.ones((30, 2)), mask=True),
    "dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "fraction": Fraction(1, 3),
    "generator": None,
}
"""Values that few arguments can mean; "generator" is made anew for each call."""

SAID = {
    "data": "law", "fields_": "schema", "text": "event", "model": "file layer layers network", "source": "file",
    "path": "archive",
    "folder": "recording", "lower": "box", "upper": "box", "values": "column", "codes": "column", "unknown": "column",
    "table": "columns", "name": "column", "rows": "G", "G": "n_outputs", "n": "n_models", "y": "labels",
    "key": "recorded", "noise": "cov", "start_cov": "cov",
    "transition": "start", "first": "laws law", "second": "laws law", "column": "labels levels",
}  # fmt: skip
"""Words that may stand for an argument in a message."""

NEVER = {
    "complex", "complex array", "complex rows", "huge int", "odd", "weird", "type", "bytes", "nans", "objects", "dates",
    "masked",
}  # fmt: skip
"""Values that no argument can mean."""


def calls(name: str) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Each bad call of one subject: (parameter, kind of value, call)."""
    made = subject(name)
    for parameter, about in inspect.signature(made.call).parameters.items():
        if about.kind in (about.VAR_KEYWORD, about.VAR_POSITIONAL) or parameter.startswith("_"):
            continue
        for kind, value in BAD.items():

            def call(f: Any = made.call, p: str = parameter, k: str = kind, v: Any = value) -> Any:
                given = (i for i in range(3)) if k == "generator" else v
                arguments = {**made.good, p: given}
                return f(**arguments)

            yield parameter, kind, call


def _late(*_: Any) -> None:
    raise TimeoutError("it hangs")


def outcome(call: Callable[[], Any], parameter: str, seconds: int = 20, where: str = "") -> str:
    """How a bad call ended.

    "" for a Reluscope error that names the argument, "unnamed: ..." for one that does not, "accepted" for a result
    (that can be shown), "hangs", and what came for anything else.
    """
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(seconds)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            repr(call())
    except (rs.ReluscopeError, rs.ReluscopeWarning) as error:
        said = str(error)
        if len(said) > 1000:
            return f"a message of {len(said):,} characters"
        words = re.split(r"[^A-Za-z0-9_]+", said)
        named = {parameter, parameter.rstrip("s"), parameter.rstrip("_"), *SAID.get(parameter, "").split()} & set(words)
        return "" if named else f"unnamed: {said[:120]}"
    except TimeoutError:
        return "hangs"
    except IndexError:  # how Python finds the end of a sequence
        return "" if "__getitem__" in where else "IndexError"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]}"
    finally:
        signal.alarm(0)
    return "accepted"


def verdict(ended: str, kind: str) -> str:
    """ "" for a call that ended as it should; "raw", "hangs", "silent" or "unnamed" for one that did not."""
    if ended == "accepted":
        return "silent" if kind in NEVER else ""
    if ended in ("", "hangs"):
        return ended
    return "unnamed" if ended.startswith("unnamed") else "raw"


if __name__ == "__main__":
    import collections
    import os

    os.chdir(FOLDER)  # paths that can be meant are written to
    tally: collections.Counter[str] = collections.Counter()
    for name in names():
        if len(sys.argv) > 1 and not name.startswith(tuple(sys.argv[1:])):
            continue
        good = subject(name)
        if (ended := outcome(lambda good=good: good.call(**good.good), "", 60)) != "accepted":
            print("the good call", name, "->", ended, flush=True)
        for parameter, kind, call in calls(name):
            ended = outcome(call, parameter, where=name)
            word = verdict(ended, kind)
            tally[word or ("accepted" if ended else "refused")] += 1
            if word:
                print(word, f"{name}({parameter}={kind}) -> {ended}", flush=True)
    print(dict(tally), sum(tally.values()), "calls")
