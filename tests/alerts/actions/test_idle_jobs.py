"""What speaks against the end of an idle job on a site whose Slurm is three small programs."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from accounting.efficiency.recent_incidents import resolved_since
from alerts.actions.job_end_rules import EndRefusal
from alerts.actions.slurm import SlurmError
from gpuvigil.config import IdleSettings
from gpuvigil.model import Incident, Job, RecordKind, Severity, Subject, fingerprint
from tests.end_to_end.idle import USER, Site
from tests.servers import HubProcess, QuickHub

pytestmark = pytest.mark.server

END = (IdleSettings(end_minutes=120.0, end_by="requeue"),)
LINE = "{:16}{:16}{:64}{:16}{:64}{:20}{:8}{:8}{:24}{:24}{:256}\n"
PROGRAMS = {
    "squeue": '#!/bin/sh\ncat "$(dirname "$0")/jobs"\n',
    "scancel": "#!/bin/sh\nexit 1\n",
    "scontrol": """#!/bin/sh
here="$(dirname "$0")"
case "$*" in
    *show*) echo "NodeName=n1 State=MIXED Gres=gpu:40" ;;
    *) echo "$*" >> "$here/calls"; case "$1" in "$(cat "$here/fails")") echo no >&2; exit 1 ;; esac ;;
esac
""",
}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with QuickHub(tmp_path / "hub") as process:
        yield process


class Cluster(Site):
    """A site with its own jobs and programs."""

    def __init__(self, hub: HubProcess, directory: Path) -> None:
        self.directory = directory
        for name, text in PROGRAMS.items():
            (directory / name).write_text(text)
            (directory / name).chmod(0o755)
        for name in ("jobs", "calls", "fails"):
            (directory / name).touch()
        super().__init__(hub.hub(), str(directory))

    def run(self, job: str, **changes: Any) -> None:
        """A job with one idle GPU, all of whose notices went out."""
        self.hold(job, [False], **changes)
        told = Job(
            told_by=Subject(cluster="c", node="control"),
            number=job,
            state="RUNNING",
            submitted_at=self.begun,
            seen_at=self.now,
            user=USER,
            nodes=("n1",),
            gpus=1,
        )
        self.hub.write_records([told.to_record()])
        self.show(job, "RUNNING")

    def show(self, job: str, state: str, suspended_seconds: int = 0) -> None:
        """What Slurm says of it, three hours ago by the clock of the site."""
        began = int(datetime.now(timezone.utc).timestamp()) - 10800 - suspended_seconds
        columns = (job, job, "N/A", "N/A", USER, state, "1", "1", str(began), "3:00:00", "(null)")
        lines = (self.directory / "jobs").read_text().splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith(f"{job} ")]
        (self.directory / "jobs").write_text("".join([*kept, LINE.format(*columns)]))

    def calls(self) -> list[str]:
        return (self.directory / "calls").read_text().splitlines()


def a_fault(subject: Subject, since: timedelta, over: timedelta, site: Site) -> Incident:
    return Incident(
        id=f"lost-{subject.gpu}",
        fingerprint=fingerprint("gpu_lost", subject),
        fault="gpu_lost",
        subject=subject,
        severity=Severity.CRITICAL,
        state="resolved",
        title="fell off the bus",
        since=site.now - since,
        updated_at=site.now - over,
        resolved_at=site.now - over,
    )


def test_notices_of_another_idleness_and_faults_just_over_keep_a_job(
    hub: HubProcess, tmp_path: Path
) -> None:
    site = Cluster(hub, tmp_path)
    site.run("100")
    site.run("101", notices=(60 - 1440, 105 - 1440))  # it was requeued, or computed since
    site.run("102")
    hour, broken = timedelta(hours=1), Subject(cluster="c", node="n1", gpu="GPU-2")
    fault = a_fault(broken, 26 * hour, hour / 6, site)
    long_over = replace(a_fault(broken, 50 * hour, 48 * hour, site), id="before")
    site.hub.write_records([fault.to_record(), long_over.to_record()])
    assert resolved_since(site.hub, site.now - 2 * hour) == [fault]

    found = site.look(END)
    assert [str(one.held.holder) for one in found.endings] == ["job 100"]
    assert dict(found.refused) == {
        "job 101": EndRefusal.NOTICES_MISSING,
        "job 102": EndRefusal.EXCUSED,
    }
    assert site.calls() == []


def test_what_slurm_may_have_done_counts_and_is_told_once_it_is_known(
    hub: HubProcess, tmp_path: Path
) -> None:
    site = Cluster(hub, tmp_path)
    for job in ("200", "201", "202"):
        site.run(job)
    site.show("200", "RUNNING", suspended_seconds=3600)
    live: dict[str, Any] = {"dry_run": False, "ends_per_hour": 2}

    def told() -> list[str]:
        steps = site.hub.records(RecordKind.TRANSITION)
        ends = [it for it in steps if it.id.endswith("-end:2")]
        return [str(it.body["snapshot"]["body"]["label"]) for it in ends]

    (tmp_path / "fails").write_text("requeue")  # it was done, and was not said to be
    with pytest.raises(SlurmError):
        site.look(END, **live)
    (tmp_path / "fails").write_text("")
    assert [call.split()[-1] for call in site.calls() if call.startswith("requeue")] == ["201"]

    left = {"job 200": EndRefusal.CHANGED, "job 201": EndRefusal.ONCE, "job 202": EndRefusal.RATE}
    found = site.look(END, **live)  # another process
    assert (found.endings, dict(found.refused), told()) == ([], left, [])
    site.show("201", "PENDING")
    for _ in range(2):
        assert site.look(END, **live).endings == []
        assert told() == ["job 201"]
