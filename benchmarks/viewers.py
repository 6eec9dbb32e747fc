"""What fifty open overviews cost the dashboard; `benchmarks.pages` measures it.

A viewer here is a session of its own that speaks Streamlit's protocol as a browser does: it signs in, asks for the
page, and then for each part that the server wants renewed. What it gets it throws away, so that of all
that fifty browsers would do only the server's work is measured.
"""

import asyncio
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.cookiejar import CookieJar
from typing import Any
from urllib.request import HTTPCookieProcessor, build_opener

from streamlit.proto.BackMsg_pb2 import BackMsg  # noqa: TID251 - to speak what is on the wire
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg  # noqa: TID251
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from benchmarks.footprint import cpu_seconds, memory
from benchmarks.spine import say
from benchmarks.stage import Site

VIEWERS, LEAST_SECONDS = 50, 5.0
SETTLE_SECONDS, STRETCH_SECONDS = 30.0, 60.0
_LARGEST_BYTES = 64 << 20
_NO_LIBRARY = "-"  # all memory counts


@dataclass(slots=True)
class Viewer:
    """One open page, which is renewed every `LEAST_SECONDS` at most."""

    address: str
    link: str
    renewed: Counter[str] = field(default_factory=Counter)  # by part of the page
    _page: str = ""
    _asked: deque[str] = field(default_factory=deque)
    _timed: set[str] = field(default_factory=set)

    async def look(self) -> None:
        """Until it is cancelled."""
        async with connect(
            f"{self.address.replace('http', 'ws', 1)}/_stcore/stream",
            origin=Origin(self.address),
            additional_headers={"Cookie": await asyncio.to_thread(_cookies, self.link)},
            subprotocols=[Subprotocol("streamlit")],
            max_size=_LARGEST_BYTES,
        ) as socket:
            await self._ask(socket, "")
            async with asyncio.TaskGroup() as timers:
                async for frame in socket:
                    assert isinstance(frame, bytes)
                    self._hear(ForwardMsg.FromString(frame), socket, timers)

    def _hear(self, said: Any, socket: ClientConnection, timers: asyncio.TaskGroup) -> None:
        kind = said.WhichOneof("type")
        if kind == "new_session":
            self._page = said.new_session.page_script_hash
        elif kind == "script_finished" and self._asked:
            self.renewed[self._asked.popleft()] += 1
        elif kind == "auto_rerun" and said.auto_rerun.fragment_id not in self._timed:
            self._timed.add(said.auto_rerun.fragment_id)
            timers.create_task(
                self._renew(socket, said.auto_rerun.fragment_id, said.auto_rerun.interval)
            )

    async def _renew(self, socket: ClientConnection, part: str, seconds: float) -> None:
        while True:
            await asyncio.sleep(max(seconds, LEAST_SECONDS))
            await self._ask(socket, part)

    async def _ask(self, socket: ClientConnection, part: str) -> None:
        asked = BackMsg()
        asked.rerun_script.page_script_hash = self._page
        asked.rerun_script.fragment_id = part
        asked.rerun_script.is_auto_rerun = bool(part)
        self._asked.append(part)
        await socket.send(asked.SerializeToString())


def crowd(site: Site, viewers: int = VIEWERS) -> dict[str, Any]:
    """Processor time of the dashboard while so many look, in cores; RuntimeError when a page ends."""
    links = [site.link() for _ in range(viewers)]
    # In a thread of its own: Playwright has a loop in this one.
    with ThreadPoolExecutor(1) as apart:
        found = apart.submit(asyncio.run, _watched(site, links)).result()
    say(f"  {viewers} viewers: {found}")
    return found


async def _watched(site: Site, links: list[str]) -> dict[str, Any]:
    server, address = [site.server], site.address
    alone = memory(server, _NO_LIBRARY)
    viewers = [Viewer(address=address, link=link) for link in links]
    looking = [asyncio.create_task(one.look()) for one in viewers]
    await asyncio.sleep(SETTLE_SECONDS)
    for one in viewers:
        one.renewed.clear()
    before = cpu_seconds(server)
    await asyncio.sleep(STRETCH_SECONDS)
    busy = cpu_seconds(server) - before
    ended = [task for task in looking if task.done()]
    if ended:
        raise RuntimeError(f"{len(ended)} pages ended: {ended[0].exception()!r}")
    # A page has slower parts beside the live one; a renewal is one of the live part.
    renewals = [max(one.renewed.values(), default=0) for one in viewers]
    found = {
        "viewers": len(viewers),
        "every_seconds": LEAST_SECONDS,
        "stretch_seconds": STRETCH_SECONDS,
        "cores": round(busy / STRETCH_SECONDS, 3),
        "renewals": {"least": min(renewals), "most": max(renewals)},
        "pss_mib": {"before": round(alone.pss), "with": round(memory(server, _NO_LIBRARY).pss)},
    }
    for task in looking:
        task.cancel()
    await asyncio.gather(*looking, return_exceptions=True)
    return found


def _cookies(link: str) -> str:
    """Those that signing in by this link gives."""
    jar = CookieJar()
    with build_opener(HTTPCookieProcessor(jar)).open(link):
        return "; ".join(f"{one.name}={one.value}" for one in jar)
