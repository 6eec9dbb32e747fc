"""A return to the maker: who may have one, how far it is, and when its slot says that it is over."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from accounting.hardware.returns import can_be_returned, newest, replaced_parts, step, step_line
from analyzer.jobs.replacement_job import Replacements
from gpuvigil.model import (
    SEEN,
    SELFTEST_CLUSTER,
    GpuIdentity,
    Incident,
    Inventory,
    Record,
    RecordKind,
    Rma,
    RmaState,
    Severity,
    Subject,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
NODE = Subject(cluster="c", node="n1")
SLOT, OTHER = "00000000:1B:00.0", "00000000:43:00.0"


def incident(fault: str = "gpu_lost", cluster: str = "c") -> Incident:
    subject = Subject(cluster=cluster, node="n1", gpu="GPU-1")
    return Incident(
        id="i-1",
        fingerprint="f",
        fault=fault,
        subject=subject,
        severity=Severity.CRITICAL,
        state="open",
        title="GPU fell off the bus",
        since=NOON,
        updated_at=NOON,
        serial="s1",
        slot=SLOT,
    )


def gpu(slot: str, serial: str | None) -> GpuIdentity:
    return GpuIdentity(uuid=f"GPU-{serial}", index=0, pci_address=slot, model="H100", serial=serial)


def inventory(*gpus: GpuIdentity, node: Subject = NODE, at: datetime = NOON + HOUR) -> Inventory:
    return Inventory(subject=node, at=at, boot="b", tick_seconds=10.0, version="1", gpus=gpus)


OPEN = step(incident(), RmaState.OPEN, "alice", "case 4711", NOON)
SHIPPED = step(incident(), RmaState.SHIPPED, "bob", "", NOON + HOUR)


def test_a_step_says_whose_part_it_is_and_comes_back_as_it_was() -> None:
    assert (OPEN.serial, OPEN.slot, step_line(OPEN)) == ("s1", SLOT, "open by alice, case 4711")
    assert Rma.from_record(Record.from_json(OPEN.to_record().to_json())) == OPEN
    assert OPEN.to_record().parent == "i-1"


def test_the_newest_step_counts_in_whatever_order_they_come() -> None:
    assert newest([SHIPPED, OPEN]) == newest([OPEN, SHIPPED]) == {"i-1": SHIPPED}


def test_only_hardware_goes_back_and_nothing_of_the_selftest() -> None:
    assert can_be_returned(incident())
    assert not can_be_returned(incident("gpu_idle_held"))
    assert not can_be_returned(incident("gpu_program"))
    assert not can_be_returned(incident(cluster=SELFTEST_CLUSTER))


@pytest.mark.parametrize(
    ("here", "is_over"),
    [
        (inventory(gpu(SLOT, "s2")), True),
        (inventory(gpu(SLOT.lower(), "s2")), True),
        (inventory(gpu(SLOT, "s1")), False),
        (inventory(gpu(SLOT, None)), False),
        (inventory(), False),
        # Moved to see whether the slot or the GPU is to blame.
        (inventory(gpu(SLOT, "s2"), gpu(OTHER, "s1")), False),
        (inventory(gpu(OTHER, "s2")), False),
        (inventory(gpu(SLOT, "s2"), node=replace(NODE, node="n2")), False),
    ],
)
def test_it_is_over_when_another_one_sits_in_the_slot(here: Inventory, is_over: bool) -> None:
    found = replaced_parts([SHIPPED], here)
    assert [(one.state, one.by) for one in found] == [(RmaState.REPLACED, SEEN)] * is_over
    # Once said, it is not said again.
    assert replaced_parts(found, here) == []


def given(*records: Rma | Inventory) -> Sequence[Record]:
    return [one.to_record() for one in records]


def test_what_is_seen_waits_until_it_is_written() -> None:
    seen = Replacements()
    seen.begin(given(OPEN, SHIPPED), given(inventory(gpu(SLOT, "s1"))))
    assert list(seen.waiting) == []
    (record,) = given(inventory(gpu(SLOT, "s2"), at=NOON + 2 * HOUR))
    seen.ingest(record)
    seen.ingest(record)
    (told,) = seen.waiting
    assert (told.kind, told.parent) == (RecordKind.RMA, "i-1")
    assert told.body["note"] == f"serial s2 sits in {SLOT}, where s1 was"
    seen.written([told])
    seen.ingest(record)
    assert seen.waiting == ()


def test_what_was_replaced_while_nobody_looked_is_seen_at_the_start() -> None:
    seen = Replacements()
    seen.begin(given(OPEN), given(inventory(gpu(SLOT, "s2"))))
    assert [one.body["state"] for one in seen.waiting] == ["replaced"]
    over = Rma.from_record(seen.waiting[0])
    seen.begin(given(OPEN, over), given(inventory(gpu(SLOT, "s3"), at=NOON + 3 * HOUR)))
    assert seen.waiting == ()
    # Opened anew: the next one failed, too.
    again = replace(OPEN, at=NOON + 4 * HOUR, serial="s2")
    seen.ingest(again.to_record())
    seen.ingest(inventory(gpu(SLOT, "s3"), at=NOON + 5 * HOUR).to_record())
    assert len(seen.waiting) == 1
