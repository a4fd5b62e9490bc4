"""A small campaign in every run: references by fractions, quadrature and long draws; `make campaign` runs 10,000."""

from collections import Counter

import pytest

from campaign.checks import check
from campaign.wider import KINDS, check_wider

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


CASES = {"laws": 4, "laws of laws": 12, "relational": 12, "robust": 10, "loops": 15}
"""Of the kinds whose problems take longer than 0.1 s."""


@pytest.mark.parametrize("kind", KINDS)
def test_other_kinds_of_questions(kind):
    """The same promise for laws made of laws, several networks, loops, units, records: `wider.py` says how."""
    counts = Counter()
    wrong = [line for seed in range(CASES.get(kind, 30)) for line in check_wider(kind, seed, counts)]
    assert counts["answers"] >= CASES.get(kind, 10)
    assert not wrong, "\n".join(wrong)
