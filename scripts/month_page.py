"""`docs/month.md`: what people would have been told in a simulated fleet's month, from `soak/results.json`."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from alerts.routing.notice import Verdict

ROOT = Path(__file__).parent.parent
_REMINDS = Verdict.STILL_STANDING.name.lower()
_CONFIGURATIONS = {
    "shipped": "As shipped: four channels, no route",
    "site": "A site with routes, hours, a digest, escalation and inhibition",
}


def page() -> Iterator[str]:
    """Yield the whole page."""
    found = json.loads((ROOT / "soak/results.json").read_text(encoding="utf-8"))["month"]
    yield "# A simulated month"
    yield ""
    yield "What a fleet's people would have been told in a month, and why not. Written by `make docs` from `soak/results.json`;"
    yield f"`{found['command']}` of commit `{found['commit']}` made it in {found['duration_seconds'] / 60:.0f} min, and `make month` makes it again."
    yield ""
    yield from _how(found)
    for name, accounts in found["channels"].items():
        yield ""
        yield f"## {_CONFIGURATIONS[name]}"
        yield ""
        yield f"Set up by [`{name}.toml`](../tests/alerts/month/{name}.toml)."
        yield ""
        yield from _told(accounts)
        yield ""
        yield from _why("What made no message", accounts, "not_told", found["transitions"])
        yield ""
        yield from _untold(accounts, found["incidents"])
        yield ""
        yield from _faults(accounts, found["faults"])


def _how(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"A [simulated fleet](fleet.md) of {found['nodes']} nodes with 8 GPUs plays {found['days']:g} days (seed {found['seed']}), with all that life brings (reboots,"
    yield f"upgrades, drains, users' own Xids, single flaps) and {found['fault_rate']:g} faults per 1,000 node-days, {found['faults']} in all. Large clusters see 2 to 7"
    yield f"per 1,000 node-days: here there are more, so that there is something to tell. The detectors look every {found['tick_seconds']:g} s, and at once at a node that sends"
    yield "an event. Somebody takes four in ten of the warnings and critical incidents, after 2 to 90 minutes, and half of the drained nodes were"
    yield f"[silenced](alerts.md) before ({found['silences']} silences). That is {found['incidents']:,} incidents with {found['transitions']:,} transitions."
    yield ""
    yield "What alerts makes of them is its own code: claims, decisions, outbox (in memory; a test holds it to SQLite), dispatchers with their pace, and the digest, in simulated"
    yield "time, towards channels that write down what they are given. The incidents count as real, since pagers hear of no others. The notices to holders of idle GPUs"
    yield "rest on telemetry, which is not kept for the month: they are not played, so that a channel for owners alone hears nothing here."
    yield ""
    wrong = [
        f"{name}/{one['channel']}: {it}"
        for name, accounts in found["channels"].items()
        for one in accounts
        for it in one["wrong"]
    ]
    yield (
        "**Every sum below is checked**: each transition has one decision per channel, a message or a reason; what was sent is what arrived,"
        " once; no incident has a second *first* message on a channel; nothing ends that was not begun; each digest counts what was held for it."
    )
    yield "Nothing was wrong." if not wrong else f"**Wrong**: {'; '.join(wrong)}."
    yield ""
    every = [one for accounts in found["channels"].values() for one in accounts]
    most = max(one["most_firsts"] for one in every)
    doubled = max(one["faults"]["two"] + one["faults"]["more"] for one in every)
    held = "holds" if most <= 1 else "**missed**"
    yield (
        f"At most one message per incident and channel, besides its updates: {held}, at most {most} *first*. Per fault that was really there:"
        f" {doubled} of {found['faults']} were told as several incidents on the channel that hears of all."
    )


def _told(accounts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a row per channel with its messages by kind."""
    kinds = [it for it in _names(accounts, "messages") if it != _REMINDS]
    yield f"| channel | {' | '.join(_words(it) for it in kinds)} | reminders | digests | messages in all | incidents told, of | most *first* per incident |"
    yield f"|---|{'---|' * (len(kinds) + 5)}"
    for one in accounts:
        told = one["messages"]
        # A change without a message of its own is reported in place of a reminder.
        reminded = one["reminders"].get(_REMINDS, 0) + told.get(_REMINDS, 0)
        others = sum(count for it, count in told.items() if it != _REMINDS)
        everything = others + reminded + one["digests"] + one["about_gpuvigil"]
        cells = " | ".join(f"{told.get(it, 0):,}" for it in kinds)
        yield (
            f"| {one['channel']} | {cells} | {reminded:,} | {one['digests']} | **{everything:,}** |"
            f" {one['told']:,} of {one['incidents']:,} | {one['most_firsts']} |"
        )


def _why(
    title: str, accounts: Sequence[Mapping[str, Any]], key: str, transitions: int
) -> Iterator[str]:
    """Yield a row per reason, and the sums."""
    yield f"**{title}**, of {transitions:,} transitions:"
    yield ""
    yield from _reasons(accounts, key)
    yield from _sums("no message", [sum(one[key].values()) for one in accounts])
    yield from _sums("a message", [sum(one["messages"].values()) for one in accounts])
    yield from _sums(
        "**transitions**",
        [sum(one[key].values()) + sum(one["messages"].values()) for one in accounts],
    )


def _untold(accounts: Sequence[Mapping[str, Any]], incidents: int) -> Iterator[str]:
    yield f"**Who heard nothing of an incident, and why**, of {incidents:,} incidents; by the last reason that was no consequence of another:"
    yield ""
    yield from _reasons(accounts, "untold")
    yield from _sums("told", [one["told"] for one in accounts])
    yield from _sums(
        "**incidents**", [one["told"] + sum(one["untold"].values()) for one in accounts]
    )
    digested = {one["channel"]: one["digested"] for one in accounts if one["digested"]}
    if digested:
        yield ""
        for channel, count in digested.items():
            yield f"The digests of {channel} tell of {count:,} incidents, one on two days counted twice."


def _faults(accounts: Sequence[Mapping[str, Any]], faults: int) -> Iterator[str]:
    """Yield how many first messages each real fault caused."""
    yield f"**What was behind them**: first messages per fault that was really there, of {faults}, and those about no fault at all. More than one"
    yield "is the detectors' doing, which made several incidents of it; none is a fault that was not found, or not told by the rules above."
    yield ""
    yield "| channel | none | one | two | more | about no fault |"
    yield "|---|---|---|---|---|---|"
    for one in accounts:
        cells = " | ".join(str(one["faults"][it]) for it in ("none", "one", "two", "more"))
        strays = ", ".join(f"{count:,} `{fault}`" for fault, count in one["about_no_fault"].items())
        yield f"| {one['channel']} | {cells} | {strays or 'none'} |"
    several: dict[str, list[str]] = {}
    for one in accounts:
        for fault, told in one.get("split", {}).items():
            counted = Counter(told).items()
            names = [f"`{it}`" if many == 1 else f"{many} `{it}`" for it, many in counted]
            said = f"{fault} ({', '.join(names)})"
            several.setdefault(said, []).append(one["channel"])
    if several:
        yield ""
        named = [f"{said} on {', '.join(channels)}" for said, channels in several.items()]
        yield (
            "Told as more than one, with what each first message was about (what a program did on the same GPU meanwhile counts here, too):"
            f" {'; '.join(named)}."
        )


def _reasons(accounts: Sequence[Mapping[str, Any]], key: str) -> Iterator[str]:
    yield f"| reason | {' | '.join(one['channel'] for one in accounts)} |"
    yield f"|---|{'---|' * len(accounts)}"
    for name in _names(accounts, key):
        cells = " | ".join(f"{one[key].get(name, 0):,}" for one in accounts)
        yield f"| {_words(name)} | {cells} |"


def _sums(words: str, counts: Sequence[int]) -> Iterator[str]:
    yield f"| {words} | {' | '.join(f'{count:,}' for count in counts)} |"


def _names(accounts: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    """Return all names in any account, the most frequent first."""
    counts: dict[str, int] = {}
    for one in accounts:
        for name, count in one[key].items():
            counts[name] = counts.get(name, 0) + count
    return sorted(counts, key=lambda name: (-counts[name], name))


def _words(name: str) -> str:
    """Return a reason's name as code, leaving the words around it as they are."""
    known = {verdict.name.lower() for verdict in Verdict}
    return " ".join(f"`{word}`" if word in known else word for word in name.split())
