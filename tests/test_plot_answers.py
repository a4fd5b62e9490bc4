"""Pictures of answers and complexes: they draw what the answers say, and refuse what they are not of."""

from __future__ import annotations

import re

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope.errors import InputError

pytest.importorskip("matplotlib")

from reluscope.plot import (
    plot_cdf,
    plot_complex,
    plot_function,
    plot_joint_pdf,
    plot_law,
    plot_masses,
    plot_pdf,
    plot_regions,
    plot_spectrum,
    plot_topology,
)


@pytest.fixture(scope="module")
def moons():
    return rs.example("moons")


def test_masses_are_bars_in_order(moons):
    found = rs.linear_models(moons.network, moons.law)
    drawn = moons.network.pattern(moons.law.sample(20_000, rng=0))
    ax = plot_masses(found, top=5, patterns=drawn)
    heights = [bar.get_height() for bar in ax.patches]
    assert heights[:5] == found.masses.value[:5].tolist()
    assert np.abs(np.array(heights[5:]) - found.masses.value[:5]).max() < 6 * np.sqrt(0.25 / 20_000)
    assert ax.get_xticklabels()[0].get_text() == "".join(map(str, found.pattern[0].tolist()))


def test_the_cdf_jumps_at_atoms_and_the_pdf_names_them(moons):
    out = rs.outputs(moons.network, moons.law)
    y = moons.network(moons.law.sample(20_000, rng=0))[:, 0]
    curve, sampled = plot_cdf(out, draws=y).lines
    assert np.abs(curve.get_ydata() - sampled.get_ydata()).max() < 0.02
    heavy = np.asarray(out.atoms().mass.value).max()
    rises = np.diff(curve.get_ydata())[np.diff(curve.get_xdata()) < 1e-12]
    assert rises.max() == pytest.approx(heavy, rel=1e-6)
    ax = plot_pdf(out, t=np.linspace(-5, 5, 50), draws=y)
    assert "atoms" in ax.get_title()
    assert ax.lines[0].get_ydata() == pytest.approx(out.pdf(np.linspace(-5, 5, 50)).value)


def test_a_joint_density_is_drawn_where_it_is():
    net = random_net((2, 4, 2), 1, bias=0.5)
    out = rs.outputs(net, rs.Gaussian([0.0, 0.0], 1.0))
    ax = plot_joint_pdf(out, view=([-1, -1], [2, 3]))
    shown = ax.images[0]
    assert shown.get_extent() == [-1, 2, -1, 3]
    x, y = -1 + 3 * (17 + 0.5) / 220, -1 + 4 * (150 + 0.5) / 220
    assert float(shown.get_array()[150, 17]) == pytest.approx(float(out.joint_pdf([x, y]).value))
    assert "without a joint density" in ax.get_title()
    with pytest.raises(InputError, match="two different outputs"):
        plot_joint_pdf(out, which=(0, 0))


def test_a_law_is_drawn_with_lines_around_its_mass():
    law = rs.Gaussian([1.0, -1.0], [[1.0, 0.3], [0.3, 0.5]])
    ax = plot_law(law, points=[[1.0, -1.0]])
    picture = ax.images[0]
    left, right, low, high = picture.get_extent()
    assert left < -2 and right > 4 and low < -2.5 and high > 0.5
    levels = next(c for c in ax.collections if hasattr(c, "levels")).levels
    # A Gaussian in the plane: the densest share p lies where the density is above (1 - p) times the peak.
    peak = float(law.density([[1.0, -1.0]])[0])
    assert np.allclose(np.sort(levels) / peak, [0.01, 0.1, 0.5], rtol=0.2)
    with pytest.raises(InputError, match="2 inputs"):
        plot_law(rs.Gaussian(np.zeros(3), 1.0))


def test_estimates_have_bands():
    net, law = random_net((5, 8, 8, 1), 0), rs.Gaussian(np.zeros(5))
    out = rs.outputs(net, law, budget="0.2s", rng=0)
    assert len(plot_cdf(out, t=[-1.0, 0.0, 1.0]).collections) == 1
    assert len(plot_masses(rs.linear_models(net, law, method="lines", budget="0.2s", rng=0), top=4).containers) == 2


def test_a_spectrum_adds_up_and_marks_both_jacobians(moons):
    found = rs.spectrum(moons.network, moons.law)
    ax = plot_spectrum(found)
    assert sum(ax.patches[0].get_data().values) == pytest.approx(1.0, abs=1e-9)
    assert ax.lines[0].get_xdata()[0] == found.expected.singular[0]
    assert ax.lines[1].get_xdata()[0] == found.modal.singular[0]


@pytest.mark.parametrize("box", [(-2.0, 2.0), None])
def test_a_complex_shows_every_layer_and_a_boundary(moons, box):
    found = rs.polyhedral_complex(moons.network, box, progress=None)
    ax = plot_complex(found, boundary=found.level_set())
    *layers, level = ax.collections
    assert len(layers) == 3
    inner = int((~found.on_boundary(1)).sum())  # one line per inner edge: no two units bend in the same place here
    assert sum(len(part.get_segments()) for part in layers) == inner
    assert len(level.get_segments()) == len(found.level_set())


def test_results_in_the_plane_draw_themselves(moons):
    net, box = moons.network, (-2.0, 2.0)
    found = rs.regions(net, box, progress=None)
    ax = found.plot(colour="pattern")
    assert ax.get_title() == f"{len(found)} regions" and len(ax.collections[0].get_paths()) == len(found)
    assert found.plot(ax) is ax
    whole = rs.polyhedral_complex(net, box, progress=None)
    assert len(whole.plot(vertices=False, boundary=whole.level_set()).collections) == 4


@pytest.mark.parametrize("of", ["sublevel", "superlevel", "level"])
def test_a_set_is_drawn_where_the_network_says(of):
    net = rs.example("cocircles").network
    found = rs.topology(net, (-1.6, 1.6), of=of)
    ax = found.plot()
    cells, lines = ax.collections
    assert ax.get_title().endswith(f"Betti numbers {found.betti}") and ax.get_xlim() == (-1.6, 1.6)
    assert len(lines.get_segments()) == found.part.f_vector[1]
    middles = [path.vertices[:-1].mean(axis=0) for path in cells.get_paths()]
    assert len(middles) == found.part.f_vector[2] == (0 if of == "level" else len(found.part.regions))
    sign = {"sublevel": -1.0, "superlevel": 1.0, "level": 0.0}[of]
    assert all(sign * net(m)[0] >= -1e-9 for m in middles)


def test_single_points_of_a_set_are_dots():
    bowl = rs.Network([([[1.0, 0.0], [0.0, 1.0]], None, "abs"), ([[1.0, 1.0]], None)])
    found = rs.topology(bowl, (-1, 1), of="sublevel", value=0.0)
    np.testing.assert_allclose(found.plot().get_lines()[0].get_xydata(), [[0.0, 0.0]], atol=1e-12)
    with pytest.raises(InputError, match="2 inputs"):
        rs.topology(random_net((3, 3, 1), 0), (-1, 1)).plot()


def test_pictures_refuse_what_they_are_not_of(moons):
    net = moons.network
    found = rs.regions(net, (-1, 1), progress=None)
    for call, words in (
        (lambda: plot_regions(net), "regions must be Regions, as reluscope.regions"),
        (lambda: plot_function(net), "paths must be Paths, as reluscope.along"),
        (lambda: plot_masses(found), "linear_models must be LinearModels"),
        (lambda: plot_cdf(found), "outputs must be Outputs"),
        (lambda: plot_pdf(found), "outputs must be Outputs"),
        (lambda: plot_spectrum(net), "spectrum must be Spectrum"),
        (lambda: plot_complex(found), "complex_ must be Complex"),
        (lambda: plot_topology(found), "topology must be Topology"),
        (lambda: plot_regions(found, color="mass"), "say colour="),
        (lambda: plot_complex(rs.polyhedral_complex(random_net((3, 3, 1), 0), (-1, 1), progress=None)), "2 inputs"),
    ):
        with pytest.raises(InputError, match=words):
            call()


def test_a_picture_of_some_regions_says_of_how_many():
    found = rs.regions(rs.example("moons").network, ([-2.0, -2.0], [3.0, 2.0]))
    few = plot_regions(found, view=([0.0, 0.0], [0.1, 0.1])).get_title()
    assert re.fullmatch(rf"\d of {len(found)} regions", few)
    assert plot_regions(found).get_title() == f"{len(found)} regions"
