"""Says in the log when the machine leaves the agent too little time: its ticks come much later than they should."""

from gpuvigil.config import CollectorSettings
from gpuvigil.log import Log

from ..sensors.host import read_host

log = Log("collector")

# Ours: the agent ticks by itself after one and a half ticks at most, whatever the driver does, so a gap of three says
# that the agent itself did not run. Short ticks may wait for a busy disk.
_TICKS, _LEAST_SECONDS = 3.0, 10.0
# One line in this time is enough to explain a gap.
_AGAIN_SECONDS = 600.0


class TickDelay:
    """The gaps between an agent's ticks; times are of the monotonic clock."""

    def __init__(self, settings: CollectorSettings) -> None:
        self._most = max(_TICKS * settings.tick_seconds, _LEAST_SECONDS)
        self._proc_root = settings.proc_root
        self._before: float | None = None
        self._longest = 0.0
        self._reported_at: float | None = None

    def tick(self, now: float) -> float:
        """Take the time of a tick and return it; log a gap before it."""
        seconds = self.to_report(now)
        if seconds is not None:
            load = read_host(self._proc_root).get("load_average")
            words = "the machine left the collector too little time"
            log.warning(words, seconds=round(seconds), load=load)
        return now

    def to_report(self, now: float) -> float | None:
        """Return the longest gap in seconds that is still to be said, at a tick; None without one or too soon."""
        gap = 0.0 if self._before is None else now - self._before
        self._before = now
        if gap > self._most:
            self._longest = max(self._longest, gap)
        if not self._longest or (
            self._reported_at is not None and now - self._reported_at < _AGAIN_SECONDS
        ):
            return None
        self._reported_at, found, self._longest = now, self._longest, 0.0
        return found
