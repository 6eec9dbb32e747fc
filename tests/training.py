"""One rank of a small training on the CPU, as three frameworks run it, which tells its steps.

`python -m tests.training ddp|lightning|hugging_face DIRECTORY`, with torchrun's variables; one that has
come to its end waits for a line. SIGUSR1 makes the rank's own work 1.3 times as long, or as long as before.
"""

import signal
import sys
import time
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import lightning
import torch
import transformers
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.parallel import DistributedDataParallel

from gpuvigil.steps import Steps, hugging_face_callback, lightning_callback

# What a pass takes without any collective; an evaluation takes far longer.
OWN_SECONDS, EVALUATION_SECONDS, SLOWER = 0.25, 1.0, 1.3
STEPS = 30
factor = [1.0, SLOWER]


class Model(torch.nn.Module):
    """Works for as long as it is told to, and has a gradient."""

    def __init__(self, seconds: float = OWN_SECONDS) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 1)
        self.seconds = seconds

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        time.sleep(self.seconds * factor[0] if self.training else EVALUATION_SECONDS)
        loss = self.linear(x).mean()
        return {"loss": loss, "logits": loss.detach().reshape(1, 1)}


def batches() -> Iterator[Any]:
    return repeat(torch.ones(1, 8))


def ddp(steps: Steps, _: Path) -> None:
    """Until it is killed. Where a rank is gone, gloo raises an error at once; NCCL's ranks wait."""
    torch.distributed.init_process_group("gloo")
    model = steps.watch(DistributedDataParallel(Model()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    try:
        for batch in steps.batches(batches()):
            model(batch)["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()
            steps.done(tokens=8)
    except RuntimeError:
        signal.pause()


class Module(lightning.LightningModule):
    """The same, as Lightning wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(0.05)

    def training_step(self, batch: Any, _: int) -> Any:
        return self.model(batch)["loss"]

    def validation_step(self, batch: Any, _: int) -> None:
        self.model(batch)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def of_lightning(steps: Steps, directory: Path) -> None:
    data = torch.utils.data.DataLoader([torch.ones(8)] * STEPS)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        val_check_interval=STEPS // 3,
        limit_val_batches=1,
        callbacks=[
            lightning_callback(steps),
            ModelCheckpoint(dirpath=directory / "saved", every_n_train_steps=10),
        ],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), data, data)


def of_hugging_face(steps: Steps, directory: Path) -> None:
    data = [{"x": torch.ones(8), "labels": torch.ones(1)}] * STEPS
    arguments = transformers.TrainingArguments(
        output_dir=str(directory / "saved"),
        max_steps=STEPS,
        per_device_train_batch_size=1,
        per_device_eval_batch_size=STEPS,
        eval_strategy="steps",
        eval_steps=10,
        save_steps=10,
        remove_unused_columns=False,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    transformers.Trainer(
        model=Model(0.05),
        args=arguments,
        train_dataset=data,
        eval_dataset=data,
        callbacks=[hugging_face_callback(steps)],
    ).train()


def main() -> None:
    kind, directory = sys.argv[1], Path(sys.argv[2])
    signal.signal(signal.SIGUSR1, lambda *_: factor.reverse())
    torch.set_num_threads(1)
    steps = Steps(str(directory))
    {"ddp": ddp, "lightning": of_lightning, "hugging_face": of_hugging_face}[kind](steps, directory)
    time.sleep(2.0)  # until it is written
    print("done", flush=True)  # noqa: T201 - to the test
    sys.stdin.readline()


if __name__ == "__main__":
    main()
