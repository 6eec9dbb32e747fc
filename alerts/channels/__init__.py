"""The ways to notify people: a channel is a file here, a line in `CHANNELS`, and its settings in `gpuvigil/config/channels.py`."""

from collections.abc import Callable
from typing import Any

from gpuvigil.config import AlertsSettings
from gpuvigil.errors import ConfigError

from ..messages.channel import Channel
from .alertmanager import alertmanager
from .apprise import apprise
from .command import command
from .discord import discord
from .email import email
from .pagerduty import pagerduty
from .slack import slack
from .slack_bot import SlackBot
from .teams import teams
from .webhook import webhook

# The list in `[alerts]` that configures a kind of channel, and what makes a channel of each entry.
CHANNELS: dict[str, Callable[[Any, str], Channel]] = {
    "webhooks": webhook,
    "slack": lambda it, url: SlackBot(it) if it.is_bot else slack(it, url),
    "teams": teams,
    "discord": discord,
    "pagerduty": pagerduty,
    "alertmanager": alertmanager,
    "email": email,
    "command": command,
    "apprise": apprise,
}


def configured(settings: AlertsSettings) -> list[Channel]:
    """Return every configured channel; ConfigError for an invalid name, or when two have the same."""
    made = [
        kind(entry, settings.external_url)
        for key, kind in CHANNELS.items()
        for entry in getattr(settings, key)
    ]
    names = [channel.profile.name for channel in made]
    for name in names:
        if not name or ":" in name or name == "-":
            raise ConfigError(f"alerts: {name!r} cannot be the name of a channel")
        if names.count(name) > 1:
            raise ConfigError(f"alerts: two channels are named {name!r}; give each its own name")
    return made
