"""`adopt`: the pipeline of infeed that replaces a loader, with proof and gain.

`recognize` reads the loader, `datasets` its samples, `order` its samplers, and `steps`
its transforms. `equivalence` compares samples, `adopted` holds the result, and `page`
formats it.
"""

from infeed.adopting.adopted import Adopted, adopt
from infeed.adopting.equivalence import Equivalence, compare_samples

__all__ = ["Adopted", "Equivalence", "adopt", "compare_samples"]
