"""`adopt`: the pipeline of infeed that replaces a loader, with proof and gain.

`recognize` reads the loader, `steps` translates transforms, `equivalence` compares
samples, and `adopted` holds the result.
"""

from infeed.adopting.adopted import Adopted, adopt
from infeed.adopting.equivalence import Equivalence, compare_samples

__all__ = ["Adopted", "Equivalence", "adopt", "compare_samples"]
