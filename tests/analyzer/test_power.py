"""The power limit of a GPU that does not tell one."""

from dataclasses import replace

import numpy as np
import pytest

from analyzer.evidence.power import limits
from analyzer.window.window import Span

from .scene import gpu, healthy

ONE = healthy(nodes=1, seconds=60.0, gpus=1)
_COLUMN = "power_limit_watts_max"


def limit(model: str, read: float | None = None) -> float:
    scene = ONE.changed(gpu(), {"power_limit_watts": read})
    (here,) = scene.inventories
    here = replace(here, gpus=tuple(replace(it, model=model) for it in here.gpus))
    window = replace(scene, inventories=(here,)).window()
    (watts,) = limits(window, window.get("gpu", Span.STEADY), _COLUMN).tolist()
    return float(watts)


@pytest.mark.parametrize(
    ("model", "watts"),
    [
        ("NVIDIA H100 80GB HBM3", 700.0),
        ("NVIDIA H100 PCIe", 350.0),
        ("NVIDIA H100 NVL", 400.0),
        ("NVIDIA H200", 700.0),
        ("NVIDIA H200 NVL", 600.0),
        ("NVIDIA A100-SXM4-80GB", 400.0),
        ("NVIDIA A100-PCIE-40GB", 250.0),
        ("NVIDIA A100 80GB PCIe", 300.0),
        ("NVIDIA L4", 72.0),
        ("NVIDIA L40S", 350.0),
        ("Tesla T4", 70.0),
        ("Tesla V100-SXM2-32GB", 300.0),
        ("NVIDIA L40", 300.0),
        ("Tesla V100-PCIE-16GB", 250.0),
        ("NVIDIA B200", 1000.0),
        ("NVIDIA GB200", 1200.0),
    ],
)
def test_it_is_what_its_model_is_sold_with(model: str, watts: float) -> None:
    assert limit(model) == watts
    assert limit(model, 250.0) == 250.0


@pytest.mark.parametrize("model", ["unknown", "NVIDIA RTX A4000", "NVIDIA A10G"])
def test_of_other_models_nobody_knows(model: str) -> None:
    assert np.isnan(limit(model))
