"""infeed on Ray: feeders, packing and Ray Data on the machines of a cluster.

Ray places, starts, watches and restarts the processes. infeed makes the results
independent of the machine that did the work, and of repeated work.
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
