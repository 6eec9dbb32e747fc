"""Inspects the machine periodically, in a child that may get stuck."""

import json
import math
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gpuvigil import lifeline, own_command
from gpuvigil.clock import Clock
from gpuvigil.config import CollectorSettings
from gpuvigil.log import Log

from ..processes.spawn import Child, end
from ..rows.catalogue_rows import Number
from . import inspection_result
from .inspection_result import InspectionResult
from .lldp import Neighbour
from .parts import Part

log = Log("collector")

# Time for a file system to answer; one under load takes seconds, a dead one minutes or forever.
ANSWER_SECONDS = 10.0
_LARGEST_BYTES = 256 * 1024
_NAMED = 8
# In intervals between inspections: after so many without one, the last says nothing about now.
_OLD_INSPECTIONS = 3


class Machine:
    """The newest inspection; `keep` is for the main thread, which the kernel ties the child to."""

    def __init__(self, settings: CollectorSettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._file = settings.spool_directory / "machine.json"
        self._worked = set(_remembered(self._file))  # parts that have been seen to work
        self._child: Child | None = None
        self._received = b""
        self._due = 0.0
        # Before the first look nothing is late.
        self._result, self._result_at = InspectionResult(), math.inf
        self._warned_old = False
        self._new_neighbours: tuple[Neighbour, ...] = ()
        self._logged_why = ""
        # The last reading of each, for the news: an unreadable part has not recovered.
        self._fans: Sequence[Part] = ()
        self._supplies: Sequence[Part] = ()
        self._ill: tuple[str, ...] = ()

    def keep(self) -> str:
        """Inspect when it is due; return news for people, mostly empty."""
        if self._settings.machine_seconds <= 0:
            return ""
        self._warn_if_old()
        if self._child is not None:
            return self._listen(self._child)
        if self._clock.monotonic() >= self._due:
            self._due = self._clock.monotonic() + self._settings.machine_seconds
            self._start()
        return ""

    def fields(self) -> Mapping[str, Number | None]:
        """Return the `node` row's fields of the last inspection, without counters.

        After an inspection that is too old, only hung mounts count: they may be what keeps the
        child.
        """
        it, hung = self._result, len(self._result.hung) + len(self._result.gone)
        if self._is_old():
            it = InspectionResult(watched=hung)
        return {
            "power_supplies_failed": self._failed(it.supplies),
            "fans_failed": self._failed(it.fans),
            "mounts_hung": hung if it.watched else None,
            "space_used_share": None if it.fullest is None else it.fullest[1],
        }

    @property
    def memory_errors(self) -> tuple[int, int] | None:
        """Corrected and uncorrected memory errors, as the kernel has counted them since boot."""
        return None if self._is_old() else self._result.memory_errors

    def new_neighbours(self) -> Mapping[str, tuple[str, str | None]]:
        """Return the switch and port that each interface is plugged into, once per inspection."""
        new, self._new_neighbours = self._new_neighbours, ()
        return {one.interface: (one.switch, one.port) for one in new}

    def stop(self) -> None:
        """End the child; one that cannot be killed is abandoned."""
        end(self._child, 0.2)
        if self._child is not None and self._child.stdout is not None:
            self._child.stdout.close()

    def _is_old(self) -> bool:
        longest = _OLD_INSPECTIONS * self._settings.machine_seconds + ANSWER_SECONDS
        return self._clock.monotonic() - self._result_at > longest

    def _warn_if_old(self) -> None:
        """Log one line when inspections stop coming."""
        old = self._is_old()
        if old and not self._warned_old:
            why = "cannot be started or said nothing" if self._child is None else "is stuck"
            log.warning("what fails of the machine is not known", why=f"the child {why}")
        self._warned_old = old

    def _start(self) -> None:
        settings = self._settings
        words = [str(settings.sysfs_root), str(settings.proc_root), str(ANSWER_SECONDS)]
        self._received = b""
        self._result_at = min(self._result_at, self._clock.monotonic())
        try:
            self._child = subprocess.Popen(
                [
                    *own_command.command("machine", "collector.machine.inspection_child"),
                    *words,
                    settings.lldpcli,
                    *settings.watched_mounts,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env=lifeline.environment(),
            )
        except OSError as error:
            log.warning("the machine is not looked at", why=str(error))
            return
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)

    def _listen(self, child: Child) -> str:
        assert child.stdout is not None
        ended = child.poll() is not None
        with suppress(BlockingIOError):
            self._received += os.read(child.stdout.fileno(), _LARGEST_BYTES)
        said = self._next_result()
        if ended:
            child.stdout.close()
            self._child = None
        return said

    def _next_result(self) -> str:
        """Take the inspection's line once it is complete; return the news."""
        text, end, self._received = self._received.partition(b"\n")
        if not end:
            self._received = text
            return ""
        try:
            self._result, self._result_at = inspection_result.parse(text), self._clock.monotonic()
        except ValueError as error:
            log.warning("the machine is not looked at", why=str(error))
            return ""
        self._update_neighbours()
        if self._result.fans is not None:
            self._fans = self._result.fans
        if self._result.supplies is not None:
            self._supplies = self._result.supplies
        parts = [*self._fans, *self._supplies]
        new = {part.name for part in parts if part.works} - self._worked
        if new:
            self._worked |= new
            _remember(self._file, self._worked)
        return self._news(parts)

    def _update_neighbours(self) -> None:
        """Take the neighbours; log one line when lldpd is there and does not answer this user."""
        neighbours, why = self._result.heard
        self._new_neighbours = neighbours or ()
        if why and not self._logged_why:
            log.info("no switch at the ports' other ends is known", why=why)
        self._logged_why = why or self._logged_why

    def _news(self, parts: Iterable[Part]) -> str:
        """Return which parts fail now, in words; empty if nothing has changed."""
        it = self._result
        ill = [f"{part.name}: {part.why}" for part in parts if self._fails(part)]
        ill += [f"{path} does not answer" for path in it.hung]
        ill += [f"{path}: {why}" for path, why in it.gone]
        before, self._ill = self._ill, tuple(ill)
        if self._ill == before:
            return ""
        named = "; ".join(self._ill[:_NAMED])
        more = f" and {len(ill) - _NAMED} more" if len(ill) > _NAMED else ""
        return f"{named}{more}" if ill else f"{_read(it)} are well again"

    def _fails(self, part: Part) -> bool:
        return not part.works and (part.sure or part.name in self._worked)

    def _failed(self, parts: Sequence[Part] | None) -> int | None:
        """Return the number of failed parts; None where none was ever seen to work or surely fail."""
        known = [p for p in parts or () if p.works or p.sure or p.name in self._worked]
        return sum(self._fails(part) for part in known) if known else None


def _read(it: InspectionResult) -> str:
    """Return what an inspection has read, in words."""
    read = ["power supplies"] * (it.supplies is not None) + ["fans"] * (it.fans is not None)
    return " and ".join([*filter(None, [", ".join(read)]), "mounts"])


def _remembered(file: Path) -> list[str]:
    with suppress(OSError, ValueError, TypeError):
        return [str(name) for name in json.loads(file.read_text())]
    return []


def _remember(file: Path, names: Iterable[str]) -> None:
    """Save the names on a best-effort basis: what is lost is seen again."""
    with suppress(OSError):
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(sorted(names)))
        fresh.replace(file)
