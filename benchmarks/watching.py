"""What one page costs: bytes and time of its renewals, seen by the browser and by the system."""

import base64
import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import CDPSession, Page
from streamlit.proto.BackMsg_pb2 import BackMsg  # noqa: TID251 - to read what is on the wire
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg  # noqa: TID251

from benchmarks.footprint import cpu_seconds

_BINARY = 2  # the opcode of a WebSocket's binary frame, RFC 6455


@dataclass(slots=True)
class Exchange:
    """One rerun that the page asked for: whose, how long the answer took, and how large it was."""

    fragment: str
    asked_at: float
    seconds: float | None = None
    bytes: int = 0


@dataclass(slots=True)
class Stretch:
    """A page that was left alone for a while."""

    refreshes: int
    wall_seconds: list[float]
    bytes_per_refresh: float
    browser_seconds_per_refresh: float
    server_seconds_per_refresh: float


@dataclass
class _Wire:
    """Every rerun that went over the page's WebSocket, by the browser's own clock."""

    exchanges: list[Exchange] = field(default_factory=list)

    def sent(self, event: dict[str, Any]) -> None:
        frame = event["response"]
        if frame["opcode"] != _BINARY:
            return
        message = BackMsg.FromString(base64.b64decode(frame["payloadData"]))
        if message.WhichOneof("type") == "rerun_script":
            fragment = message.rerun_script.fragment_id
            self.exchanges.append(Exchange(fragment=fragment, asked_at=event["timestamp"]))

    def received(self, event: dict[str, Any]) -> None:
        frame = event["response"]
        waiting = [one for one in self.exchanges if one.seconds is None]
        if frame["opcode"] != _BINARY or not waiting:
            return
        payload = base64.b64decode(frame["payloadData"])
        waiting[0].bytes += len(payload)
        if ForwardMsg.FromString(payload).WhichOneof("type") == "script_finished":
            waiting[0].seconds = event["timestamp"] - waiting[0].asked_at


class Watch:
    """Measures an open page; `server` is the process that serves it."""

    def __init__(self, page: Page, server: int) -> None:
        self._page = page
        self._server = server
        self._session: CDPSession = page.context.new_cdp_session(page)
        self._session.send("Performance.enable")
        self._session.send("Network.enable")
        self._wire = _Wire()
        self._session.on("Network.webSocketFrameSent", self._wire.sent)
        self._session.on("Network.webSocketFrameReceived", self._wire.received)

    def stretch(self, seconds: float) -> Stretch:
        """Leave the page alone for that long; AssertionError when it did not renew itself."""
        self._wire.exchanges.clear()
        browser, server = self._browser_seconds(), cpu_seconds([self._server])
        self._page.wait_for_timeout(seconds * 1000)
        browser = self._browser_seconds() - browser
        server = cpu_seconds([self._server]) - server
        done = [one for one in self._wire.exchanges if one.seconds is not None]
        # A page may have a slow part beside the live one; a refresh is one of the live part.
        renewals = Counter(one.fragment for one in done)
        assert renewals, "the page did not renew itself"
        count = renewals.most_common(1)[0][1]
        return Stretch(
            refreshes=count,
            wall_seconds=[one.seconds for one in done if one.seconds is not None],
            bytes_per_refresh=sum(one.bytes for one in done) / count,
            browser_seconds_per_refresh=browser / count,
            server_seconds_per_refresh=server / count,
        )

    def close(self) -> None:
        self._session.detach()

    def _browser_seconds(self) -> float:
        """Time that the page's process has worked on tasks."""
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        return float(next(it["value"] for it in metrics if it["name"] == "TaskDuration"))


def in_milliseconds(seconds: list[float]) -> dict[str, float]:
    """Median and worst."""
    return {
        "median": round(statistics.median(seconds) * 1000, 1),
        "worst": round(max(seconds) * 1000, 1),
    }
