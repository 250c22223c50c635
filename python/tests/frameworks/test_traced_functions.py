"""Functions of `with_transform` of datasets, which only call transforms."""

import contextlib
import random

import numpy as np
import pytest
from photos import write_photos
from requirements import framework_test, import_or_skip

import infeed

torch = import_or_skip("torch")
v2 = import_or_skip("torchvision.transforms.v2")
hub = import_or_skip("datasets")
transformers = import_or_skip("transformers")
pytestmark = framework_test
