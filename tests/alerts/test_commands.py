"""What people type: silences, which way messages go, and whether a channel works."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from alerts.routing.notice import NoticeState, draft
from cli.silence_command import line
from gpuvigil.lifecycle import Signal
from gpuvigil.matching.silences import made
from gpuvigil.model import (
    Acceptance,
    Audit,
    AuditedAction,
    Impact,
    Inventory,
    Opinion,
    RecordKind,
    Retirement,
    Severity,
    Subject,
)
from gpuvigil.model.annotation import Annotation
from tests.alerts.actions.lost import lost_gpu
from tests.polling import wait_until
from tests.receiver import OK, Answer, Receiver
from tests.servers import ROOT, HubProcess, QuickHub

from .examples import NOON, REAL, a_transition, an_incident
from .process import AlertsProcess
from .test_service import Story

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with QuickHub(tmp_path_factory.mktemp("hub")) as process:
        yield process


def gpuvigil(*arguments: str, config: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuvigil", *arguments, "--config", str(config)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_planned_maintenance_that_was_called_off_is_listed_no_more() -> None:
    hours = timedelta(hours=1)
    planned = made(['node="n1"'], "ada", "new fans", NOON + 2 * hours, hours, NOON)
    off = planned.ended(NOON + hours)
    assert (planned.is_over(NOON + hours), off.is_over(NOON + hours)) == (False, True)
    assert "cancelled before it began" in line(off, NOON + hours)
    assert planned.is_over(NOON + 3 * hours)


ROUTES = """
[[alerts.routes]]
match = ['severity="critical"']
receivers = ["chat"]
[[alerts.routes]]
match = ['owner="bob"']
receivers = ["other"]
"""


INHIBIT = """
[[alerts.inhibit]]
by = ['fault="switch_down"']
of = ['fault="gpu_lost"']
same = ["cluster"]
"""


def test_what_is_silenced_is_not_told_and_the_way_of_each_is_explained(
    server: HubProcess, tmp_path: Path
) -> None:
    with Receiver() as receiver:
        channel = {"url": receiver.url}
        alerts = AlertsProcess(server, tmp_path, chat=channel, other=channel)
        alerts.config.write_text(
            alerts.config.read_text(encoding="utf-8") + ROUTES, encoding="utf-8"
        )
        config = alerts.config
        matcher, reason = 'node="sim-003"', "new cable"
        added = gpuvigil(
            "silence",
            "add",
            matcher,
            "--for",
            "4h",
            "--reason",
            reason,
            "--by",
            "ada",
            config=config,
        )
        assert added.returncode == 0, added.stderr
        id_ = added.stdout.split()[0]
        with alerts:
            story = Story(server.hub())
            story.tell(Signal.CONFIRMED)
            server.hub().write_records([story.incident()])
            wait_until("both are decided", lambda: len(story.notices()) == 2)
            larger = an_incident(id=f"larger-{story.id}", fault="switch_down")
            server.hub().write_records([larger.to_record()])
        config.write_text(config.read_text(encoding="utf-8") + INHIBIT, encoding="utf-8")
        shown = gpuvigil("alerts", "route", "--explain", story.id, config=config)
        listed = gpuvigil("silence", "list", config=config).stdout
        ended = gpuvigil("silence", "end", id_, config=config)
        none = gpuvigil("silence", "list", config=config).stdout
        story.tell(Signal.CLEARED)  # the other tests' channels would hear of it
        server.hub().write_records([story.incident(version=2)])
    assert receiver.received() == []
    assert f"{id_}  for 3 h 59 min more  {matcher}  ada: {reason}" in listed
    assert ended.returncode == 0
    assert none == "nothing is silenced\n"
    assert "route 1 to chat: yes" in shown.stdout
    assert 'route 2 to other: no, owner="bob"' in shown.stdout
    assert "channel chat (by route 1): 1 decision: 1 pending (silenced)\n" in shown.stdout
    assert "\n  suspect to open: due at" in shown.stdout
    assert "silenced: silenced by ada until" in shown.stdout
    assert f"inhibited while this is open: {larger.title} ({larger.id})" in (shown.stdout)
    assert (
        "channel other (no route leads here): 1 decision: 1 not sent (not_routed)\n"
        "  suspect to open: held: not_routed" in shown.stdout
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["silence", "add", "colour=red", "--for", "4h", "--reason", "x"], "colour"),
        (["silence", "add", "node=n1", "--for", "4y", "--reason", "x"], "4y"),
        (["silence", "end", "s-none"], "s-none"),
        (["alerts", "route", "--explain", "i-none"], "i-none"),
        (["alerts", "test", "nobody"], "nobody"),
    ],
)
def test_a_mistake_is_one_clear_line(
    server: HubProcess, tmp_path: Path, arguments: list[str], words: str
) -> None:
    config = AlertsProcess(server, tmp_path).config
    said = gpuvigil(*arguments, config=config)
    assert said.returncode == 2
    assert words in said.stderr.splitlines()[-1]
    assert "Traceback" not in said.stderr


def test_what_was_given_up_is_tried_again_when_a_person_asks_for_it(
    server: HubProcess, tmp_path: Path
) -> None:
    with Receiver() as receiver:
        receiver.answer(Answer(400))
        with AlertsProcess(server, tmp_path, mended={"url": receiver.url}) as alerts:
            story = Story(server.hub())
            story.tell(Signal.CONFIRMED)
            story.wait_for("dead")
            receiver.answer(OK)
            said = gpuvigil("alerts", "retry", "--channel", "mended", config=alerts.config)
            story.wait_for("sent")
    assert said.stdout == "retried: 1\n"


def test_all_that_a_long_outage_left_is_tried_again(tmp_path: Path) -> None:
    step = a_transition(impact=Impact(text="x" * 20_000))  # as of a rack
    dead = replace(draft(step, "long", NOON), state=NoticeState.DEAD)
    count = 1100  # too many for one body
    with QuickHub(tmp_path / "hub") as server:
        hub = server.hub()
        for begin in range(0, count, 100):
            more = (replace(dead, incident=f"i-{begin + number}") for number in range(100))
            hub.write_records([one.to_record() for one in more])
        config = AlertsProcess(server, tmp_path).config
        shown = gpuvigil("alerts", "retry", "--channel", "long", config=config)
    assert shown.stdout == f"retried: {count}\n", shown.stderr


def test_the_noisiest_rules_come_first(server: HubProcess, tmp_path: Path) -> None:
    said = [("port_down", False), ("port_down", False), ("gpu_lost", True), ("port_down", True)]
    records = [
        Opinion(
            id=f"i-{number}:x",
            incident=f"i-{number}",
            fault=fault,
            subject=REAL,
            by="ada",
            useful=useful,
            at=NOON,
        ).to_record()
        for number, (fault, useful) in enumerate(said)
    ]
    server.hub().write_records(records)
    shown = gpuvigil("alerts", "opinions", config=AlertsProcess(server, tmp_path).config)
    assert shown.stdout.splitlines() == [
        "port_down: 2 noise, 1 useful; try gpuvigil backtest --last 7d --set"
        " analyzer.port_down_seconds=60",
        "gpu_lost: 0 noise, 1 useful",
    ]


def test_a_channel_is_tested_with_a_message_and_its_end(server: HubProcess, tmp_path: Path) -> None:
    with Receiver() as receiver:
        config = AlertsProcess(server, tmp_path, chat={"url": f"{receiver.url}/s3cret"}).config
        right = gpuvigil("alerts", "test", "chat", config=config)
        statuses = [got.payload["status"] for got in receiver.received()]
        receiver.answer(Answer(403))
        wrong = gpuvigil("alerts", "test", "chat", config=config)
    assert right.returncode == 0, right.stderr
    assert statuses == ["firing", "resolved"]
    assert "delivered in" in right.stdout
    assert wrong.returncode == 1
    assert "127.0.0.1 answered 403" in wrong.stdout
    assert "s3cret" not in right.stdout + wrong.stdout + wrong.stderr


def test_severity_is_a_field_of_the_routes(server: HubProcess, tmp_path: Path) -> None:
    with Receiver() as receiver:
        alerts = AlertsProcess(
            server, tmp_path, chat={"url": receiver.url}, other={"url": receiver.url}
        )
        alerts.config.write_text(
            alerts.config.read_text(encoding="utf-8") + ROUTES, encoding="utf-8"
        )
        with alerts:
            warning, critical = Story(server.hub()), Story(server.hub())
            warning.tell(Signal.CONFIRMED, severity=Severity.WARNING)
            critical.tell(Signal.CONFIRMED)
            critical.wait_for("sent", "held")
            assert warning.wait_for("held", "held")[0].body["verdict"] == "not_routed"
        assert len(receiver.received()) == 1


def test_a_node_is_accepted_by_name_and_what_still_fires_there_is_said(
    server: HubProcess, tmp_path: Path
) -> None:
    config = AlertsProcess(server, tmp_path).config
    told = gpuvigil("node", "accept", "n7", "--note", "dcgmi diag -r 3 passed", config=config)
    assert (told.returncode, told.stdout) == (2, "")
    assert "the hub knows no node local/n7; name its cluster with --cluster" in told.stderr
    node = Subject(cluster="c", node="n7")
    inventory = Inventory(subject=node, at=NOON, boot="b", tick_seconds=10.0, version="1")
    server.hub().write_records([inventory.to_record(), lost_gpu("n7", NOON).to_record()])
    told = gpuvigil(
        *("node", "accept", "n7", "--cluster", "c", "--by", "ann"),
        *("--note", "dcgmi diag -r 3 passed"),
        config=config,
    )
    assert told.returncode == 0
    said, warned = told.stdout.splitlines()
    assert said.startswith("c/n7 accepted by ann at ")
    assert said.endswith(": dcgmi diag -r 3 passed")
    assert warned == (
        "still firing: GPU fell off the bus (n7-1); accept the node again once it is resolved"
    )
    record = server.hub().record(RecordKind.ACCEPTANCE, "c/n7")
    assert record is not None
    assert Acceptance.from_record(record).by == "ann"
    assert Acceptance.from_record(record).to_record() == replace(record, sequence=None)
    results, accept = (
        tmp_path / "diag.txt",
        ("node", "accept", "n7", "--cluster", "c", "--by", "bob"),
    )
    results.write_text("| Diagnostic | Result |\n| PCIe | Fail - All |\n", encoding="utf-8")
    told = gpuvigil(*accept, "--results", str(results), config=config)
    assert told.returncode == 2
    assert "c/n7 is not accepted: failed: dcgmi diag: PCIe failed" in told.stderr
    assert "say what was tested with --note" in gpuvigil(*accept, config=config).stderr
    table = "+---+---+\n| Diagnostic | Result |\n+===+===+\n| PCIe | Pass - All |\n+---+---+\n"
    results.write_text(f"Successfully ran diagnostic for group.\n{table}", encoding="utf-8")
    told = gpuvigil(*accept, "--results", str(results), config=config)
    assert ": dcgmi diag: 1 test passed" in told.stdout
    record = server.hub().record(RecordKind.ACCEPTANCE, "c/n7")
    assert record is not None
    assert (record.body["by"], record.body["tested"]) == ("bob", True)


def test_a_dead_node_is_retired_by_name_and_one_that_reports_is_not(
    server: HubProcess, tmp_path: Path
) -> None:
    config, hub = AlertsProcess(server, tmp_path).config, server.hub()
    for name in ("dead", "alive"):
        node = Subject(cluster="c", node=name)
        inventory = Inventory(subject=node, at=NOON, boot="b", tick_seconds=10.0, version="1")
        hub.write_records([inventory.to_record()])
    headers = {
        "Gpuvigil-Cluster": "c",
        "Gpuvigil-Node": "alive",
        "Gpuvigil-Boot": "b",
        "Gpuvigil-Lane": "live",
        "Gpuvigil-Sequence": "1",
    }
    line = b"gpu,cluster=c,node=alive,uuid=GPU-1,model=H utilization_percent=1\n"
    assert hub.request("POST", "/api/v2/write", line, headers=headers).status == 204
    told = gpuvigil("node", "retire", "alive", "--cluster", "c", config=config)
    assert (told.returncode, told.stdout) == (2, "")
    assert "stop its collector before you retire it" in told.stderr
    assert hub.record(RecordKind.RETIREMENT, "c/alive") is None
    retire = ("node", "retire", "dead", "--cluster", "c", "--by", "ann", "--note", "sold")
    told = gpuvigil(*retire, config=config)
    assert told.returncode == 0
    assert told.stdout.startswith("c/dead retired by ann at ")
    record = hub.record(RecordKind.RETIREMENT, "c/dead")
    assert record is not None
    assert Retirement.from_record(record).to_record() == replace(record, sequence=None)


def test_an_annotation_is_added_for_known_nodes_listed_and_taken_off_the_charts(
    server: HubProcess, tmp_path: Path
) -> None:
    config, hub = AlertsProcess(server, tmp_path).config, server.hub()
    headers = {"Gpuvigil-Cluster": "c", "Gpuvigil-Boot": "b", "Gpuvigil-Lane": "live"}
    for name in ("a1", "a2"):
        line = f"gpu,cluster=c,node={name},uuid=GPU-{name},model=H utilization_percent=1\n"
        given = {**headers, "Gpuvigil-Node": name, "Gpuvigil-Sequence": "1"}
        assert hub.request("POST", "/api/v2/write", line.encode(), headers=given).status == 204
    add = ("annotation", "add", "driver 580", "--cluster", "c", "--by", "ann")
    unknown = gpuvigil(*add, "--nodes", "a[1-3]", config=config)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "the hub knows no node a3 in cluster c" in unknown.stderr
    other = gpuvigil("annotation", "add", "x", "--nodes", "a1", config=config)
    assert "no node a1 in cluster local; there is one in cluster c" in other.stderr
    nowhere = gpuvigil("annotation", "add", "x", "--cluster", "d", config=config)
    assert "the hub knows no cluster d" in nowhere.stderr
    when = ("--at", "2026-11-27T08:00:00Z")
    told = gpuvigil(*add, "--nodes", "a[1-2]", *when, config=config)
    assert told.returncode == 0
    id_, rest = told.stdout.rstrip().split("  ", 1)
    assert rest == "08:00:00 UTC on 27 Nov  c/a1,a2  ann: driver 580"
    assert gpuvigil("annotation", "list", config=config).stdout == told.stdout
    record = hub.record(RecordKind.ANNOTATION, id_)
    assert record is not None
    assert Annotation.from_record(record).to_record() == replace(record, sequence=None)
    assert gpuvigil("annotation", "delete", id_, config=config).stdout == f"{id_} is deleted\n"
    assert gpuvigil("annotation", "list", config=config).stdout == "no annotations\n"
    again = gpuvigil("annotation", "delete", id_, config=config)
    assert (again.returncode, again.stdout) == (2, "")
    entries = map(Audit.from_record, hub.records(RecordKind.AUDIT))
    details = [
        one.detail for one in entries if (one.deed, one.about) == (AuditedAction.ANNOTATION, id_)
    ]
    assert [one.startswith("deleted") for one in details] == [False, True]
