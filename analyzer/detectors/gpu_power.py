"""A GPU that is held back from outside, by the power brake or by a power limit that somebody lowered."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from gpuvigil.faults import found_by
from gpuvigil.faults.symptoms import POWER_BRAKE
from gpuvigil.model import Evidence, Finding, Subject
from gpuvigil.store import Aggregate, Function

from ..evidence.claims import Claim, findings
from ..evidence.grouping import by_node, by_rack
from ..evidence.power import limits
from ..window.columns import clusters, combined_codes, models, per_group
from ..window.window import Need, Span, Window
from . import Detector

_BRAKE = Aggregate(function=Function.INCREASE, field=POWER_BRAKE.counter)
NEEDS = (
    Need(
        measurement="gpu",
        span=Span.NOW,
        fields=("power_limit_watts", "power_limit_default_watts"),
    ),
    Need(measurement="gpu", span=Span.RECENT, aggregates=(_BRAKE,)),
)

# Allows for the driver's rounding, and for what a card's own regulator may take off.
_LOWERED = 0.97
# At this share of a node's GPUs at once, it is a matter of the node.
_OF_NODE = 0.5


def held_back(window: Window) -> list[Finding]:
    """Return one finding per GPU, or per node or rack where several are held back at once."""
    claims = list(_braked(window))
    measured = _measured(window) if claims else Counter()
    braked = by_node(window, claims, _OF_NODE, POWER_BRAKE.key, measured)
    feeds = by_rack(window, braked, "power_feed", among=measured)
    # Whoever caps the power of a node or a rack caps each of its GPUs.
    capped = by_node(window, _lowered(window), _OF_NODE, "node_power_limit")
    return findings("gpu_power", [*feeds, *by_rack(window, capped, "rack_power_limit")])


def _measured(window: Window) -> Counter[Subject]:
    """Return for each node on how many GPUs the power brake's counter is read."""
    rows = window.get("gpu", Span.RECENT)
    told = ~np.isnan(rows.values(_BRAKE.column))
    return Counter(gpu.of_node() for gpu, _ in rows.where(told))


def _braked(window: Window) -> Iterator[Claim]:
    """Yield claims about braked GPUs, critical only if braked for most of the last minute."""
    rows = window.get("gpu", Span.RECENT)
    span = window.settings.window_seconds
    seconds = rows.values(_BRAKE.column)
    for subject, row in rows.where(seconds >= POWER_BRAKE.least(span)):
        lasts = POWER_BRAKE.lasts(row[_BRAKE.column], span)
        yield Claim(
            condition=POWER_BRAKE.key,
            subject=subject,
            since=row["first_at"],
            severity=None if lasts else POWER_BRAKE.at_a_look,
            evidence=(
                Evidence(
                    name="power brake",
                    value=f"{row[_BRAKE.column]:.0f} s of the last {span:.0f} s",
                    limit="0 s",
                ),
            ),
        )


def _lowered(window: Window) -> Iterator[Claim]:
    """Yield GPUs with a limit under the default, where most GPUs of the model in the cluster have another one.

    A limit that all of them have is somebody's policy, not a fault. Where no default is read, that of the model
    as sold is used.
    """
    rows = window.get("gpu", Span.NOW)
    defaults = limits(window, rows, "power_limit_default_watts")
    share = rows.values("power_limit_watts") / defaults
    usual, count = per_group(combined_codes(clusters(rows), models(window, rows)), share)
    lowered = (share < _LOWERED) & (share < _LOWERED * usual) & (count >= 3)
    for (subject, row), peers, default in zip(
        rows.where(lowered), usual[lowered], defaults[lowered], strict=True
    ):
        yield Claim(
            condition="power_limit",
            subject=subject,
            since=row["at"],
            evidence=(
                Evidence(
                    name="power limit",
                    value=f"{row['power_limit_watts']:.0f} W",
                    limit=f"{default:.0f} W",
                    peers=f"{default * peers:.0f} W",
                ),
            ),
        )


DETECTOR = Detector(
    name="gpu_power",
    find=held_back,
    faults=found_by("gpu_power"),
    needs=NEEDS,
    sentence="A GPU that the power brake slows down, or whose power limit somebody lowered.",
    source="nvml.h, clock event reason 0x80; the board's default limit",
)
