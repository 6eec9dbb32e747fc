"""Charts have the colours of the style sheets."""

import re

from dashboard.components import HERE
from dashboard.layout.colours import colours
from dashboard.model.gpus import Look


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
    assert len(kinds) == len(Look)
    for kind in kinds:
        assert f".swatch.{kind} " in sheet, kind
        assert f'"{kind}"' in worn.partition("];")[0] or kind == "active", kind
