"""The limits in force and their origins, the channels and the tokens; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from gpuvigil.clock import duration, from_text, moment
from gpuvigil.config import AlertsSettings, AnalyzerSettings
from gpuvigil.config.channels import RECEIVERS
from gpuvigil.faults import FAULTS
from gpuvigil.numbers_in_words import counted

from ..layout.tree import Node, el, wide

MOST_TOKENS = 200
# Tokens that end within this time are mentioned.
SOON = timedelta(days=14)
_DASH = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One setting of `[analyzer]`, with its default and the rules that it affects."""

    key: str
    text: str
    value: str
    usual: str
    rules: tuple[str, ...]  # rules that fire less often if it is doubled

    @property
    def is_own(self) -> bool:
        return self.value != self.usual


def limits(settings: AnalyzerSettings) -> Sequence[Limit]:
    """Return the limits: those that the site has set first, then by name."""
    usual = AnalyzerSettings()
    rules: dict[str, list[str]] = {}
    for row in FAULTS.values():
        if row.tuned_by is not None:
            rules.setdefault(row.tuned_by, []).append(row.title)
    found = [
        Limit(
            key=field.name,
            text=str(field.metadata.get("text", "")),
            value=_shown(getattr(settings, field.name)),
            usual=_shown(getattr(usual, field.name)),
            rules=tuple(rules.get(field.name, ())),
        )
        for field in fields(AnalyzerSettings)
    ]
    return sorted(found, key=lambda one: (not one.is_own, one.key))


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list | frozenset):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def limits_drawn(found: Sequence[Limit]) -> Node:
    """Return each limit with its value and origin; folded, since most are defaults."""
    own = sum(one.is_own for one in found)
    rows = (
        el(
            "tr",
            el("th", f"analyzer.{one.key}", scope="row"),
            el("td", one.value, class_="flag" if one.is_own else None),
            el("td", f"your configuration; default {one.usual}" if one.is_own else "default"),
            el("td", one.text),
            el("td", ", ".join(one.rules) or _DASH),
            key=one.key,
        )
        for one in found
    )
    heads = ("Limit", "Value", "From", "Meaning", "Rules it makes rarer")
    set_ = f"{own} of {len(found)} set by your configuration, the others are defaults"
    return el(
        "section",
        el("h2", "Limits in force", el("small", set_)),
        el(
            "p",
            "From the dashboard's configuration; an analyzer that reads another file has its own limits.",
            class_="sub",
        ),
        el("details", el("summary", "Every limit"), _table(heads, rows), key="every"),
        key="limits",
    )


def _table(heads: Sequence[str], rows: Iterable[Node]) -> Node:
    head = el("tr", *(el("th", name, scope="col") for name in heads))
    return wide(el("table", el("thead", head), el("tbody", *rows)), ", ".join(heads))


def channels_drawn(settings: AlertsSettings) -> Node:
    """Return the channels, with type and minimum severity but without addresses and secrets."""
    found = [(kind, one) for kind in RECEIVERS for one in getattr(settings, kind)]
    head = el("h2", "Channels", el("small", counted(len(found), "channel")))
    if not found:
        nothing = "No channel is configured here: nobody is notified of incidents."
        return el("section", head, el("p", nothing, class_="empty"), key="channels")
    rows = (
        el(
            "tr",
            el("th", one.name or kind, scope="row"),
            el("td", kind),
            el("td", one.minimum_severity),
            el("td", "yes" if one.send_resolved else "no"),
            el("td", "yes" if one.pager else "no"),
            key=f"{kind} {one.name}",
        )
        for kind, one in found
    )
    heads = ("Channel", "Type", "Minimum severity", "Sends resolved", "Pager")
    return el("section", head, _table(heads, rows), key="channels")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token that was issued; the token itself is never shown."""

    id: str
    scope: str
    name: str
    place: str
    created_at: datetime
    ends_at: datetime | None


def tokens(told: Iterable[Mapping[str, Any]]) -> Sequence[Token]:
    """Return the tokens, next to end first; unreadable ones are left out."""
    found = []
    for one in told:
        try:
            ends = one.get("ends_at")
            found.append(
                Token(
                    id=str(one["id"]),
                    scope=str(one["scope"]),
                    name=str(one["name"]),
                    place="/".join(part for part in (one["cluster"], one["node"]) if part),
                    created_at=from_text(one["created_at"]),
                    ends_at=None if ends is None else from_text(ends),
                )
            )
        except (KeyError, TypeError, ValueError):
            continue
    return sorted(found, key=lambda it: (it.ends_at is None, it.ends_at or it.created_at, it.id))


def tokens_drawn(found: Sequence[Token] | None, now: datetime) -> Node:
    """Return the table of tokens; `found` is None if the hub did not say."""
    if found is None:
        said = el("p", "The hub did not say which tokens there are.", class_="empty")
        return el("section", el("h2", "Tokens"), said, key="tokens")
    soon = sum(one.ends_at is not None and now <= one.ends_at < now + SOON for one in found)
    ends = (
        f", {soon} of them {'ends' if soon == 1 else 'end'} within {SOON.days} days" if soon else ""
    )
    head = el("h2", "Tokens", el("small", f"{len(found)} issued{ends}"))
    rows = (
        el(
            "tr",
            el("th", one.name or one.id, scope="row"),
            el("td", one.scope),
            el("td", one.place or "any"),
            el("td", moment(one.created_at)),
            el("td", _ends(one, now)),
            key=one.id,
        )
        for one in found[:MOST_TOKENS]
    )
    heads = ("Token", "Scope", "For", "Issued", "Ends")
    body = el("details", el("summary", "Each token"), _table(heads, rows), key="every")
    note = el("p", "Tokens kept in files of the configuration are not listed here.", class_="sub")
    return el("section", head, note, body if found else None, key="tokens")


def _ends(one: Token, now: datetime) -> str:
    if one.ends_at is None:
        return "never"
    if one.ends_at <= now:
        return f"ended {moment(one.ends_at)}"
    return f"{moment(one.ends_at)}, in {duration(one.ends_at - now)}"
