"""Any loader, watched: what the loop waits for and whether the loader slows the step.

`loop` keeps the time, `sampler` asks for the lock, `load` reads processor times,
`report` holds the figures, `verdict` draws the conclusion, `reach` runs infeed.
"""

from infeed.watching.loop import Watch, watch
from infeed.watching.reach import what_infeed_reaches
from infeed.watching.report import WatchReport

__all__ = ["Watch", "WatchReport", "watch", "what_infeed_reaches"]
