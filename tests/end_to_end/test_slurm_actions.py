"""Nodes of a real Slurm are drained and given back, and what people did stays as they left it."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from alerts.actions.drain_rules import DrainRefusal
from alerts.actions.service import Actor
from alerts.actions.slurm import Slurm as Commands
from alerts.actions.slurm import SlurmError
from gpuvigil.config import ActionsSettings
from tests.alerts.actions.lost import accepted, lost_gpu
from tests.end_to_end.slurm import PROGRAMS, Slurm
from tests.polling import wait_until
from tests.servers import HubProcess

pytestmark = [pytest.mark.server, pytest.mark.site]

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
NODES = ("n1", "n2", "n3", "n4")
LIVE = ActionsSettings(enabled=True, dry_run=False, most_percent=50.0, resume=True)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    missing = [it for it in PROGRAMS if shutil.which(it) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; scripts/install-test-servers does it")
    nothing = tmp_path / "nothing.sh"
    nothing.write_text("#!/bin/sh\n")
    nothing.chmod(0o755)
    with Slurm(tmp_path / "slurm", prolog=nothing, epilog=nothing, nodes=NODES) as cluster:
        monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
        yield cluster


def test_only_what_was_drained_here_is_given_back_and_never_too_much_is_taken(
    slurm: Slurm, tmp_path: Path
) -> None:
    with HubProcess(tmp_path / "hub") as process:
        hub = process.hub()
        hub.write_records([lost_gpu(node, NOW).to_record() for node in ("n2", "n3", "n4")])
        slurm.update(state="drain", reason="new DIMMs, jo")  # of n1, by a person

        def actor(settings: ActionsSettings) -> Actor:
            return Actor(hub, Commands("", 20.0), settings, "c")

        assert len(actor(replace(LIVE, dry_run=True)).run_once(NOW).steps) == 1
        assert slurm.state("n2") == {"IDLE"}

        found = actor(LIVE).run_once(NOW)
        assert [(it.node, it.why) for it in found.refused] == [
            ("n3", DrainRefusal.SHARE),
            ("n4", DrainRefusal.SHARE),
        ]
        assert "DRAIN" in slurm.state("n2")
        assert slurm.state("n3") == {"IDLE"}
        reason = slurm.shown("n2")["Reason"]
        assert reason.startswith("gpuvigil [gpu_lost n2-1] GPU fell off the bus: PCI device: gone")
        assert not actor(LIVE).run_once(NOW).steps  # again changes nothing

        # Slurm forgets the reason of a node that a person gives back: every other process knows it by the hub.
        slurm.ask("scontrol", "update", "nodename=n2", "state=resume")
        wait_until("n2 given back", lambda: slurm.state("n2") == {"IDLE"}, 30.0)
        found = actor(LIVE).run_once(NOW)
        assert [(it.node, it.why) for it in found.refused] == [
            ("n2", DrainRefusal.RELEASED),
            ("n4", DrainRefusal.SHARE),
        ]
        assert (slurm.state("n2"), "DRAIN" in slurm.state("n3")) == ({"IDLE"}, True)
        over = replace(lost_gpu("n2", NOW), state="resolved", resolved_at=NOW, version=2)
        calm = [
            replace(lost_gpu(it, NOW), state="resolved", resolved_at=NOW, version=2) for it in NODES
        ]
        hub.write_records([over.to_record(), *(one.to_record() for one in calm)])
        assert not actor(LIVE).run_once(NOW + timedelta(hours=1)).steps
        hub.write_records([accepted("n3", NOW + timedelta(minutes=30)).to_record()])
        actor(LIVE).run_once(NOW + timedelta(hours=1))
        wait_until("n3 back", lambda: slurm.state("n3") == {"IDLE"}, 30.0)
        assert "DRAIN" in slurm.state("n1")
        assert slurm.reason.startswith("new DIMMs, jo")


def test_a_controller_that_does_not_answer_is_no_empty_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("scontrol") is None:
        pytest.skip("not installed: scontrol; scripts/install-test-servers does it")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "nowhere.conf"))
    with pytest.raises(SlurmError, match="scontrol"):
        Commands("", 20.0).machines()
    with pytest.raises(SlurmError, match=r"cannot be run.*slurm\.directory"):
        Commands(str(tmp_path), 20.0).machines()
