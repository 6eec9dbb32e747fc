"""`python -m scoreboard.plots`: the pictures of `docs/scoreboard.md`."""

import sys
from typing import Any

import altair
import vl_convert

from .fingerprint import ROOT
from .page import by_magnitude, tallies
from .run import read

IMAGES = ROOT / "docs/images"
_THIRDS = ("lowest third", "middle", "highest third")


def magnitude(found: Any) -> Any:
    """Recall over magnitude with its interval, a line for each set of detectors."""
    rows = [
        {
            "detectors": name,
            "magnitude": words,
            "recall": it["recall"]["value"],
            "low": it["recall"]["interval"][0],
            "high": it["recall"]["interval"][1],
            "faults": it["recall"]["of"],
        }
        for name, bins in by_magnitude(found).items()
        for words, it in zip(_THIRDS, bins, strict=True)
        if it["recall"]["of"]
    ]
    base = altair.Chart(altair.InlineData(values=rows)).encode(
        x=altair.X("magnitude:O", sort=list(_THIRDS), title="magnitude within its kind's range"),
        color=altair.Color("detectors:N", title=None),
        xOffset="detectors:N",
    )
    scale = altair.Scale(domain=[0, 1])
    bars = base.mark_rule().encode(
        y=altair.Y("low:Q", scale=scale, title="recall, 95 % interval"), y2="high:Q"
    )
    points = base.mark_point(filled=True, size=50).encode(y=altair.Y("recall:Q", scale=scale))
    return altair.layer(bars, points).properties(width=560, height=260)


def main() -> int:
    """Draw them."""
    chart = magnitude(tallies(read()))
    IMAGES.mkdir(exist_ok=True)
    path = IMAGES / "scoreboard-magnitude.svg"
    path.write_text(vl_convert.vegalite_to_svg(chart.to_json()), encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
