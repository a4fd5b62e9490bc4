"""Published experiments in their reduced versions."""

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier

from reluscope.cli import main
from reluscope.errors import InputError
from reluscope.reproduce import Reproduction, cocircles, moons, reproduce


def test_moons_rates_agree_with_draws(tmp_path):
    done = reproduce("moons", tmp_path, quick=True, rng=0)
    assert len(done.rows) == 2
    for row in done.rows:
        for rate in ("false positive", "false negative"):
            exact, drawn = row[f"{rate} exact"], row[f"{rate} drawn"]
            # 6 standard errors of 100,000 draws: a false alarm in 5e8 runs.
            assert abs(exact - drawn) < 6 * (max(exact * (1 - exact), 1e-9) / 1e5) ** 0.5
            assert 0.0 < exact < 0.3
    assert {p.name for p in tmp_path.iterdir()} == {"figure-1.png", "figure-2.png"}
    assert "14.49" not in str(done) and "a reduced run" in str(done) and done.to_dict()["quick"]


def test_moons_follow_the_recipe_of_appendix_b(monkeypatch):
    """Tables 2 and 3: 1,000 moons with noise 0.2; 4-4-4, Adam at 1e-2, batches of 64, 20 epochs; three Gaussians."""
    asked, fit = {}, MLPClassifier.fit

    def noted(self, X, y):
        asked.update(self.get_params(), rows=len(X))
        return fit(self, X, y)

    monkeypatch.setattr(MLPClassifier, "fit", noted)
    net, laws, fresh = moons._trained(0)
    wanted = {"hidden_layer_sizes": (4, 4, 4), "solver": "adam", "learning_rate_init": 1e-2, "batch_size": 64,
              "max_iter": 20, "beta_1": 0.9, "beta_2": 0.999, "rows": 1000}  # fmt: skip
    assert {name: asked[name] for name in wanted} == wanted
    assert net.widths == (2, 4, 4, 4, 1) and [len(law.weights) for law in laws] == [3, 3]
    assert all(np.count_nonzero(g.cov - np.diag(np.diag(g.cov))) == 0 for law in laws for _, g in law.gaussians)
    assert sum(map(len, fresh)) == 20_000


def test_figures_1_and_2_show_law_patterns_and_output(tmp_path, monkeypatch):
    """Of the network in the table; red is counted over draws in Figure 1 and over fresh moons in Figure 2."""
    drawn = {}
    monkeypatch.setattr("reluscope.plot._axes.save", lambda ax, path: drawn.update({path.name: ax.figure.axes}))
    assert moons._figures(tmp_path, np.random.default_rng(0), 4000) == ["figure-1.png", "figure-2.png"]
    net, _, fresh = moons._trained(0)
    for name, of in (("figure-1.png", "draws"), ("figure-2.png", "moons")):
        panels = drawn[name]
        assert len(panels) == 6
        for row in range(2):
            law, masses, cdf = panels[3 * row : 3 * row + 3]
            assert "law of the inputs" in law.get_title() and law.images and law.collections
            legend = [t.get_text() for t in cdf.get_legend().get_texts()]
            assert legend == ["exact", f"4,000 {of}"]
            red = cdf.lines[1]
            if of == "moons":  # other moons of the same class: within the DKW band of both samples, at 1e-9
                y = np.sort(net(fresh[row])[:, 0])
                counted = np.searchsorted(y, red.get_xdata(), side="right") / len(y)
                band = np.sqrt(np.log(2e9) / 2) * (4000**-0.5 + len(y) ** -0.5)
                assert np.abs(red.get_ydata() - counted).max() < band
            assert len(masses.patches) == 24


def test_published_numbers_stand_beside_full_runs_only():
    full = Reproduction("x", [{"ours": 1, "published": 2}], ["a remark"], [], ("published",), ["published: 2"])
    assert "published: 2" in str(full) and full.to_dict()["remarks"] == ["published: 2", "a remark"]
    quick = full.reduced()
    assert quick.rows == [{"ours": 1}] and quick.quick and "a remark" in str(quick) and "published: 2" not in str(quick)


def test_numbers_that_the_slides_do_not_print_are_marked():
    """The text of the slides has the number of regions, the 85 % and an AUC of about 0.93, and no other number."""
    assert set(cocircles.IN_TEXT) == {"regions with data", "single-class share", "network AUC, test"}
    assert set(cocircles.IN_TEXT) < set(cocircles.PUBLISHED)


def test_unknown_names_are_refused(tmp_path, capsys):
    with pytest.raises(InputError, match="name must be one of"):
        reproduce("everything", tmp_path)
    assert main(["reproduce", "everything", "--out", str(tmp_path)]) == 2


def test_complexes_have_the_counts_of_their_arrangements(tmp_path):
    done = reproduce("complex", tmp_path, quick=True, rng=0)
    assert len(done.rows) == 2
    for row in done.rows:
        assert row["first layer generic"] and row["face to face"] and row["Euler characteristic"] == 1
        assert row["regions of the first layer"] == row["of that many hyperplanes"] == 16
    assert all((tmp_path / name).stat().st_size > 5000 for name in done.files)
    assert "images-output.png" in done.files


def test_chapter_5_without_the_game(tmp_path):
    pytest.importorskip("torch")
    done = reproduce("lens", tmp_path, quick=True, rng=0)
    here = {row["what"]: row["here"] for row in done.rows}
    assert here["parameters of VPT"] == "248.5 million (2x)"
    assert here["attention layers x heads"] == "4 x 16" and here["frames a head can see"] == "128"
    # Each planted pattern is found every time, and noise never looks like one.
    assert all(words == "found in 20 of 20" for what, words in here.items() if what.startswith("pattern: ") and
               what != "pattern: none planted")  # fmt: skip
    assert here["pattern: none planted"] == "found in 0 of 20"
    assert {p.name for p in tmp_path.iterdir()} == set(done.files) and len(done.files) == 13
    assert "thesis" not in done.rows[0]  # a reduced run


def test_the_checker_agrees_with_the_theorem_on_invariant_families(tmp_path):
    done = reproduce("invariance", tmp_path, quick=True, rng=0)
    assert [row["found"] for row in done.rows] == [True, True, True, False, False]
    assert "agrees with the theorem on all 5 families" in str(done)
    assert (tmp_path / "growth.png").stat().st_size > 5000
