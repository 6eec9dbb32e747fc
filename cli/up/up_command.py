"""`gpuvigil up`: start all services, print their address, keep them alive, stop them in order."""

import argparse
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dashboard.auth.auth_middleware import new_link
from gpuvigil import lifeline
from gpuvigil.clock import SystemClock
from gpuvigil.config import read_secret
from gpuvigil.config.startup import fail, parser
from gpuvigil.errors import GpuvigilError
from gpuvigil.hub_client import Hub
from gpuvigil.private_files import UMASK
from gpuvigil.state_directory import state_directory

from .children import WRONG_CONFIGURATION, Family, Hurry
from .directory import StateDirectory
from .machine import turn
from .plan import Asked, Plan, prepare
from .readiness import Startup, are_our_pages, has_beaten, has_reported, has_sent, is_ours
from .settings import without_settings
from .terminal_text import banner, print_line, where

_LOOK_SECONDS = 0.05
_CALM_LOOK_SECONDS = 0.2
_STOP_SECONDS = 12.0
_PATIENCE_SECONDS = 20.0
_PORT_TRIES = 5
_TURN_SECONDS = 10.0


def main(arguments: Sequence[str]) -> int:
    """Run until Ctrl-C or SIGTERM; return 0 after a clean stop, 1 when another `up` runs here."""
    began = time.monotonic()
    commands = parser("up", "Run everything on this machine. Ctrl-C stops it.")
    played = commands.add_mutually_exclusive_group()
    played.add_argument("--simulate", type=_count, metavar="N", help="simulate N nodes; 0: none")
    played.add_argument(
        "--simulate-fleet",
        type=_count,
        metavar="N",
        help="simulate N nodes of the livelier fleet, whose jobs and faults come and go by themselves",
    )
    commands.add_argument(
        "--state", type=Path, metavar="DIR", help="directory of data, secrets and logs"
    )
    chosen = commands.parse_args(arguments)
    os.umask(UMASK)
    try:
        state = StateDirectory(chosen.state or state_directory())
        try:
            asked = Asked(nodes=chosen.simulate, fleet_nodes=chosen.simulate_fleet)
            return run(lambda: prepare(chosen.config, asked, state), began)
        finally:
            state.release()
    except GpuvigilError as error:
        return fail(commands.prog, error)


class _PortLostError(Exception):
    """A port that was free was taken before the child could listen on it."""


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return number


def run(planned: Callable[[], Plan], began: float) -> int:
    """Start, supervise and stop the services; return the exit code.

    If another program takes a chosen port first, plan again; GpuvigilError after 5 tries.
    """
    stop, hurry = threading.Event(), Hurry()
    with _signals(hurry, stop):
        for attempt in range(_PORT_TRIES):
            with suppress(_PortLostError), turn(_TURN_SECONDS) as end_turn:
                plan = planned()
                if attempt == 0:
                    print_line(_banner(plan))
                return _live(plan, stop, hurry, _Beginning(at=began, settled=end_turn))
    raise GpuvigilError(f"ports that were free were taken {_PORT_TRIES} times: start it again")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beginning:
    """When `up` began (monotonic seconds), and what to call once all services are ready."""

    at: float
    settled: Callable[[], None]


def _live(plan: Plan, stop: threading.Event, hurry: Hurry, began: _Beginning) -> int:
    """Run all services with one set of ports until they stop; return the exit code."""
    environment = without_settings(lifeline.environment())
    family = Family(plan.config, plan.state.logs, environment)
    words = True
    try:
        return _Run(plan, family, stop, began).until_stopped()
    except _PortLostError:
        words = False
        raise
    finally:
        if words:
            print_line("stopping (Ctrl-C again ends it at once)" if not hurry() else "ending")
        family.stop(_STOP_SECONDS, hurry)
        if words:
            print_line("stopped")


@contextmanager
def _signals(hurry: Hurry, stop: threading.Event) -> Iterator[None]:
    """Handle Ctrl-C, SIGTERM and hang-up: the first asks to stop, the second to stop at once."""

    def ask(*_: object) -> None:
        hurry.ask(time.monotonic())
        stop.set()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup asks to ignore it
        numbers.append(signal.SIGHUP)
    for number in numbers:
        signal.signal(number, ask)
    try:
        yield
    finally:
        # Everything has stopped: one more Ctrl-C could only spoil the exit code.
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)


def _banner(plan: Plan) -> str:
    from_prometheus = plan.store == "prometheus"
    return banner(plan.driver, plan.nodes, plan.gpus_per_node, from_prometheus=from_prometheus)


class _Run:
    """One run of `up`, from the first child to the stop."""

    def __init__(
        self, plan: Plan, family: Family, stop: threading.Event, began: _Beginning
    ) -> None:
        self._plan = plan
        self._family = family
        self._stop = stop
        self._began = began.at
        self._settled = began.settled
        clock = SystemClock()
        token, since = plan.service_token, clock.now()
        hub = Hub(plan.hub_url, lambda: read_secret(token, "service token"), timeout_seconds=2.0)
        has_spoken = has_sent if plan.store == "hub" else has_reported
        probes: dict[str, Callable[[], bool]] = {
            "hub": lambda: is_ours(hub),
            "dashboard": lambda: are_our_pages(plan.dashboard_url, plan.secrets, clock.now()),
            "collect": lambda: has_spoken(hub, since, simulated=False),
            "simulate": lambda: has_spoken(hub, since, simulated=True),
            "analyze": lambda: has_beaten(hub, since, "analyzer"),
            "alert": lambda: has_beaten(hub, since, "alerts"),
        }
        wanted = {"hub", *plan.services}
        self._startup = Startup({k: v for k, v in probes.items() if k in wanted}, began.at)
        self._steps_file = plan.state.path / "startup.json"
        self._steps_file.unlink(missing_ok=True)
        self._printed_seconds: float | None = None
        self._complained = False

    def until_stopped(self) -> int:
        for note in self._plan.notes:
            print_line(note)
        self._start("hub")
        # The dashboard takes longest to start and needs no other service to do so.
        self._start("dashboard")
        while not self._stop.is_set():
            code = self._supervise()
            if code is not None:
                return code
            if not self._startup.is_complete:
                self._follow_startup()
            calm = self._startup.is_complete
            self._stop.wait(_CALM_LOOK_SECONDS if calm else _LOOK_SECONDS)
        return 0

    def _start(self, name: str) -> None:
        now = time.monotonic()
        self._startup.note_start(name, now)
        self._family.start(name, now)

    def _supervise(self) -> int | None:
        """Restart children that ended; return an exit code if a restart cannot help, else None."""
        for ended in self._family.poll(time.monotonic()):
            if ended.code == WRONG_CONFIGURATION and ended.name not in self._startup.ready:
                if self._plan.has_lost_port(ended.name):
                    raise _PortLostError(ended.name)
                print_line(ended.last_words or ended.text, sys.stderr)
                return WRONG_CONFIGURATION
            print_line(ended.text, sys.stderr)
        return None

    def _follow_startup(self) -> None:
        fresh = self._startup.poll(time.monotonic)
        if self._startup.is_complete:
            self._settled()
        if "hub" in fresh:
            for name in self._plan.services[1:]:
                self._start(name)
        elapsed_seconds = time.monotonic() - self._began
        ready = self._startup.ready.keys()
        if self._printed_seconds is None and {"hub", "dashboard"} <= ready:
            self._welcome()
        elif self._printed_seconds is None and elapsed_seconds > _PATIENCE_SECONDS:
            self._complain(sorted({"hub", "dashboard"} - ready))
        if fresh and self._printed_seconds is not None:
            self._startup.write(self._steps_file, self._printed_seconds)

    def _welcome(self) -> None:
        plan = self._plan
        link = new_link(plan.secrets, plan.dashboard_url)
        self._printed_seconds = time.monotonic() - self._began
        print_line(where(link, plan.state.path, _program(), plan.example))
        print_line(f"Ready in {self._printed_seconds:.1f} s.")
        plan.state.write_note(plan.dashboard_url)

    def _complain(self, missing: list[str]) -> None:
        if not self._complained:
            self._complained = True
            names = " and ".join(missing)
            print_line(f"Still waiting for {names}; see {self._plan.state.logs}", sys.stderr)


def _program() -> str:
    """Return the command by which the user can call gpuvigil from the current folder."""
    if shutil.which("gpuvigil"):
        return "gpuvigil"
    beside = Path(sys.executable).parent / "gpuvigil"
    try:
        return str(beside.relative_to(Path.cwd()))
    except ValueError:
        return str(beside)
