"""Charts as SVG inside HTML: described in Vega-Lite, rendered by vl-convert; nothing is fetched."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import vl_convert

from gpuvigil.web.markup import Html, joined, tag

from .palette import FONT, INK

Values = Sequence[Mapping[str, Any]]
Spec = dict[str, Any]

_TYPES = {"N": "nominal", "O": "ordinal", "Q": "quantitative", "T": "temporal"}
_CONFIG: Spec = {
    "font": FONT,
    "background": "white",
    "view": {"stroke": None},
    "axis": {"labelColor": INK, "labelFontSize": 11},
}


def marks(kind: str, rows: Values, encoding: Spec, **look: Any) -> Spec:
    """Return a layer with one mark per row; an area has a single mark for all rows."""
    return {
        "data": {"values": list(rows)},
        "mark": {"type": kind, **look},
        "encoding": encoding,
    }


def field(name: str, **more: Any) -> Spec:
    """Return an encoding of a field and its type: `from:Q` a number, `:T` a time, `:N` and `:O` names."""
    key, _, kind = name.partition(":")
    return {"field": key, "type": _TYPES[kind], **more}


def own(name: str) -> Spec:
    """Return an encoding of a colour that each row names itself."""
    return field(f"{name}:N", scale=None, legend=None)


def ms(at: datetime) -> int:
    """Return a time as Vega counts it: milliseconds since 1970."""
    return round(at.timestamp() * 1000)


_NUMBER = re.compile(r"-?\d+\.\d{2,}")
# Vega's attributes for scripts and its empty frames; an SVG inside HTML needs no namespace.
_NOISE = re.compile(
    r' xmlns(?::\w+)?="[^"]*"| version="1.1"| class="[^"]*"| aria-[a-z]+="[^"]*"'
    r'| role="[^"]*"| pointer-events="none"'
)
_FRAME = re.compile(r'<path [^>]*d="(?:M0,0h0v0h0Z)?"[^>]*/>|<rect [^>]*fill="white"/>')


def svg(layers: Sequence[Spec], size: tuple[int, int], name: str, title: str, said: str) -> Html:
    """Return the chart as SVG with a title and a description for blind readers; `size` is width and height."""
    text = vl_convert.vegalite_to_svg(
        {"width": size[0], "height": size[1], "layer": list(layers), "config": _CONFIG}
    )
    text = _NUMBER.sub(lambda found: f"{float(found.group()):.1f}", text)
    text = _FRAME.sub("", _NOISE.sub("", text))
    opening, _, rest = text.partition(">")
    opening = opening.replace("<svg", f'<svg role="img" aria-labelledby="{name}-t {name}-d"', 1)
    names = joined(tag("title", title, id=f"{name}-t"), tag("desc", said, id=f"{name}-d"))
    return Html(f"{opening}>{names}{rest}")
