"""What a stranger may take of a dashboard before a sign-in, while somebody looks at a page."""

import contextlib
import http.client
import re
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.polling import wait_until
from tests.servers import QuickHub

from .servers import DashboardProcess

pytestmark = pytest.mark.server

MOST_RISE_MIB = 20
HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 10
HALF_SENT = 1000


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardProcess]:
    with (
        QuickHub(tmp_path_factory.mktemp("hub")) as hub,
        DashboardProcess(tmp_path_factory.mktemp("dashboard"), hub) as process,
    ):
        yield process


@pytest.fixture(scope="module")
def cookie(dashboard: DashboardProcess) -> str:
    answer, _ = ask(dashboard, "GET", "/?" + urlsplit(dashboard.link()).query)
    assert answer.status == 303
    return str(answer.headers["set-cookie"]).partition(";")[0]


def ask(
    dashboard: DashboardProcess,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[http.client.HTTPResponse, str]:
    place = urlsplit(dashboard.url).netloc
    with contextlib.closing(http.client.HTTPConnection(place, timeout=30)) as connection:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer, answer.read().decode()


@contextlib.contextmanager
def opened(dashboard: DashboardProcess) -> Iterator[socket.socket]:
    port = urlsplit(dashboard.url).port
    with socket.create_connection(("127.0.0.1", port), timeout=30) as one:
        yield one


def sent_until_the_end(dashboard: DashboardProcess, start: bytes, piece: bytes, count: int) -> int:
    """Bytes that could be sent before the connection ended."""
    with opened(dashboard) as one, contextlib.suppress(ConnectionError):
        sent = 0
        one.sendall(start)
        for _ in range(count):
            one.sendall(piece)
            sent += len(piece)
    return sent


def peak_mib(dashboard: DashboardProcess) -> float:
    """The most memory that the process ever had."""
    status = Path(f"/proc/{dashboard.process.pid}/status").read_text(encoding="utf-8")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def stream(
    dashboard: DashboardProcess, cookie: str, origin: str | None = None, **more: str
) -> ClientConnection:
    """A page's WebSocket, as a browser opens it."""
    url = dashboard.url.replace("http", "ws", 1) + "/_stcore/stream"
    headers = {"Cookie": cookie, "Origin": dashboard.url if origin is None else origin, **more}
    return connect(url, additional_headers=headers, subprotocols=None, open_timeout=30)


CHUNKED = b"POST /sign-in HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
LINE = b"X-Header: " + b"x" * 1000 + b"\r\n"


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"GET / HTTP/1.1\r\nHost: h\r\n", LINE * 1000),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: ", b"x" * 2**20),
        (b"GET /", b"x" * 2**20),
        (CHUNKED + b"\r\n0\r\n", LINE * 1000),
        (CHUNKED + b"\r\n", b"1000\r\n" + b"x" * 4096 + b"\r\n"),
        (b"GET /_stcore/stream HTTP/1.1\r\nUpgrade: websocket\r\n", LINE * 1000),
    ],
    ids=["lines", "one line", "address", "behind a body", "body", "websocket"],
)
def test_300_mb_from_a_stranger_cost_no_memory(
    dashboard: DashboardProcess, start: bytes, piece: bytes
) -> None:
    assert ask(dashboard, "GET", "/")[0].status == 401
    before = peak_mib(dashboard)
    sent = sent_until_the_end(dashboard, start, piece, 300 * 10**6 // len(piece))
    assert sent < 50 * 10**6, "what the sockets between the two hold, and no more"
    assert peak_mib(dashboard) - before < MOST_RISE_MIB


def head(size: int, start: bytes) -> bytes:
    """A request of `size` bytes, in lines of the kind that browsers send."""
    line = b"Cookie: " + b"x" * 4000 + b"\r\n"
    start += line * ((size - len(start) - 200) // len(line))
    return start + b"X: " + b"x" * (size - len(start) - 7) + b"\r\n\r\n"


def test_headers_of_64_kib_are_answered_and_one_byte_more_is_not(
    dashboard: DashboardProcess,
) -> None:
    for size, status in ((HEAD_BYTES, b"HTTP/1.1 401"), (HEAD_BYTES + 1, b"HTTP/1.1 431")):
        with opened(dashboard) as one:
            one.sendall(head(size, b"GET / HTTP/1.1\r\nHost: h\r\n"))
            assert one.recv(65536).startswith(status)


def test_a_form_is_64_kib_at_most(dashboard: DashboardProcess) -> None:
    for size, status in ((64 * 1024, 401), (64 * 1024 + 1, 413)):
        form = urlencode({"token": "wrong", "next": ""}).encode().ljust(size, b"x")
        answer, _ = ask(dashboard, "POST", "/sign-in", form, {"Origin": dashboard.url})
        assert answer.status == status


def test_half_sent_requests_end_while_a_page_stays_live(
    dashboard: DashboardProcess, cookie: str
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with stream(dashboard, cookie) as page, contextlib.ExitStack() as open_ones:
            started = time.monotonic()
            for number in range(min(HALF_SENT, hard - 300)):
                one = open_ones.enter_context(opened(dashboard))
                with contextlib.suppress(ConnectionError):
                    one.sendall(b"POST /sign-in HTTP/1.1\r\nHost: h\r\n"[: 20 + number % 15])
            assert ask(dashboard, "GET", "/healthz")[0].status == 200
            assert ask(dashboard, "GET", "/", headers={"Cookie": cookie})[0].status == 200
            is_alive(page)
            wait_until("they are gone", lambda: connections(dashboard) <= 2, 60)
            assert time.monotonic() - started < 2 * HEAD_SECONDS + 10
            is_alive(page)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_alive(page: ClientConnection) -> None:
    assert page.ping().wait(10)


def connections(dashboard: DashboardProcess) -> int:
    """Established connections to its port, as the kernel lists the server's ends."""
    port = urlsplit(dashboard.url).port
    rows = Path(f"/proc/{dashboard.process.pid}/net/tcp").read_text(encoding="utf-8").splitlines()
    found = (row.split()[1:4] for row in rows[1:])
    return sum(here.endswith(f":{port:04X}") and state == "01" for here, _, state in found)


def test_a_page_s_message_of_more_than_a_mebibyte_ends_its_connection(
    dashboard: DashboardProcess, cookie: str
) -> None:
    with stream(dashboard, cookie) as page:
        page.send(b"\x00" * (1024 * 1024 + 1))
        with pytest.raises(ConnectionClosed) as said:
            read_on(page)
        assert said.value.rcvd is not None
        assert said.value.rcvd.code == 1009


def read_on(page: ClientConnection) -> None:
    while True:
        page.recv(30)


def upgrade(dashboard: DashboardProcess, cookie: str, **more: str) -> int:
    try:
        with stream(dashboard, cookie, **more) as page:
            is_alive(page)
            return 101
    except InvalidStatus as error:
        return error.response.status_code


def test_a_websocket_s_origin_has_a_port_and_is_given(
    dashboard: DashboardProcess, cookie: str
) -> None:
    port = urlsplit(dashboard.url).port or 0
    assert upgrade(dashboard, cookie) == 101
    assert upgrade(dashboard, cookie, origin=f"http://127.0.0.1:{port + 1}") == 403
    assert upgrade(dashboard, cookie, origin="http://127.0.0.1") == 403
    assert upgrade(dashboard, cookie, origin=f"https://127.0.0.1:{port}") == 403
    assert upgrade(dashboard, cookie, origin="http://localhost:3000") == 403
    assert upgrade(dashboard, cookie, origin="null") == 403
    assert upgrade(dashboard, cookie, origin="") == 403


@pytest.mark.parametrize("many", [{"X": "x" * 9000}, {f"X-{n}": "x" for n in range(140)}])
def test_a_handshake_with_too_much_in_it_is_answered(
    dashboard: DashboardProcess, cookie: str, many: dict[str, str]
) -> None:
    assert upgrade(dashboard, cookie, **many) == 400
    assert upgrade(dashboard, cookie) == 101


@pytest.mark.parametrize("line", [8000, 9000])
def test_a_stranger_s_handshake_ends(dashboard: DashboardProcess, line: int) -> None:
    with opened(dashboard) as one:
        one.sendall(
            b"GET /_stcore/stream HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nX: "
            + b"x" * line
            + b"\r\n\r\n"
        )
        assert one.recv(65536).startswith(b"HTTP/1.1 403" if line < 8192 else b"HTTP/1.1 400")
        assert one.recv(65536) == b""


def test_a_client_that_forges_where_it_is_from_escapes_no_wait(
    dashboard: DashboardProcess,
) -> None:
    def guess(number: int) -> int:
        forged = {"X-Forwarded-For": f"192.0.2.{number}", "X-Real-IP": f"192.0.2.{number}"}
        headers = {"Origin": dashboard.url, **forged}
        return ask(dashboard, "POST", "/sign-in", b"token=wrong", headers)[0].status

    assert [guess(number) for number in range(6)][-1] == 429


def test_a_proxy_s_word_for_where_a_client_is_from_counts_from_configured_ones(
    tmp_path: Path,
) -> None:
    settings = (
        'trusted_proxies = ["127.0.0.0/30", "::1"]\n[alerts]\nexternal_url = "https://gpu.example"'
    )
    with (
        QuickHub(tmp_path) as hub,
        DashboardProcess(tmp_path, hub, settings) as dashboard,
    ):

        def guess(forwarded: str, token: str = "wrong") -> http.client.HTTPResponse:
            headers = {
                "Host": "gpu.example",
                "Origin": "https://gpu.example",
                "X-Forwarded-For": forwarded,
                "X-Forwarded-Proto": "https",
            }
            form = urlencode({"token": token}).encode()
            return ask(dashboard, "POST", "/sign-in", form, headers)[0]

        # The right-most that is no proxy of ours, whatever stands before it.
        tries = [guess(f"203.0.113.{n}, 192.0.2.1, 127.0.0.2").status for n in range(4)]
        assert tries == [401, 401, 401, 429]
        assert guess("192.0.2.2").status == 401
        assert guess("192.0.2.1, 192.0.2.3").status == 401
        token = (dashboard.secrets / "access-token").read_text(encoding="utf-8").strip()
        answer = guess("192.0.2.4", token)
        assert answer.status == 303
        assert "Secure" in str(answer.headers["set-cookie"]).split("; ")


def test_a_connection_too_many_is_answered_503_and_the_dashboard_lives(tmp_path: Path) -> None:
    with (
        QuickHub(tmp_path) as hub,
        DashboardProcess(tmp_path, hub, "connections_count = 6") as dashboard,
    ):
        answer, _ = ask(dashboard, "GET", "/?" + urlsplit(dashboard.link()).query)
        cookie = str(answer.headers["set-cookie"]).partition(";")[0]
        with contextlib.ExitStack() as pages:
            for _ in range(3):
                page = pages.enter_context(stream(dashboard, cookie))
            answer, said = ask(dashboard, "GET", "/", headers={"Cookie": cookie})
            assert (answer.status, answer.headers["retry-after"]) == (503, "5")
            assert "dashboard.connections_count" in said
            assert upgrade(dashboard, cookie) == 503
            assert ask(dashboard, "GET", "/healthz")[0].status == 200
            is_alive(page)

        def is_room() -> bool:
            return ask(dashboard, "GET", "/", headers={"Cookie": cookie})[0].status == 200

        wait_until("there is room", is_room)
