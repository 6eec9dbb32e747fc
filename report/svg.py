"""Charts as SVG inside HTML: Altair describes, vl-convert draws; nothing is fetched."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import altair as alt
import vl_convert

from gpuvigil.web.markup import Html, joined, tag

from .palette import FONT, INK

Values = Sequence[Mapping[str, Any]]


def own(name: str) -> Any:
    """A colour that the row names itself: `fill` of a surface, `ink` of words."""
    kind = alt.Fill if name == "fill" else alt.Color
    return kind(f"{name}:N", scale=None, legend=None)


def data(rows: Values) -> alt.InlineData:
    """Rows as a chart takes them."""
    return alt.InlineData(values=[dict(row) for row in rows])


def ms(at: datetime) -> int:
    """A time as Vega counts it: milliseconds since 1970."""
    return round(at.timestamp() * 1000)


_NUMBER = re.compile(r"-?\d+\.\d{2,}")
# Vega's words for scripts and its empty frames; inside HTML an SVG needs no name space.
_NOISE = re.compile(
    r' xmlns(?::\w+)?="[^"]*"| version="1.1"| class="[^"]*"| aria-[a-z]+="[^"]*"'
    r'| role="[^"]*"| pointer-events="none"'
)
_FRAME = re.compile(r'<path [^>]*d="(?:M0,0h0v0h0Z)?"[^>]*/>|<rect [^>]*fill="white"/>')


def svg(chart: Any, name: str, title: str, said: str) -> Html:
    """The chart as SVG with a title and a description for who cannot see it."""
    plain = chart.configure(font=FONT, background="white").configure_view(stroke=None)
    plain = plain.configure_axis(labelColor=INK, labelFontSize=11)
    text = vl_convert.vegalite_to_svg(plain.to_dict(validate=False))
    text = _NUMBER.sub(lambda found: f"{float(found.group()):.1f}", text)
    text = _FRAME.sub("", _NOISE.sub("", text))
    opening, _, rest = text.partition(">")
    opening = opening.replace("<svg", f'<svg role="img" aria-labelledby="{name}-t {name}-d"', 1)
    names = joined(tag("title", title, id=f"{name}-t"), tag("desc", said, id=f"{name}-d"))
    return Html(f"{opening}>{names}{rest}")
