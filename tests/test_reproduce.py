"""Published experiments in their reduced versions."""

import pytest

from reluscope.cli import main
from reluscope.errors import InputError
from reluscope.reproduce import Reproduction, cocircles, reproduce


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


def test_the_checker_agrees_with_the_theorem_on_invariant_families(tmp_path):
    done = reproduce("invariance", tmp_path, quick=True, rng=0)
    assert [row["found"] for row in done.rows] == [True, True, True, False, False]
    assert "agrees with the theorem on all 5 families" in str(done)
    assert (tmp_path / "growth.png").stat().st_size > 5000
