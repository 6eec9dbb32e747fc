"""The client of the hub: the only way in which services and collectors talk to it.

It uses the standard library only, since it runs on every node. Use one `Hub` per thread: it keeps one
connection.
"""

import gzip
import http.client
import json
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import SplitResult, urlencode, urlsplit

from .. import __version__
from ..clock import to_text
from ..config import HubSettings, secret_source, without_secret
from ..errors import ConfigError, HubRefused, HubUnavailable
from ..model import Record, RecordKind, Subject
from ..state_directory import is_run_by_systemd
from .tls import Trust, reason, trust

# The hub is stopping, or cannot reach its database or what is behind a proxy: another hub may answer.
_AWAY = frozenset({500, 502, 503, 504})

# Longest time a `changes` call waits on the hub; the socket waits a little longer.
LONGEST_WAIT_SECONDS = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The hub's answer: status, headers with lower-case names, and the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Records committed after a sequence, oldest first, and the sequence to continue from."""

    records: tuple[Record, ...]
    sequence: int


class Hub:
    """Requests to the hub with one token; every method raises HubUnavailable or HubRefused.

    `url` may name several hubs that share their records, separated by commas. When one is unavailable
    the next is used, until that one fails in turn. `token` is called for each request, so that a
    rotated token file is picked up.
    """

    name = "hub"  # in messages

    def __init__(
        self,
        url: str,
        token: Callable[[], str],
        timeout_seconds: float = 10.0,
        answer_bytes: int | None = None,
        trust: Trust = Trust(),  # noqa: B008 - it is frozen
    ) -> None:
        """Set up a client. An answer of more than `answer_bytes` is refused; None sets no limit."""
        self._trust = trust
        self._places = [_address(one) for one in addresses(url)]
        self._at = 0
        self._answer_bytes = answer_bytes
        self._token = token
        self._timeout_seconds = timeout_seconds
        self._connection: http.client.HTTPConnection | None = None
        # Connections opened so far: each may have reached another process, started in place of the
        # last one.
        self.opened = 0

    def write_records(self, records: Iterable[Record]) -> int:
        """Store records; return the commit sequence once they are committed. Idempotent."""
        lines = "\n".join(json.dumps(record.to_json()) for record in records)
        return int(self._json("POST", "/api/v1/records", lines.encode())["sequence"])

    def records(  # noqa: PLR0913 - each is one filter
        self,
        kind: RecordKind,
        *,
        parent: str | None = None,
        subject: str | None = None,
        holder: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        states: Collection[str] = (),
        limit: int = 10_000,
    ) -> tuple[Record, ...]:
        """Return the newest `limit` records of a kind, oldest first by commit sequence.

        `states` filters on `body.state`; for allocations these are `AllocationState` values. `subject`
        matches the subject and what lies below it. `holder` filters on `body.holder`; a hub that is older
        than the filter ignores it. `since` and `until` bound `at`: `since` is included and `until` is not.
        """
        query = {
            "kind": kind.value,
            "parent": parent,
            "subject": subject,
            "holder": holder,
            "since": None if since is None else to_text(since),
            "until": None if until is None else to_text(until),
            "states": ",".join(sorted(states)) or None,
            "limit": str(limit),
        }
        given = urlencode({key: value for key, value in query.items() if value is not None})
        return _records(self._json("GET", f"/api/v1/records?{given}")["records"])

    def record(self, kind: RecordKind, id_: str) -> Record | None:
        """Return the record of this kind and id; None when the hub has none."""
        query = urlencode({"kind": kind.value, "id": id_})
        found = _records(self._json("GET", f"/api/v1/records?{query}")["records"])
        return found[0] if found else None

    def inventory(self, node: Subject) -> Record | None:
        """Return the last inventory of a node, None without one. Collectors may ask for it, too."""
        query = urlencode({"cluster": node.cluster, "node": node.node})
        found = _records(self._json("GET", f"/api/v1/inventory?{query}")["records"])
        return found[0] if found else None

    def had(self, node: Subject) -> tuple[Record, ...]:
        """Return a node's last inventory and its open allocations, for a collector that lost its memory.

        A hub that is older than this query returns the inventory alone.
        """
        query = urlencode({"cluster": node.cluster, "node": node.node, "held": 1})
        return _records(self._json("GET", f"/api/v1/inventory?{query}")["records"])

    def changes(
        self, after: int, kinds: Collection[RecordKind], wait_seconds: float = LONGEST_WAIT_SECONDS
    ) -> Changes:
        """Return records of `kinds` committed after sequence `after`, at most 10,000.

        The call waits up to `wait_seconds` for the first one (a long poll); then the answer may be empty.
        A record appears with its newest version only. `after=-1` answers at once with no records
        and the current sequence.
        """
        names = ",".join(sorted(kind.value for kind in kinds))
        query = urlencode({"after": after, "kinds": names, "wait": wait_seconds})
        answer = self._json("GET", f"/api/v1/changes?{query}", wait_seconds=wait_seconds)
        return Changes(records=_records(answer["records"]), sequence=int(answer["sequence"]))

    def claim(
        self,
        kind: RecordKind,
        owner: str,
        *,
        lease_seconds: float,
        limit: int = 100,
        wait_seconds: float = 0.0,
    ) -> tuple[Record, ...]:
        """Lease the due records of `kind` to `owner` alone, earliest `due_at` first.

        The call waits up to `wait_seconds` for the first. A lease that expires without `finish` makes the
        record due again for anybody.
        """
        body = {
            "kind": kind.value,
            "owner": owner,
            "lease_seconds": lease_seconds,
            "limit": limit,
            "wait_seconds": wait_seconds,
        }
        answer = self._json("POST", "/api/v1/claim", _dump(body), wait_seconds=wait_seconds)
        return _records(answer["records"])

    def finish(
        self, kind: RecordKind, owner: str, ids: Sequence[str], records: Iterable[Record] = ()
    ) -> None:
        """Mark the claimed `ids` as no longer due and store `records`, in one commit.

        A record among `records` that is one of `ids` may carry a new `due_at`. HubRefused (409)
        when `owner` no longer holds a lease: nothing was stored.
        """
        body = {
            "kind": kind.value,
            "owner": owner,
            "ids": list(ids),
            "records": [record.to_json() for record in records],
        }
        self._json("POST", "/api/v1/finish", _dump(body))

    def telemetry(self, verb: str, question: Mapping[str, Any]) -> bytes:
        """Return an Arrow IPC stream that answers `window`, `series` or `latest` (see gpuvigil.store)."""
        return self.request("POST", f"/api/v1/telemetry/{verb}", _dump(question)).body

    def status(self) -> Mapping[str, Any]:
        """Return the hub's status: version, sequence, store size, and each node's last body."""
        return self._json("GET", "/api/v1/status")

    def tokens(self) -> Mapping[str, Any]:
        """Return what may be shown of each token that the hub has issued: `{"tokens": [...]}`."""
        return self._json("GET", "/api/v1/tokens")

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float = 0.0,
    ) -> Answer:
        """Send one request and return a 2xx answer; HubRefused for 4xx, HubUnavailable for all else.

        A body over 1 KiB is compressed. 429 counts as unavailable and carries `Retry-After`.
        """
        try:
            token = self._token()
        except ConfigError as error:  # a file in the middle of a rotation
            raise HubUnavailable(f"{self._place()} is not asked: {error}") from None
        sent = {
            "Authorization": f"Token {token}",
            "User-Agent": f"gpuvigil/{__version__}",
            **(headers or {}),
        }
        if body is not None and len(body) > 1024 and "Content-Encoding" not in sent:
            body, sent["Content-Encoding"] = gzip.compress(body, 1), "gzip"
        for _ in self._places[1:]:
            try:
                answer = self._exchange(method, path, body, sent, wait_seconds)
            except HubUnavailable:
                self._turn()
                continue
            if answer.status not in _AWAY:
                return self._taken(answer)
            self._turn()
        return self._taken(self._exchange(method, path, body, sent, wait_seconds))

    @property
    def _parts(self) -> SplitResult:
        return self._places[self._at]

    def _turn(self) -> None:
        self.close()
        self._at = (self._at + 1) % len(self._places)

    def _taken(self, answer: Answer) -> Answer:
        if answer.status < 300:
            return answer
        raise self._refusal(answer)

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        wait_seconds: float,
    ) -> Answer:
        fresh = self._connection is None
        try:
            return self._send(method, path, body, headers, wait_seconds)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            # A kept connection may have been closed by the hub meanwhile. Everything the hub does
            # is idempotent, so one more try on a new connection is safe.
            if fresh or isinstance(error, TimeoutError):
                raise self._unavailable(error, fresh) from error
        try:
            return self._send(method, path, body, headers, wait_seconds)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._unavailable(error) from error

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        wait_seconds: float,
    ) -> Answer:
        connection = self._connect()
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(self._timeout_seconds + wait_seconds)
            connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
        except OSError:
            raise  # among them certificate errors, which are ValueErrors as well
        except ValueError:  # its message may hold the token
            self.close()
            why = "its address or the token holds what cannot be sent"
            raise HubUnavailable(f"{self._place()} cannot be asked: {why}") from None
        response = connection.getresponse()
        content = self._read(response)
        lower = {name.lower(): value for name, value in response.getheaders()}
        return Answer(status=response.status, headers=lower, body=content)

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        """Return the body; with `answer_bytes` raise when it is too long or takes too long."""
        if self._answer_bytes is None:
            return response.read()
        deadline, content = time.monotonic() + self._timeout_seconds, bytearray()
        while chunk := response.read1(self._answer_bytes):
            content += chunk
            if len(content) > self._answer_bytes:
                raise http.client.HTTPException("the answer is too long to be the hub's")
            if time.monotonic() > deadline:
                raise TimeoutError("the answer takes too long")
        response.close()  # `read1` leaves this to its caller; the connection is kept
        return bytes(content)

    def _connect(self) -> http.client.HTTPConnection:
        if self._connection is None:
            self.opened += 1
            place = (self._parts.hostname or "", self._parts.port)
            timeout = self._timeout_seconds
            if self._parts.scheme == "https":
                try:
                    context = self._trust.context()
                except ConfigError as error:  # a file in the middle of a renewal
                    raise HubUnavailable(f"{self._place()}: {error}") from None
                self._connection = http.client.HTTPSConnection(
                    *place, timeout=timeout, context=context
                )
            else:
                self._connection = http.client.HTTPConnection(*place, timeout=timeout)
        return self._connection

    def _json(
        self, method: str, path: str, body: bytes | None = None, wait_seconds: float = 0.0
    ) -> dict[str, Any]:
        answer = self.request(method, path, body, wait_seconds=wait_seconds)
        try:
            value = json.loads(answer.body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise HubUnavailable(f"{self._place()} answered something that is not the hub's JSON")
        return value

    def _refusal(self, answer: Answer) -> HubRefused | HubUnavailable:
        try:
            details = json.loads(answer.body)
            # InfluxDB 1 says `error` where 2 says `message`.
            message = str(details.get("message") or details["error"])
        except (ValueError, KeyError, TypeError, AttributeError):
            details, message = None, f"status {answer.status}"
        text = f"{self._place()}: {message}"
        if answer.status == 429 or not 400 <= answer.status < 500:
            return HubUnavailable(text, retry_after_seconds(answer.headers))
        return HubRefused(text, answer.status, details)

    def _unavailable(self, error: Exception, fresh: bool = True) -> HubUnavailable:
        said = reason(error)
        if said is None and fresh and isinstance(error, ConnectionResetError):
            # Connections end like this when one side speaks TLS and the other does not accept it.
            said = f"it closed the connection; perhaps {self._trust.doubt(self._parts.scheme)}"
        if said is not None:
            return HubUnavailable(f"{self._place()}: {said}")
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        text = f"{self._place()} does not answer: {said}"
        return HubUnavailable(text, todo=self._todo(error) if self.name == "hub" else "")

    def _todo(self, error: Exception) -> str:
        """Return what to do about a hub that does not answer."""
        if isinstance(error, socket.gaierror):
            return "check hub.url"
        host = self._parts.hostname or ""
        if host in {"localhost", "::1"} or host.startswith("127."):
            return local_todo(is_run_by_systemd())
        return "is it running there, and is hub.url right?"

    def _place(self) -> str:
        return f"{self.name} at {self._parts.scheme}://{self._parts.netloc.rpartition('@')[2]}"


def local_todo(by_systemd: bool) -> str:
    """Return what to do about a hub on this machine that does not answer."""
    if by_systemd:
        return "'systemctl status gpuvigil@hub' and 'journalctl -u gpuvigil@hub -n 20' say why"
    return "is it running? 'gpuvigil up' starts everything"


def addresses(url: str) -> tuple[str, ...]:
    """Return the addresses that `hub.url` names, in the order in which they are tried."""
    return tuple(one.strip() for one in url.split(","))


def _address(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        right = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # an invalid port, an open bracket
        right = False
    if not right:
        raise ConfigError(f"hub.url: {without_secret(url)!r} is not an http or https address")
    return parts


def service_hubs(settings: HubSettings) -> Callable[[], Hub]:
    """Return a factory of clients with the service token; raise ConfigError at once without a token."""
    token = secret_source(settings.service_token_file, "hub.service_token_file", "service token")
    believed = trust(settings)
    return lambda: Hub(settings.url, token, trust=believed)


def _records(values: Iterable[Mapping[str, Any]]) -> tuple[Record, ...]:
    return tuple(Record.from_json(value) for value in values)


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return Retry-After in seconds (RFC 9110, section 10.2.3), None when absent or unreadable.

    A date is compared with the answer's own Date header.
    """
    text = headers.get("retry-after")
    if text is None:
        return None
    try:
        return max(float(text), 0.0)
    except ValueError:
        pass
    try:
        then, now = parsedate_to_datetime(text), parsedate_to_datetime(headers["date"])
        return max((then - now).total_seconds(), 0.0)
    except (KeyError, ValueError, TypeError):
        return None
