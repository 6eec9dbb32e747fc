"""The states of nodes from `scontrol -o show node`, which all versions write in the same way."""

import re
from collections.abc import Iterator
from datetime import datetime, timezone

from gpuvigil.model import ScheduledNode

from . import counts
from .jobs_json import UnreadableError, printable

_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z_]*)=")
_REASON = re.compile(r"\sReason=(.*?)(?:\sComment=|$)")  # an administrator's own words
# When it was set, by the controller's SLURM_TIME_FORMAT=%s: ten digits, from 2001 to 2286.
_SET_AT = re.compile(r"(?<=@)\d{10}(?=\]$)")
_PLAIN = frozenset({"IDLE", "ALLOCATED", "MIXED", "COMPLETING"})


def read(text: str) -> tuple[ScheduledNode, ...]:
    """Nodes from `scontrol -o show node -d`; UnreadableError for none."""
    found = tuple(_nodes(text))
    if not found:
        raise UnreadableError("scontrol named no node")
    return found


def is_odd(node: ScheduledNode) -> bool:
    """Whether there is more to say of a node than that it works or could."""
    return node.reason is not None or not set(node.states) <= _PLAIN


def _nodes(text: str) -> Iterator[ScheduledNode]:
    for line in text.splitlines():
        said = _pairs(line)
        if "NodeName" in said and "State" in said:
            # `IDLE+DRAIN`; `*` does not answer, `$ % ! # ~ @ ^ -` are about power, reboots and reservations.
            words = [word.strip("*$%!#~@^-") for word in said["State"].split("+")]
            marks = ["NOT_RESPONDING"] if "*" in said["State"] else []
            yield ScheduledNode(
                name=said["NodeName"],
                states=tuple(word for word in (*words, *marks) if word),
                reason=_reason(reason[1].strip()) if (reason := _REASON.search(line)) else None,
                gpus=counts.gpus(said.get("Gres", "")),
                gpus_used=counts.gpus(said.get("GresUsed", "")),
            )


def _reason(text: str) -> str | None:
    """Return a reason as people read it: `fan noise [root@2026-11-30T23:30:03Z]`."""
    return printable(_SET_AT.sub(_moment, text))


def _moment(seconds: re.Match[str]) -> str:
    return f"{datetime.fromtimestamp(int(seconds[0]), timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def _pairs(line: str) -> dict[str, str]:
    """The first value of each key; one that holds spaces goes to the next key."""
    keys = list(_KEY.finditer(line))
    ends = [*(key.start() for key in keys[1:]), len(line)][: len(keys)]
    said: dict[str, str] = {}
    for key, end in zip(keys, ends, strict=True):
        said.setdefault(key[1], line[key.end() : end].strip())
    return said
