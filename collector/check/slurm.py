"""Taking a node out of Slurm's hands: only when nobody else has anything to say about it.

`scontrol` of Slurm 22.05: `-o show node` prints `State=IDLE+DRAIN` and `Reason=... [root@time]` in
one line; the words after `Reason=` go on until ` [`.
"""

import os
import re
import socket
import subprocess
import time
from collections.abc import Sequence

from gpuvigil.model import Finding

from . import words
from .callers import drains
from .facts import Facts

_OURS = "gpuvigil"
_LONGEST_REASON = 200
_TAKEN = {
    *("DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING", "MAINT", "FUTURE"),
    *("REBOOT_REQUESTED", "REBOOT_ISSUED", "POWERING_DOWN", "POWERED_DOWN", "POWER_DOWN"),
}
_STATE = re.compile(r"\bState=(\S+)")
_REASON = re.compile(r"\bReason=(.*?)(?: \[[^\]]*\]|$)")


def drain(facts: Facts, found: Sequence[Finding], node: str | None, deadline: float) -> str:
    """Drain the node when a finding asks for it; what was done, in one line.

    `node` is its name in Slurm, else what slurmd says, else the host's. `deadline` is a value of
    `time.monotonic`.
    """
    worst = [finding for finding in found if drains(finding)]
    if not worst:
        return "not drained: nothing critical is certain"
    name = node or os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    code, said = _scontrol(["-o", "show", "node", name], deadline)
    if code != 0:
        return f"not drained: scontrol show node {name}: {said}"
    why_not = why_left_alone(said)
    if why_not:
        return f"not drained: {name} {why_not}"
    update = ["update", f"nodename={name}", "state=drain", f"reason={reason(facts, worst)}"]
    code, said = _scontrol(update, deadline)
    return f"drained {name}" if code == 0 else f"not drained: scontrol update {name}: {said}"


def why_left_alone(shown: str) -> str:
    """Why a node that `scontrol -o show node` describes so must not be drained; empty: it may."""
    state, said = _STATE.search(shown), _REASON.search(shown)
    why = said[1].strip() if said else ""
    if why:
        whose = "already says" if why.startswith(_OURS) else "has somebody's reason"
        return f"{whose}: {why}"
    words_of_state = set(re.split(r"[+*~#$@!%^-]+", state[1].upper())) if state else set()
    taken = sorted(words_of_state & _TAKEN)
    return f"is {' and '.join(taken)} already" if taken else ""


def reason(facts: Facts, found: Sequence[Finding]) -> str:
    """`gpuvigil gpu_lost: GPU 3 (...): ... [evidence]`, in one line of plain ASCII."""
    more = f" (+{len(found) - 1} more)" if len(found) > 1 else ""
    text = f"{_OURS} {found[0].fault}: {words.claim(facts, found[0])}"
    # Slurm shows a time in square brackets behind the reason, and keeps what is quoted.
    plain = re.sub(r"[^ -~]|[\"'\\]", "?", text.replace("[", "(").replace("]", ")"))
    return plain[: _LONGEST_REASON - len(more)] + more


def _scontrol(arguments: Sequence[str], deadline: float) -> tuple[int, str]:
    """Its exit code and what it said; it is killed when the time is over."""
    try:
        done = subprocess.run(
            ["scontrol", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=max(deadline - time.monotonic(), 0.05),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, "no answer in time"
    except OSError as error:
        return 1, f"cannot be started: {error.strerror}"
    return done.returncode, done.stdout.decode(errors="replace").strip()
