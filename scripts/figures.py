"""Every published figure: the place of its result, the code it measures, and the command that measures it again.

`python -m scripts.figures` says which have to be measured again. A missing result is an ordinary state:
pages say so in its place, and name the command that brings it back.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.commits import ROOT, commits_since, has_changed, is_kept, is_outdated

BENCHMARKS = ROOT / "benchmarks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure: what one run of a benchmark measures."""

    title: str
    place: tuple[str, ...]  # the name of a file in `benchmarks/`, and of the part in it
    code: tuple[str, ...]  # paths of the measured code; "!" before excluded ones
    command: str
    minutes: int  # on a quiet machine with two CPUs

    @property
    def missing(self) -> str:
        """The text of a page in place of a missing figure."""
        return f"{self.title}: not measured since {code_in_words(self.code)} changed; run `{self.command}` ({self.minutes} min)."


def _of_stores(part: str, title: str, code: tuple[str, ...], minutes: int) -> Figure:
    command = f"python -m benchmarks.stores --only {part}"
    return Figure(title=title, place=("stores", part), code=code, command=command, minutes=minutes)


def _of_passes(part: str, title: str, minutes: int) -> Figure:
    return Figure(
        title=title,
        place=("passes", part),
        code=("analyzer", "gpuvigil/store", "hub"),
        command=f"python -m benchmarks.passes --only {part}",
        minutes=minutes,
    )


def _of_more_pages(part: str, title: str, minutes: int) -> Figure:
    return Figure(
        title=title,
        place=("more_pages", part),
        code=("dashboard", "gpuvigil/store", "hub"),
        command=f"python -m benchmarks.more_pages --only {part}",
        minutes=minutes,
    )


_ALL_SERVICES = ("alerts", "analyzer", "collector", "dashboard", "gpuvigil", "hub")
_INGEST = ("gpuvigil/lineprotocol", "hub", "!hub/records")

SPINE = Figure(
    title="From the sensor to people, `make up`, memory at rest",
    place=("spine",),
    code=_ALL_SERVICES,
    command="python -m benchmarks.spine",
    minutes=4,
)
MESSAGES = Figure(
    title="From an Xid to Slack",
    place=("messages",),
    code=("alerts", "analyzer", "hub"),
    command="python -m benchmarks.messages",
    minutes=3,
)
PORTS = Figure(
    title="From a lost link to the webhook",
    place=("ports",),
    code=("alerts", "analyzer", "collector/rows/port_rows.py", "collector/sensors", "hub"),
    command="python -m benchmarks.ports",
    minutes=6,
)
PAGES = Figure(
    title="Pages",
    place=("pages",),
    code=("dashboard", "gpuvigil/store", "hub"),
    command="python -m benchmarks.pages",
    minutes=8,
)
OTHER_PAGES = _of_more_pages("others", "Every other page", 6)
DAY_OF_PAGES = _of_more_pages("day", "Pages on a day in the store", 9)
LARGE_PAGES = _of_more_pages("hundred_thousand", "Pages of 100,000 GPUs", 10)
COLLECTOR = Figure(
    title="The collector on a node",
    place=("collector",),
    code=(
        "collector",
        *(f"!collector/{it}" for it in ("check", "doctor")),
    ),
    command="python -m benchmarks.collector",
    minutes=15,
)
INGEST = _of_stores("ingest", "Ingest at saturation", _INGEST, 5)
SUSTAINED = _of_stores(
    "sustained", "A site that runs", ("analyzer", "dashboard/data/snapshot.py", *_INGEST), 3
)
WEEK = _of_stores("week", "A week of questions", ("gpuvigil/store", "hub/embedded"), 20)
SCALE = _of_stores("scale", "A hundred thousand GPUs", _INGEST, 4)
TEN_THOUSAND = _of_passes("ten_thousand", "A pass of the analyzer, 10,000 GPUs", 10)
HUNDRED_THOUSAND = _of_passes("hundred_thousand", "A pass of the analyzer, 100,000 GPUs", 17)
USAGE = Figure(
    title="Usage",
    place=("usage",),
    code=("accounting/cost/money.py", "accounting/usage", "hub/records"),
    command="python -m benchmarks.usage",
    minutes=3,
)
REPORT = Figure(
    title="The report",
    place=("report",),
    code=("accounting/efficiency", "accounting/usage", "hub/records", "report"),
    command="python -m benchmarks.report",
    minutes=4,
)
SLURM = Figure(
    title="Asking Slurm",
    place=("slurm",),
    code=("integrations/slurm",),
    command="python -m benchmarks.slurm",
    minutes=3,
)
RECORDS = Figure(
    title="Records",
    place=("records",),
    code=("gpuvigil/hub_client/__init__.py", "hub/http/long_poll.py", "hub/records"),
    command="python -m benchmarks.records",
    minutes=2,
)
FLEET = Figure(
    title="Playing the simulated fleet",
    place=("fleet",),
    code=("simulator/fleet",),
    command="python -m benchmarks.fleet",
    minutes=3,
)

FIGURES = (
    *(SPINE, MESSAGES, PORTS, PAGES, OTHER_PAGES, DAY_OF_PAGES, LARGE_PAGES),
    *(COLLECTOR, INGEST, SUSTAINED, WEEK, SCALE),
    *(TEN_THOUSAND, HUNDRED_THOUSAND, USAGE, REPORT, SLURM, RECORDS, FLEET),
)


class Figures:
    """The measured results of the benchmarks; None where nothing was measured."""

    def __init__(self, directory: Path = BENCHMARKS) -> None:
        self._files = {
            file.stem: json.loads(file.read_text(encoding="utf-8"))
            for file in sorted(directory.glob("*.json"))
        }

    def get(self, *keys: str) -> Any:
        """Return the value below `keys`, the first of which is the file's name."""
        found: Any = self._files
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found

    def number(self, *keys: str) -> float | None:
        """Return the same as `get` if it is a number, else None."""
        found = self.get(*keys)
        return float(found) if isinstance(found, int | float) else None

    def mark(self, section: str, mark: str) -> str:
        """Return `mark` for a figure based on this section of the stores' results; T for a trial."""
        return "T" if self.get("stores", section, "about", "quick") else mark

    def commit(self, figure: Figure) -> str | None:
        """Return the measured commit."""
        found = self.get(*figure.place, "about", "commit")
        return None if found is None else str(found)

    def shown(self, figure: Figure, write: Callable[[Any], Iterator[str]]) -> Iterator[str]:
        """Yield the lines of the result, or that it was not measured."""
        found = self.get(*figure.place)
        if found is None:
            yield figure.missing
        else:
            yield from write(found)


def code_in_words(code: tuple[str, ...]) -> str:
    """Return paths as text: `hub` without its `records`."""
    within = ", ".join(f"`{it}`" for it in code if not it.startswith("!"))
    without = ", ".join(f"`{Path(it).name}`" for it in code if it.startswith("!"))
    return f"{within} without its {without}" if without else within


def outdated(figures: Figures) -> list[Figure]:
    """Return the measured figures that have to be measured again."""
    known = ((it, figures.commit(it)) for it in FIGURES)
    return [it for it, commit in known if commit and is_outdated(commit, it.code)]


def _state(figure: Figure, commit: str | None) -> str:
    if commit is None:
        return "not measured"
    if not is_kept(commit):
        return "of a commit that history has lost"
    changed = "its code has changed" if has_changed(commit, figure.code) else "its code is the same"
    again = ": measure it again" if is_outdated(commit, figure.code) else ""
    return f"{commits_since(commit)} commits old, {changed}{again}"


def main() -> int:
    """Print the state of each figure."""
    figures = Figures()
    for figure in FIGURES:
        print(f"{figure.title}: {_state(figure, figures.commit(figure))}")
        print(f"  {figure.command} ({figure.minutes} min)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
