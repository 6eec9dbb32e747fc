"""E-mail to people; all messages about one incident are one thread.

Formats: RFC 5321 and 5322, RFC 3834 (`Auto-Submitted`); RFC 8058 does not apply: nobody subscribed.
Every message about an incident replies to one that was never sent but has a fixed id, which mail
programs take for the thread's beginning; a message that is sent twice has the same id.
"""

import ipaddress
import re
import smtplib
import socket
import ssl
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from email.message import EmailMessage
from email.utils import format_datetime
from hashlib import sha256

from gpuvigil.config import EmailSettings, read_secret
from gpuvigil.errors import ConfigError
from gpuvigil.model import Severity

from ..messages.channel import Delivered, Outcome, Pace, Refused, Retry
from ..messages.message import Message
from .address import in_ascii, is_forbidden
from .http_post import profile_of
from .shared_parts import answers, links, title

PACE = Pace(burst=20, per_second=2.0)
LONGEST_SUBJECT = 200
# When some readers have a letter, it is tried this often for the others: a quarter of an hour,
# which is more than servers ask for that refuse unknown senders at first (greylisting, RFC 6647).
TRIES_FOR_SOME = 10
MOST_PARTLY_SENT = 1000
PERMANENT = 500  # reply codes from here on are permanent
_PRIORITY = {Severity.CRITICAL: "1 (Highest)", Severity.WARNING: "3 (Normal)"}
Letter = tuple[EmailMessage, list[str]]  # a message and its readers
# Owner names that may be part of an address: what Linux takes for a user's name.
_USER = re.compile(r"[a-z_][a-z0-9_.-]{0,63}", re.IGNORECASE)


class Email:
    """The channel to one mail server and its readers."""

    def __init__(self, settings: EmailSettings) -> None:
        self._settings, self.pace = settings, PACE
        owners = bool(settings.owner_template)
        self.profile = replace(
            profile_of(settings), owners=owners, owners_only=owners and not settings.to
        )
        # Each of connecting, signing in and sending has the setting's time; there may be two letters.
        self.timeout_seconds = settings.timeout_seconds * (3 + (owners and bool(settings.to)))
        here = _is_here(settings.server)
        if settings.security == "none" and not here:
            raise ConfigError(
                f"the channel {settings.name!r} would send e-mail that anybody on the way can read"
                " to another machine; use security = 'starttls' or 'tls'"
            )
        self._password()
        # By notice: the readers who have what others have not, and how often that was tried.
        self._reached: dict[str, set[str]] = {}
        self._tries: Counter[str] = Counter()

    def deliver(self, message: Message) -> Outcome:
        settings = self._settings
        written = letters(message, settings)
        if not written:
            said = f"no recipient: no owner has a name for {settings.owner_template}"
            return Refused(reason=said, for_nobody=True)
        found, whole = self._tried(message.notice, written)
        reached = self._reached.get(message.notice, set())
        again = next((one for one in found if isinstance(one, Retry)), None)
        if again is not None and not reached:
            return again
        if again is not None and self._tries[message.notice] < TRIES_FOR_SOME:
            # Readers who have it are not written to again.
            return replace(again, perhaps_received=True, for_some=whole)
        self._forget(message.notice)
        ended = Delivered() if reached else found[-1]
        if isinstance(ended, Refused) and message.owners_only:
            # That one owner has no mailbox says nothing about those of the others.
            return replace(ended, for_nobody=True)
        return ended

    def post(self, one: EmailMessage, reader: str) -> Outcome:
        """Send a letter that was made elsewhere to one reader."""
        try:
            with self._server() as server:
                return self._sent(server, one, [reader])[0]
        except (ConfigError, smtplib.SMTPException, OSError) as error:
            return self._failed(error)

    @property
    def sender(self) -> str:
        return self._settings.sender

    def _tried(self, notice: str, written: list[Letter]) -> tuple[list[Outcome], bool]:
        """Send letters; return their outcomes and whether the session held; note who has one."""
        found: list[Outcome] = []
        has = self._reached.get(notice, set())
        try:
            with self._server() as server:
                for one, readers in written:
                    left = [reader for reader in readers if reader not in has]
                    if not left:
                        continue
                    outcome, taken = self._sent(server, one, left)
                    found.append(outcome)
                    if taken:
                        has = self._reached.setdefault(notice, set())
                        has.update(taken)
        except (ConfigError, smtplib.SMTPException, OSError) as error:
            return [*found, self._failed(error)], False
        finally:
            self._remember(notice)
        return found, True

    def _remember(self, notice: str) -> None:
        """Count a try of a half-delivered notice; beyond the limit the oldest is forgotten and
        resent.
        """
        if notice in self._reached:
            self._tries[notice] += 1
        if len(self._reached) > MOST_PARTLY_SENT:
            self._forget(next(iter(self._reached)))

    def _forget(self, notice: str) -> None:
        self._reached.pop(notice, None)
        self._tries.pop(notice, None)

    def _sent(
        self, server: smtplib.SMTP, one: EmailMessage, readers: list[str]
    ) -> tuple[Outcome, list[str]]:
        """Send a letter; return the outcome, and which of its readers have it."""
        refused: Mapping[str, tuple[int, bytes]]
        try:
            refused = server.send_message(one, self._settings.sender, readers)
        except smtplib.SMTPRecipientsRefused as error:
            refused = error.recipients
        except smtplib.SMTPResponseException as error:
            return _judged(self._settings.server, [error.smtp_code]), []
        codes = [code for code, _ in refused.values()]
        later = [code for code in codes if code < PERMANENT]
        taken = [reader for reader in readers if reader not in refused]
        if later or not taken:
            return _judged(self._settings.server, later or codes), taken
        return Delivered(), taken

    def _failed(self, error: Exception) -> Outcome:
        if isinstance(error, ConfigError):
            return Retry(reason=str(error))
        if isinstance(error, smtplib.SMTPResponseException):
            return _judged(self._settings.server, [error.smtp_code])
        unclear = not isinstance(error, ConnectionRefusedError | socket.gaierror | ssl.SSLError)
        return Retry(reason=f"{self._settings.server}: {_why(error)}", perhaps_received=unclear)

    def close(self) -> None:
        """Do nothing: each message has a connection of its own."""

    def _password(self) -> str:
        file = self._settings.password_file
        if file is None:
            return ""
        what = f"password of the channel {self._settings.name}"
        return in_ascii(read_secret(file, what), what)

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
            _check_address(server)
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
    """Return the channel to one mail server; ConfigError when it may not be used in this way."""
    del external_url  # its messages carry whole addresses
    return Email(settings)


def letters(message: Message, settings: EmailSettings) -> list[Letter]:
    """Return each letter and its readers: fixed readers, then owners, without what is not for them."""
    fixed = [] if message.owners_only else list(dict.fromkeys(settings.to))
    owners = [one for one in owner_addresses(message, settings) if one not in fixed]
    theirs = message.only_for_owners()
    return [
        (letter(said, settings, readers), readers)
        for said, readers in ((message, fixed), (theirs, owners))
        if readers
    ]


def owner_addresses(message: Message, settings: EmailSettings) -> list[str]:
    """Return the addresses of the owners a message is for whose names can be part of one."""
    found = [
        settings.owner_template.replace("{user}", owner)
        for owner in message.for_owners
        if settings.owner_template and _USER.fullmatch(owner)
    ]
    return list(dict.fromkeys(found))


def letter(message: Message, settings: EmailSettings, readers: list[str]) -> EmailMessage:
    """Return the e-mail: plain text, in which nothing that strangers wrote is more than text."""
    domain = settings.sender.rpartition("@")[2]
    thread = _id(message.incident, domain)
    made = EmailMessage()
    made["From"] = settings.sender
    made["To"] = ", ".join(readers)
    made["Subject"] = title(message, LONGEST_SUBJECT)
    made["Date"] = format_datetime(message.at)
    # A reader who gets both, through a list say, has both: they are not the same.
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
    """Return the text of the e-mail: a paragraph per question, then the links."""
    said = [f"{question}: {answer}" for question, answer in answers(message)]
    led = [f"{name.rstrip('?')}: {url}" for name, url in links(message)]
    return "\n\n".join([title(message, LONGEST_SUBJECT), *said, "\n".join(led)]) + "\n"


def _id(name: str, domain: str) -> str:
    return f"<{sha256(name.encode()).hexdigest()[:32]}@{domain}>"


def _judged(server: str, codes: list[int]) -> Outcome:
    """Return the outcome of reply codes: 4xx retry, 5xx refused, except a wrong password.

    RFC 5321, section 4.2.1.
    """
    code = max(codes, default=0)
    said = f"{server} answered {code}"
    if code in {530, 534, 535, 538}:
        return Retry(reason=f"{said}: it does not take the user and the password")
    return Refused(reason=said) if code >= PERMANENT else Retry(reason=said)


def _check_address(server: smtplib.SMTP) -> None:
    """Raise ConfigError when the server's name led to an address that no mail server has."""
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
