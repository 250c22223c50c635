"""Settings of Hugging Face's Trainer for tests."""

from typing import Any

import transformers


def training_arguments(folder: Any, **settings: Any) -> transformers.TrainingArguments:
    """Returns the arguments of a quiet training on the CPU."""
    common = {"use_cpu": True, "report_to": [], "disable_tqdm": True}
    common |= {"logging_strategy": "no", "save_strategy": "no"}
    return transformers.TrainingArguments(str(folder), **common | settings)
