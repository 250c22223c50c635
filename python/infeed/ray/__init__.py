"""infeed on Ray: what the machines of a cluster do for it.

Ray places, starts, watches and restarts; what is worked on, and that the result is the
same whoever did it and how often, is infeed's.
"""

try:
    import ray
except ImportError as error:
    raise ImportError(
        "infeed.ray needs Ray, which is not installed: pip install 'infeed[ray]'"
    ) from error

from infeed.ray.data import read, source
from infeed.ray.feeders import Feeders
from infeed.ray.packing import pack

__all__ = ["Feeders", "pack", "read", "source"]

del ray
