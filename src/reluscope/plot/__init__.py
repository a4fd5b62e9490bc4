"""Pictures: functions that take and return a matplotlib Axes (the `plot` extra)."""

from reluscope.plot.regions import plot_function as plot_function
from reluscope.plot.regions import plot_regions as plot_regions

__all__ = ["plot_function", "plot_regions"]
