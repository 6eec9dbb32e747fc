"""The page behind the links in messages, which changes something only when its form is sent.

Anybody with the link may answer for its incident and see its title, without signing in.
"""

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from accounting.people.roles import Person, Role
from gpuvigil.clock import Clock, micros, to_text
from gpuvigil.errors import GpuvigilError
from gpuvigil.hub_client import Hub
from gpuvigil.matching.matchers import Matcher, labels_of
from gpuvigil.model import (
    Acknowledgement,
    Incident,
    Opinion,
    Record,
    RecordKind,
    Silence,
    readable,
)
from gpuvigil.web.signed_links import PATH, Seal

from ..data.seen import audit_entry
from ..layout.typed_text import LONGEST_NAME, cleaned
from .answer_page import POLICY, is_open, page
from .usefulness import counted

LARGEST_FORM_BYTES = 4096
SILENCE = timedelta(hours=4)
_NOBODY = Person(name="", role=Role.OPERATOR, way="message link")
_OPERATORS = "Only operators can answer. The page Incidents shows this incident."
_GONE = "This link has expired or is not valid. Open the dashboard, or the link of a newer message."


class MessageLinkRoutes:
    """The routes of the links; `connect` makes a hub client for one request."""

    def __init__(
        self,
        seal: Seal,
        connect: Callable[[], Hub],
        clock: Clock,
        who: Callable[[Request], Person | None] = lambda _: None,
    ) -> None:
        """`who` returns the signed-in person of a request, or None if nobody needs to sign in."""
        self._seal = seal
        self._who = who
        self._connect = connect
        self._clock = clock

    def routes(self) -> list[Route]:
        return [Route(PATH + "{token}", self.answer, methods=["GET", "POST"])]

    async def answer(self, request: Request) -> Response:
        body = await _body(request) if request.method == "POST" else b""
        form = dict(parse_qsl(body.decode("utf-8", "replace")))
        token = request.path_params["token"]
        chosen = request.query_params.get("do", "")
        person = self._who(request)
        if person is not None and person.name:
            form = {**form, "by": person.name} if form else {}
        return await run_in_threadpool(self._answer, token, chosen, form, person)

    def _answer(
        self, token: str, chosen: str, form: Mapping[str, str], person: Person | None
    ) -> Response:
        if person is not None and not person.is_operator:
            return _shown(403, page(None, chosen, _OPERATORS))
        try:
            offer = self._seal.opened(token, self._clock.now())
            if offer is None:
                return _shown(403, page(None, chosen, _GONE))
            hub = self._connect()
            try:
                return self._answered(hub, offer.incident, token, chosen, form, person)
            finally:
                hub.close()
        except GpuvigilError as error:
            said = f"Not saved: {error}. Send it again."
            return _shown(503, page(None, chosen, said))

    def _answered(
        self,
        hub: Hub,
        incident_id: str,
        token: str,
        chosen: str,
        form: Mapping[str, str],
        person: Person | None,
    ) -> Response:
        record = hub.record(RecordKind.INCIDENT, incident_id)
        incident = next(readable([record] if record else [], Incident.from_record), None)
        if incident is None:
            return _shown(404, page(None, chosen, "The hub no longer knows this incident."))
        own = "" if person is None else person.name
        if not form:
            return _shown(200, page(incident, chosen, "", own=own))
        by, answer = cleaned(form.get("by", ""), LONGEST_NAME), form.get("answer", "")
        made = _MAKERS.get(answer)
        if made is None or not by:
            return _shown(400, page(incident, chosen, "Not saved: enter your name first."))
        if answer == "acknowledge" and not is_open(incident):
            return _shown(
                200, page(incident, chosen, "It is over: there is nothing to acknowledge.")
            )
        now = self._clock.now()
        kept, said = made(incident, by, token, now)
        hub.write_records([kept, audit_entry(kept, person or _NOBODY, now)])
        return _shown(200, page(incident, chosen, said, done=True))


def _acknowledged(incident: Incident, by: str, token: str, now: datetime) -> tuple[Record, str]:
    kept = Acknowledgement(
        # `since` is in the ID, so that a reopened incident can be acknowledged by the same link.
        id=f"{incident.id}:{_name(token, by, to_text(incident.since))}",
        incident=incident.id,
        subject=incident.subject,
        by=by,
        note="",
        at=now,
    )
    return kept.to_record(), f"{by} has taken it. No more reminders are sent."


def _silenced(incident: Incident, by: str, token: str, now: datetime) -> tuple[Record, str]:
    """Return a silence for the incident's fault at its place; a later click extends the same silence."""
    kept = Silence(
        id=f"s-{_name(token, by)[:12]}",
        matchers=tuple(map(str, _matchers(incident))),
        by=by,
        reason=f"from a message about: {incident.title}",
        at=now,
        starts_at=now,
        ends_at=now + SILENCE,
        version=micros(now),
    )
    return kept.to_record(), "Silenced for 4 h. 'gpuvigil silence list' shows it."


def _matchers(incident: Incident) -> list[Matcher]:
    """Return matchers for the fault at its place, or for this incident if it has several places."""
    subject, labels = incident.subject, labels_of(incident)
    where = {
        "cluster": subject.cluster,
        "node": subject.node,
        "gpu": subject.gpu,
        "device": subject.device,
        "port": subject.port,
    }
    named = {"fault": incident.fault} | {label: value for label, value in where.items() if value}
    if any(len(labels[label]) > 1 for label in named):
        named = {"incident": incident.id}
    return [Matcher(label=label, operator="=", value=value) for label, value in named.items()]


def _opinion(useful: bool) -> Callable[[Incident, str, str, datetime], tuple[Record, str]]:
    def made(incident: Incident, by: str, _token: str, now: datetime) -> tuple[Record, str]:
        return Opinion.given(incident, by, useful=useful, at=now).to_record(), counted(
            incident, useful
        )

    return made


_MAKERS = {
    "acknowledge": _acknowledged,
    "silence": _silenced,
    "useful": _opinion(True),
    "noise": _opinion(False),
}


def _name(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_FORM_BYTES:
            return b""
    return body


def _shown(status: int, text: str) -> Response:
    headers = {
        "Content-Security-Policy": POLICY,
        "Cache-Control": "no-store",
        # The address gives the right to answer, so it must not leak as a referrer.
        "Referrer-Policy": "no-referrer",
        "X-Robots-Tag": "noindex",
    }
    return HTMLResponse(text, status, headers)
