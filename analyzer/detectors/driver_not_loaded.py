"""A node with NVIDIA GPUs on its PCI bus for which no driver is loaded."""

from datetime import timedelta

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.faults.symptoms import NOUVEAU, without_driver
from gpuvigil.model import BusGpu, Evidence, Finding, Inventory

from ..window.window import Window
from . import Detector

_FAULT = FAULTS["driver_not_loaded"]
# Time for a boot, or for a driver to be reloaded: ours.
_EXPECTED_AFTER = timedelta(minutes=5)
# A node that never had a driver may be getting its first: an installation builds it for the kernel.
_UNEXPECTED_AFTER = timedelta(minutes=30)


def nodes_without_driver(window: Window) -> list[Finding]:
    """Return nodes whose collector has seen GPUs on the bus without a driver for longer than a boot takes."""
    lacking = [one for one in window.inventories.values() if _lacks_driver(window, one)]
    return [_finding(one) for one in sorted(lacking, key=lambda one: one.subject)]


def _lacks_driver(window: Window, one: Inventory) -> bool:
    if one.driverless_since is None:
        return False
    patience = _EXPECTED_AFTER if _expects(one) else _UNEXPECTED_AFTER
    return window.now - one.driverless_since >= patience


def _expects(one: Inventory) -> bool:
    return bool(one.gpus) or one.expects_gpus


def _finding(one: Inventory) -> Finding:
    assert one.driverless_since is not None
    on_bus = [gpu for gpu in one.on_bus if gpu.vendor == "NVIDIA"]
    nouveau = any(gpu.driver == NOUVEAU for gpu in on_bus)
    severity, action = without_driver(expected=_expects(one), nouveau=nouveau)
    return Finding(
        fault="driver_not_loaded",
        subject=one.subject,
        severity=severity,
        since=one.driverless_since,
        evidence=(
            Evidence(name="NVIDIA GPUs on the PCI bus", value=str(len(on_bus))),
            Evidence(name="held by", value=_holders(on_bus)),
            Evidence(name="GPUs were read here before", value=str(len(one.gpus))),
        ),
        detector="driver_not_loaded",
        action=action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
        certain=True,
    )


def _holders(gpus: list[BusGpu]) -> str:
    """Return the kernel drivers that hold the GPUs, by name, or `no driver`."""
    return ", ".join(sorted({gpu.driver or "no driver" for gpu in gpus}))


DETECTOR = Detector(
    name="driver_not_loaded",
    find=nodes_without_driver,
    faults=found_by("driver_not_loaded"),
    needs=(),
    sentence="A node with NVIDIA GPUs on its PCI bus for which no driver is loaded.",
    source="the PCI bus in sysfs, and NVML_ERROR_DRIVER_NOT_LOADED",
)
