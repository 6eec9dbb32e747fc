"""The fabric between the hosts, as trees of elements: leaves by spines, and a drawing of a small one."""

from collections.abc import Sequence

from gpuvigil.clock import moment as time_of
from gpuvigil.model import SWITCH_DEVICE, Subject
from gpuvigil.numbers_in_words import counted
from gpuvigil.web import page_links

from ..layout.tree import Node, each, el, wide
from ..lists.wiring import Cable, Wiring

MOST_LEAVES, MOST_SPINES, MOST_DRAWN = 64, 32, 64
_DASH = "–"
# Sizes of the drawing, in its own units.
_WIDTH, _HEIGHT, _BOX, _TOP, _BOTTOM = 1200.0, 240.0, 22.0, 24.0, 200.0
_CHARACTERS = 16  # the most of a name in its box


def fabric(found: Sequence[Wiring]) -> Sequence[Node]:
    """Return a section for each cluster whose switches are read."""
    return each(_section(one, len(found) > 1) for one in found)


def _section(one: Wiring, named: bool) -> Node:
    cables = [cable for them in one.cables.values() for cable in them]
    where = f" {one.cluster}," if named else ""
    leaves = "1 leaf" if len(one.leaves) == 1 else f"{len(one.leaves):,} leaves"
    said = (
        f"{where} {counted(len(cables), 'cable')} between {leaves} and"
        f" {counted(len(one.spines), 'spine')}, read at {time_of(one.at)}"
    )
    return el(
        "section",
        el("h2", "Leaf × spine", el("small", said)),
        *_matrix(one),
        _legend(),
        _drawing(one) if len(cables) <= MOST_DRAWN else None,
        _troubled(one, cables),
        key=f"fabric {one.cluster}",
    )


def kind(cables: Sequence[Cable]) -> str:
    """Return the style class of a cell or a line: that of the worst of these cables."""
    if any(not it.up for it in cables):
        return "hot"
    return "warm" if any(it.is_slow or it.errors for it in cables) else "calm"


def words(cables: Sequence[Cable]) -> str:
    """Return `3 of 4 up`, `4 up, 1 slow` or `4 up, 12 errors`; for one cable `up`, `down` or `slow`."""
    up = sum(it.up for it in cables)
    slow, errors = sum(it.is_slow for it in cables), sum(it.errors or 0 for it in cables)
    parts = [counted(errors, "error")] if errors else []
    if len(cables) == 1:
        state = "down" if not up else "slow" if slow else "up"
        return ", ".join(parts if parts and state == "up" else [state, *parts])
    many = f"{up} up" if up == len(cables) else f"{up} of {len(cables)} up"
    return ", ".join([many, *([f"{slow} slow"] if slow else []), *parts])


def _matrix(one: Wiring) -> Sequence[Node]:
    """Return leaves by spines; if not all leaves are shown, the worst come first."""
    leaves = list(one.leaves)
    if len(leaves) > MOST_LEAVES:
        ranks = _ranks(one)
        leaves.sort(key=lambda leaf: ranks[leaf])
    spines = one.spines[:MOST_SPINES]
    lines = (
        el(
            "tr",
            el(
                "th",
                _switch(one, leaf),
                el("small", f" {_hosts(one, leaf)}"),
                scope="row",
            ),
            *(_cell(one.cables.get((leaf, spine), ())) for spine in spines),
            key=leaf,
        )
        for leaf in leaves[:MOST_LEAVES]
    )
    names = ("Leaf", *(_switch(one, spine) for spine in spines))
    head = (el("th", name, scope="col") for name in names)
    more = _more(len(leaves) - MOST_LEAVES, len(one.spines) - MOST_SPINES)
    return each(
        (
            wide(
                el("table", el("thead", el("tr", *head)), el("tbody", *lines), class_="heat"),
                f"Cables of {one.cluster}, leaves by spines",
            ),
            el("p", f"{more} not shown.", class_="sub") if more else None,
        )
    )


def _legend() -> Node:
    return el(
        "p",
        el("span", "down", class_="hot"),
        el("span", "slow, or with errors", class_="warm"),
        class_="heat",
        key="legend",
    )


def _switch(one: Wiring, name: str) -> Node:
    return el("a", name, href=page_links.switch_page(one.cluster, name))


def _ranks(one: Wiring) -> dict[str, int]:
    """Return by leaf how bad its worst cables are: 0 is the worst."""
    order = ("hot", "warm", "calm")
    found: dict[str, int] = {}
    for (leaf, _), cables in one.cables.items():
        found[leaf] = min(found.get(leaf, len(order)), order.index(kind(cables)))
    return found


def _more(leaves: int, spines: int) -> str:
    """Return `12 calmer leaves and 3 spines`; empty if all are shown."""
    said = [f"{leaves:,} calmer {'leaf' if leaves == 1 else 'leaves'}"] if leaves > 0 else []
    said += [counted(spines, "spine")] if spines > 0 else []
    return " and ".join(said)


def _hosts(one: Wiring, leaf: str) -> str:
    return "does not answer" if leaf in one.lost else counted(one.hosts[leaf], "host port")


def _cell(cables: Sequence[Cable]) -> Node:
    return el("td", words(cables), class_=kind(cables)) if cables else el("td", _DASH)


def _troubled(one: Wiring, cables: Sequence[Cable]) -> Node | None:
    """Return every cable with a problem by its ends; those of a switch that does not answer are one line."""
    bad = [it for it in cables if kind([it]) != "calm"]
    lost = [(name, sum(name in {it.leaf, it.spine} for it in bad)) for name in sorted(one.lost)]
    lines = [
        el(
            "li",
            _switch(one, name),
            f" does not answer: its {counted(count, 'cable')} between switches",
            key=name,
        )
        for name, count in lost
        if count
    ]
    lines += [_in_trouble(one, it) for it in bad if one.lost.isdisjoint({it.leaf, it.spine})]
    return el("ul", *lines[:MOST_LEAVES], key="troubled") if lines else None


def _in_trouble(one: Wiring, it: Cable) -> Node:
    """Return a cable by both of its ends, as a link to its page."""
    end = Subject(cluster=one.cluster, node=it.leaf, device=SWITCH_DEVICE, port=it.leaf_port)
    link = el("a", it.name, href=page_links.link_page(end))
    return el("li", link, f": {_trouble(it)}", key=it.name)


def _trouble(it: Cable) -> str:
    if not it.up:
        return "down"
    parts = []
    if it.is_slow:
        parts.append(f"{_gbits(it.bits_per_second)} of {_gbits(it.best_bits_per_second)} Gbit/s")
    if it.errors:
        parts.append(f"{counted(it.errors, 'error')} in the last hour")
    return ", ".join(parts)


def _gbits(bits: int | None) -> str:
    return f"{(bits or 0) / 1e9:.0f}"


def _drawing(one: Wiring) -> Node:
    """Draw spines above, leaves below, and a line for all cables between two of them."""
    above = dict(zip(one.spines, _places(len(one.spines)), strict=True))
    below = dict(zip(one.leaves, _places(len(one.leaves)), strict=True))
    lines = (
        el(
            "line",
            x1=f"{below[leaf]:.0f}",
            y1=f"{_BOTTOM:.0f}",
            x2=f"{above[spine]:.0f}",
            y2=f"{_TOP + _BOX:.0f}",
            class_=kind(cables),
            key=f"{leaf} {spine}",
        )
        for (leaf, spine), cables in sorted(
            one.cables.items(), key=lambda it: kind(it[1]) != "calm"
        )
    )
    boxes = (
        *(_box(one, name, x, _TOP) for name, x in above.items()),
        *(_box(one, name, x, _BOTTOM) for name, x in below.items()),
    )
    return el(
        "svg",
        *lines,
        *boxes,
        viewBox=f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}",
        role="group",
        aria_label=f"Drawing of {counted(len(one.cables), 'pair')} of leaf and spine",
        class_="fabric",
        key="drawing",
    )


def _places(many: int) -> list[float]:
    return [_WIDTH * (place + 0.5) / many for place in range(many)]


def _box(one: Wiring, name: str, x: float, y: float) -> Node:
    """Return a box with a switch's name, as a link to its page."""
    most = max(len(one.spines), len(one.leaves))
    broad = min(0.9 * _WIDTH / most, 150.0)
    box = el(
        "rect",
        x=f"{x - broad / 2:.0f}",
        y=f"{y:.0f}",
        width=f"{broad:.0f}",
        height=f"{_BOX:.0f}",
        class_="hot" if name in one.lost else None,
        key="box",
    )
    room = min(int(broad / 8.0), _CHARACTERS)
    shown = name if len(name) <= room else f"{name[: max(room - 1, 1)]}…"
    text = el("text", shown, x=f"{x:.0f}", y=f"{y + 15.0:.0f}", key="name")
    href = page_links.switch_page(one.cluster, name)
    return el("a", box, text, href=href, aria_label=name, key=f"switch {name}")
