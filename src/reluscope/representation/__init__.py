"""What the layers of a network do to geometry: clouds, activity, ray spaces, dimensions, distortion.

`layers.py` measures a cloud of inputs layer by layer (`metrics.py`, `activity.py`, `hooks.py` for torch modules);
`rays.py` and `dimensions.py` ask about the whole image of a layer; `distortion.py` has the closed forms; `claims.py`
holds published statements as checks; `laboratory.py` sweeps random networks.
"""

from reluscope.representation.dimensions import Dimensions, dimensions
from reluscope.representation.distortion import Distortion, distortion
from reluscope.representation.layers import Layers, layers
from reluscope.representation.rays import Rays, rays

__all__ = ["Dimensions", "Distortion", "Layers", "Rays", "dimensions", "distortion", "layers", "rays"]
