"""What a terminal adds: colours, and `gpuvigil top` that goes on and listens to keys."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cli.tables.live import View, ordered, page, pressed, state_line
from cli.tables.terminal import painter
from dashboard.lists import holders
from dashboard.lists.table import TONES, Column, Grid, text
from tests.dashboard.servers import Feed
from tests.servers import ROOT, QuickHub

WORDS = Grid(
    columns=[
        Column(key="severity", title="SEVERITY", toned=True),
        Column(key="user", title="USER"),
        Column(key="gpus", title="GPUS", right=True),
    ],
    rows=[("critical", "critical", 8), ("warning", "bea", 16), ("info", "ada", None)],
)


def console(**told: object) -> Console:
    return Console(file=StringIO(), force_terminal=True, color_system="standard", **told)  # type: ignore[arg-type]


def test_a_word_is_in_colour_in_a_column_that_has_tones_and_nowhere_else() -> None:
    title, critical, warning, info = text(WORDS, 80, painter(console())).splitlines()
    assert title.count("\x1b[1m") == 3
    assert critical.startswith("\x1b[1;31mcritical\x1b[0m  critical  ")
    assert warning.startswith("\x1b[33mwarning \x1b[0m  bea")
    assert "\x1b" not in info


def test_colours_change_no_place_and_no_colour_leaves_the_text() -> None:
    plain = text(WORDS, 80)
    assert re.sub(r"\x1b\[[\d;]*m", "", text(WORDS, 80, painter(console()))) == plain
    without = text(WORDS, 80, painter(console(no_color=True)))
    assert not re.search(r"\x1b\[[\d;]*3[0-7]", without)
    into_a_file = Console(file=StringIO(), force_terminal=False)
    assert text(WORDS, 80, painter(into_a_file)) == plain


def test_every_tone_can_be_drawn() -> None:
    paint = painter(console())
    assert all(paint("x", tone) != "x" for tone in {*TONES.values(), "title"})


@pytest.mark.parametrize(
    ("sort", "first", "last"),
    [("gpus", "bea", "ada"), ("user", "ada", "critical")],
)
def test_numbers_stand_largest_first_names_by_the_alphabet_and_what_is_not_known_last(
    sort: str, first: str, last: str
) -> None:
    rows = ordered(WORDS, View(sort=sort)).rows
    assert (rows[0][1], rows[-1][1], len(rows)) == (first, last, 3)


def test_the_columns_that_keys_sort_by_are_there() -> None:
    empty = replace(WORDS, columns=holders.TOP, rows=[])
    for key in "giufw":
        chosen = pressed(View(), key)
        assert ordered(empty, chosen).rows == []
        assert (chosen.sort == View().sort) == (key == "g")


def test_keys() -> None:
    paused = pressed(View(), "p")
    assert paused.paused
    assert not pressed(paused, "p").paused
    assert pressed(View(sort="user"), None) == pressed(View(sort="user"), "x") == View(sort="user")
    assert all(pressed(View(), key).over for key in ("q", "", "\x03"))


def test_the_last_line_says_what_stands_in_the_way() -> None:
    away = state_line(View(), timedelta(seconds=40), "the hub does not answer")
    assert away == "40 s old: the hub does not answer"
    assert "Paused" in state_line(View(paused=True), timedelta(), None)
    assert "q quit" in state_line(View(), timedelta(), None)


@pytest.mark.parametrize("height", [3, 5, 40])
def test_a_table_that_is_too_long_is_cut_above_the_last_line(height: int) -> None:
    lines = page("a\nb\nc\n", "below", height).splitlines()
    assert (len(lines), lines[-1]) == (height, "below")
    assert lines[0] == "a"


class Terminal:
    """`gpuvigil top` at a terminal of its own."""

    def __init__(self, config: Path, *words: str) -> None:
        self.side, other = pty.openpty()
        self.before = _modes(self.side)
        command = [sys.executable, "-m", "gpuvigil", "top", "--config", str(config), *words]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=other, stdout=other, stderr=other)
        os.close(other)
        self.said = ""

    def until(self, is_there: Callable[[str], bool], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not is_there(self.said):
            left = end - time.monotonic()
            assert left > 0, self.said[-2000:]
            if select.select([self.side], [], [], left)[0]:
                self.said += os.read(self.side, 65536).decode("utf-8", "replace")

    def press(self, key: str) -> None:
        self.said = ""
        os.write(self.side, key.encode())


def _modes(terminal: int) -> str:
    done = subprocess.run(
        ["stty", "-a"], stdin=terminal, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.slow
@pytest.mark.server
def test_top_goes_on_at_a_terminal_and_a_key_ends_it(tmp_path: Path) -> None:
    with QuickHub(tmp_path / "hub") as hub, Feed(hub):
        config = tmp_path / "terminal.toml"
        tokens = f'service_token_file = "{hub.service_token_file}"'
        config.write_text(f'[hub]\nurl = "{hub.url}"\n{tokens}\n')
        terminal = Terminal(config)
        terminal.until(lambda said: "q quit" in said and "GPUS" in said)
        terminal.press("p")
        terminal.until(lambda said: "Paused" in said)
        terminal.press("p")
        hub.kill()
        terminal.until(lambda said: " old: hub at" in said and "GPUS" in said)
        terminal.press("q")
        assert terminal.process.wait(30) == 0
        assert _modes(terminal.side) == terminal.before
        os.close(terminal.side)
