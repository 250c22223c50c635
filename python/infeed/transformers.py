"""infeed for Hugging Face's Trainer: the loader's state in its checkpoints."""

from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from infeed.errors import ConfigError

__all__ = ["LoaderState"]


class LoaderState(TrainerCallback, ExportableState):
    """Saves the train loader's state in each checkpoint, and resumes from it.

        class Trainer(transformers.Trainer):
            def get_train_dataloader(self):
                return infeed.torch.Loader(pipeline)

        args = TrainingArguments(..., ignore_data_skip=True)
        trainer = Trainer(model, args, callbacks=[LoaderState()])
        trainer.train(resume_from_checkpoint=True)

    The state is part of ``trainer_state.json``. A resumed run does not read the records
    before it; ``ignore_data_skip`` stops the Trainer from skipping batches itself.
    ``gradient_accumulation_steps`` must divide the number of batches per epoch.
    """

    def __init__(self) -> None:
        self._loader: Any = None

    def state(self) -> dict[str, Any]:
        """Returns the data for a checkpoint."""
        # The Trainer calls this once before there is a loader.
        saved = None if self._loader is None else self._loader.state_dict()
        return {"args": {}, "attributes": {"saved": saved}}

    def on_train_begin(
        self, args: Any, state: Any, control: Any, **kwargs: Any
    ) -> None:
        """Resumes from the checkpoint's state, if the Trainer resumes.

        Raises:
            ConfigError: The Trainer would skip batches itself, the loader has no state,
                or the checkpoint belongs to another run.
        """
        self._loader = kwargs["train_dataloader"]
        if not hasattr(self._loader, "load_state_dict"):
            raise ConfigError(
                "LoaderState: get_train_dataloader() returned a "
                f"{type(self._loader).__qualname__}, which has no state; return an "
                "infeed.torch.Loader"
            )
        if state.global_step == 0:
            return
        if not args.ignore_data_skip:
            raise ConfigError(
                "LoaderState: the Trainer would skip batches that the loader already "
                "leaves out; set ignore_data_skip=True in TrainingArguments"
            )
        entry = state.stateful_callbacks.get(type(self).__name__)
        saved = entry and entry["attributes"]["saved"]
        if saved is None:
            raise ConfigError(
                "LoaderState: the checkpoint was saved without this callback, and has "
                "no loader state; resume without it and without ignore_data_skip"
            )
        self._loader.load_state_dict(saved)
