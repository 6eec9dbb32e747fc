"""A new fault is three files: its row, its detector, and its test.

Done with a made-up one, on a copy of the sources. Nothing else is touched there, and the pages are
written anew, as `make docs` does it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")

ROW = """
    Fault(
        key="host_overloaded",
        title="Node runs far more tasks than it has cores",
        severity=Severity.WARNING,
        action="Look at what runs on the node beside its jobs.",
        source="made up by a test",
        own_limit=False,
        inferred=True,
        proof=Proof.ON_TRIAL,
        detector="host_overloaded",
        xids=(),
        about=About.NODE,
        stops=Stops.HOLDER,
        shows=Shows.MEASURED,
        blame=Blame.SETUP,
        ends_job=None,
        by_xid=False,
        link=Link.NOTHING,
        look=None,
        drains=False,
        loses_data=False,
        signs=frozenset(),
        explains=None,
        shared=Shared.NO,
        told_by=frozenset(),
        xids_alike=frozenset(),
        cured_by=frozenset(),
        mended=Mended.NO,
        halts=Halts.NO,
        slows=False,
        of_maker=False,
        settles_seconds=0.0,
        tuned_by="steady_seconds",
        simulated_as=(),
        selftest=SelftestScript(node_fields={"driver_answering": 1, "load_average": 5000.0}),
    ),
)
"""

DETECTOR = '''"""A node that runs far more tasks than it has cores."""

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding
from gpuvigil.store import Aggregate, Function

from ..window.window import Need, Span, Window
from . import Detector

_LOAD = Aggregate(function=Function.MIN, field="load_average")
NEEDS = (Need(measurement="node", span=Span.RECENT, aggregates=(_LOAD,)),)
_FAULT = FAULTS["host_overloaded"]
_MOST = 1000.0


def overloaded(window: Window) -> list[Finding]:
    rows = window.get("node", Span.RECENT)
    return [
        Finding(
            fault="host_overloaded",
            subject=node,
            severity=_FAULT.severity,
            since=row["first_at"],
            evidence=(Evidence(name="tasks", value=f"{row[_LOAD.column]:.0f}", limit=f"{_MOST:g}"),),
            detector="host_overloaded",
            action=_FAULT.action,
            source=_FAULT.source,
        )
        for node, row in rows.where(rows.values(_LOAD.column) > _MOST)
        if row["first_at"] < row["last_at"]
    ]


DETECTOR = Detector(
    name="host_overloaded",
    find=overloaded,
    faults=found_by("host_overloaded"),
    needs=NEEDS,
    reads_events=False,
    sentence="A node that runs far more tasks than it has cores.",
    source="made up by a test",
)
'''

CASE = """    "host_overloaded": (lambda scene: scene.changed(node(), {"load_average": 5000.0}), node()),
"""

# A pass finds it and nothing beside it, the contracts of detectors and of the table hold for it, it has
# an excuse and a limit, and its key stands nowhere else.
TESTS = (
    "tests/test_selftest.py",
    "tests/analyzer/test_detector_contract.py",
    "tests/gpuvigil/test_faults.py",
    "tests/gpuvigil/test_tuning.py",
    "tests/accounting/efficiency/test_inefficient_hours.py",
    "tests/test_faults_at_home.py",
)
OF_IT = (
    "host_overloaded or everything_that_a_detector or every_rule_fires or found_by_one_detector"
    " or nowhere_else or one_question"
)
DOCUMENTED = "tests/test_documentation.py::test_every_detector_is_documented_and_no_other"
# What a channel is told of it at first, and after three that were right.
DECIDED = """
from alerts.decisions.decide import decide
from alerts.routing.situation import Situation
from gpuvigil.faults.trial import Feedback
from tests.alerts.examples import CHAT, NOON, REAL, SETTINGS, opened
step = opened(fault="host_overloaded", subject=REAL.of_node())
for right in (2, 3):
    situation = Situation(feedback={"host_overloaded": Feedback(right, 0)})
    print(decide(step, [CHAT], [], NOON, SETTINGS, situation)[0].verdict.name)
"""
PAGE = "from scripts.docs import faults; print('\\n'.join(faults()))"


def inserted(path: Path, text: str, before: str) -> None:
    old = path.read_text()
    assert old.count(before) == 1, before
    path.write_text(old.replace(before, text + before))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources with one fault more."""
    there = tmp_path_factory.mktemp("copy") / "sources"
    shutil.copytree(ROOT, there, ignore=_LEFT_OUT)
    rows = there / "gpuvigil/faults/hosts.py"
    assert rows.read_text().endswith("    ),\n)\n")
    rows.write_text(rows.read_text().removesuffix(")\n") + ROW.lstrip("\n"))
    (there / "analyzer/detectors/host_overloaded.py").write_text(DETECTOR)
    inserted(there / "tests/analyzer/test_detector_contract.py", CASE, '    "host_disk": (')
    return there


def run(there: Path, *command: str) -> str:
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=there,
        # Most tests of the copy are left out, which CI does not bear.
        env={**os.environ, "PYTHONPATH": str(there), "CI": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_new_fault_is_found_by_a_pass_and_keeps_every_contract(copy: Path) -> None:
    said = run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", OF_IT, *TESTS)
    assert " passed" in said


@pytest.mark.slow
def test_a_new_fault_stands_on_the_pages(copy: Path) -> None:
    page = run(copy, "-c", PAGE)
    row, detector = (it for it in page.splitlines() if it.startswith("| `host_overloaded` |"))
    assert "A node that runs far more tasks than it has cores." in detector
    assert "who has the GPU or the node" in row
    assert "`steady_seconds`" in row
    assert "(inferred, on trial)" in row
    assert "Look at what runs on the node beside its jobs." in row
    (copy / "docs/faults.md").write_text(page)
    run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", DOCUMENTED)


@pytest.mark.slow
def test_a_new_fault_starts_in_the_digest(copy: Path) -> None:
    assert run(copy, "-c", DECIDED).split() == ["ON_TRIAL", "FIRST"]


@pytest.mark.slow
def test_a_fault_without_a_column_is_refused(copy: Path) -> None:
    lacking = ROW.replace("        stops=Stops.HOLDER,\n", "").strip().removesuffix(")").strip()
    names = "from gpuvigil.faults.hosts import *"
    ended = subprocess.run(
        [sys.executable, "-c", f"{names}\n{lacking.removesuffix(',')}"],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "missing 1 required keyword-only argument: 'stops'" in ended.stderr
