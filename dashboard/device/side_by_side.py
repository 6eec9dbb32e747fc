"""Draw charts of one device side by side with Streamlit."""

from collections.abc import Sequence

import streamlit as st

from gpuvigil.numbers_in_words import NOT_MEASURED
from gpuvigil.web.markup import tag

from . import chart, drawing
from .chart import Frame
from .curves import Chart

PIXELS = 158


def side_by_side(
    drawn: Sequence[Chart], frame: Frame, page: str, *, columns: int, with_peers: bool = True
) -> None:
    """Draw charts in rows of `columns`, and one line on all that were not measured.

    `page` makes keys unique; `with_peers` is as in `drawing.chart_title`.
    """
    there = [one for one in drawn if one.measured]
    for start in range(0, len(there), columns):
        row = there[start : start + columns]
        for column, one in zip(st.columns(columns, gap="medium"), row, strict=False):
            with column:
                _cell(one, frame, page, with_peers=with_peers)
    if absent := [one.title for one in drawn if not one.measured]:
        st.html(
            tag(
                "p",
                f"{NOT_MEASURED.capitalize()} in this window: {', '.join(absent)}.",
                class_="gv-line",
            )
        )


def _cell(one: Chart, frame: Frame, page: str, *, with_peers: bool) -> None:
    st.html(drawing.chart_title(one, with_peers=with_peers))
    st.echarts_chart(
        chart.option(one, frame),
        height=PIXELS,
        key=f"{page}-{one.key}",
        alt=chart.sentence(one, frame.window),
    )
