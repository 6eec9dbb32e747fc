"""Which device file has which of Slurm's GPU numbers, from gres.conf for this node.

Slurm numbers a node's GPUs in the order of its gres.conf; with AutoDetect in the order of their PCI
addresses (gres.conf(5) of 22.05, "AutoDetect": the minor number of `/dev/nvidiaX` is not
necessarily the number of the device). So a number is never a position among the driver's GPUs.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuvigil.hostlist import expand

from ..sensors import files

_DEVICE = re.compile(r"nvidia(\d+)$")
_DEEPEST_INCLUDE = 3


@dataclass(frozen=True, slots=True)
class Gres:
    """The GPUs of a node in gres.conf.

    `minors`: the device's minor number for each of Slurm's numbers, None where it has no device
    file. `None` as a whole: Slurm finds the GPUs by itself, and numbers them by PCI address.
    """

    minors: tuple[int | None, ...] | None


def read(slurm_conf: str, node: str) -> Gres:
    """Return what the gres.conf beside a slurm.conf says of a node; without a file, as AutoDetect.

    An empty `slurm_conf` means that Slurm did not say where its slurm.conf is: also as AutoDetect.
    """
    beside = Path(slurm_conf).parent / "gres.conf"
    lines = list(_lines(beside, _DEEPEST_INCLUDE)) if slurm_conf else []
    minors: list[int | None] = []
    for words in lines:
        ours = "nodename" not in words or node in expand(words["nodename"])
        if ours and words.get("name", "").lower() == "gpu":
            minors += _minors(words)
    return Gres(tuple(minors) if minors else None)


def _minors(words: dict[str, str]) -> Sequence[int | None]:
    """Return the minors in one line: a GPU per file, one with many files, or as many as counted."""
    if "multiplefiles" in words:
        return [next((it for it in _of_files(words["multiplefiles"]) if it is not None), None)]
    if "file" in words:
        return _of_files(words["file"])
    count = words.get("count", "1")
    return [None] * (int(count) if count.isdigit() else 1)


def _of_files(expression: str) -> list[int | None]:
    found = [_DEVICE.search(name) for name in expand(expression)]
    return [int(device[1]) if device else None for device in found]


def _lines(file: Path, deepest: int) -> Iterator[dict[str, str]]:
    """Yield each line's words by their lower-case names, with included files' lines in place."""
    for line in (files.read(str(file)) or "").replace("\\\n", " ").splitlines():
        text = line.partition("#")[0].strip()
        first, _, rest = text.partition(" ")
        if first.lower() == "include" and deepest:
            yield from _lines(file.parent / rest.strip(), deepest - 1)
        elif text:
            pairs = (word.partition("=") for word in text.split())
            yield {key.lower(): value for key, equals, value in pairs if equals}
