"""A critical fault of hardware carries what a maker's support asks for."""

from dataclasses import replace
from datetime import timedelta

from gpuvigil.model import EventKind

from .scene import NOON, Scene, event, gpu, healthy
from .test_correlate import lost, seen

SECOND = timedelta(seconds=1)


def told(scene: Scene) -> dict[str, str]:
    (found,) = seen(scene).candidates.values()
    assert all(item.detail for item in found.finding.evidence if item.name in {"serial", "kernel"})
    return {item.name: item.value for item in found.finding.evidence}


def known(scene: Scene) -> Scene:
    """With a serial number, and without a part number, for GPU 0 of node 1."""
    return replace(
        scene,
        inventories=tuple(
            replace(
                i, gpus=tuple(replace(g, serial="1652", pci_address="0000:9b:00.0") for g in i.gpus)
            )
            for i in scene.inventories
        ),
    )


def test_a_lost_gpu_says_who_it_is_and_what_the_kernel_said() -> None:
    scene = known(lost(healthy())).with_events(event(EventKind.XID, gpu(), NOON - 20 * SECOND, 79))
    case = told(scene)
    assert (case["serial"], case["slot"], case["model"]) == ("1652", "0000:9b:00.0", "H100")
    assert "part number" not in case
    assert case["kernel"].endswith("NVRM: Xid: 79")
    assert case["collect before any reset"] == "nvidia-bug-report.sh on node-1, as root"


def test_logs_that_its_node_collected_since_are_named_with_their_place() -> None:
    when = NOON - 20 * SECOND
    scene = known(lost(healthy())).with_events(event(EventKind.XID, gpu(), when, 79))
    assert "logs" not in told(scene)
    old = replace(event(EventKind.LOGS, gpu(), when - SECOND), message="logs collected in /old")
    new = replace(event(EventKind.LOGS, gpu(), when + SECOND), message="logs collected in /a.gz")
    assert "logs" not in told(scene.with_events(old))
    assert told(scene.with_events(old, new))["logs"] == "node-1: logs collected in /a.gz"


def test_a_warning_opens_no_case() -> None:
    narrow = known(healthy()).changed(gpu(), {"pcie_width": 8})
    assert not {"serial", "collect before any reset"} & set(told(narrow))
