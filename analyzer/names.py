"""What people call a subject."""

from gpuvigil.model import Subject

from .window import Window


def label(window: Window, subject: Subject) -> str:
    """`sim-003`, `sim-003 GPU 5` or `node-7 port mlx5_0/1`."""
    if subject.kind == "node":
        return subject.node
    if subject.kind == "port":
        return f"{subject.node} port {subject.device}/{subject.port}"
    index = _index(window, subject)
    return f"{subject.node} GPU {subject.gpu if index is None else index}"


def _index(window: Window, gpu: Subject) -> int | None:
    """The NVML index of a GPU, None when no inventory and no row tells it."""
    inventory = window.inventories.get(gpu.of_node().key)
    if inventory is not None:
        for known in inventory.gpus:
            if known.uuid == gpu.gpu and known.index is not None:
                return known.index
    row = window.newest(gpu)
    return None if row is None else row.get("index")
