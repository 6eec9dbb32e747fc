"""Supervises the child that asks the kubelet: starts it when there is a socket, and restarts it."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from gpuvigil import own_command
from gpuvigil.clock import Clock
from gpuvigil.log import Log

from ...processes.spawn import Child, end, started
from . import device_map
from .device_map import Answer, Unknown

log = Log("collector")

_PROBE_SECONDS = 5.0  # how often an absent socket is looked for
_LONGEST_REST_SECONDS = 60.0
_SLACK_SECONDS = 15.0  # for a call that runs into its limit, on a busy machine
# Every pod has this variable: a collector in a pod was put there to see the node's pods.
_IN_A_POD = "KUBERNETES_SERVICE_HOST"


class Kubelet:
    """The kubelet's last answer; `keep` is for the main thread, which the kernel ties the child to."""

    def __init__(
        self, socket: Path | None, seconds: float, clock: Clock, env: Mapping[str, str] = os.environ
    ) -> None:
        """Set up; a `socket` of None asks nobody, `seconds` is the interval between questions."""
        self._socket = socket
        self._seconds = seconds
        self._clock = clock
        self._expected = _IN_A_POD in env
        self._child: Child | None = None
        self._answer: tuple[Answer | Unknown, float] | None = None
        self._probed: float | None = None
        self._not_before = 0.0
        self._rest_seconds = 1.0
        self._logged: str | None = None
        self._asked_since: float | None = None

    def keep(self) -> None:
        """Start the child when there is a kubelet to ask, and after a rest when it has ended."""
        if self._socket is None:
            return
        now = self._clock.monotonic()
        if self._child is not None:
            if self._child.poll() is not None:
                self._rest(now, self._child.wait())
            return
        if now < self._not_before or (self._probed is not None and now < self._probed):
            return
        self._probed = now + _PROBE_SECONDS
        lack = self._lack(self._socket)
        if lack is None:
            self._start(self._socket, now)
        elif lack:
            self._warn(lack)

    def answer(self) -> Answer | None:
        """Return what is known of the pods; None while nothing is: then nothing may be concluded."""
        said = self._answer
        if said is None:
            if self._asked_since is not None and self._is_old(self._asked_since):
                self._warn("it does not answer")
            return None
        found, at = said
        if isinstance(found, Unknown):
            self._warn(found.why)
            return None
        if self._is_old(at):
            self._warn("it no longer answers")
            return None
        if self._logged is not None:
            log.info("the kubelet answers again", socket=str(self._socket))
            self._logged = None
        return found

    def stop(self) -> None:
        """End the child."""
        end(self._child)

    def _is_old(self, at: float) -> bool:
        return self._clock.monotonic() - at > 2 * self._seconds + _SLACK_SECONDS

    def _warn(self, why: str) -> None:
        """Log one line for each reason, when it appears."""
        if why != self._logged:
            self._logged = why
            log.warning(
                "whose a GPU is, is not known from Kubernetes", socket=str(self._socket), why=why
            )

    def _lack(self, socket: Path) -> str | None:
        """Return why the kubelet cannot be asked; empty when there is none here, None when it can."""
        try:
            mode = os.stat(socket).st_mode
        except PermissionError:
            return "its folder may not be entered: run the collector as root, or as its group"
        except OSError:
            # A node without a kubelet lacks its folder, too; a kubelet yet to start has its folder.
            here = self._expected or socket.parent.parent.is_dir()
            return "it is not there: mount or start it" if here else ""
        if not stat.S_ISSOCK(mode):
            return "it is no socket"
        if not os.access(socket, os.R_OK | os.W_OK):
            return "it may not be opened: run the collector as root, or as its group"
        return None

    def _start(self, socket: Path, now: float) -> None:
        self._asked_since = None
        command = own_command.command("pods", "collector.owners.kubelet.query_child")
        try:
            self._child = started(
                [*command, str(socket), str(self._seconds)], "kubelet", self._listen
            )
        except OSError as error:
            self._pause(now, f"the process that asks it cannot be started: {error}")

    def _listen(self, child: Child) -> None:
        assert child.stdout is not None
        with child.stdout as lines:
            for line in lines:
                if line == device_map.BEGINS:
                    self._asked_since = self._clock.monotonic()
                    continue
                try:
                    said = device_map.parse(line)
                except ValueError as error:
                    said = Unknown(str(error))
                if isinstance(said, Answer):
                    self._rest_seconds = 1.0
                self._answer = said, self._clock.monotonic()

    def _rest(self, now: float, code: int) -> None:
        self._child = None
        self._pause(now, f"the process that asks it has ended with {code}")

    def _pause(self, now: float, why: str) -> None:
        self._answer = Unknown(why), now
        self._not_before = now + self._rest_seconds
        self._rest_seconds = min(2 * self._rest_seconds, _LONGEST_REST_SECONDS)
