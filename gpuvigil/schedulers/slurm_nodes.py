"""Slurm's nodes as `scontrol -o show node` prints them, and how many may be out of service.

The meaning of states is in `gpuvigil.schedulers.out_of_service`; run with Slurm 22.05.
`SLURM_TIME_FORMAT=%s` gives a reason's time as seconds since 1970.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .out_of_service import NOT_RESPONDING, takes_jobs

ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
DRAINED = "DRAIN"

_NAME = re.compile(r"NodeName=(\S+)")
_STATE = re.compile(r"\sState=(\S+)")
# Text that people write comes after everything else, and may look like any key.
_WRITTEN = re.compile(r"\s(?:Reason|Comment|Extra)=")
_REASON = re.compile(r"\sReason=(.*?)(?: \[[^\[\]]*@([^\[\]]*)\])?(?:\sComment=.*)?$")
_GPUS = re.compile(r"\bgpu(?::[^:,()\s=]+)?:(\d+)")
_GRES = re.compile(r"\sGres=(\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """A node as the controller describes it; `reason_at` is None when no reason has a time."""

    name: str
    states: frozenset[str]
    reason: str = ""
    reason_at: int | None = None  # seconds since 1970, by the controller's clock
    gpus: int = 0

    @property
    def out_of_service(self) -> bool:
        """Whether the node is drained, down or failing.

        A node that does not respond is not: Slurm says so for a moment after every undrain, and sets the node
        down when it lasts (`SlurmdTimeout`).
        """
        return not takes_jobs(self.states - {NOT_RESPONDING})


def most_out_of_service(nodes: int, most_percent: float) -> int:
    """Return how many of these nodes may be out of service at once: whole nodes, rounded down."""
    return int(nodes * most_percent / 100.0)


def nodes(shown: str) -> Mapping[str, SlurmNode]:
    """Parse the output of `scontrol -o show node`, a node per line, by name; other lines are ignored."""
    found = (_node(line) for line in shown.split("\n"))
    return {one.name: one for one in found if one is not None}


def _node(line: str) -> SlurmNode | None:
    """Parse a line. In `State=IDLE+DRAIN*` the trailing signs are about power, reboots and answers."""
    slurms = _WRITTEN.split(line, maxsplit=1)[0]
    name, state = _NAME.match(slurms), _STATE.search(slurms)
    if name is None or state is None:
        return None
    words = {word.strip("*$%!#~@^-") for word in state[1].split("+")}
    if "*" in state[1]:
        words.add(NOT_RESPONDING)
    reason, gres = _REASON.search(line), _GRES.search(slurms)
    at = reason[2] if reason else None
    return SlurmNode(
        name=name[1],
        states=frozenset(words - {""}),
        reason=reason[1].strip() if reason else "",
        reason_at=int(at) if at and at.isdigit() else None,
        gpus=sum(map(int, _GPUS.findall(gres[1]))) if gres else 0,
    )
