"""A Lightning run that is killed in the middle of an epoch, and resumed."""

import json

from requirements import framework_test, require
from running import run

import infeed
from infeed import sources

require("torch")
require("lightning")
pytestmark = framework_test

# Writes a checkpoint every second step. The first run is a separate process that is
# killed in its tenth step; the second continues from the eighth.
SCRIPT = """
import json, os, signal, sys
import lightning as L
import torch
import infeed, infeed.torch
from infeed import sources

folder = sys.argv[1]

class Model(L.LightningModule):
    def __init__(self, log, dies):
        super().__init__()
        self.log_path, self.dies = f"{folder}/{log}", dies
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, index):
        with open(self.log_path, "a") as file:
            entry = [self.current_epoch, index, batch["x"].tolist()]
            file.write(json.dumps(entry) + "\\n")
        if self.dies and self.global_step == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(batch["x"][:, None].float()).square().mean()

    def train_dataloader(self):
        source = sources.Memory(x=list(range(24)))
        return infeed.torch.Loader(infeed.Pipeline(source).shuffle(seed=1).batch(4))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-4)

def train(model, checkpoint):
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
    trainer.fit(model, ckpt_path=checkpoint)

child = os.fork()
if child == 0:
    try:
        train(Model("killed", dies=True), None)
    finally:
        os._exit(0)
assert os.waitpid(child, 0)[1] == signal.SIGKILL
train(Model("resumed", dies=False), f"{folder}/step=8.ckpt")
"""


def test_a_killed_run_continues_in_the_middle_of_its_epoch(tmp_path):
    source = sources.Memory(x=list(range(24)))
    pipeline = infeed.Pipeline(source).shuffle(seed=1).batch(4)
    whole = [
        [epoch, step, batch["x"].tolist()]
        for epoch in range(3)
        for step, batch in enumerate(pipeline)
    ]

    run(SCRIPT, tmp_path)

    def read_log(name):
        return [json.loads(line) for line in open(tmp_path / name)]

    assert read_log("killed") == whole[:10]
    assert read_log("resumed") == whole[8:]
