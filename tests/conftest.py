"""Fixtures that all tests share: what a machine may lack, the tiers, and the refusal to skip in CI."""

import gc
import os
import re
import resource
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from scripts.isolated import pip_of_user
from tests.nvml_fake import build
from tests.postgresql import Postgresql, programs
from tests.sources import Parsed, parsed, product

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# An example's duration says something about the machine, not about the code. A run tries a few examples,
# others each time, and a failure prints how to reproduce it; the unit tier tries a third, `make soak` many.
hypothesis.settings.register_profile("few", deadline=None, max_examples=30, print_blob=True)
hypothesis.settings.register_profile("many", deadline=None, max_examples=1000, print_blob=True)
hypothesis.settings.register_profile("unit", deadline=None, max_examples=10, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))

SECOND_TIER = {"server", "slow", "medium", "site"}
# A test with one of these marks is outside the tier, whatever other marks it has.
NOT_IN = {"unit": SECOND_TIER, "test": {"site"}}
# What puts a test in one of these tiers is in its file's text, or is the file's folder; the run of all others
# checks it.
MADE_BY = {"sites": r"\bmark\.(site|alone)\b|\bbrowser\b", "alone": r"\bmark\.alone\b"}
FOLDER = Path(__file__).parent
# Most unit tests take milliseconds, the longest a few tenths of a second, and on a busy machine they vary by
# half from run to run.
UNIT_SECONDS = 2.0
# Whatever a test waits for on a page comes in a second or two on an otherwise idle machine.
PAGE_MS = 90_000.0
SITE_SECONDS = 400
IN_CI = os.environ.get("CI") == "true"


@pytest.fixture(autouse=True)
def own_umask() -> Iterator[None]:
    """Restore the umask after each test: commands that write secrets set a narrow one."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the tests a home and a temporary folder of their own, without gpuvigil's settings from outside."""
    # Servers that run under an account of their own must be able to reach their files in it.
    temporary = Path(tempfile.mkdtemp(prefix="gv-"))
    temporary.chmod(0o711)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in pip_of_user(os.environ, Path.home()).items():
            patch.setenv(name, value)
        for name in [name for name in os.environ if name.startswith(("GPUVIGIL_", "XDG_"))]:
            patch.delenv(name)
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr(tempfile, "tempdir", None)
        yield
    shutil.rmtree(temporary, ignore_errors=True)


@pytest.fixture(scope="session")
def needs() -> Callable[[str, str], str]:
    """Return a function that finds a program: `needs("gcc", "apt-get install gcc")` returns its path or skips the test.

    With `CI=true` a missing program fails the test.
    """

    def find(program: str, remedy: str) -> str:
        path = shutil.which(program)
        if path is None:
            if IN_CI:
                pytest.fail(f"{program} is missing: make test-servers installs it")
            pytest.skip(f"{program} is missing: {remedy}")
        return path

    return find


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory, needs: Callable[[str, str], str]) -> Path:
    """Return the path of the compiled fake NVML library."""
    needs("gcc", "apt-get install gcc")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def product_sources() -> Mapping[Path, Parsed]:
    """Return every module of the product, parsed."""
    return {path: parsed(path) for path in product()}


@pytest.fixture(scope="module")
def browser(needs: Callable[[str, str], str]) -> Iterator["Browser"]:
    """Start a headless Chromium."""
    from playwright.sync_api import (  # noqa: PLC0415 - most tests need no browser
        expect,
        sync_playwright,
    )

    chromium = needs("chromium", "apt-get install chromium")
    expect.set_options(timeout=PAGE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        browser.on("context", lambda context: context.set_default_timeout(PAGE_MS))
        yield browser
        browser.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--tier`; tests that it leaves out belong to another tier, and do not count as deselected."""
    parser.addoption(
        "--tier", choices=("unit", "test", "sites", "alone"), help="the tests of this tier"
    )


def pytest_collection() -> None:
    """Collect no garbage until all tests are collected: none of it is garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Restrict garbage collection to what the tests create: what they import stays until the end."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tier's tests; files that take long begin first, so that small ones fill the end.

    Of files with sites those begin first whose tests may take longest together.
    """
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()) or item.get_closest_marker("alone"):
            item.add_marker(pytest.mark.site)
        if item.get_closest_marker("site") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SITE_SECONDS))
    marks = {item: {mark.name for mark in item.iter_markers()} for item in items}
    for path in {item.path for item, names in marks.items() if "site" in names}:
        if not may_have("sites", path):
            raise pytest.UsageError(f"{path}: make test-sites would not see that it has sites")
    long_ = {item.path for item, names in marks.items() if names & SECOND_TIER}
    tier = config.getoption("--tier", None)
    kept = [
        item
        for item in items
        # A file that is asked for by name is read by every process.
        if tier is None or (is_in(tier, marks[item]) and item.path in files_to_read(config))
    ]
    may_take: Counter[Path] = Counter()
    for item in kept:
        timeout = item.get_closest_marker("timeout")
        if timeout and "site" in marks[item]:
            may_take[item.path] += timeout.args[0]
    items[:] = sorted(kept, key=lambda item: (item.path not in long_, -may_take[item.path]))


def pytest_configure(config: pytest.Config) -> None:
    """Let properties in the unit tier try fewer examples than in the run of all tests, unless told otherwise."""
    if config.getoption("--tier", None) == "unit" and "HYPOTHESIS_PROFILE" not in os.environ:
        hypothesis.settings.load_profile("unit")


def processor_seconds() -> float:
    """Return the processor time in seconds of this process and its ended children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a unit test that takes seconds of processor time, which depends little on the machine's load."""
    began = processor_seconds()
    yield
    if item.config.getoption("--tier", None) == "unit":
        refuse_long(processor_seconds() - began)


def refuse_long(seconds: float) -> None:
    if seconds > UNIT_SECONDS:
        pytest.fail(
            f"{seconds:.1f} s of processor time, of the {UNIT_SECONDS:g} s that a test of the unit tier has:"
            " make it cheaper, or mark it medium"
        )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip reading a file without tests of the tier, or that another process reads with `--dist each`."""
    if config.getoption("--tier", None) is None or not collection_path.name.startswith("test_"):
        return None
    return collection_path not in files_to_read(config) or None


@cache
def files_to_read(config: pytest.Config) -> frozenset[Path]:
    """Return the files that may have tests of the tier or were asked for by name.

    With `--dist each` these are only this process's share of them.
    """
    asked_for = {Path(argument.partition("::")[0]).absolute() for argument in config.args}
    found = [
        path
        for path in sorted(FOLDER.rglob("test_*.py"))
        if path in asked_for or may_have(config.getoption("--tier"), path)
    ]
    share, shares = getattr(config, "workerinput", {}).get("share", (0, 1))
    return frozenset(found[share::shares])


def may_have(tier: str, path: Path) -> bool:
    """Return whether a file may have tests of the tier, by its text."""
    if tier in NOT_IN:
        return not marks_of_file(path) & NOT_IN[tier]
    return re.search(MADE_BY[tier], f"{path}\n{path.read_text(encoding='utf-8')}") is not None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give each process a share of the files with `--dist each`, since each file that all read costs all of them."""
    if node.config.getoption("dist") == "each":
        number = int(node.workerinput["workerid"].removeprefix("gw"))
        processes = node.workerinput["workercount"]
        node.workerinput["share"] = (number % processes, processes)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Make pytest count the tests of all processes with `--dist each`.

    It would otherwise count only those of the last process.
    """
    if config.getoption("dist") != "each":
        return None
    from xdist.scheduler import EachScheduling  # noqa: PLC0415 - most processes schedule nothing

    scheduler = EachScheduling(config, log)
    begin = scheduler.schedule

    def count_and_begin() -> None:
        session = config.pluginmanager.get_plugin("session")
        assert session is not None
        session.testscollected = sum(map(len, scheduler.node2collection.values()))
        begin()

    scheduler.schedule = count_and_begin
    return scheduler


def marks_of_file(path: Path) -> set[str]:
    """Return the marks that every test of a file has, from its line `pytestmark = `."""
    line = re.search(r"^pytestmark = (.*)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return set(re.findall(r"pytest\.mark\.(\w+)", line[1])) if line else set()


def is_in(tier: str, marks: Set[str]) -> bool:
    """Return whether a test with these marks belongs to the tier; each test is in one of `test`, `sites` and `alone`."""
    if tier == "unit":
        return not marks & SECOND_TIER
    if tier == "alone":
        return tier in marks
    return ("site" in marks) == (tier == "sites") and not (tier == "sites" and "alone" in marks)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run in CI if a test was skipped, expected to fail or deselected."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    kinds = ("skipped", "xfailed", "xpassed", "deselected")
    left_out = {name: len(reporter.stats.get(name, ())) for name in kinds}
    if hasattr(session.config, "workeroutput"):
        # The first process hears only of those tests of a worker that it runs.
        session.config.workeroutput["deselected"] = left_out["deselected"]
    elif IN_CI and any(left_out.values()):
        reporter.write_line(f"CI runs every test, and these were left out: {left_out}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Count what a worker deselected; all workers collect all tests and deselect the same."""
    reporter = node.config.pluginmanager.get_plugin("terminalreporter")
    deselected = getattr(node, "workeroutput", {}).get("deselected", 0)
    if deselected and not reporter.stats.get("deselected"):
        reporter.stats["deselected"] = [SimpleNamespace() for _ in range(deselected)]


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Postgresql]:
    """Start a real, empty PostgreSQL, in which tests create databases of their own."""
    found = programs()
    if found is None:
        if IN_CI:
            pytest.fail("PostgreSQL is missing: make test-servers installs it")
        pytest.skip("PostgreSQL is missing: apt-get install postgresql")
    with Postgresql(found) as server:
        yield server
