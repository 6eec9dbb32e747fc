"""Where what somebody held went: used, not used, idle and blocked, as one bar."""

from collections.abc import Mapping

from accounting.hours_of_people import Amounts

from ..layout.tree import Node, el

# In the order of the bar; keys are the classes that colour it.
NAMES = {
    "used": "used, not blocked",
    "rest": "allocated, not used",
    "idle": "idle",
    "blocked": "blocked by faults",
}
_WIDTH, _HEIGHT = 100.0, 7.0


def shares(now: Amounts) -> Mapping[str, float]:
    """Of what was held, each part from 0 to 1; empty where nothing was held or its use not measured.

    What was used is a mean over what was measured: where the parts are more than all, it gives way.
    """
    if now.held <= 0 or now.used_percent is None:
        return {}
    idle = min(max(now.idle / now.held, 0.0), 1.0)
    blocked = min(max(now.blocked / now.held, 0.0), 1.0 - idle)
    used = min(now.used_percent / 100, 1.0 - idle - blocked)
    rest = max(1.0 - used - idle - blocked, 0.0)
    return {"used": used, "rest": rest, "idle": idle, "blocked": blocked}


def bar(now: Amounts) -> Node:
    """The parts beside each other; a dash where they are not known."""
    found = shares(now)
    if not found:
        return "–"
    said = ", ".join(f"{NAMES[key]} {100 * part:.0f} %" for key, part in found.items())
    parts, left = [], 0.0
    for key, part in found.items():
        wide = _WIDTH * part
        parts.append(
            el(
                "rect",
                x=f"{left:.2f}",
                y="0",
                width=f"{wide:.2f}",
                height=f"{_HEIGHT:.0f}",
                class_=key,
                key=key,
            )
        )
        left += wide
    box = f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}"
    return el("svg", *parts, viewBox=box, role="img", aria_label=said, class_="share")


def legend() -> Node:
    """What each colour is."""
    items = (el("li", el("span", class_=f"swatch {key}"), name) for key, name in NAMES.items())
    return el("ul", *items, class_="share-key", key="shares")
