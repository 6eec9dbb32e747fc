"""The window of time that a page shows, read from and written into addresses; pure.

`from` and `to` fix the window, so that a link shows the same tomorrow; `last=3600` slides with the clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from urllib.parse import urlencode

from gpuvigil.clock import EPOCH, duration, from_text, moment
from gpuvigil.web import page_links

CHOICES = (
    (timedelta(minutes=15), "15 min"),
    (timedelta(hours=1), "1 h"),
    (timedelta(hours=6), "6 h"),
    (timedelta(hours=24), "24 h"),
    (timedelta(days=2), "2 d"),
)
USUAL = timedelta(hours=1)
WEEK = timedelta(days=7)
SHORTEST, LONGEST = timedelta(minutes=1), timedelta(days=31)
# The most points of a line.
MOST_STEPS = 480
# A step has two ticks, so that a tick that comes a little late does not make a gap.
TICKS_PER_STEP = 2
_DECENT_SECONDS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200)
_EARLIEST = datetime(2000, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The window `[start, end)`; `live` if it slides with the clock."""

    start: datetime
    end: datetime
    live: bool

    @property
    def span(self) -> timedelta:
        return self.end - self.start

    @property
    def query(self) -> dict[str, str]:
        """The address parameters for the window."""
        if self.live:
            return {"last": str(round(self.span.total_seconds()))}
        return page_links.window(self.start, self.end)


def week_before(window: Window) -> Window:
    """Return the same span a week earlier."""
    return Window(start=window.start - WEEK, end=window.end - WEEK, live=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The window of an address, and a line on what is wrong with the address, if anything."""

    window: Window
    wrong: str = ""


def asked(
    query: Mapping[str, str], now: datetime, kept: timedelta, usual: timedelta = USUAL
) -> Asked:
    """Return the window that the address asks for, or the `usual` span up to now if it is not valid.

    `kept` is how long numbers are kept.
    """
    texts = [query.get(name, "") for name in ("from", "to")]
    if not any(texts):
        return _last(query.get("last", ""), now, usual)
    try:
        start, end = (from_text(text) for text in texts)
    except ValueError:
        said = "from and to must both be times like 2026-01-31T12:00:00Z"
        return _usual(now, usual, f"The link's window cannot be read: {said}.")
    wrong = _wrong(start, end, now)
    if wrong:
        return _usual(now, usual, wrong)
    window = Window(start=start, end=max(end, start + SHORTEST), live=False)
    if end <= now - kept:
        return Asked(window=window, wrong=f"Numbers are kept for {duration(kept)}: this is older.")
    return Asked(window=window)


def _wrong(start: datetime, end: datetime, now: datetime) -> str:
    if start >= end:
        return "The link's window ends before it begins."
    if end - start > LONGEST:
        return f"The link's window is longer than {duration(LONGEST)}."
    if start > now:
        return f"The link's window lies in the future: it begins {moment(start)}."
    if start < _EARLIEST:
        return f"The link's window begins in {start.year}: nothing is that old."
    return ""


def _last(text: str, now: datetime, usual: timedelta) -> Asked:
    if not text:
        return _usual(now, usual)
    if not text.isdecimal() or len(text) > 9:
        return _usual(
            now, usual, "The link's window cannot be read: last must be a number of seconds."
        )
    span = timedelta(seconds=int(text))
    if not SHORTEST <= span <= LONGEST:
        said = f"last must be from {duration(SHORTEST)} to {duration(LONGEST)}"
        return _usual(now, usual, f"The link's window cannot be shown: {said}.")
    return Asked(window=Window(start=now - span, end=now, live=True))


def _usual(now: datetime, usual: timedelta, wrong: str = "") -> Asked:
    said = f"{wrong} This is the last {'hour' if usual == USUAL else duration(usual)}."
    window = Window(start=now - usual, end=now, live=True)
    return Asked(window=window, wrong=said if wrong else "")


def step(span: timedelta, tick: timedelta) -> timedelta:
    """Return the distance between points for a window of this span and a node with this tick."""
    least = max(TICKS_PER_STEP * tick.total_seconds(), span.total_seconds() / MOST_STEPS)
    decent = next((it for it in _DECENT_SECONDS if it >= least), None)
    return timedelta(seconds=decent or 86_400)


def cut(at: datetime, by: timedelta) -> datetime:
    """Return the start of the step that the time is in."""
    return EPOCH + (at - EPOCH) // by * by


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A link to another window; `query` is None if there is none."""

    name: str
    query: Mapping[str, str] | None
    chosen: bool = False


def choices(window: Window, now: datetime) -> tuple[Choice, ...]:
    """Return links to other spans; a fixed window keeps its middle but does not grow into the future."""
    found = []
    for span, name in CHOICES:
        chosen = abs(window.span - span) < timedelta(seconds=1)
        there = Window(start=now - span, end=now, live=True)
        if not window.live:
            end = window.start + window.span / 2 + span / 2
            end = min(end, max(now, window.end))
            there = Window(start=end - span, end=end, live=False)
        found.append(Choice(name=name, query=there.query, chosen=chosen))
    return tuple(found)


def moves(window: Window, now: datetime, *, past: bool = False) -> tuple[Choice, ...]:
    """Return links to half a window earlier, half a window later, and the live window.

    `past`: `now` is a moment of the past, at which the clock stands still.
    """
    half = window.span / 2
    earlier = Window(start=window.start - half, end=window.end - half, live=False)
    later = None
    if not window.live and window.end < now:
        end = min(window.end + half, now)
        later = Window(start=end - window.span, end=end, live=False).query
    return (
        Choice(name="Earlier", query=earlier.query),
        Choice(name="Later", query=later),
        Choice(
            name="Up to then" if past else "Live", query=_live_query(window), chosen=window.live
        ),
    )


def _live_query(window: Window) -> dict[str, str]:
    spans = [span for span, _ in CHOICES if span >= window.span]
    span = spans[0] if spans else CHOICES[-1][0]
    return {"last": str(round(span.total_seconds()))}


def sentence(window: Window, now: datetime, *, past: bool = False) -> str:
    """Return the window's time in words, in UTC. `past`: see `moves`."""
    if window.live and past:
        return f"The {duration(window.span)} up to {moment(window.end)}"
    if window.live:
        return f"Live: the last {duration(window.span)}, to {window.end:%H:%M:%S} UTC"
    same_day = window.start.date() == window.end.date()
    start = f"{window.start:%H:%M:%S}" if same_day else moment(window.start)
    text = f"Fixed window: {start} to {moment(window.end)}, {duration(window.span)}"
    if window.end > now:
        return f"{text}, ends in {duration(window.end - now)}"
    return f"{text}, ended {duration(now - window.end)} ago"


def address(path: str, place: Mapping[str, str], window: Mapping[str, str]) -> str:
    """Return a page's path and query, with a window."""
    return f"{path}?{urlencode({**place, **window})}"
