"""A small training on the CPU, as Lightning and the Hugging Face Trainer run it, which reports its steps.

`python -m tests.training_frameworks lightning|hugging_face DIRECTORY` waits for a line at its last step, and
after its end.
"""

import sys
import time
from pathlib import Path
from typing import Any

import lightning
import torch
import transformers
from lightning.pytorch.callbacks import ModelCheckpoint

from gpuvigil.steps import Steps, hugging_face_callback, lightning_callback
from tests.training import Model

STEPS = 30


class Module(lightning.LightningModule):
    """The same model, as a Lightning module."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(0.05)

    def training_step(self, batch: Any, _: int) -> Any:
        return self.model(batch)["loss"]

    def validation_step(self, batch: Any, _: int) -> None:
        self.model(batch)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class LightningPause(lightning.Callback):
    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == STEPS:
            wait("trained")


class HuggingFacePause(transformers.TrainerCallback):
    def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        if state.global_step == STEPS:
            wait("trained")


def wait(where: str) -> None:
    time.sleep(2.0)  # until the step is written
    print(where, flush=True)  # noqa: T201 - to the test
    sys.stdin.readline()


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
            LightningPause(),
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
        callbacks=[hugging_face_callback(steps), HuggingFacePause()],
    ).train()


def main() -> None:
    kind, directory = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    steps = Steps(str(directory))
    {"lightning": of_lightning, "hugging_face": of_hugging_face}[kind](steps, directory)
    wait("over")


if __name__ == "__main__":
    main()
