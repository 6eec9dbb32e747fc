"""The names that messages use for subjects."""

from collections.abc import Iterable

from gpuvigil.model import Subject
from gpuvigil.numbers_in_words import ranges
from gpuvigil.topology.link_names import port_name

from .window import Window


def label(window: Window, subject: Subject) -> str:
    """Return a name like `sim-003`, `sim-003 GPU 5`, `node-7 mlx5_0` or `leaf1 port 40`."""
    if subject.kind == "node":
        return subject.node
    if subject.kind == "port":
        return port_name(subject)
    index = _index(window, subject)
    return f"{subject.node} GPU {subject.gpu if index is None else index}"


def gpus(window: Window, subjects: Iterable[Subject]) -> str:
    """Return `8 GPUs (GPU 0-7)` or `1 GPU (GPU 3)`, empty without GPUs.

    The count stands alone when an index is unknown or the GPUs are of several nodes.
    """
    those = {subject for subject in subjects if subject.kind == "gpu"}
    if not those:
        return ""
    count = f"{len(those)} GPU{'s' if len(those) > 1 else ''}"
    known = [_index(window, gpu) for gpu in those]
    indices = sorted(index for index in known if index is not None)
    if len(indices) < len(those) or len({gpu.of_node() for gpu in those}) > 1:
        return count
    return f"{count} (GPU {ranges(indices)})"


def _index(window: Window, gpu: Subject) -> int | None:
    """Return the NVML index of a GPU, None when no inventory and no row tells it."""
    inventory = window.inventories.get(gpu.of_node().key)
    if inventory is not None:
        for known in inventory.gpus:
            if known.uuid == gpu.gpu and known.index is not None:
                return known.index
    row = window.newest(gpu)
    return None if row is None else row.get("index")
