"""`python -m evaluation.plots`: the pictures of `docs/scoreboard.md`."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import altair
import vl_convert

from .baselines import SETS
from .curves import MISSING, NOISE, by_magnitude, over
from .fingerprint import ROOT
from .results import Tallies, read, tallies

IMAGES = ROOT / "docs/images"
_THIRDS = ("mildest third", "middle", "gravest third")
Points = Iterable[tuple[str, str, Mapping[str, Any]]]


def magnitude(found: Tallies) -> Any:
    """Recall over magnitude."""
    points = (
        (name, words, it["recall"])
        for name, bins in by_magnitude(found).items()
        for words, it in zip(_THIRDS, bins, strict=True)
    )
    return _chart(points, _THIRDS, "magnitude within its kind's range")


def noise(found: Tallies) -> Any:
    """Recall over noise."""
    points = (
        (name, f"x{step:g}", share)
        for name, steps in over(found, NOISE).items()
        for step, share in steps.items()
    )
    return _chart(points, [f"x{step:g}" for step in NOISE], "times the natural noise")


def missing(found: Tallies) -> Any:
    """Recall over missing samples."""
    points = (
        (name, f"{step:.0%}", share)
        for name, steps in over(found, MISSING).items()
        for step, share in steps.items()
    )
    return _chart(points, [f"{step:.0%}" for step in MISSING], "samples that were lost")


def _chart(points: Points, order: Sequence[str], title: str) -> Any:
    """Recall with its interval, a line for each set of detectors."""
    rows = [
        {
            "detectors": name,
            "step": step,
            "recall": share["value"],
            "low": share["interval"][0],
            "high": share["interval"][1],
        }
        for name, step, share in points
        if share["of"]
    ]
    base = altair.Chart(altair.InlineData(values=rows)).encode(
        x=altair.X("step:O", sort=list(order), title=title, axis=altair.Axis(labelAngle=0)),
        color=altair.Color("detectors:N", title=None, sort=list(SETS)),
        xOffset=altair.XOffset("detectors:N", sort=list(SETS)),
    )
    scale = altair.Scale(domain=[0, 1])
    bars = base.mark_rule().encode(
        y=altair.Y("low:Q", scale=scale, title="recall, 95 % interval"), y2="high:Q"
    )
    dots = base.mark_point(filled=True, size=50).encode(y=altair.Y("recall:Q", scale=scale))
    return altair.layer(bars, dots).properties(width=560, height=260)


def pictures(results: Mapping[str, Any]) -> dict[Path, str]:
    """Each curve's file and what it should hold."""
    found = tallies(results)
    return {
        IMAGES / f"scoreboard-{draw.__name__}.svg": vl_convert.vegalite_to_svg(
            draw(found).to_json()
        )
        for draw in (magnitude, noise, missing)
    }


def main() -> int:
    """Draw them."""
    IMAGES.mkdir(exist_ok=True)
    for path, text in pictures(read()).items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
