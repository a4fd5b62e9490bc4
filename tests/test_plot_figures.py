"""Whose figure a picture is in: pyplot's where pyplot is at work, else one of its own."""

import subprocess
import sys

WITH = """
import sys
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
import reluscope as rs
from reluscope.plot._axes import save
regions = rs.regions(rs.example("moons").network, (-1, 1))
ax = rs.plot.plot_regions(regions)
assert plt.gcf() is ax.figure and len(plt.get_fignums()) == 1
plt.savefig(sys.argv[1])
assert plt.imread(sys.argv[1]).std() > 0.01  # not blank
other = plt.figure().add_subplot()
assert rs.plot.plot_regions(regions, ax=other) is other and len(plt.get_fignums()) == 2
save(rs.plot.plot_regions(regions), sys.argv[1])  # what the library writes itself is not left open
assert len(plt.get_fignums()) == 2
"""

WITHOUT = """
import sys
import reluscope as rs
ax = rs.plot.plot_regions(rs.regions(rs.example("moons").network, (-1, 1)))
ax.figure.savefig(sys.argv[1])
assert "matplotlib.pyplot" not in sys.modules
"""


def test_pyplot_knows_the_figures_where_it_is_at_work(tmp_path):
    for script in (WITH, WITHOUT):
        subprocess.run([sys.executable, "-c", script, str(tmp_path / "a.png")], check=True, timeout=300)
        assert (tmp_path / "a.png").stat().st_size > 10_000
        (tmp_path / "a.png").unlink()
