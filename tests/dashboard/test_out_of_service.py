"""Nodes that are out of service, and the handover of a shift: pure."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from dashboard.handover.page import body, end_of
from dashboard.handover.summary import SHIFT, Records, sentence, shift
from dashboard.out_of_service import drawing
from dashboard.out_of_service.rows import OutOfServiceRecords, Silent, rows, ticket, unknown
from gpuvigil.model import (
    Acceptance,
    Acknowledgement,
    Act,
    Incident,
    NodeAction,
    Retirement,
    Rma,
    RmaState,
    ScheduledNode,
    Scheduler,
    Severity,
    Silence,
)
from gpuvigil.model.annotation import Annotation
from gpuvigil.schedulers.out_of_service import LostTo
from gpuvigil.web.page_links import handover_page

from .scene import NOON, allocation, gpu, incident, inventory, node
from .test_incidents_page import _all, texts

N1, N2 = node("n1", "lab"), node("n2", "lab")
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
DRAINED = "bad fan OPS-12 [ada@2026-01-31T11:00:00]"


def known(*nodes: ScheduledNode, **values: Any) -> OutOfServiceRecords:
    scheduler = Scheduler(told_by=node("ctl", "lab"), at=NOON, nodes=nodes)
    given: dict[str, Any] = {"schedulers": (scheduler,), **values}
    return OutOfServiceRecords(inventories=(inventory(N1), inventory(N2)), **given)


def drained(reason: str | None = DRAINED, state: str = "DRAIN", name: str = "n1") -> ScheduledNode:
    return ScheduledNode(name=name, states=("IDLE", state), reason=reason)


@pytest.mark.parametrize("reason", [DRAINED, DRAINED.replace("]", "Z]")])
def test_a_drained_node_is_told_with_all_that_its_reason_says(reason: str) -> None:
    (row,) = rows(known(drained(reason)))
    assert (row.node, row.gpus, row.lost_to) == (N1, 8, LostTo.MAINTENANCE)
    assert (row.who, row.ticket) == ("ada", "OPS-12")
    assert row.since == NOON - HOUR
    assert row.step == "give it back when the work is done"


def test_every_cell_names_its_column_so_that_a_phone_needs_no_head() -> None:
    (row,) = rows(known(drained(None, "CORDONED")))
    tree: list[Any] = ["div", {}, *drawing.table([row], NOON)]
    cells = [node for node in _all(tree) if node[0] == "td"]
    heads = [node[2] for node in _all(tree) if node[0] == "th" and node[1]["scope"] == "col"]
    assert [cell[1]["data-name"] for cell in cells] == heads[1:]
    empty = {cell[1]["data-name"] for cell in cells if cell[1].get("class") == "none"}
    assert empty == {"Jobs", "Who", "Ticket"}  # a phone leaves them out


def test_what_nobody_said_is_not_known() -> None:
    (row,) = rows(known(drained(None, "CORDONED")))
    assert (row.since, row.who, row.ticket, row.lost_to) == (None, "", "", LostTo.UNKNOWN)
    said = texts(["div", {}, *drawing.table([row], NOON)])
    assert "not known" in said
    assert row.step == "find out who took it out, and why"
    assert rows(known()) == []
    assert drawing.sentence([]) == "No node is out of service."


@pytest.mark.parametrize(
    ("after", "step"),
    [
        (-SECOND, "give it back when the work is done"),
        (SECOND, "accepted: give it back to its scheduler: scontrol update nodename=n1"),
    ],
)
def test_an_acceptance_counts_from_when_the_node_went_out(after: timedelta, step: str) -> None:
    accepted = Acceptance(node=N1, by="bob", note="dcgmi diag", at=NOON - HOUR + after)
    (row,) = rows(known(drained(), acceptances={N1.key: accepted}))
    assert row.step.startswith(step)
    assert "by bob: dcgmi diag" in texts(["div", {}, *drawing.table([row], NOON)])


def test_a_fault_that_stands_comes_before_everything_but_a_return_of_a_part() -> None:
    lost = replace(
        incident("gpu_lost", gpu(0, N1), Severity.CRITICAL), action="Drain it.", since=NOON - HOUR
    )
    (row,) = rows(known(drained("gpuvigil: lost"), incidents=(lost,)))
    assert (row.lost_to, row.step, row.incident) == (LostTo.FAULT, "Drain it.", lost)
    part = Rma(
        incident=lost.id,
        subject=lost.subject,
        state=RmaState.SHIPPED,
        by="ann",
        at=NOON,
        note="case 4711",
    )
    (row,) = rows(known(drained("gpuvigil: lost"), incidents=(lost,), rmas=(part,)))
    assert row.step == "wait for the replacement (shipped by ann, case 4711)"
    assert (row.ticket, row.lost_to) == ("case 4711", LostTo.REPAIR)
    back = replace(part, state=RmaState.REPLACED, at=NOON + SECOND)
    (row,) = rows(known(drained("gpuvigil: lost"), rmas=(part, back)))
    assert row.step.startswith("test it, then gpuvigil node accept")


INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL


@pytest.mark.parametrize(
    ("severity", "after", "step"),
    [
        # A note, and a warning that whoever accepted the node knew.
        (INFO, SECOND, "accepted: give it back"),
        (WARNING, -SECOND, "accepted: give it back"),
        (WARNING, SECOND, "Look."),
        # With a critical fault it is not fit.
        (CRITICAL, -SECOND, "Look."),
    ],
)
def test_an_accepted_node_is_given_back_but_with_a_new_warning_or_a_critical_fault(
    severity: Severity, after: timedelta, step: str
) -> None:
    at = NOON - HOUR / 2
    one = replace(incident("gpu_hot", gpu(0, N1), severity), action="Look.", since=at + after)
    accepted = Acceptance(node=N1, by="bob", note="dcgmi diag", at=at)
    (row,) = rows(known(drained(), incidents=(one,), acceptances={N1.key: accepted}))
    assert row.step.startswith(step)


@pytest.mark.parametrize(("severity", "step"), [(INFO, "give it back when"), (WARNING, "Look.")])
def test_in_maintenance_a_note_is_no_next_step(severity: Severity, step: str) -> None:
    one = replace(incident("gpu_hot", gpu(0, N1), severity), action="Look.", since=NOON)
    (row,) = rows(known(drained(), incidents=(one,)))
    assert row.step.startswith(step)


def test_what_gpuvigil_drained_is_its_own_and_the_longest_wait_comes_first() -> None:
    ours = NodeAction(incident="i", node=N2, act=Act.DRAIN, at=NOON - 2 * HOUR, undo="u")
    here = known(drained(), drained("gpuvigil: lost", name="n2"), actions=(ours,))
    assert [(row.node.node, row.who) for row in rows(here)] == [("n2", "gpuvigil"), ("n1", "ada")]
    said = drawing.sentence(rows(here))
    assert said == (
        "2 nodes out of service with 16 GPUs: 1 fault, 1 maintenance. n2 has waited longest."
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see #4711", "#4711"),
        ("INC0012345: fan", "INC0012345"),
        ("fan, ticket 99", "ticket 99"),
        ("GPU 3 is bad", ""),
        ("gpu-3 fell off the bus", ""),
        ("Xid-79 in rack-4, XID-79, RACK-4", ""),
        ("GPU-3f2a-11 and GPU-3, UTF-8, H100-80, A100-80GB", ""),
        ("DGX-01 in DC1-7: see OPS-12.", "OPS-12"),
        ("GPU-3, Ticket 99", "Ticket 99"),
        ("RMA 77", "RMA 77"),
        ("", ""),
    ],
)
def test_a_ticket_is_found_in_a_reason(text: str, found: str) -> None:
    assert ticket(text, {"DGX-01", "DC1-7"}) == found


def test_where_no_scheduler_answers_it_is_said() -> None:
    assert "No scheduler is connected" in unknown(OutOfServiceRecords())[0]
    silent = Scheduler(told_by=node("ctl", "lab"), at=NOON, nodes=None, why="timeout")
    assert unknown(OutOfServiceRecords(schedulers=(silent,))) == [
        "The scheduler of lab does not answer: timeout."
    ]
    assert unknown(known(drained())) == []


def opened(ago: timedelta, name: str, ended: timedelta | None = None, **values: Any) -> Incident:
    one = incident("gpu_lost", gpu(0, N1), Severity.CRITICAL, state="resolved" if ended else "open")
    over = None if ended is None else NOON - ended
    return replace(one, id=name, since=NOON - ago, resolved_at=over, **values)


def test_a_shift_is_twelve_hours_of_what_opened_ended_and_stands() -> None:
    told = Records(
        incidents=(
            opened(SHIFT - SECOND, "just within"),
            opened(SHIFT, "just before"),
            opened(2 * SHIFT, "ended", SHIFT - SECOND),
            opened(2 * SHIFT, "ended before", SHIFT),
            opened(2 * SHIFT, "explained", HOUR, covered_by="f"),
            opened(HOUR + SECOND, "opened and explained", HOUR, covered_by="f"),
            opened(HOUR, "taken", acknowledged_by="ann"),
            replace(opened(HOUR, "suspicion"), state="suspect"),
        )
    )
    found = shift(told, NOON)
    assert [one.id for one in found.opened] == ["taken", "just within"]
    assert [one.id for one in found.ended] == ["ended"]
    assert [one.id for one in found.still_open] == ["just before", "just within", "taken"]
    assert sentence(found) == "2 opened, 1 ended, 3 still open, 2 not acknowledged."
    # An hour before it was as it was then.
    assert [one.id for one in shift(told, NOON - 2 * HOUR).opened] == ["just within", "just before"]


def said(note: str, at: datetime, *nodes: str) -> Annotation:
    return Annotation(id=note, cluster="c", note=note, by="ann", at=at, nodes=nodes)


def test_everything_that_somebody_did_is_told_once_and_newest_first() -> None:
    def at(minutes: int) -> datetime:
        return NOON - timedelta(minutes=minutes)

    lost = opened(HOUR, "i")
    given = {"incident": "i", "subject": lost.subject, "by": "ann"}
    told = Records(
        acknowledgements=(
            Acknowledgement(id="1", note="", at=at(60), **given),  # type: ignore[arg-type]
            Acknowledgement(id="2", note="shift ends", to="ben", at=at(50), **given),  # type: ignore[arg-type]
            Acknowledgement(id="3", note="too old", at=NOON - SHIFT, **given),  # type: ignore[arg-type]
        ),
        actions=(NodeAction(incident="i", node=N1, act=Act.DRAIN, at=at(40), undo="u"),),
        rmas=(Rma(state=RmaState.OPEN, at=at(30), note="case 1", **given),),  # type: ignore[arg-type]
        acceptances=(Acceptance(node=N1, by="bob", note="diag passed", at=at(20)),),
        retirements=(Retirement(node=N2, by="bob", note="", at=at(10)),),
        annotations=(
            said("BIOS update", at(4), "n1"),
            said("deploy", at(3)),
            replace(said("a mistake", at(2)), deleted=True),
        ),
        silences=(
            Silence(
                id="s",
                matchers=('node="n1"',),
                by="cid",
                reason="cabling",
                at=at(5),
                starts_at=at(5),
                ends_at=NOON + HOUR,
            ),
        ),
    )
    found = shift(told, NOON)
    assert [(one.who, one.text) for one in found.done] == [
        ("ann", "deploy in cluster c"),
        ("ann", "BIOS update on n1"),
        ("cid", 'silenced node="n1": cabling'),
        ("bob", "retired n2"),
        ("bob", "accepted n1: diag passed"),
        ("ann", "return to the maker: open by ann, case 1"),
        ("gpuvigil", "drained n1"),
        ("ann", "handed over to ben: shift ends"),
        ("ann", "took it"),
    ]
    assert 'node="n1"' in texts(["div", {}, *body(found, {})])


def test_a_link_to_a_shift_shows_the_same_tomorrow() -> None:
    assert handover_page(NOON) == "/handover?to=2026-01-31T12%3A00%3A00Z"
    assert end_of("", NOON) == (NOON, "")
    assert end_of("2026-01-31T11:00:00Z", NOON) == (NOON - HOUR, "")
    assert end_of("2027-01-31T11:00:00Z", NOON)[0] == NOON
    assert "cannot be read" in end_of("yesterday", NOON)[1]
    assert end_of("", datetime(2026, 1, 1, tzinfo=timezone.utc))[1] == ""


def test_a_node_that_nobody_hears_from_is_listed_with_whose_jobs_and_what_to_do() -> None:
    held = [allocation(gpu(n, N2), "job 7", user="ann") for n in (0, 1)]
    silent = Silent(node=N2, gpus=8, heard_at=NOON - HOUR)
    never = Silent(node=node("n3", "lab"), gpus=0, heard_at=None)
    here = known(silent=(silent, never), allocations=held)
    first, second = rows(here)
    assert (first.node, first.lost_to, first.since, len(first.jobs)) == (N2, None, NOON - HOUR, 1)
    assert "gpuvigil collect" in first.step
    assert (second.node.node, second.since) == ("n3", None)
    said = texts(["div", {}, *drawing.table([first, second], NOON)])
    for words in ("silent", "no live data", "job 7", "ann"):
        assert words in said
    assert drawing.sentence([first]) == "1 node out of service with 8 GPUs: 1 silent."
    # What its incident says counts, and a node with a reason of its own is listed once, for that.
    told = replace(incident("node_silent", N2, Severity.WARNING), action="Look.", since=NOON)
    (row,) = rows(known(silent=(silent,), incidents=(told,)))
    assert (row.step, row.incident) == ("Look.", told)
    (row,) = rows(known(drained(name="n2"), silent=(silent,)))
    assert row.lost_to is LostTo.MAINTENANCE


def test_what_opened_in_the_shift_is_marked_where_it_stands_or_ended() -> None:
    def shown(one: Incident) -> str:
        return texts(["div", {}, *body(shift(Records(incidents=(one,)), NOON), {})])

    assert "critical new" in shown(opened(SHIFT - SECOND, "within"))
    assert "critical new" not in shown(opened(SHIFT, "before"))
    assert "critical new" in shown(opened(SHIFT - SECOND, "within", HOUR))
    assert "Opened" not in shown(opened(SHIFT - SECOND, "within"))
