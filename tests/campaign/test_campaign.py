"""A small campaign in every run: references by fractions, quadrature and long draws; `make campaign` runs 10,000."""

from collections import Counter

import pytest

from campaign.checks import check

PROBLEMS, GROUPS = 240, 12


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # extreme networks overflow in plain forward passes
@pytest.mark.parametrize("group", range(GROUPS))
def test_every_answer_holds_the_truth(group):
    """A wrong bracket is no matter of chance: intervals are at 1 - 1e-9, draws at six standard errors."""
    counts = Counter()
    wrong = [
        line
        for seed in range(group * PROBLEMS // GROUPS, (group + 1) * PROBLEMS // GROUPS)
        for line in check(seed, counts, thorough=seed % 4 == 0)
    ]
    assert counts["answers"] > 2 * PROBLEMS // GROUPS and counts["exact brackets"] > PROBLEMS // GROUPS
    assert not wrong, "\n".join(wrong)


FOUND = {
    7101270: "a small cell in the corner of a box of 3e5: its corners are rounded on the scale of the box",
    7101345: "a reference that is 1 up to its own 60 digits, compared with a bound in floats",
}
"""Problems that once were wrong."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", FOUND)
def test_what_longer_campaigns_have_found(seed):
    assert not check(seed, Counter())
