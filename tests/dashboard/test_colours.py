"""Charts have the colours of the style sheets."""

import re

import pytest

from dashboard.components import HERE
from dashboard.jobs.bounds_strip import KINDS
from dashboard.layout.colours import colours
from dashboard.model.gpus import DisplayState

# Of text that is not large.
WCAG_AA = 4.5


def test_a_chart_gets_the_colour_of_its_screen() -> None:
    assert colours("light")["bg"] == "#ffffff"
    assert colours("dark")["bg"] == "#0d1117"
    assert colours("light").keys() == colours("dark").keys()


def test_every_colour_that_a_page_uses_is_a_token() -> None:
    known = {f"--gv-{name}" for name in colours("dark")}
    for sheet in (*HERE.glob("*.css"), *HERE.glob("*.js")):
        used = set(re.findall(r"var\((--gv-[a-z-]+)\)", sheet.read_text(encoding="utf-8")))
        assert used <= known, sheet.name


def test_no_colour_is_written_outside_the_tokens() -> None:
    for sheet in (*HERE.glob("*.css"), *HERE.glob("*.js")):
        if sheet.name != "tokens.css":
            literal = re.findall(r"#[0-9a-fA-F]{3,8}\b(?!\w)", sheet.read_text(encoding="utf-8"))
            assert not literal, sheet.name


def test_every_look_of_the_map_has_a_colour_in_the_legend_and_on_the_map() -> None:
    drawn = (HERE / "fleet_map.js").read_text(encoding="utf-8")
    kinds = re.findall(r'"(\w+)"', re.search(r"^const KINDS = .*$", drawn, re.MULTILINE)[0])  # type: ignore[index]
    worn = (HERE / "map_data.js").read_text(encoding="utf-8").partition("const WORN")[2]
    sheet = (HERE / "fleet_map.css").read_text(encoding="utf-8")
    assert len(kinds) == len(DisplayState)
    for kind in kinds:
        assert f".swatch.{kind} " in sheet, kind
        assert f'"{kind}"' in worn.partition("];")[0] or kind == "active", kind


@pytest.mark.parametrize("screen", ["light", "dark"])
def test_words_in_the_bar_of_what_bounds_a_job_are_read_against_their_colour(screen: str) -> None:
    sheet, known = (HERE / "tree.css").read_text(encoding="utf-8"), colours(screen)

    def fills(what: str) -> dict[str, str]:
        """By its kind the colour of a bar, or of the words in it."""
        rules = re.findall(
            r"^(svg\.bounds .*?) \{ fill: var\(--gv-([a-z-]+)\);", sheet, re.MULTILINE
        )
        return {
            kind: known[ink] for to, ink in rules for kind in re.findall(rf"{what}\.([\w-]+)", to)
        }

    words, bars = fills("text"), fills("rect")
    assert words.keys() == bars.keys() == set(KINDS.values())
    for kind, bar in bars.items():
        assert _contrast(words[kind], bar) >= WCAG_AA, kind


def _contrast(one: str, other: str) -> float:
    """As WCAG 2 reckons it."""
    dark, light = sorted(map(_luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [it / 12.92 if it <= 0.04045 else ((it + 0.055) / 1.055) ** 2.4 for it in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
