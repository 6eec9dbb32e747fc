"""The commands that a running agent accepts on its own machine, and its answers."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from gpuvigil.clock import to_text

from ..rows.gpu_history import GpuBook
from .control_socket import Reply, Request
from .maintenance import LONGEST_SECONDS, Maintenance, NotReleasedError
from .saved_state import Remembered


class State(Protocol):
    """The agent's status and newest samples, as the control commands read them."""

    def status(self) -> Mapping[str, Any]:
        """Return what the agent does now, as plain values."""

    def newest(self) -> Mapping[str, Any]:
        """Return the reader's newest samples of every GPU (`collector/agent/newest_samples.py`)."""


class Control:
    """Carries out requests `{"do": verb, ...}` in the main loop.

    An answer has `ok`, or `ok` and `error`. The verbs:

      release   `seconds`: leave the driver alone for this long
      reattach  end the release early
      forget    `gpu`: a UUID that was taken out for good
      status    what the agent does now; with `gpus` also the newest samples of every GPU
    """

    def __init__(
        self, agent: State, gpus: GpuBook, maintenance: Maintenance, known: Remembered
    ) -> None:
        self._agent = agent
        self._gpus = gpus
        self._maintenance = maintenance
        self._known = known
        self._verbs: dict[str, Callable[[Request, Reply], None]] = {
            "release": self._release,
            "reattach": self._reattach,
            "forget": self._forget,
            "status": self._status,
        }

    def handle(self, request: Request, reply: Reply) -> None:
        """Answer now or, for a release, once the driver is released."""
        verb = self._verbs.get(str(request.get("do")))
        if verb is None:
            reply(_refused(f"'do' is none of {', '.join(self._verbs)}"))
        else:
            verb(request, reply)

    def _release(self, request: Request, reply: Reply) -> None:
        given = request.get("seconds")
        seconds = float(given) if isinstance(given, int | float) else 0.0
        if not 1 <= seconds <= LONGEST_SECONDS:
            reply(_refused(f"'seconds' must be a number from 1 to {LONGEST_SECONDS:.0f}"))
            return

        def answer(outcome: float | NotReleasedError) -> None:
            if isinstance(outcome, NotReleasedError):
                reply(_refused(str(outcome)))
            else:
                reply({**self._agent.status(), "ok": True, "took_seconds": round(outcome, 3)})

        self._maintenance.release(seconds, answer)

    def _reattach(self, _: Request, reply: Reply) -> None:
        attached = self._maintenance.attach()
        reply({**self._agent.status(), "ok": True, "was_released": attached})

    def _forget(self, request: Request, reply: Reply) -> None:
        uuid = str(request.get("gpu"))
        if self._gpus.forget(uuid):
            reply({**self._agent.status(), "ok": True})
        else:
            known = ", ".join(sorted(self._known.gpus)) or "none"
            reply(_refused(f"this node knows no GPU {uuid}; it knows {known}"))

    def _status(self, request: Request, reply: Reply) -> None:
        newest = {"newest": self._agent.newest()} if request.get("gpus") else {}
        reply({**self._agent.status(), **newest, "ok": True})


def _refused(why: str) -> Mapping[str, Any]:
    return {"ok": False, "error": why}


def released_until(known: Remembered) -> str | None:
    """Return the end of the release as text, None while the driver is read."""
    return None if known.released_until is None else to_text(known.released_until)
