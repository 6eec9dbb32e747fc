"""A GPU that heat slows down, or that is hotter than its power and its peers explain."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gpuvigil.model import Evidence, Finding, Severity, Subject
from gpuvigil.store import Aggregate, Function

from ..claims import Claim, findings
from ..columns import Floats, clusters, models, nodes, per_group, seconds, together
from ..rows import Row, Rows
from ..together import by_node, by_rack
from ..window import Need, Span, Window

_HARDWARE, _SOFTWARE = (
    Aggregate(function=Function.INCREASE, field=f"{who}_thermal_slowdown_seconds")
    for who in ("hardware", "software")
)
_CELSIUS = Aggregate(function=Function.MEAN, field="temperature_celsius")
_WATTS = Aggregate(function=Function.MEAN, field="power_watts")
_WARMEST = Aggregate(function=Function.MAX, field="temperature_celsius")
_INDEX = Aggregate(function=Function.MAX, field="index")
NEEDS = (
    Need(measurement="gpu", span=Span.RECENT, aggregates=(_HARDWARE, _SOFTWARE, _WARMEST)),
    Need(measurement="gpu", span=Span.STEADY, aggregates=(_CELSIUS, _WATTS, _INDEX)),
)

# gpud alarms at 0.6 slowdowns a minute over ten; a second is nothing, half of a minute is.
_SHARE, _LEAST_SECONDS = 0.5, 10.0
# Air of a machine room, to which a core without power would cool down.
_ROOM_CELSIUS = 25.0
# Above what the same slot of other nodes has at that power: of one GPU against its node, whose
# boards differ by some kelvins, and of the middle one of several GPUs of a node.
_GPU_KELVIN, _NODE_KELVIN, _NODE_GPUS = 6.0, 7.0, 3
# A heatsink shows itself under load; warm air also on a GPU that rests. Peers draw about as much.
_WORKING_WATTS, _LIKE_WATTS, _PEERS = 200.0, 150.0, 6
# Of the steady span, what must have been measured.
_COVERAGE = 0.5


def hot_gpus(window: Window) -> list[Finding]:
    """One finding per GPU; per node where most are, and per rack where most of its nodes are."""
    slowed = by_node(window, _slowed(window), 0.375, "node_hot")
    return findings("gpu_hot", by_rack(window, [*slowed, *_hotter(window)], "rack_hot"))


def _slowed(window: Window) -> Iterator[Claim]:
    rows = window.get("gpu", Span.RECENT)
    span = window.settings.window_seconds
    least = min(_LEAST_SECONDS, _SHARE * span)
    hardware, software = rows.values(_HARDWARE.column), rows.values(_SOFTWARE.column)
    for subject, row in rows.where((hardware >= least) | (software >= _SHARE * span)):
        by_hardware = row[_HARDWARE.column] or 0.0
        lasts = by_hardware >= _SHARE * span
        seconds = by_hardware if by_hardware >= least else row[_SOFTWARE.column]
        yield Claim(
            condition="hardware_thermal" if by_hardware >= least else "software_thermal",
            subject=subject,
            since=row["first_at"],
            severity=None if lasts else Severity.WARNING,
            evidence=(
                Evidence(
                    name="slowed down by heat",
                    value=f"{seconds:.0f} s of the last {span:.0f} s",
                    limit="0 s",
                ),
                Evidence(name="core", value=f"{row[_WARMEST.column]} °C at most"),
            ),
        )


def _hotter(window: Window) -> list[Claim]:
    """Against the same slot of other nodes: a slot behind another one always gets warmer air.

    A node whose GPUs are all hotter has warm air or a broken fan; one GPU that is hotter than the
    others of its node has a heatsink of its own.
    """
    rows = window.get("gpu", Span.STEADY)
    kelvin = _excess(window, rows)
    of_node, working = per_group(nodes(rows), kelvin)
    # A GPU of a warm node of which nothing can be said is no evidence.
    warm = (of_node >= _NODE_KELVIN) & (working >= _NODE_GPUS) & np.isfinite(kelvin)
    beside = kelvin - np.where(working >= _NODE_GPUS, of_node, 0.0)
    works = rows.values(_WATTS.column) >= _WORKING_WATTS
    alone = works & (kelvin >= _GPU_KELVIN) & (beside >= _GPU_KELVIN) & ~warm
    claims = [
        _claim(window, "heatsink", subject, row, excess)
        for (subject, row), excess in zip(rows.where(alone), kelvin[alone], strict=True)
    ]
    of_warm: dict[Subject, list[Claim]] = defaultdict(list)
    for (subject, row), excess in zip(rows.where(warm), of_node[warm], strict=True):
        of_warm[subject.of_node()].append(_claim(window, "node_hot", subject, row, excess))
    claims += [
        replace(them[0], subject=node, members=tuple(sorted(c.subject for c in them)))
        for node, them in sorted(of_warm.items())
    ]
    return claims


def _excess(window: Window, rows: Rows) -> Floats:
    """Kelvins above what the slot's peers have at that power; NaN where nothing can be said."""
    celsius, watts = rows.values(_CELSIUS.column), rows.values(_WATTS.column)
    covered = seconds(rows) >= _COVERAGE * window.settings.steady_seconds
    resistance = np.where(covered & (watts > 0.0), (celsius - _ROOM_CELSIUS) / watts, np.nan)
    slot = np.nan_to_num(rows.values(_INDEX.column), nan=-1.0).astype(np.int64) + 1
    # The air's own warmth weighs more the less a GPU draws: alike are only those that draw alike.
    alike = np.nan_to_num(watts // _LIKE_WATTS).astype(np.int64)
    usual, peers = per_group(
        together(clusters(rows), models(window, rows), slot, alike), resistance
    )
    excess: Floats = np.where(peers >= _PEERS, (resistance - usual) * watts, np.nan)
    return excess


def _claim(window: Window, condition: str, subject: Subject, row: Row, kelvin: float) -> Claim:
    celsius, watts = row[_CELSIUS.column], row[_WATTS.column]
    minutes = window.settings.steady_seconds / 60.0
    return Claim(
        condition=condition,
        subject=subject,
        since=row["last_at"],
        evidence=(
            Evidence(
                name="core",
                value=f"{celsius:.0f} °C at {watts:.0f} W over {minutes:g} min",
                peers=f"{celsius - kelvin:.0f} °C at that power",
            ),
        ),
    )
