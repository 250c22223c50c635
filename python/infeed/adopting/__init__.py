"""`adopt`: the pipeline of infeed that replaces a loader, with proof and gain.

`recognize` reads the loader, `datasets` its samples, `order` its samplers, and `steps`
its transforms. `equivalence` compares samples, `adopted` holds the result, and `page`
formats it. The code of adopted pipelines uses `RemainingSteps`, `NamedSamples`,
`NumberedSamples`, `NormalizedSamples`, `BatchNormalize`, `rfdetr_source`,
`table_source`, `vision_source` and `yolo_source`.
"""

from infeed.adopting.adoption import Adoption, adopt
from infeed.adopting.equivalence import Equivalence, compare_samples
from infeed.adopting.numbered_samples import NumberedSamples
from infeed.adopting.prefetch_loader import BatchNormalize, NormalizedSamples
from infeed.adopting.remaining import RemainingSteps
from infeed.adopting.rfdetr_datasets import rfdetr_source
from infeed.adopting.samples import NamedSamples
from infeed.adopting.tables import table_source
from infeed.adopting.torchvision_lists import vision_source
from infeed.adopting.yolo_labels import yolo_source

__all__ = [
    "Adoption",
    "BatchNormalize",
    "Equivalence",
    "NamedSamples",
    "NormalizedSamples",
    "NumberedSamples",
    "RemainingSteps",
    "adopt",
    "compare_samples",
    "rfdetr_source",
    "table_source",
    "vision_source",
    "yolo_source",
]
