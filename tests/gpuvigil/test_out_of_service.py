"""What a node is out of service for, by its scheduler's words and by what is open against it."""

from collections.abc import Collection

import pytest

from gpuvigil.model import ScheduledNode
from gpuvigil.schedulers.out_of_service import Checks, LostTo, lost_to

ALICE, ROOT, SLURM = (f"[{who}@2026-01-31T11:00:00]" for who in ("alice", "root", "slurm"))


def told(states: str, reason: str | None = None) -> ScheduledNode:
    return ScheduledNode(name="n", states=tuple(states.split()), reason=reason)


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ("IDLE", None),
        ("MIXED", f"kept for the demo {ALICE}"),  # a reason outlives the drain
        ("ALLOCATED RESERVED", None),
        ("IDLE POWERED_DOWN", None),  # a job would wake it
        ("IDLE NOT_RESPONDING", None),  # Slurm sets it down when it lasts
        ("", "1 of its 8 GPUs are not offered"),
    ],
)
def test_a_node_that_takes_jobs_is_in_service(states: str, reason: str | None) -> None:
    assert lost_to(told(states, reason), {"gpu_xid"}, in_repair=True) is None


@pytest.mark.parametrize(
    ("states", "reason", "faults", "found"),
    [
        # Machines write of faults.
        ("DOWN NOT_RESPONDING", f"Not responding {SLURM}", (), LostTo.FAULT),
        ("IDLE DRAIN", f"Prolog error {ROOT}", (), LostTo.FAULT),
        ("IDLE DRAIN", f"NHC: check_nvidia failed {ROOT}", (), LostTo.FAULT),
        ("IDLE DRAIN", f"gpuvigil: GPU 3 fell off the bus {ROOT}", (), LostTo.FAULT),
        ("NOT_READY", "kubelet is down", (), LostTo.FAULT),
        ("IDLE FAIL", None, (), LostTo.FAULT),
        # People, too.
        ("IDLE DRAIN", f"gpu 3 xid 79 {ALICE}", (), LostTo.FAULT),
        ("IDLE DRAIN", f"RMA 4711, GPU 3 {ALICE}", (), LostTo.REPAIR),
        ("DOWN", f"waits for the vendor {ALICE}", (), LostTo.REPAIR),
        ("IDLE DRAIN", f"moved to rack 7 {ALICE}", (), LostTo.MAINTENANCE),
        ("IDLE DRAIN", f"moved to rack 7 {ALICE}", {"gpu_lost"}, LostTo.MAINTENANCE),
        # Root may be a health check.
        ("IDLE DRAIN", f"moved to rack 7 {ROOT}", (), LostTo.MAINTENANCE),
        ("IDLE DRAIN", f"moved to rack 7 {ROOT}", {"gpu_lost"}, LostTo.FAULT),
        # These states speak for themselves.
        ("IDLE MAINT", None, {"driver_silent"}, LostTo.MAINTENANCE),
        ("IDLE DRAIN REBOOT", f"gpu 3 xid 79 {ALICE}", (), LostTo.MAINTENANCE),
        ("LEAVING", "ToBeDeletedByClusterAutoscaler", (), LostTo.MAINTENANCE),
        # And of these nobody says why.
        ("DOWN", None, (), LostTo.UNKNOWN),
        ("DOWN", None, {"gpu_lost"}, LostTo.FAULT),
        ("CORDONED", None, (), LostTo.UNKNOWN),
        ("CORDONED", None, {"gpu_xid"}, LostTo.FAULT),
        ("UNKNOWN CORDONED", "Kubelet stopped posting", (), LostTo.UNKNOWN),
        ("UNKNOWN", None, (), LostTo.UNKNOWN),
    ],
)
def test_a_node_is_out_of_service_for_what_is_said_and_stands(
    states: str, reason: str | None, faults: Collection[str], found: LostTo
) -> None:
    assert lost_to(told(states, reason), faults) is found


def test_a_node_of_which_a_part_is_with_its_maker_is_in_repair_once_it_is_out_of_service() -> None:
    for reason in (None, f"gpu 3 xid 79 {ALICE}", f"Prolog error {ROOT}"):
        assert lost_to(told("IDLE DRAIN", reason), in_repair=True) is LostTo.REPAIR
    assert lost_to(told("IDLE"), in_repair=True) is None
    assert lost_to(told("IDLE MAINT"), in_repair=True) is LostTo.MAINTENANCE


def test_without_a_scheduler_only_a_fault_that_stops_all_gpus_takes_a_node_out() -> None:
    assert lost_to(None) is None
    assert lost_to(None, {"gpu_lost", "gpu_xid", "fabric_down"}) is None
    assert lost_to(None, {"driver_silent"}) is LostTo.FAULT
    assert lost_to(told("IDLE"), {"driver_not_loaded"}) is LostTo.FAULT


def test_a_sites_own_health_checks_take_nodes_out_for_faults() -> None:
    own = Checks(users=frozenset({"hcheck"}), reasons=("site:",))
    for reason in ("moved to rack 7 [hcheck@2026-01-31T11:00:00]", f"SITE: bad {ALICE}"):
        assert lost_to(told("IDLE DRAIN", reason)) is LostTo.MAINTENANCE
        assert lost_to(told("IDLE DRAIN", reason), checks=own) is LostTo.FAULT
