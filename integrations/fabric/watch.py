"""Looks at a fabric again and again, and ships what each look has to tell."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from gpuvigil.clock import Clock
from gpuvigil.log import Log
from gpuvigil.model import Record

from .seen import NotReadError, Seen
from .switches import Switches, changed_switches, is_cut_off, merged, remember, remembered

Read = Callable[[Switches], Seen]
"""What is seen, from what was known; NotReadError or ValueError says why nothing is."""

# Every look for so long sees the same few switches: then the others are gone, or the fabric is another one.
_BELIEVED_SECONDS = 1800.0
# Each names all ports of a switch, with what they counted in an hour; the hub takes 16 MiB at once.
_RECORDS_AT_ONCE, _BYTES_AT_ONCE = 20, 4 * 1024 * 1024


class Watch:
    """Keeps the hub's picture of one fabric."""

    def __init__(self, read: Read, cluster: str, file: Path, clock: Clock, log: Log) -> None:
        """What was told is remembered in `file`, so that what went while nobody looked is noticed."""
        self._read, self._cluster, self._file = read, cluster, file
        self._clock, self._log = clock, log
        self._now: Switches = remembered(file)
        self._known = dict(self._now)
        self._why = ""
        self._doubted_since: float | None = None  # on the monotonic clock

    def round(self, send: Callable[[Sequence[Record]], None]) -> None:
        """One look, told, and only then remembered as told."""
        try:
            seen = self._read(self._now)
        except (NotReadError, ValueError, OSError) as error:
            self._doubted_since = None  # what nobody saw meanwhile confirms nothing
            self._log_change(str(error))
            return
        found = seen.switches
        if self._is_in_doubt(seen):
            self._log_change(
                f"{len(found)} of {len(self._now)} switches answer: this machine's own way to them"
                " may be down"
            )
            return
        self._log_change(seen.why)
        at = self._clock.now()
        self._now = merged(self._now, found, self._cluster, at, seen.doubted)
        news = changed_switches(self._known, self._now)
        for records in at_once(switch.to_record() for switch in news):
            send(records)
        self._known = {guid: it for guid, it in self._known.items() if guid in self._now} | {
            switch.guid: switch for switch in news if switch.guid in self._now
        }
        # Without a promise: what is lost is seen again.
        with suppress(OSError):
            remember(self._file, self._now.values())

    def _is_in_doubt(self, seen: Seen) -> bool:
        """Whether too few switches answer to be believed yet."""
        if not is_cut_off(self._now, seen.switches, seen.unasked):
            self._doubted_since = None
            return False
        now = self._clock.monotonic()
        since = self._doubted_since = now if self._doubted_since is None else self._doubted_since
        return not seen.switches or now - since < _BELIEVED_SECONDS

    def _log_change(self, why: str) -> None:
        """One log line when the fabric cannot be read, and one when it can again."""
        if why and why != self._why:
            self._log.warning("the fabric is not read", why=why)
        elif self._why and not why:
            self._log.info("the fabric is read again")
        self._why = why


def repeat(
    rounds: Sequence[Callable[[], None]],
    stop: threading.Event,
    interval_seconds: float,
    clock: Clock,
) -> None:
    """Begin a round of each every so many seconds, until `stop`."""
    while not stop.is_set():
        begun = clock.monotonic()
        for one in rounds:
            one()
        clock.wait(stop, max(begun + interval_seconds - clock.monotonic(), 0.0))


def at_once(
    records: Iterable[Record], most: int = _RECORDS_AT_ONCE, most_bytes: int = _BYTES_AT_ONCE
) -> Iterator[list[Record]]:
    """In their order, as many at once as are neither too many nor, as JSON, too large; each at least alone."""
    part: list[Record] = []
    size = 0
    for record in records:
        more = len(json.dumps(record.to_json())) + 1  # and the end of its line
        if part and (len(part) == most or size + more > most_bytes):
            yield part
            part, size = [], 0
        part.append(record)
        size += more
    if part:
        yield part
