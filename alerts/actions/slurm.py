"""Slurm's own commands: which state its nodes are in, and how that is changed."""

import os
import re
import subprocess
from collections.abc import Mapping

from gpuvigil.errors import GpuvigilError

from .decide import Machine, Step, What

_NAME = re.compile(r"NodeName=(\S+)")
_STATE = re.compile(r"\sState=(\S+)")
# What people write stands behind everything else, and may look like any key.
_WRITTEN = re.compile(r"\s(?:Reason|Comment|Extra)=")
_REASON = re.compile(r"\sReason=(.*?)(?: \[[^\[\]]*@[^\[\]]*\])?(?:\sComment=.*)?$")


class SlurmError(GpuvigilError):
    """Slurm did not answer, or would not: says which command, and why."""


class Slurm:
    """The cluster of this machine's slurm.conf."""

    def __init__(self, directory: str, timeout_seconds: float) -> None:
        self._directory = directory
        self._timeout_seconds = timeout_seconds

    def machines(self, node: str = "") -> Mapping[str, Machine]:
        """All nodes by name, or one; SlurmError when it does not answer, which is never no node."""
        text = self._run("-o", "show", "node", *([node] if node else []))
        found = [machine for line in text.split("\n") if (machine := _machine(line)) is not None]
        if not found:
            raise SlurmError("scontrol named no node")
        return {one.name: one for one in found}

    def do(self, step: Step) -> None:
        """SlurmError when it was refused."""
        changes = (
            ("state=drain", f"reason={step.reason}")
            if step.what is What.DRAIN
            else ("state=resume",)
        )
        self._run("update", f"nodename={step.node}", *changes)

    def _run(self, *words: str) -> str:
        program = os.path.join(self._directory, "scontrol")
        try:
            done = subprocess.run(
                [program, *words],
                env={**os.environ, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SlurmError(
                f"scontrol did not answer within {self._timeout_seconds:g} s"
            ) from None
        except OSError as error:
            raise SlurmError(
                f"{program} cannot be run: {error.strerror}; set slurm.directory"
            ) from None
        said = done.stderr.decode(errors="replace").strip()
        if done.returncode != 0 or (said and words[0] == "update"):
            raise SlurmError(f"scontrol {words[0]} ended with {done.returncode}: {said[-300:]}")
        return done.stdout.decode(errors="replace")


def _machine(line: str) -> Machine | None:
    """`State=IDLE+DRAIN*`: the signs behind a state are about power, reboots and answers."""
    slurms = _WRITTEN.split(line, maxsplit=1)[0]
    name, state = _NAME.match(slurms), _STATE.search(slurms)
    if name is None or state is None:
        return None
    words = {word.strip("*$%!#~@^-") for word in state[1].split("+")}
    if "*" in state[1]:
        words.add("NOT_RESPONDING")
    reason = _REASON.search(line)
    return Machine(
        name=name[1],
        states=frozenset(words - {""}),
        reason=reason[1].strip() if reason else "",
    )
