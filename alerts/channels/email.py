"""People by e-mail; everything about one incident is one thread.

Formats: RFC 5321 and 5322, RFC 3834 (`Auto-Submitted`), RFC 8058 is not for us: nobody subscribed.
Every message about an incident answers one that was never sent but has a fixed id, which mail
programs take for the thread's beginning; a message that is sent twice has the same id.
"""

import ipaddress
import re
import smtplib
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from email.message import EmailMessage
from email.utils import format_datetime
from hashlib import sha256

from gpuvigil.config import EmailSettings, read_secret
from gpuvigil.errors import ConfigError
from gpuvigil.model import Severity

from ..case import Route
from ..channel import Delivered, Outcome, Pace, Refused, Retry
from ..message import Message
from .address import is_forbidden
from .parts import answers, links, title
from .post import route_of

PACE = Pace(burst=20, per_second=2.0)
LONGEST_SUBJECT = 200
_PRIORITY = {Severity.CRITICAL: "1 (Highest)", Severity.WARNING: "3 (Normal)"}
# Who can be an owner at a domain: what Linux takes for a user's name.
_USER = re.compile(r"[a-z_][a-z0-9_.-]{0,63}", re.IGNORECASE)


class Email:
    """The channel to one mail server and those who read there."""

    def __init__(self, settings: EmailSettings) -> None:
        self._settings = settings
        here = _is_here(settings.server)
        if settings.security == "none" and not here:
            raise ConfigError(
                f"the channel {settings.name!r} would send e-mail that anybody on the way can read"
                " to another machine; use security = 'starttls' or 'tls'"
            )
        self._password()

    @property
    def route(self) -> Route:
        owners = bool(self._settings.owner_template)
        return replace(
            route_of(self._settings), owners=owners, owners_only=owners and not self._settings.to
        )

    @property
    def timeout_seconds(self) -> float:
        # Each of connecting, signing in and sending has the setting's time; there may be two letters.
        sendings = 1 + bool(self._settings.to and self._settings.owner_template)
        return self._settings.timeout_seconds * (2 + sendings)

    @property
    def pace(self) -> Pace:
        return PACE

    def deliver(self, message: Message) -> Outcome:
        settings = self._settings
        written = letters(message, settings)
        if not written:
            return Refused(
                reason=f"nobody to write to: no owner with a name in {settings.owner_template}"
            )
        found: list[Outcome] = []
        try:
            with self._server() as server:
                for one, readers in written:
                    found.append(self._sent(server, one, readers))
                    if isinstance(found[-1], Retry):
                        break
        except (ConfigError, smtplib.SMTPException, OSError) as error:
            found.append(self._failed(error))
        # Some took it: the thread is on its way, and a repetition would double it there.
        taken = (one for one in found if isinstance(one, Delivered))
        return next(taken, found[-1])

    def _sent(self, server: smtplib.SMTP, one: EmailMessage, readers: list[str]) -> Outcome:
        try:
            server.send_message(one, self._settings.sender, readers)
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            return _judged(self._settings.server, codes)
        return Delivered()

    def _failed(self, error: Exception) -> Outcome:
        if isinstance(error, ConfigError):
            return Retry(reason=str(error))
        if isinstance(error, smtplib.SMTPResponseException):
            return _judged(self._settings.server, [error.smtp_code])
        unclear = not isinstance(error, ConnectionRefusedError | socket.gaierror | ssl.SSLError)
        return Retry(reason=f"{self._settings.server}: {_why(error)}", perhaps_received=unclear)

    def close(self) -> None:
        """Each message has a connection of its own."""

    def _password(self) -> str:
        file = self._settings.password_file
        if file is None:
            return ""
        return read_secret(file, f"password of the channel {self._settings.name}")

    @contextmanager
    def _server(self) -> Iterator[smtplib.SMTP]:
        settings, context = self._settings, ssl.create_default_context()
        place, seconds = (settings.server, settings.port), settings.timeout_seconds
        server = (
            smtplib.SMTP_SSL(*place, timeout=seconds, context=context)
            if settings.security == "tls"
            else smtplib.SMTP(*place, timeout=seconds)
        )
        try:
            _look_at(server)
            if settings.security == "starttls":
                server.starttls(context=context)
            if settings.user:
                server.login(settings.user, self._password())
            yield server
        finally:
            with suppress(smtplib.SMTPException, OSError):
                server.quit()
            server.close()


def email(settings: EmailSettings, external_url: str) -> Email:
    """The channel to one mail server; ConfigError when it may not be used so."""
    del external_url  # its messages carry whole addresses
    return Email(settings)


def letters(message: Message, settings: EmailSettings) -> list[tuple[EmailMessage, list[str]]]:
    """What is written, and to whom: to the fixed readers, then to owners, without what is not theirs."""
    fixed = [] if message.owners_only else list(dict.fromkeys(settings.to))
    owners = [one for one in owner_addresses(message, settings) if one not in fixed]
    theirs = message.only_for_owners()
    return [
        (letter(said, settings, readers), readers)
        for said, readers in ((message, fixed), (theirs, owners))
        if readers
    ]


def owner_addresses(message: Message, settings: EmailSettings) -> list[str]:
    """Of the owners whom it is for and whose names can be one at the domain."""
    found = [
        settings.owner_template.replace("{user}", owner)
        for owner in message.for_owners
        if settings.owner_template and _USER.fullmatch(owner)
    ]
    return list(dict.fromkeys(found))


def letter(message: Message, settings: EmailSettings, readers: list[str]) -> EmailMessage:
    """The e-mail; plain text, in which nothing that strangers wrote is more than text."""
    domain = settings.sender.rpartition("@")[2]
    thread = _id(message.incident, domain)
    made = EmailMessage()
    made["From"] = settings.sender
    made["To"] = ", ".join(readers)
    made["Subject"] = title(message, LONGEST_SUBJECT)
    made["Date"] = format_datetime(message.at)
    # Who gets both, by a list say, has both: they are not the same.
    made["Message-ID"] = _id(message.notice + " owners" * message.owners_only, domain)
    made["In-Reply-To"] = thread
    made["References"] = thread
    made["Auto-Submitted"] = "auto-generated"
    made["X-Priority"] = (
        _PRIORITY.get(message.severity, "5 (Lowest)") if message.firing else "3 (Normal)"
    )
    made["X-Gpuvigil-Incident"] = _id(message.incident, "incident")
    made.set_content(body(message))
    return made


def body(message: Message) -> str:
    """A paragraph per question, then the links."""
    said = [f"{question}: {answer}" for question, answer in answers(message)]
    led = [f"{name.rstrip('?')}: {url}" for name, url in links(message)]
    return "\n\n".join([title(message, LONGEST_SUBJECT), *said, "\n".join(led)]) + "\n"


def _id(name: str, domain: str) -> str:
    return f"<{sha256(name.encode()).hexdigest()[:32]}@{domain}>"


def _judged(server: str, codes: list[int]) -> Outcome:
    """4xx is for now, 5xx for good (RFC 5321, section 4.2.1), but for a wrong password."""
    code = max(codes, default=0)
    said = f"{server} answered {code}"
    if code in {530, 534, 535, 538}:
        return Retry(reason=f"{said}: it does not take the user and the password")
    return Refused(reason=said) if code >= 500 else Retry(reason=said)


def _look_at(server: smtplib.SMTP) -> None:
    """ConfigError when the name led to an address that no mail server lives at."""
    assert server.sock is not None
    address = ipaddress.ip_address(server.sock.getpeername()[0].partition("%")[0])
    if is_forbidden(address):
        raise ConfigError(f"{address} is a link-local or metadata address")


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _why(error: Exception) -> str:
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(said).split())[:200]
