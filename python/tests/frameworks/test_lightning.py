"""A Lightning run that is killed in the middle of an epoch, and resumed."""

import json

from installed import framework_test, needed
from running import run

import infeed
from infeed import sources

needed("torch")
needed("lightning")
pytestmark = framework_test

# Writes a checkpoint every second step; the run that is told to dies in its tenth.
SCRIPT = """
import json, os, signal, sys
import lightning as L
import torch
import infeed, infeed.torch
from infeed import sources

folder, log, dies = sys.argv[1], sys.argv[2], sys.argv[3] == "dies"

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, index):
        with open(log, "a") as file:
            entry = [self.current_epoch, index, batch["x"].tolist()]
            file.write(json.dumps(entry) + "\\n")
        if dies and self.global_step == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(batch["x"][:, None].float()).square().mean()

    def train_dataloader(self):
        source = sources.Memory(x=list(range(24)))
        return infeed.torch.Loader(infeed.Pipeline(source).shuffle(seed=1).batch(4))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-4)

trainer = L.Trainer(
    accelerator="cpu",
    max_epochs=3,
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=L.pytorch.callbacks.ModelCheckpoint(
        dirpath=folder, every_n_train_steps=2, save_top_k=-1, filename="{step}"
    ),
)
trainer.fit(Model(), ckpt_path=None if dies else f"{folder}/step=8.ckpt")
"""


def test_a_killed_run_goes_on_in_the_middle_of_its_epoch(tmp_path):
    source = sources.Memory(x=list(range(24)))
    pipeline = infeed.Pipeline(source).shuffle(seed=1).batch(4)
    whole = [
        [epoch, step, batch["x"].tolist()]
        for epoch in range(3)
        for step, batch in enumerate(pipeline)
    ]

    run(SCRIPT, tmp_path, tmp_path / "killed", "dies", killed=True)
    run(SCRIPT, tmp_path, tmp_path / "resumed", "lives")

    def logged(name):
        return [json.loads(line) for line in open(tmp_path / name)]

    assert logged("killed") == whole[:10]
    assert logged("resumed") == whole[8:]
