"""What was done to nodes, as notes on charts."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from accounting.people.roles import Person, Role
from accounting.usage.model import cluster_key
from dashboard.data import live
from dashboard.data.annotations import (
    Done,
    Note,
    align,
    bands,
    done,
    labelled,
    notes,
    sentence,
)
from dashboard.data.questions import QueryCache
from dashboard.data.snapshot import Snapshot
from dashboard.device.marks import Mark, shades, with_notes
from dashboard.device.window import Window
from gpuvigil.clock import SystemClock
from gpuvigil.config import AnalyzerSettings, Config
from gpuvigil.errors import ConfigError
from gpuvigil.matching.annotations import checked
from gpuvigil.model import (
    Acceptance,
    Act,
    Attribute,
    Audit,
    AuditedAction,
    NodeAction,
    RecordKind,
    ScheduledNode,
    Scheduler,
    Setup,
    Subject,
)
from gpuvigil.model.annotation import LONGEST, Annotation
from tests.hub.in_process import HubThread
from tests.polling import wait_until
from tests.servers import ROOT

from .scene import NOON, inventory, node

HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
START = NOON - HOUR
WINDOW = Window(start=START, end=NOON, live=False)
OTHER = Subject(cluster=node().cluster, node="n-other")


def setup(before: timedelta, driver: str, of: Subject | None = None) -> Setup:
    return Setup(node=of or node(), at=NOON - before, values={Attribute.DRIVER: driver})


def said(at: timedelta, note: str, *nodes: str, deleted: bool = False) -> Annotation:
    return Annotation(
        id=note,
        cluster=node().cluster,
        note=note,
        by="ann",
        at=NOON - at,
        nodes=nodes,
        deleted=deleted,
    )


def test_what_was_done_in_the_window_is_noted_and_nothing_else() -> None:
    setups = [setup(2 * HOUR, "550"), setup(HOUR, "555"), setup(timedelta(minutes=9), "560")]
    drained = NodeAction(incident="i", node=node(), act=Act.DRAIN, at=START - SECOND, undo="u")
    back = NodeAction(incident="i", node=node(), act=Act.RESUME, at=NOON - SECOND, undo="u")
    late = Acceptance(node=node(), by="ann", note="diag", at=NOON)
    told = Done(setups=setups, actions=[drained, back], acceptances=[late])
    found = notes(told, START, NOON)
    assert [one.label for one in found] == ["Driver 555", "Driver 560", "given back"]
    assert "Driver: 555 → 560; " in sentence(found)
    assert sentence(()) == ""
    inside = Acceptance(node=node(), by="ann", note="diag", at=NOON - SECOND)
    assert notes(Done(acceptances=[inside]), START, NOON)[0].text == "accepted by ann: diag"
    assert notes(Done(), START, NOON) == ()


def test_a_roll_out_over_several_nodes_is_one_note_at_its_begin() -> None:
    minute = timedelta(minutes=1)
    setups = [
        *(setup(2 * HOUR, "550", of) for of in (node(), OTHER)),
        *(setup(at, "555", of) for at, of in ((20 * minute, node()), (30 * minute, OTHER))),
    ]
    (one,) = notes(Done(setups=setups), START, NOON)
    assert (one.at, one.text) == (NOON - 30 * minute, "Driver: 550 → 555, on 2 nodes")
    (own,) = notes(Done(setups=setups), START, NOON, [node()])
    assert (own.at, own.text) == (NOON - 20 * minute, "Driver: 550 → 555")


def test_an_annotation_is_of_its_nodes_or_of_the_whole_cluster() -> None:
    told = Done(
        annotations=[
            said(HOUR, "whole"),
            said(SECOND, "mine", node().node),
            said(SECOND, "theirs", OTHER.node),
            said(SECOND, "wrong", deleted=True),
            said(HOUR + SECOND, "before"),
            said(timedelta(), "after"),
        ]
    )
    shown = [one.label for one in notes(told, START, NOON, [node()])]
    assert shown == ["whole", "mine"]
    assert [one.label for one in notes(told, START, NOON)] == ["whole", "mine", "theirs"]
    elsewhere = Subject(cluster="elsewhere", node=node().node)
    assert notes(told, START, NOON, [elsewhere]) == ()


def test_maintenance_is_noted_at_its_begin_and_end_and_a_fault_is_none() -> None:
    states, half = ("MAINTENANCE", "IDLE"), NOON - HOUR / 2
    look = Scheduler(
        told_by=Subject(cluster=node().cluster, node="ctl"),
        at=NOON,
        nodes=(
            ScheduledNode(name=node().node, states=states, reason="BIOS", since=half),
            ScheduledNode(name="n-2", states=("DOWN",), reason="Not responding", since=half),
        ),
        left=(ScheduledNode(name=OTHER.node, states=states, since=START - SECOND, until=half),),
    )
    told = notes(Done(schedulers=[look]), START, NOON)
    assert [one.text for one in told] == ["maintenance ended", "maintenance: BIOS"]


@pytest.mark.server
def test_the_hub_is_asked_for_one_node_or_for_all_of_its_cluster(tmp_path: Path) -> None:
    mine = [setup(2 * HOUR, "550"), setup(HOUR / 2, "555")]
    theirs = [setup(2 * HOUR, "550", OTHER), setup(HOUR / 4, "560", OTHER)]
    with HubThread(tmp_path) as process:
        hub = process.hub()
        hub.write_records([one.to_record() for one in (*mine, *theirs)])
        hub.write_records([said(SECOND, "deploy").to_record()])
        cluster = done(hub, node().cluster, START, NOON)
        own = done(hub, node().cluster, START, NOON, OTHER)
    shown = [one.label for one in notes(cluster, START, NOON)]
    assert shown == ["Driver 555", "Driver 560", "deploy"]
    assert [one.label for one in notes(own, START, NOON)] == ["Driver 560", "deploy"]
    assert said(SECOND, "deploy").to_record().subject == cluster_key(node().cluster)


def test_only_the_newest_are_said_and_how_many_came_before_them() -> None:
    many = [Note(at=NOON, label=f"{n}", text=f"<{n}>") for n in range(9)]
    assert sentence(many[1:]).startswith("Done in this time: 12:00:00 UTC on 31 Jan: <1>; ")
    assert "1 more, then" in sentence(many)
    assert "<0>" not in sentence(many)


def test_the_first_of_several_notes_has_the_words() -> None:
    two = [Note(at=NOON, label="a", text="a"), Note(at=NOON + SECOND, label="b", text="b")]
    assert list(labelled(two, (), SECOND, START)) == [(NOON, "a"), (NOON + SECOND, "")]
    assert list(labelled(two, (), SECOND / 2, START)) == [(NOON, "a"), (NOON + SECOND, "b")]


def test_words_at_an_end_of_the_chart_stand_beside_their_line() -> None:
    shares = {0.0: "left", 0.149: "left", 0.15: "center", 0.85: "center", 0.851: "right"}
    for share, side in shares.items():
        assert align(START + share * HOUR, START, NOON) == side


def test_where_a_note_is_close_to_an_event_the_event_has_the_words() -> None:
    setups = [setup(2 * HOUR, "1"), setup(HOUR / 2, "2" * 40)]
    (note,) = notes(Done(setups=setups), START, NOON)
    near = Mark(at=note.at + HOUR * 0.09, label="Xid 79", good=False)
    far = Mark(at=note.at + HOUR * 0.091, label="Xid 79", good=False)
    assert [mark.label for mark in with_notes([near], [note], WINDOW)] == ["", "Xid 79"]
    first, _ = with_notes([far], [note], WINDOW)
    assert first.good
    assert len(first.label) == 24
    assert first.label.startswith("Driver 222")


def lasting(begin: timedelta, end: timedelta) -> Annotation:
    """From so long before noon until so long before it."""
    return replace(said(begin, "maintenance"), until=NOON - end)


def test_what_lasts_is_a_band_as_far_as_it_is_in_the_chart() -> None:
    half = HOUR / 2
    for one, band in (
        (lasting(2 * HOUR, half), [(START, NOON - half)]),
        (lasting(half, -HOUR), [(NOON - half, NOON)]),
        (lasting(2 * HOUR, HOUR - SECOND), [(START, START + SECOND)]),
    ):
        (note,) = notes(Done(annotations=[one]), START, NOON)
        assert list(bands([note], START, NOON)) == band
        (shade,) = shades((), WINDOW, NOON, [note])
        assert (shade.start, shade.end, shade.severity) == (*band[0], None)
        (mark,) = with_notes((), [note], WINDOW)
        assert (mark.at, mark.label) == (band[0][0], "maintenance")
    assert notes(Done(annotations=[lasting(2 * HOUR, HOUR + SECOND)]), START, NOON) == ()
    (moment,) = notes(Done(annotations=[said(half, "deploy")]), START, NOON)
    assert list(bands([moment], START, NOON)) == []
    (long,) = notes(Done(annotations=[lasting(half, SECOND)]), START, NOON)
    assert "11:30:00 UTC on 31 Jan to 11:59:59 UTC on 31 Jan: maintenance" in sentence([long])


def test_an_annotation_that_lasts_is_kept_as_it_was_said() -> None:
    one = lasting(HOUR, SECOND)
    assert Annotation.from_record(one.to_record()) == one
    assert Annotation.from_record(said(HOUR, "deploy").to_record()).until is None


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({}, ""),
        ({"until": NOON + SECOND}, ""),
        ({"until": NOON}, "ends after it begins"),
        ({"until": NOON + LONGEST}, ""),
        ({"until": NOON + LONGEST + SECOND}, "within 30 days"),
        ({"nodes": (node().node,)}, ""),
        ({"nodes": ("n-9",)}, "no node n-9"),
        ({"cluster": "elsewhere"}, "no cluster elsewhere"),
        ({"note": ""}, "say what was done"),
        ({"by": ""}, "somebody's name"),
    ],
)
def test_what_is_wrong_with_an_annotation_is_said(changed: dict[str, Any], wrong: str) -> None:
    one = replace(said(timedelta(), "deploy"), **changed)
    known = [(node().cluster, node().node)]
    if not wrong:
        assert checked(one, known) == one
        return
    with pytest.raises(ConfigError, match=wrong):
        checked(one, known)


@pytest.mark.server
def test_an_operator_annotates_on_a_page_and_takes_it_back(tmp_path: Path) -> None:
    ann = Person(name="ann", role=Role.OPERATOR, way="password")
    with HubThread(tmp_path) as process:
        hub = process.hub()
        hub.write_records([inventory(node(), at=SystemClock().now()).to_record()])
        snapshot = Snapshot(process.hub, SystemClock(), AnalyzerSettings(), 0.2)
        questions = QueryCache(process.hub, SystemClock())
        people = live.People(asker=lambda: ann)
        live.install(
            live.Shared(snapshot=snapshot, questions=questions, config=Config(), people=people)
        )
        snapshot.start()
        wait_until("the node", lambda: snapshot.view().clusters)
        page = AppTest.from_file(str(ROOT / "dashboard/pages/node.py"), default_timeout=60)
        page.session_state["runs"] = 1
        page.query_params["cluster"], page.query_params["node"] = node().cluster, node().node
        page.run()
        what, where, begin, end = page.text_input
        assert where.value == node().node
        what.set_value("new BIOS")
        begin.set_value("2026-01-31T11:00:00Z")
        end.set_value("2026-01-31T10:00:00Z")
        _press(page, "Annotate")
        assert not hub.records(RecordKind.ANNOTATION)
        page.text_input[3].set_value("2026-01-31T12:00:00Z")
        _press(page, "Annotate")
        (kept,) = map(Annotation.from_record, hub.records(RecordKind.ANNOTATION))
        assert (kept.note, kept.by, kept.nodes) == ("new BIOS", "ann", (node().node,))
        assert (kept.at, kept.until) == (NOON - HOUR, NOON)
        _press(page, "Take it back")
        (kept,) = map(Annotation.from_record, hub.records(RecordKind.ANNOTATION))
        told = [Audit.from_record(one) for one in hub.records(RecordKind.AUDIT)]
        snapshot.stop()
        questions.close()
    assert kept.deleted
    assert {(one.deed, one.person, one.about) for one in told} == {
        (AuditedAction.ANNOTATION, "ann", kept.id)
    }
    assert sorted(one.detail for one in told) == [
        "deleted, signed in by password",
        "signed in by password",
    ]


def _press(page: AppTest, label: str) -> None:
    next(one for one in page.button if one.label == label).click().run()
    assert not page.exception
