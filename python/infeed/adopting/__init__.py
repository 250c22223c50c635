"""`adopt`: the pipeline of infeed that replaces a loader, with proof and gain.

`recognize` reads the loader with `datasets` and `order`, `steps` translates transforms,
`equivalence` compares samples, `adopted` holds the result, and `page` formats it.
"""

from infeed.adopting.adopted import Adopted, adopt
from infeed.adopting.equivalence import Equivalence, compare_samples

__all__ = ["Adopted", "Equivalence", "adopt", "compare_samples"]
