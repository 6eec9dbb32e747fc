"""What a receiver has of a node's GPUs, and what tests wait for."""

from collections.abc import Callable

from gpuvigil.lineprotocol import Line
from gpuvigil.model import Unmeasured
from tests.collector.receiver import Receiver, field, newest

UUIDS = [f"GPU-00000000-0000-4000-8000-{gpu:012x}" for gpu in range(4)]


def gpu_row(receiver: Receiver, uuid: str) -> Line | None:
    return newest(receiver.lines("gpu"), "uuid", uuid)


def node_row(receiver: Receiver) -> Line | None:
    return newest(receiver.lines("node"), "node", "n1")


def gpu_field(receiver: Receiver, uuid: str, name: str) -> object:
    line = gpu_row(receiver, uuid)
    return None if line is None else field(line, name)


def node_field(receiver: Receiver, name: str) -> object:
    line = node_row(receiver)
    return None if line is None else field(line, name)


def reason(line: Line | None) -> int | None:
    number = None if line is None else field(line, "unmeasured_reason")
    return None if number is None else int(number)


def rows_are(
    receiver: Receiver, uuids: list[str], wanted: Callable[[Line], bool]
) -> Callable[[], bool]:
    def look() -> bool:
        lines = [gpu_row(receiver, uuid) for uuid in uuids]
        return all(line is not None and wanted(line) for line in lines)

    return look


def is_up(line: Line) -> bool:
    return bool(field(line, "up") == 1)


def is_silent(line: Line) -> bool:
    silent = reason(line) == Unmeasured.DRIVER_NOT_ANSWERING
    return silent and field(line, "up") is None and field(line, "power_watts") is None
