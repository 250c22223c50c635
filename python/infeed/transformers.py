"""infeed in Hugging Face's Trainer: the loader's state in the Trainer's checkpoints."""

from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from infeed.errors import ConfigError

__all__ = ["LoaderState"]


class LoaderState(TrainerCallback, ExportableState):
    """Saves where the train loader is with each checkpoint, and goes on there.

    ::

        class Trainer(transformers.Trainer):
            def get_train_dataloader(self):
                return infeed.torch.Loader(pipeline)

        args = TrainingArguments(..., ignore_data_skip=True)
        trainer = Trainer(model, args, callbacks=[LoaderState()])
        trainer.train(resume_from_checkpoint=True)

    The state lies in ``trainer_state.json``. A resumed run reads nothing of what was
    consumed; ``ignore_data_skip`` keeps the Trainer from skipping as many batches once
    more. ``gradient_accumulation_steps`` must divide the batches of an epoch.
    """

    def __init__(self) -> None:
        self._loader: Any = None

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        # The Trainer asks once before there is a loader.
        saved = None if self._loader is None else self._loader.state_dict()
        return {"args": {}, "attributes": {"saved": saved}}

    def on_train_begin(
        self, args: Any, state: Any, control: Any, **kwargs: Any
    ) -> None:
        """Goes on where the checkpoint was that the Trainer resumes from.

        Raises:
            ConfigError: The Trainer would skip batches itself, or the loader has no
                state, or the checkpoint's is of another run.
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
                "LoaderState: the Trainer would skip the batches that the loader "
                "leaves out already; set ignore_data_skip=True in TrainingArguments"
            )
        entry = state.stateful_callbacks.get(type(self).__name__)
        saved = entry and entry["attributes"]["saved"]
        if saved is None:
            raise ConfigError(
                "LoaderState: the checkpoint was saved without it, so nobody knows "
                "where the loader was; resume without it and without ignore_data_skip"
            )
        self._loader.load_state_dict(saved)
