"""A node whose clock is too far off to be put right."""

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Subject

from ..window.window import Window
from . import Detector

_FAULT = FAULTS["clock_wrong"]


def wrong_clocks(window: Window) -> list[Finding]:
    """Return a finding for each node whose clock the hub judges wrong by when its bodies were sent and when they
    arrived.
    """
    return [
        Finding(
            fault="clock_wrong",
            subject=Subject.parse(key),
            severity=_FAULT.severity,
            since=window.now,
            evidence=(
                Evidence(
                    name="clock",
                    value=f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} the hub's",
                    limit="hub.clock_wrong_seconds",
                ),
            ),
            detector="clock_wrong",
            action=_FAULT.action,
            source=_FAULT.source,
            own_limit=_FAULT.own_limit,
            # The hub judged the clock by several bodies, or by one that arrived before it was sent.
            certain=True,
        )
        for key, seconds in sorted(window.clocks.items())
    ]


DETECTOR = Detector(
    name="clock_wrong",
    find=wrong_clocks,
    faults=found_by("clock_wrong"),
    needs=(),
    sentence="A node whose clock is too far off to be put right.",
    source="when its bodies were sent, and when they reached the hub",
)
