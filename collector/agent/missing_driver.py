"""Since when this node has had NVIDIA GPUs on its PCI bus and no driver for them."""

import os
from collections.abc import Iterable
from datetime import datetime

from gpuvigil.config import CollectorSettings
from gpuvigil.log import Log

from ..owners import gres
from ..samples.messages import CHANGED, NO_DRIVER, STARTING, Tick
from ..sensors.pci import PciGpu
from .node_config import is_contained
from .saved_state import Remembered

log = Log("collector")

_SLURM_CONF = "/etc/slurm/slurm.conf"


class MissingDriver:
    """Keeps `driverless_since` of the saved state."""

    def __init__(self, settings: CollectorSettings, known: Remembered) -> None:
        self._known = known
        self._contained = is_contained(settings.sysfs_root)

    def update(self, tick: Tick | None, gpus: Iterable[PciGpu], now: datetime) -> bool:
        """Update `driverless_since` from a tick and the GPUs on the bus; return whether it changed."""
        if tick is None or tick.state in {STARTING, CHANGED}:
            return False
        before = self._known.driverless_since
        lacks = tick.state == NO_DRIVER and any(map(self._lacks_driver, gpus))
        self._known.driverless_since = (before or now) if lacks else None
        if lacks and before is None:
            log.warning("NVIDIA GPUs are on the PCI bus, and no driver is loaded")
        return (before is None) == lacks

    def _lacks_driver(self, gpu: PciGpu) -> bool:
        """Return whether a GPU has no driver.

        In a container without the driver's library, the kernel's driver may well hold the GPU.
        """
        return gpu.is_unbound or (gpu.for_nvidia and not self._contained)


def expects_gpus(known: Remembered, node: str) -> bool:
    """Return whether this node had GPUs before, or Slurm's gres.conf names some for it."""
    conf = os.environ.get("SLURM_CONF", _SLURM_CONF)
    return bool(known.gpus) or gres.read(conf, node).minors is not None


def unsupported(gpus: Iterable[PciGpu]) -> list[str]:
    """Return the GPUs of other vendors than NVIDIA, in words for people."""
    return [gpu.words for gpu in gpus if gpu.vendor != "NVIDIA"]
