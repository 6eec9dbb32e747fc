"""Routing: the routes that match an incident, and the one that each channel is notified by; pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuvigil.config import AlertsSettings, RouteSettings, TimesSettings
from gpuvigil.matching.matchers import Labels, matcher


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRoute:
    """How one channel is notified: at once or late, when, and how often."""

    number: int | None = None  # the route's in the configuration, from 1; None where there is none
    wait_seconds: float = 0.0
    update_seconds: float = 0.0  # 0: as in [alerts]
    repeat_seconds: float = 0.0
    times: tuple[TimesSettings, ...] = ()
    quiet_times: tuple[TimesSettings, ...] = ()
    escalate_seconds: float | None = None  # told only if nobody has acknowledged it by then
    escalates_from: tuple[str, ...] = ()  # the channels that are told before
    digest: bool = False


ALL = ResolvedRoute()


def fitting(routes: Sequence[RouteSettings], labels: Labels) -> list[int]:
    """Return the numbers, from 1, of the routes that an incident takes."""
    found = []
    for number, route in enumerate(routes, 1):
        if misfit(route, labels) is None:
            found.append(number)
            if not route.go_on:
                break
    return found


def misfit(route: RouteSettings, labels: Labels) -> str | None:
    """Return the first of a route's matchers that does not hold; None when all do."""
    return next((text for text in route.match if not matcher(text).fits(labels)), None)


def resolve_route(settings: AlertsSettings, labels: Labels, channel: str) -> ResolvedRoute | None:
    """Return how a channel is notified; None when no route leads to it.

    A channel that is notified at once does not escalate.
    """
    if not settings.routes:
        return ALL
    late: ResolvedRoute | None = None
    for number in fitting(settings.routes, labels):
        route = settings.routes[number - 1]
        if channel in route.receivers:
            return _resolved(settings, route, number, None)
        if channel in route.escalate_to and late is None:
            late = _resolved(settings, route, number, route.escalate_seconds)
    return late


def _resolved(
    settings: AlertsSettings, route: RouteSettings, number: int, escalate_seconds: float | None
) -> ResolvedRoute:
    hours = {one.name: one for one in settings.times}
    return ResolvedRoute(
        number=number,
        wait_seconds=route.wait_seconds,
        update_seconds=route.update_seconds,
        repeat_seconds=route.repeat_seconds,
        times=tuple(hours[name] for name in route.times),
        quiet_times=tuple(hours[name] for name in route.quiet_times),
        escalate_seconds=escalate_seconds,
        escalates_from=() if escalate_seconds is None else route.receivers,
        digest=route.digest and escalate_seconds is None,
    )
