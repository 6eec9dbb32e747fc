"""Settings of alerts: who is notified, through which channel, and when.

Each class's `wrong` yields what types cannot check: pairs of a key (empty if none is at fault) and a
sentence. Secrets are in a file, which is read again for every message, or in a variable.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from .routing import IdleSettings, InhibitSettings, RouteSettings, TimesSettings
from .setting import setting

_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
PROXY_EXAMPLE = "http://proxy.example.com:3128"
_SEVERITIES = ("critical", "warning", "info")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverSettings:
    """A receiver of notifications, whatever the channel."""

    name: str = setting("", "name of the channel, in notices and in the log")
    minimum_severity: str = setting(
        "warning", "critical, warning or info: less severe incidents are not sent"
    )
    send_resolved: bool = setting(True, "also send a message when an incident is resolved")
    pager: bool = setting(False, "it wakes people: it gets no simulated incidents")
    every_change: bool = setting(
        False,
        "send every change, also of the impact; otherwise, after the first message, only that it is"
        " worse, of another cause, much larger, or over",
    )
    timeout_seconds: float = setting(10.0, "a receiver that takes longer is tried again later")

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Yield each mistake in these settings: the key, and why."""
        if self.minimum_severity not in _SEVERITIES:
            known = ", ".join(_SEVERITIES)
            yield "minimum_severity", f"{self.minimum_severity!r} is not one of {known}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostSettings(ReceiverSettings):
    """A receiver that gets an HTTP POST to a URL."""

    url: str = setting("", "where to post; the URL is a secret: better in url_file")
    url_file: Path | None = setting(None, "file that holds the URL")
    url_variable: str = setting("", "variable of the environment that holds the URL")
    allow_http: bool = setting(
        False, "post without TLS also to another machine; to this one it always may"
    )

    proxy: str = setting(
        "", f"HTTP proxy on the way to it, as {PROXY_EXAMPLE}; HTTPS_PROXY is not read"
    )
    proxy_file: Path | None = setting(
        None, "file that holds the proxy's address, for one with a password; read at the start"
    )

    def wrong(self) -> Iterator[tuple[str, str]]:
        yield from ReceiverSettings.wrong(self)
        if not (self.url or self.url_file or self.url_variable):
            yield "", f"{self.name!r} needs url, url_file or url_variable"
        yield from self.wrong_proxy()

    def wrong_proxy(self) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with the proxy, without quoting an address that may hold a password."""
        if not self.proxy:
            return
        if not is_proxy(self.proxy):
            yield "proxy", f"the proxy of {self.name!r} is not like {PROXY_EXAMPLE}"
        elif "@" in self.proxy:
            yield "proxy", f"the proxy of {self.name!r} has a password: put it into proxy_file"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings(PostSettings):
    """A receiver of Alertmanager's webhook format, version 4."""

    name: str = setting("webhook", "name of the channel, in notices and in the log")
    every_change: bool = setting(
        True,
        "send every change, also of the impact: a program tracks open incidents by their fingerprint",
    )
    secret_file: Path | None = setting(
        None, "file with a secret that both sides know: each post is signed with it"
    )
    secret_variable: str = setting("", "variable that holds that secret")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackSettings(PostSettings):
    """A Slack channel: through an incoming webhook, or by a bot, which updates and threads."""

    name: str = setting("slack", "name of the channel, in notices and in the log")
    token_file: Path | None = setting(
        None, "file with a bot's token (xoxb-...): then channel, and no url, is needed"
    )
    token_variable: str = setting("", "variable that holds the bot's token")
    channel: str = setting("", "id of the channel that the bot posts in, as C0123456789")
    mentions_file: Path | None = setting(
        None,
        "file with a line per user, as 'alice U0123ABCD': whose GPUs they are is mentioned by"
        " Slack's member id",
    )
    api_url: str = setting("https://slack.com/api", "where the bot speaks to")

    @property
    def is_bot(self) -> bool:
        """Whether a bot posts, not a webhook."""
        return bool(self.token_file or self.token_variable)

    def wrong(self) -> Iterator[tuple[str, str]]:
        if not self.is_bot:
            yield from PostSettings.wrong(self)
            return
        yield from ReceiverSettings.wrong(self)
        yield from self.wrong_proxy()
        if not self.channel:
            yield "", f"{self.name!r} has a bot's token and needs the id of its channel"


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamsSettings(PostSettings):
    """A Microsoft Teams channel, through a workflow that takes Adaptive Cards."""

    name: str = setting("teams", "name of the channel, in notices and in the log")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordSettings(PostSettings):
    """A Discord channel, through its webhook."""

    name: str = setting("discord", "name of the channel, in notices and in the log")
    every_change: bool = setting(
        True, "send every change, also of the impact: it edits its message, without a sound"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PagerdutySettings(PostSettings):
    """A PagerDuty service, through its Events API v2."""

    name: str = setting("pagerduty", "name of the channel, in notices and in the log")
    minimum_severity: str = setting(
        "critical", "critical, warning or info: less severe incidents are not sent"
    )
    pager: bool = setting(True, "it wakes people: it gets no simulated incidents")
    url: str = setting("https://events.pagerduty.com/v2/enqueue", "where to post")
    routing_key_file: Path | None = setting(None, "file that holds the integration's routing key")
    routing_key_variable: str = setting("", "variable that holds the routing key")

    def wrong(self) -> Iterator[tuple[str, str]]:
        yield from PostSettings.wrong(self)
        if not (self.routing_key_file or self.routing_key_variable):
            yield "", f"{self.name!r} needs routing_key_file or routing_key_variable"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertmanagerSettings(PostSettings):
    """An Alertmanager, which does its own routing, silencing and notifying."""

    name: str = setting("alertmanager", "name of the channel, in notices and in the log")
    every_change: bool = setting(
        True, "send every change, also of the impact: it replaces the earlier one"
    )
    minimum_severity: str = setting(
        "info", "critical, warning or info: less severe incidents are not sent"
    )
    resend_seconds: float = setting(
        60.0, "open incidents are posted again this often, so that they stay"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailSettings(ReceiverSettings):
    """People, by e-mail; the messages about one incident form one thread."""

    name: str = setting("email", "name of the channel, in notices and in the log")
    server: str = setting("", "the mail server that takes it")
    port: int = setting(587, "its port")
    security: str = setting("starttls", "starttls, tls, or none (only towards this machine)")
    sender: str = setting("", "address that it comes from")
    to: tuple[str, ...] = setting((), "addresses that are told")
    owner_domain: str = setting(
        "", "tell also those whose GPUs they are: the user's name at this domain"
    )
    owner_address: str = setting(
        "", "the same where an address is more than that, as {user}@gpu.example.org"
    )
    user: str = setting("", "who signs in; empty: nobody")
    password_file: Path | None = setting(None, "file that holds the user's password")

    @property
    def owner_template(self) -> str:
        """An owner's address with {user} for the name; empty when owners are not written to."""
        return self.owner_address or (f"{{user}}@{self.owner_domain}" if self.owner_domain else "")

    def wrong(self) -> Iterator[tuple[str, str]]:
        yield from ReceiverSettings.wrong(self)
        if not self.server or not self.sender:
            yield "", f"{self.name!r} needs server and sender"
        if not (self.to or self.owner_template):
            yield "", f"{self.name!r} needs to, owner_domain or owner_address"
        example = self.owner_template.replace("{user}", "alice")
        if self.owner_address and (example == self.owner_address or not _is_address(example)):
            yield "owner_address", f"{self.owner_address!r} is not like {{user}}@example.org"
        if self.security not in {"starttls", "tls", "none"}:
            yield "security", f"{self.security!r} is not one of starttls, tls, none"
        for address in (self.sender, *self.to):
            if address and not _is_address(address):
                yield ("sender" if address == self.sender else "to"), f"{address!r} is no address"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings(ReceiverSettings):
    """A program of the site's own; it gets the message as JSON on its standard input."""

    name: str = setting("command", "name of the channel, in notices and in the log")
    every_change: bool = setting(True, "send every change, also of the impact")
    command: tuple[str, ...] = setting((), "the program and its arguments; no shell reads them")

    def wrong(self) -> Iterator[tuple[str, str]]:
        yield from ReceiverSettings.wrong(self)
        if not self.command:
            yield "", f"{self.name!r} needs command"
        elif not self.command[0].startswith("/"):
            yield "command", f"{self.command[0]!r} must be a whole path"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppriseSettings(PostSettings):
    """A service that Apprise supports, as plain text; needs gpuvigil[apprise]."""

    name: str = setting("apprise", "name of the channel, in notices and in the log")
    url: str = setting("", "the service as Apprise names it; a secret: better in url_file")

    def wrong_proxy(self) -> Iterator[tuple[str, str]]:
        if self.proxy or self.proxy_file:
            said = f"{self.name!r}: Apprise reads HTTPS_PROXY of the environment instead"
            yield "proxy" if self.proxy else "proxy_file", said


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsSettings:
    """Settings of alerts: the receivers, and how often they are notified."""

    external_url: str = setting(
        "http://127.0.0.1:8501",
        "address at which people reach the dashboard, for links in messages",
    )
    runbook_url: str = setting(
        "",
        "address of your runbook, a link in every message; {fault} is replaced by the fault's name, as in https://wiki.example.org/gpu/{fault}",
    )
    link_key_file: Path | None = setting(
        None,
        "file with the key that signs the links in messages with which people acknowledge without a sign-in; the dashboard needs the same; empty: links ask for a sign-in",
    )
    dead_man_url: str = setting(
        "",
        "dead man's switch: an address that is called as long as gpuvigil is healthy, so that the receiver notices when it is not",
    )
    dead_man_url_file: Path | None = setting(None, "file with that address")
    dead_man_proxy: str = setting("", "HTTP proxy for that address, like `proxy` of a channel")
    dead_man_proxy_file: Path | None = setting(None, "file with the proxy's address")
    dead_man_seconds: float = setting(60.0, "how often it is called")
    metrics_listen: str = setting("127.0.0.1", "address of the /metrics of alerts")
    metrics_port: int = setting(-1, "its port; 0: any free port; -1: off")
    digest_at: str = setting("08:00", "when digests are sent, in UTC")
    proven: tuple[str, ...] = setting(
        (),
        "faults on trial that send messages before they were right at this site; all: every one; none: no fault on trial sends messages",
    )
    update_seconds: float = setting(
        300.0, "minimum time between updates about one incident, its return included"
    )
    repeat_seconds: float = setting(
        14400.0, "how long after a message a critical incident that is still open is repeated"
    )
    repeat_at_most_seconds: float = setting(
        86400.0, "each reminder comes after twice the time of the one before, up to this"
    )
    give_up_seconds: float = setting(
        86400.0,
        "a message that could not be delivered for this long is given up, and shown as such",
    )
    cause_wait_seconds: float = setting(
        20.0, "how long a message about a silent node waits for the cause"
    )
    routes: tuple[RouteSettings, ...] = setting(
        (),
        "which incidents go to which channels, as [[alerts.routes]]; without routes, all go to all",
    )
    times: tuple[TimesSettings, ...] = setting((), "hours for routes, as [[alerts.times]]")
    inhibit: tuple[InhibitSettings, ...] = setting(
        (), "incidents without messages while another incident is open, as [[alerts.inhibit]]"
    )
    idle: tuple[IdleSettings, ...] = setting(
        (),
        "when the owners of idle GPUs are notified, as [[alerts.idle]], through channels that write to owners; by default, for jobs after 60 and 105 minutes, for pods after 30",
    )
    idle_notices_per_day: int = setting(
        10,
        "maximum notices of idle GPUs to one owner in 24 hours; others wait; 0: no limit",
    )
    webhooks: tuple[WebhookSettings, ...] = setting((), "receivers, as [[alerts.webhooks]]")
    slack: tuple[SlackSettings, ...] = setting((), "Slack channels, as [[alerts.slack]]")
    teams: tuple[TeamsSettings, ...] = setting((), "Teams channels, as [[alerts.teams]]")
    discord: tuple[DiscordSettings, ...] = setting((), "Discord channels, as [[alerts.discord]]")
    pagerduty: tuple[PagerdutySettings, ...] = setting(
        (), "PagerDuty services, as [[alerts.pagerduty]]"
    )
    alertmanager: tuple[AlertmanagerSettings, ...] = setting(
        (), "Alertmanagers, as [[alerts.alertmanager]]"
    )
    email: tuple[EmailSettings, ...] = setting((), "people by e-mail, as [[alerts.email]]")
    command: tuple[CommandSettings, ...] = setting((), "programs, as [[alerts.command]]")
    apprise: tuple[AppriseSettings, ...] = setting((), "other services, as [[alerts.apprise]]")

    def names(self) -> list[str]:
        """Return the names of all channels."""
        return [one.name for key in RECEIVERS for one in getattr(self, key)]

    def wrong(self) -> Iterator[tuple[str, int, str, str]]:
        """Yield each mistake in how the parts fit together: the list, the entry's number, the key, and why."""
        if not _CLOCK.fullmatch(self.digest_at):
            yield "", 0, "digest_at", f"{self.digest_at!r} is not a time of the day like 08:00"
        yield from self._wrong_addresses()
        yield from self._wrongly_proven()
        channels, hours = set(self.names()), {one.name for one in self.times}
        for number, route in enumerate(self.routes):
            for key, known in (
                ("receivers", channels),
                ("escalate_to", channels),
                ("times", hours),
                ("quiet_times", hours),
            ):
                for name in getattr(route, key):
                    if name not in known:
                        there = ", ".join(sorted(known)) or "none"
                        yield "routes", number, key, f"there is no {name!r}; there are {there}"

    def _wrong_addresses(self) -> Iterator[tuple[str, int, str, str]]:
        for key, text in (("external_url", self.external_url), ("runbook_url", self.runbook_url)):
            if text and not _is_web_address(text):
                yield "", 0, key, f"{text!r} is not an http or https address"
        dead_man = PostSettings(name="dead_man", url="-", proxy=self.dead_man_proxy)
        for _, why in dead_man.wrong():
            yield "", 0, "dead_man_proxy", why.replace("proxy_file", "dead_man_proxy_file")

    def _wrongly_proven(self) -> Iterator[tuple[str, int, str, str]]:
        if not self.proven:
            return
        # Imported here, since a node reads no other part of it and has no alerts.
        from ..faults import FAULTS  # noqa: PLC0415
        from ..faults.trial import ALL, NONE  # noqa: PLC0415

        words = {ALL, NONE} & set(self.proven)
        if words and len(self.proven) > 1:
            yield "", 0, "proven", f"{min(words)!r} stands alone"
        for name in self.proven:
            if name not in {*FAULTS, ALL, NONE}:
                yield "", 0, "proven", f"there is no fault {name!r}; see docs/faults.md"


# The lists in `[alerts]` that decide where messages go.
ROUTING: Mapping[str, type[RouteSettings | TimesSettings | InhibitSettings | IdleSettings]] = {
    "routes": RouteSettings,
    "times": TimesSettings,
    "inhibit": InhibitSettings,
    "idle": IdleSettings,
}


# The lists of receivers in `[alerts]`, and the settings of an entry in each.
RECEIVERS: Mapping[str, type[ReceiverSettings]] = {
    "webhooks": WebhookSettings,
    "slack": SlackSettings,
    "teams": TeamsSettings,
    "discord": DiscordSettings,
    "pagerduty": PagerdutySettings,
    "alertmanager": AlertmanagerSettings,
    "email": EmailSettings,
    "command": CommandSettings,
    "apprise": AppriseSettings,
}


def _is_web_address(text: str) -> bool:
    """Return whether the text works as a link everywhere: nothing in it ends the link or adds to it."""
    written = text.startswith(("https://", "http://")) and text.isascii() and text.isprintable()
    return written and not set(' "<>|\\') & set(text) and len(text) <= 1000


def web_parts(text: str) -> SplitResult | None:
    """Return the parts of an http or https address with a host; None for any other text."""
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:
        return None
    return parts if host and parts.scheme in {"http", "https"} else None


def is_proxy(text: str) -> bool:
    """Return whether the text is the address of an HTTP proxy."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    plain = parts.scheme == "http" and parts.path in {"", "/"} and not (parts.query or port == 0)
    return plain and bool(parts.hostname) and _is_web_address(text)


def _is_address(text: str) -> bool:
    """Return whether the text can be written into a mail header and envelope; a server checks the rest."""
    name, _, domain = text.rpartition("@")
    return bool(name and domain) and text.isascii() and text.isprintable() and " " not in text
