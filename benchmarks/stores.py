"""The stores' figures: ingest, a running site, a week's questions and the disk, a hundred thousand GPUs.

`make bench` runs it; VictoriaMetrics (Debian's) stands beside in the same run. Sections are measured
one after the other and each is kept as soon as it is there, so that `--only week` measures one again
and leaves the others as they were. `--quick` tries everything small, in a few minutes: its figures
are marked as such and say nothing.
"""

import argparse
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.spine import about, say

RESULT = Path(__file__).with_suffix(".json")
SECTIONS = {
    "ingest": "benchmarks.store_ingest",
    "sustained": "benchmarks.store_sustained",
    "week": "benchmarks.store_week",
    "scale": "benchmarks.store_scale",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the sections and write the result."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.stores")
    options.add_argument("--only", help="sections, separated by commas; all if left out")
    options.add_argument("--quick", action="store_true", help="small, to try the program")
    options.add_argument("--out", type=Path, default=RESULT, help="where the result goes")
    chosen = options.parse_args(arguments)
    names = chosen.only.split(",") if chosen.only else list(SECTIONS)
    for unknown in set(names) - SECTIONS.keys():
        options.error(f"--only {unknown}: there are {', '.join(SECTIONS)}")
    command = "python -m benchmarks.stores" + (" --quick" if chosen.quick else "")
    for name in names:
        say(f"stores: {name}")
        load_before = os.getloadavg()[0]
        with tempfile.TemporaryDirectory(prefix="gpuvigil-bench-") as folder:
            found = importlib.import_module(SECTIONS[name]).measure(Path(folder), chosen.quick)
        said = {**about(), "command": f"{command} --only {name}", "quick": chosen.quick}
        keep(chosen.out, name, {"about": {**said, "load_average": load_before}, **found})
    say(f"wrote {chosen.out}")
    return 0


def keep(out: Path, name: str, section: dict[str, Any]) -> None:
    """Put a section in its place in the file."""
    known = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    sections = {**known, name: section}
    ordered = {key: sections[key] for key in SECTIONS if key in sections}
    out.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
