"""The places that an incident covers, as `sim-001 GPU 0-7`; pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpuvigil.model import SWITCH_DEVICE, Subject
from gpuvigil.numbers_in_words import natural, ranges
from gpuvigil.topology.link_names import ITSELF, device_name

# The most places that are listed one by one.
MOST_PLACES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """One node or switch and its parts, as `GPU 0-7` or `port mlx5_0`; empty for the whole."""

    node: Subject
    parts: str
    only: Subject | None = None  # the part, if there is exactly one


def covered(
    subjects: Iterable[Subject], index: Callable[[Subject], int | None]
) -> Sequence[Covered]:
    """Return an entry for each node, in natural order; `index` returns a GPU's index."""
    nodes: dict[Subject, list[Subject]] = {}
    for one in subjects:
        nodes.setdefault(one.of_node(), []).append(one)
    ordered = sorted(nodes, key=lambda it: (it.cluster, natural(it.node)))
    return [
        Covered(node=node, parts=_parts(nodes[node], index), only=_only(nodes[node]))
        for node in ordered
    ]


def _only(subjects: Sequence[Subject]) -> Subject | None:
    """Return the GPU or port if it is the only covered part of a node, else None."""
    return subjects[0] if len(subjects) == 1 and subjects[0].kind != "node" else None


def _parts(subjects: Sequence[Subject], index: Callable[[Subject], int | None]) -> str:
    gpus = [one for one in subjects if one.gpu is not None]
    known = [index(gpu) for gpu in gpus]
    numbers = sorted(number for number in known if number is not None)
    said = [f"GPU {ranges(numbers)}"] if numbers else []
    unknown = len(gpus) - len(numbers)
    said += [f"{unknown} GPU{'s' if unknown > 1 else ''}"] if unknown else []
    ports = sorted((_port(one) for one in subjects if one.device is not None), key=natural)
    named = [port for port in ports if port]
    said += [f"port{'s' if named[1:] else ''} {', '.join(named)}"] if named else []
    return " · ".join(said)


def _port(one: Subject) -> str:
    """Return a port's name; empty for a whole switch, which is its port 0."""
    if one.device == SWITCH_DEVICE:
        return "" if one.port == ITSELF else one.port or ""
    return device_name(one.device, one.port)
