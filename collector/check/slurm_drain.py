"""Drains a node in Slurm: only within a budget, and only when nobody else has set a reason.

All nodes of a cluster may find the same thing in the same second, and none of them knows of the
others. So a node drains itself, waits until the controller's second is over, and asks again: of all
that are out of service the earliest may stay out, and the others undrain themselves. The controller
handles one change after another and stamps each reason, so every node reads the same order.
"""

import os
import re
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuvigil.model import Finding
from gpuvigil.schedulers.slurm_nodes import ENVIRONMENT, SlurmNode, most_out_of_service, nodes

from . import findings_text
from .facts import Facts

_OURS = "gpuvigil"
_LONGEST_REASON = 200
_TAKEN = {
    *("DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING", "MAINT", "FUTURE"),
    *("REBOOT_REQUESTED", "REBOOT_ISSUED", "POWERING_DOWN", "POWERED_DOWN", "POWER_DOWN"),
}
_COMMAND_SECONDS = 1.5
# Slurm's times have a resolution of one second.
_SETTLE_SECONDS = 1.1
# At most four commands and the wait between them.
LONGEST_SECONDS = 4 * _COMMAND_SECONDS + _SETTLE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What was done, in one line, and whether the node is out of service now."""

    line: str
    out: bool


class _Unanswered(Exception):
    """scontrol did not answer, or refused; the message says why."""


def drain(facts: Facts, worst: Sequence[Finding], node: str | None, most_percent: float) -> Drained:
    """Drain the node for the findings in `worst`, within `most_percent` of the cluster's nodes.

    `node` is its name in Slurm; by default the name from slurmd, else the host's.
    """
    if not worst:
        return Drained(line="not drained: nothing critical is certain", out=False)
    name = node or os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    try:
        known = _nodes()
        if name not in known:
            return Drained(line=f"not drained: Slurm knows no node {name}", out=False)
        why_not = drain_refusal(known[name]) or over_budget(known, name, most_percent)
        if why_not:
            return Drained(line=f"not drained: {why_not}", out=known[name].out_of_service)
        _scontrol("update", f"nodename={name}", "state=drain", f"reason={reason(facts, worst)}")
    except _Unanswered as error:
        return Drained(line=f"not drained: {error}", out=False)
    return _kept_or_given_back(name, most_percent)


def _kept_or_given_back(name: str, most_percent: float) -> Drained:
    """Undrain the node if the budget no longer holds once every node's drain has arrived."""
    time.sleep(_SETTLE_SECONDS)
    try:
        why_not = over_budget(_nodes(), name, most_percent)
    except _Unanswered as error:
        why_not = str(error)
    if not why_not:
        return Drained(line=f"drained {name}", out=True)
    try:
        # Unlike `resume` it leaves the rest of the node's state as it is.
        _scontrol("update", f"nodename={name}", "state=undrain")
    except _Unanswered as error:
        line = f"drained {name}, and could not undo it: {error}; it should not be: {why_not}"
        return Drained(line=line, out=True)
    return Drained(line=f"not drained: {why_not}", out=False)


def drain_refusal(node: SlurmNode) -> str:
    """Return why this node must not be drained, whatever the budget; empty: it may."""
    if node.reason:
        whose = "already says" if node.reason.startswith(_OURS) else "has somebody's reason"
        return f"{node.name} {whose}: {node.reason}"
    taken = sorted(node.states & _TAKEN)
    return f"{node.name} is {' and '.join(taken)} already" if taken else ""


def over_budget(known: Mapping[str, SlurmNode], name: str, most_percent: float) -> str:
    """Return why this node may not go or stay out of service; empty: it may.

    Of the nodes that are out of service the earliest count first, those of the same second by name.
    """
    mine = known.get(name)
    earlier = sum(
        one.out_of_service
        and (mine is None or not mine.out_of_service or _order(one) < _order(mine))
        for one in known.values()
    )
    most = most_out_of_service(len(known), most_percent)
    if earlier < most:
        return ""
    are = "node is" if earlier == 1 else "nodes are"
    return (
        f"{earlier} of {len(known)} {are} out of service, and actions.most_percent"
        f" ({most_percent:g} %) allows {most}"
    )


def _order(node: SlurmNode) -> tuple[int, str]:
    return node.reason_at or 0, node.name


def reason(facts: Facts, found: Sequence[Finding]) -> str:
    """Return `gpuvigil gpu_lost: GPU 3 (...): ... [evidence]`, in one line of plain ASCII."""
    more = f" (+{len(found) - 1} more)" if len(found) > 1 else ""
    text = f"{_OURS} {found[0].fault}: {findings_text.claim(facts, found[0])}"
    # Slurm shows a time in square brackets behind the reason, and keeps quotes.
    plain = re.sub(r"[^ -~]|[\"'\\]", "?", text.replace("[", "(").replace("]", ")"))
    return plain[: _LONGEST_REASON - len(more)] + more


def _nodes() -> Mapping[str, SlurmNode]:
    known = nodes(_scontrol("-o", "show", "node"))
    if not known:
        raise _Unanswered("scontrol show node named no node")
    return known


def _scontrol(*arguments: str) -> str:
    """Return scontrol's output; _Unanswered when it fails or runs out of time and is killed."""
    what = " ".join(["scontrol", *(word for word in arguments[:3] if not word.startswith("-"))])
    try:
        done = subprocess.run(
            ["scontrol", *arguments],
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _Unanswered(f"{what}: no answer in {_COMMAND_SECONDS:g} s") from None
    except OSError as error:
        raise _Unanswered(f"{what}: cannot be started: {error.strerror}") from None
    said = done.stdout.decode(errors="replace").strip()
    if done.returncode != 0:
        raise _Unanswered(f"{what}: {said}")
    return said
