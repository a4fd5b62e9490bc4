"""Pictures: functions that take and return a matplotlib Axes (the `plot` extra)."""

from reluscope.plot.answers import plot_cdf as plot_cdf
from reluscope.plot.answers import plot_masses as plot_masses
from reluscope.plot.answers import plot_pdf as plot_pdf
from reluscope.plot.answers import plot_spectrum as plot_spectrum
from reluscope.plot.complexes import plot_complex as plot_complex
from reluscope.plot.regions import plot_function as plot_function
from reluscope.plot.regions import plot_images as plot_images
from reluscope.plot.regions import plot_regions as plot_regions

__all__ = [
    "plot_cdf",
    "plot_complex",
    "plot_function",
    "plot_images",
    "plot_masses",
    "plot_pdf",
    "plot_regions",
    "plot_spectrum",
]
