"""All regions at once: exact integration along random lines, or points where lines do not pay.

- `integration`: `integrate`: from a request to estimates with intervals
- `records`: requests and answers
- `directions`: candidates for the direction of the lines
- `pilot`: which plan to take, and how many lines
- `plan`: a plan and its run
- `boxes`: points in boxes, for the finite-sample interval of one event
- `estimates`: from sums to estimates
"""

from reluscope.measure.lines.integration import Request, integrate, segment_patterns

__all__ = ["Request", "integrate", "segment_patterns"]
