"""`gpuvigil check` under a real Slurm: what drains a node, what fails a job, and what does not."""

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.collector.check.node import ROOT, Node
from tests.end_to_end.slurm import PROGRAMS, Slurm
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until
from tests.unanswered import Unanswered, is_possible

pytestmark = [pytest.mark.server, pytest.mark.site]

LONGEST_DELAY_SECONDS = 5.0


class Site:
    """One GPU node under Slurm, with the three scripts that an administrator would write."""

    def __init__(self, directory: Path, library: Path) -> None:
        self.directory = directory
        self.driver = FakeDriver(directory / "driver", library, gpus=4)
        node = Node(directory, self.driver, gpus=4)
        self.calls = directory / "calls"
        self.calls.mkdir()
        self.allow(100)
        scripts = {
            who: self._script(who, node.command("--as", f"slurm-{who}", *more))
            for who, more in {"health": ["--drain"], "prolog": [], "epilog": []}.items()
        }
        self.slurm = Slurm(
            directory / "slurm",
            health=scripts["health"],
            prolog=scripts["prolog"],
            epilog=scripts["epilog"],
        )

    def _script(self, who: str, command: list[str]) -> Path:
        """Runs the check, and keeps when it began, what it said and how it ended."""
        variables = {
            **self.driver.environment(),
            "PYTHONPATH": str(ROOT),
            # Slurm gives its scripts next to no environment, and this one is not in /etc.
            "SLURM_CONF": str(Slurm.config(self.directory / "slurm")),
            # Of one node; what a test has written into the file counts.
            "GPUVIGIL_ACTIONS_MOST_PERCENT": f"$(cat {self.calls}/most-percent)",
        }
        log = self.calls / who
        lines = [
            "#!/bin/sh",
            *(f"export {name}={_quoted(value)}" for name, value in variables.items()),
            f"cd {ROOT}",
            f"test ! -e {self.calls}/no-{who} || exit 0",
            f'echo "began $(date +%s.%N)" >>{log}',
            f"{shlex.join([sys.executable, *command[1:]])} >>{log} 2>&1",
            "code=$?",
            f'echo "ended $(date +%s.%N) $code" >>{log}',
            "exit $code",
        ]
        script = self.directory / f"{who}.sh"
        script.write_text("\n".join(lines) + "\n")
        script.chmod(0o755)
        return script

    def allow(self, most_percent: int) -> None:
        """So many of its nodes may be out of service."""
        (self.calls / "most-percent").write_text(str(most_percent))

    def switch(self, who: str, *, on: bool) -> None:
        """Whether Slurm runs this script's check."""
        mark = self.calls / f"no-{who}"
        mark.unlink(missing_ok=True) if on else mark.touch()

    def no_health_checks(self) -> None:
        """None from here on, those that run already included."""
        self.switch("health", on=False)

        def over() -> bool:
            words = [line.partition(" ")[0] for line in self.said("health")]
            return words.count("began") == words.count("ended")

        wait_until("the last health check", over, 60.0)

    def said(self, who: str) -> list[str]:
        """The lines of all calls so far."""
        log = self.calls / who
        return log.read_text().splitlines() if log.exists() else []

    def checks_again(self) -> None:
        """Wait until a health check that began after this moment is over."""
        seen = len([line for line in self.said("health") if line.startswith("began")])

        def over() -> bool:
            words = [line.partition(" ")[0] for line in self.said("health")]
            return words.count("began") > seen and words.count("ended") > seen + 1

        wait_until("two more health checks", over, 60.0)

    def heal(self) -> None:
        """Everything well, the node back in service, as an administrator leaves it."""
        self.allow(100)
        self.driver.release()
        for gpu in range(4):
            self.driver.restore(gpu)
            self.driver.set(gpu, event_reasons=1)
        for who in ("health", "prolog", "epilog"):
            self.switch(who, on=True)
        if self.slurm.state() != {"IDLE"}:
            self.slurm.update(state="resume")
        wait_until("an idle node", lambda: self.slurm.state() == {"IDLE"}, 60.0)

    def run_job(self, command: str = "true") -> str:
        return self.slurm.finish(self.slurm.submit(command))


def _quoted(value: str) -> str:
    return f'"{value}"' if value.startswith("$(") else shlex.quote(value)


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, library: Path, needs: Callable[[str, str], str]
) -> Iterator[Site]:
    for program in PROGRAMS:
        needs(program, "scripts/install-test-servers")
    site = Site(tmp_path_factory.mktemp("site"), library)
    with site.slurm:
        yield site


@pytest.fixture
def site(running: Site) -> Site:
    running.heal()
    return running


def test_a_healthy_node_and_one_with_a_warning_stay_idle_and_run_jobs(site: Site) -> None:
    site.driver.set(1, event_reasons=0x88)
    site.checks_again()
    assert any("slowed by the power brake" in line for line in site.said("health"))
    assert site.slurm.state() == {"IDLE"}
    assert site.slurm.reason == ""
    assert site.run_job() == "COMPLETED"
    assert site.slurm.state() == {"IDLE"}
    for who in ("prolog", "epilog"):
        assert site.said(who)[-1].split()[-1] == "0"


def test_a_critical_finding_drains_with_its_class_and_evidence_and_only_once(site: Site) -> None:
    site.driver.lose(2)
    wait_until("a drained node", lambda: "DRAIN" in site.slurm.state(), 60.0)
    reason = site.slurm.reason
    assert reason.startswith("gpuvigil gpu_lost: GPU 0000:22:00.0: ")
    assert "GPU fell off the bus" in reason
    assert "NVML code 15" in reason
    site.checks_again()
    # The time in it is when it was set.
    assert site.slurm.reason == reason
    assert "already says: gpuvigil gpu_lost" in "".join(site.said("health"))


def test_a_reason_of_somebody_else_stays(site: Site) -> None:
    site.slurm.update(state="drain", reason="bad disk, ask Eve")
    reason = site.slurm.reason
    site.driver.lose(2)
    site.checks_again()
    assert site.slurm.reason == reason
    assert "has somebody's reason: bad disk, ask Eve" in "".join(site.said("health"))


def test_a_driver_that_hangs_drains_nothing_and_delays_a_job_by_less_than_five_seconds(
    site: Site,
) -> None:
    # Health checks would be in the driver beside the prolog's, and it waits for them.
    site.no_health_checks()
    site.driver.hang_all()
    a_job_is_not_held_up(site)
    site.switch("health", on=True)
    site.checks_again()
    assert "nothing critical is certain" in "".join(site.said("health"))
    assert site.slurm.state() == {"IDLE"}


def test_nor_does_a_driver_in_which_nobody_can_be_killed(site: Site, tmp_path: Path) -> None:
    if not is_possible():
        pytest.skip("the uninterruptible state needs root and /dev/fuse")
    site.no_health_checks()
    with Unanswered(tmp_path / "unanswered") as kernel:
        site.driver.block_in(kernel.file)
        a_job_is_not_held_up(site)
        assert site.slurm.state() == {"IDLE"}


def a_job_is_not_held_up(site: Site) -> None:
    started = site.directory / "started"
    assert site.run_job(f"date +%s.%N >{started}") == "COMPLETED"
    began = float(last(site.said("prolog"), "began").split()[1])
    assert float(started.read_text()) - began < LONGEST_DELAY_SECONDS
    for who in ("prolog", "epilog"):
        _, ended, code = last(site.said(who), "ended").split()
        assert code == "0"
        assert float(ended) - float(last(site.said(who), "began").split()[1]) < 5.0
        assert any("driver does not answer" in line for line in site.said(who)[-3:])


def test_a_prolog_fails_for_a_critical_finding(site: Site) -> None:
    site.no_health_checks()
    site.driver.lose(0)
    started = site.directory / "never"
    job = site.slurm.submit(f"touch {started}")
    wait_until("a drained node", lambda: "DRAIN" in site.slurm.state(), 60.0)
    assert site.slurm.reason.startswith("gpuvigil gpu_lost: ")
    wait_until("the prolog's end", lambda: last(site.said("prolog"), "ended").endswith(" 1"), 60.0)
    assert not started.exists()
    site.slurm.ask("scancel", job)


def test_beyond_the_budget_nothing_is_drained_and_jobs_are_let_in(site: Site) -> None:
    # One that has begun already has read what it may.
    site.no_health_checks()
    site.allow(99)
    site.driver.lose(0)
    site.switch("health", on=True)
    site.checks_again()
    refused = (
        "not drained: 0 of 1 nodes are out of service, and actions.most_percent (99 %) allows 0"
    )
    assert refused in site.said("health")
    assert site.run_job() == "COMPLETED"
    for who in ("prolog", "epilog"):
        assert refused in site.said(who)
        assert last(site.said(who), "ended").endswith(" 0")
    assert site.slurm.state() == {"IDLE"}


def test_an_epilog_fails_for_what_happened_during_the_job(site: Site) -> None:
    site.no_health_checks()
    started, on = site.directory / "running", site.directory / "go-on"
    job = site.slurm.submit(f"touch {started}; until test -e {on}; do sleep 0.1; done")
    wait_until("the job", started.exists, 60.0)
    site.driver.lose(0)
    on.touch()
    assert site.slurm.finish(job) == "COMPLETED"
    wait_until("a drained node", lambda: "DRAIN" in site.slurm.state(), 60.0)
    assert site.slurm.reason.startswith("gpuvigil gpu_lost: ")


def last(lines: list[str], word: str) -> str:
    return [line for line in lines if line.startswith(word)][-1]
