"""Published experiments in their reduced versions."""

import pytest

from reluscope.cli import main
from reluscope.errors import InputError
from reluscope.reproduce import reproduce


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
    assert "published" in str(done)


def test_unknown_names_are_refused(tmp_path, capsys):
    with pytest.raises(InputError, match="name must be one of"):
        reproduce("everything", tmp_path)
    assert main(["reproduce", "everything", "--out", str(tmp_path)]) == 2
