"""The child process that scrapes inference servers.

It scrapes all of them periodically until its parent is gone, and writes one line per answer. A
server that sends slowly, wrongly or without end costs this process some seconds, and nobody else.
"""

import http.client
import socket
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from gpuvigil import lifeline

from .address import Address, address
from .exposition import samples
from .metric_names import replicas
from .scrape_result import Answer, line

# A page of vLLM with eight engines is some 300 KiB, most of it histograms.
LARGEST_BYTES = 1024 * 1024
CALL_SECONDS = 4.0
_CHUNK = 1 << 16
_MOST_AT_ONCE = 32


def main(arguments: Sequence[str]) -> int:
    """Scrape each URL every SECONDS; never returns."""
    lifeline.hold()
    seconds, urls = float(arguments[0]), arguments[1:]
    asked = [address(url, anywhere=True) for url in urls]
    under_way: dict[str, Future[None]] = {}
    with ThreadPoolExecutor(min(len(asked), _MOST_AT_ONCE)) as pool:
        while True:
            for where in asked:
                before = under_way.get(where.url)
                # A hanging server is not asked again meanwhile, and delays no other.
                if before is None or before.done():
                    under_way[where.url] = pool.submit(_ask_and_write, where)
            time.sleep(seconds)


def _ask_and_write(where: Address) -> None:
    answer = ask(where)
    with _SAYING:
        sys.stdout.write(line(answer) + "\n")
        sys.stdout.flush()


_SAYING = threading.Lock()
_READING = threading.Lock()  # a parsed page is larger than its text: one at a time


def ask(where: Address, limit_seconds: float = CALL_SECONDS) -> Answer:
    """Return an address's answer; any failure becomes its reason."""
    try:
        content = _page(where, limit_seconds)
        with _READING:
            found = replicas(samples(content))
    except ConnectionRefusedError:
        return Answer(url=where.url)  # nobody serves there now
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Answer(url=where.url, why=_line(str(error) or type(error).__name__))
    why = "" if found else "its page tells of no request: is it vLLM's or Triton's?"
    return Answer(url=where.url, replicas=found, why=why)


def _page(where: Address, seconds: float) -> bytearray:
    """Return the page; OSError, ValueError or HTTPException. Follows no redirect, uses no proxy."""
    deadline = time.monotonic() + seconds
    connection = http.client.HTTPConnection(where.host, where.port, timeout=seconds)
    # A limit per call does not stop a server that sends a byte at a time.
    limit = threading.Timer(seconds, _cut, (connection,))
    limit.daemon = True
    limit.start()
    try:
        content = _got(connection, where.path)
    except (OSError, ValueError, http.client.HTTPException):
        if time.monotonic() < deadline:
            raise
    finally:
        limit.cancel()
        connection.close()
    if time.monotonic() >= deadline:
        raise TimeoutError(f"its page took over {seconds:g} s")
    return content


def _got(connection: http.client.HTTPConnection, path: str) -> bytearray:
    headers = {"Accept": "text/plain; version=0.0.4", "Connection": "close"}
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    if answer.status != 200:
        raise ValueError(f"status {answer.status}")
    content = bytearray()
    while part := answer.read1(_CHUNK):
        content += part
        if len(content) > LARGEST_BYTES:
            raise ValueError(f"its page is over {LARGEST_BYTES // 1024**2} MiB")
    if answer.length:
        raise ValueError("its page ended early")
    return content


def _cut(connection: http.client.HTTPConnection) -> None:
    with suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def _line(said: str) -> str:
    return "".join(ch if ch.isprintable() else "?" for ch in said)[:200]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(0)
