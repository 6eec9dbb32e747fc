"""The GPUs on the PCI bus at each tick, read from sysfs alone, so also while the driver hangs."""

from pathlib import Path

from ..samples.messages import LOADED, Tick
from ..sensors import files
from ..sensors.pci import PciGpu, gpu_at, same_form

_DRIVER = "nvidia"
# A device that stays at its address is inspected again after this many reads of the bus.
_READS_OF_A_DEVICE = 10


class Bus:
    """Lists the PCI bus at each tick and inspects only the devices that are new on it."""

    def __init__(self, sysfs_root: Path) -> None:
        self._folder = f"{sysfs_root}/bus/pci/devices"
        self._others: frozenset[str] = frozenset()  # devices that are no GPUs
        self._found: dict[str, PciGpu] = {}
        self._unlisted: frozenset[str] | None = None
        self._reads = 0

    def read(self) -> tuple[str, ...] | None:
        """Return the addresses of NVIDIA GPUs; None when the kernel lists no bus."""
        names = frozenset(files.names(self._folder))
        self._reads += 1
        look_again = not self._reads % _READS_OF_A_DEVICE
        stay = {} if look_again else {k: gpu for k, gpu in self._found.items() if k in names}
        looked = ((name, self._gpu_at(name)) for name in names - self._others - stay.keys())
        self._found = stay | {name: gpu for name, gpu in looked if gpu is not None}
        self._others = names - self._found.keys()
        return tuple(sorted(self._gpus)) if names else None

    @property
    def gpus(self) -> tuple[PciGpu, ...]:
        """All GPUs of the last `read`, including other vendors', as last inspected."""
        return tuple(gpu for _, gpu in sorted(self._found.items()))

    @property
    def _gpus(self) -> frozenset[str]:
        return frozenset(name for name, gpu in self._found.items() if gpu.vendor == "NVIDIA")

    def has_appeared(self, tick: Tick | None) -> bool:
        """Return whether the driver holds a GPU on the bus that it did not list in this tick.

        The driver's library lists GPUs when it is started. A GPU that was already unlisted before
        is not worth another start.
        """
        if tick is None or tick.state != LOADED or any(g.identity is None for g in tick.gpus):
            return False
        listed = {same_form(g.identity.pci_address or "") for g in tick.gpus if g.identity}
        rest = self._gpus - listed
        before, self._unlisted = self._unlisted, rest
        if before is None or rest <= before:
            return False
        held = {name for name in rest - before if self._is_held(name)}
        # A GPU that its driver has not taken yet is inspected again.
        self._unlisted = rest & (before | held)
        return bool(held)

    def _gpu_at(self, name: str) -> PciGpu | None:
        return gpu_at(f"{self._folder}/{name}")

    def _is_held(self, name: str) -> bool:
        gpu = self._gpu_at(name)
        return gpu is not None and gpu.driver == _DRIVER
