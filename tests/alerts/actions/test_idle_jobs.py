"""What speaks against the end of an idle job on a site whose Slurm is three small programs."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from alerts.actions.endings import NoEnd
from alerts.past import over_since
from gpuvigil.config import IdleSettings
from gpuvigil.model import Incident, Job, Severity, Subject, fingerprint
from tests.end_to_end.idle import USER, Site
from tests.servers import HubProcess

pytestmark = pytest.mark.server

END = (IdleSettings(end_minutes=120.0, end_by="requeue"),)
LINE = "{:16}{:16}{:64}{:16}{:64}{:20}{:8}{:8}{:24}{:256}\n"
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


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub")) as process:
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
        began = str(int((self.now - timedelta(hours=6)).timestamp()))
        columns = (job, job, "N/A", "N/A", USER, "RUNNING", "1", "1", began, "(null)")
        with (self.directory / "jobs").open("a") as file:
            file.write(LINE.format(*columns))

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
    assert over_since(site.hub, site.now - 2 * hour) == [fault]

    found = site.look(END)
    assert [one.held.holder for one in found.endings] == ["job 100"]
    assert dict(found.refused) == {"job 101": NoEnd.UNTOLD, "job 102": NoEnd.EXCUSED}
    assert site.calls() == []
