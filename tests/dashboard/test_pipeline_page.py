"""Whether the pages can be trusted: the verdict and everything behind it; pure."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from dashboard.fleet import clusters
from dashboard.pipeline import drawing
from dashboard.pipeline.hub_queries import WINDOW, Sources
from dashboard.pipeline.view import Level, PipelineView, pipeline
from gpuvigil import __version__
from gpuvigil.clock import from_text, to_text
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.model import Record, RecordKind, Retirement, Severity, Subject
from hub.bodies.tables import EXTRA

from .scene import NOON, busy_fleet, gpu, incident, inventory, node, notice
from .test_incidents_page import texts

NODES = [node(f"sim-{number:03d}") for number in range(1, 5)]
MIB = 2**20
GIB = 2**30


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def body(of: Subject, at: datetime = NOON, **values: Any) -> dict[str, Any]:
    given = {"received_at": to_text(at), "offset_seconds": 0.01, "version": __version__, **values}
    return {"cluster": of.cluster, "node": of.node, **given}


def row(of: Subject, at: datetime = NOON, **values: Any) -> dict[str, Any]:
    well = {
        "driver_answering": 1,
        "driver_silent_seconds": 0.0,
        "reader_restarts": 0,
        "sweep_seconds": 0.04,
        "spool_bytes": 0,
        "spool_oldest_seconds": 0.0,
        "dropped_bodies": 0,
    }
    return {"cluster": of.cluster, "node": of.node, "at": at, **well, **values}


def span(of: Subject, samples: int = 900, **values: Any) -> dict[str, Any]:
    lately = {"dropped_bodies_increase": 0, "reader_restarts_increase": 0, **values}
    begun = NOON - WINDOW
    return {
        "cluster": of.cluster,
        "node": of.node,
        "samples": samples,
        "first_at": begun,
        "last_at": NOON,
        **lately,
    }


def pulse(name: str, at: datetime = NOON, **values: Any) -> Record:
    given = {"state": "running", "version": __version__, **values}
    return Record(kind=RecordKind.PULSE, id=name, at=at, subject=name, body=given)


ANALYZER = pulse(
    "analyzer",
    tick_seconds=10.0,
    pass_seconds=0.2,
    subjects=40,
    active=0,
    newest_at=to_text(NOON),
)
ALERTS = pulse("alerts", channels=[{"name": "ops", "last_sent_at": None}], counts={"sent": 3})
STORE: dict[str, Any] = {
    "rows": 900,
    "bytes": 4 * MIB,
    "most_bytes": 64 * GIB,
    "tables": {"gpu": 800, "node": 100},
    "dropped": {"lines": 0, "until": None},
    "damaged": [],
}
HUB: dict[str, Any] = {
    "version": __version__,
    "now": to_text(NOON),
    "sequence": 12,
    "started_at": to_text(NOON - timedelta(hours=2)),
    "store": STORE,
    "retention": {"telemetry_hours": 336.0, "rollup_days": 400.0, "records_days": 500.0},
    "queue": {"bodies": 1, "bytes": 2048, "most_bytes": 64 * MIB},
    "refused_lines": 0,
    "nodes": [body(one) for one in NODES],
}
WELL = Sources(
    now=NOON,
    status=HUB,
    nodes=tuple(row(one) for one in NODES),
    spans=tuple(span(one) for one in NODES),
    pulses=(ANALYZER, ALERTS),
    notices=(),
    inventories=tuple(inventory(one, version=__version__) for one in NODES),
)


def status(**values: Any) -> dict[str, Any]:
    return {**HUB, **values}


def said(view: PipelineView) -> str:
    return texts(
        [
            "div",
            {},
            drawing.verdict(view),
            drawing.services(view, NOON, 2.0),
            drawing.outbox(view.outboxes, view.now) or "",
            *(drawing.cluster(one, view.now) for one in view.clusters),
        ]
    )


def test_a_healthy_pipeline_can_be_trusted_and_says_its_numbers() -> None:
    view = pipeline(WELL, NOON)
    assert view.problems == ()
    assert view.verdict == "All is well: the pages can be trusted."
    text = said(view)
    for part in (
        "4 of 4 nodes",
        "100.0 % of the ticks",
        "0.0 s in the median",
        "0 clocks more than 2 s off, of 4 known",
        f"{__version__} on 4",
        "Longest sweep of GPUs 40 ms",
        "4.0 MiB of 64.0 GiB",
        "Rows kept 800 of GPUs, 100 of nodes",
        "14 d of numbers, 400 d of roll-ups, 500 d of records",
        "2.0 KiB of 64.0 MiB",
        "every 10 s",
        "0.20 s",
        "Messages since its start 3 sent",
        "ops",
    ):
        assert part in text, part


def test_what_rows_are_kept_of_is_said_in_words_for_every_measurement() -> None:
    assert drawing.KEPT_OF.keys() == {*MEASUREMENTS, EXTRA}
    none = {**STORE, "tables": {"gpu": 0, "node": 5}}
    assert "Rows kept 5 of nodes Keeps" in said(
        pipeline(replace(WELL, status=status(store=none)), NOON)
    )
    empty = {**STORE, "tables": {"gpu": 0}}
    assert "Rows kept none" in said(pipeline(replace(WELL, status=status(store=empty)), NOON))


def test_when_nothing_is_known_yet_nothing_is_zero() -> None:
    bare = {"version": __version__, "now": to_text(NOON), "nodes": []}
    empty = Sources(
        now=NOON, status=bare, nodes=(), spans=(), pulses=(), notices=(), inventories=()
    )
    view = pipeline(empty, NOON)
    assert "no analyzer service has ever reported" in view.verdict
    text = said(view)
    assert "Store not known" in text
    assert "Lines refused since its start not known" in text
    assert "never heard" in text
    young = {**bare, "started_at": to_text(NOON - timedelta(seconds=20))}
    first = pipeline(replace(empty, status=young), NOON)
    assert "the hub started 20 s ago, and the analyzer service has yet to report" in first.verdict
    assert first.problems[0].action == "Wait a minute."
    quiet = pipeline(replace(empty, pulses=(ANALYZER, ALERTS)), NOON)
    assert quiet.verdict == "Nothing is known yet: no collector has reported."


@pytest.mark.parametrize(("after", "missing"), [(0, 1), (-1, 0)])
def test_a_retired_node_is_missed_by_nobody_until_it_is_heard_again(
    after: int, missing: int
) -> None:
    heard_at = from_text(body(NODES[0])["received_at"])
    told = Retirement(
        node=NODES[0], by="ann", note="sold", at=heard_at + timedelta(microseconds=after)
    )
    view = pipeline(replace(WELL, retirements=(told,)), NOON)
    assert sum(len(one.nodes) for one in view.clusters) == len(NODES) - missing


def test_a_node_that_only_its_inventory_knows_has_no_numbers() -> None:
    alone = replace(WELL, status=status(nodes=[]), nodes=(), spans=())
    (cluster,) = pipeline(alone, NOON).clusters
    assert cluster.coverage_percent is None
    assert cluster.lag_seconds is None
    text = texts(drawing.cluster(cluster, NOON))
    assert "0 of 4 nodes" in text
    assert "silent ever since" in text
    assert "Age of newest data not known" in text
    assert "Waiting to be sent not known" in text
    assert "Driver does not answer not known" in text


def test_what_waits_in_memory_is_not_said_to_wait_on_disk() -> None:
    late = [
        row(NODES[0], spool_bytes=0, spool_oldest_seconds=12.0),
        row(NODES[1], spool_bytes=MIB, spool_oldest_seconds=400.0),
        row(NODES[2], spool_bytes=None, spool_oldest_seconds=11.0),
        row(NODES[3], spool_bytes=0, spool_oldest_seconds=drawing.SPOOL_SHOWN_SECONDS),
    ]
    text = said(pipeline(replace(WELL, nodes=tuple(late)), NOON))
    assert "Waiting to be sent 1.0 MiB on disk sim-002 1.0 MiB on disk, oldest 6 min" in text
    assert "sim-001 in memory, oldest 12 s" in text
    assert "sim-003 oldest 11 s" in text
    assert "sim-004 in memory" not in text


def test_nodes_that_are_not_heard_are_named_and_lower_the_coverage() -> None:
    long_ago = NOON - timedelta(minutes=12)
    stale = replace(
        WELL,
        status=status(nodes=[body(NODES[0], long_ago), *HUB["nodes"][1:]]),
        spans=(span(NODES[0], samples=180), *WELL.spans[1:]),
    )
    view = pipeline(stale, NOON)
    assert view.verdict.startswith(
        "Pages may be wrong: cluster simulated: 1 of 4 nodes is silent: sim-001 (for 12 min)."
    )
    (cluster,) = view.clusters
    assert cluster.coverage_percent == pytest.approx(80.0, abs=0.5)
    assert "sim-001 20 %" in said(view)


@pytest.mark.parametrize(("seconds_ago", "heard"), [(30, 4), (31, 3)])
def test_who_is_heard_is_what_every_other_page_shows(seconds_ago: int, heard: int) -> None:
    facts = busy_fleet(NODES)
    last = NOON - seconds(seconds_ago)
    facts = replace(facts, last_seen={**facts.last_seen, ("simulated", "sim-002"): last})
    view = pipeline(WELL, NOON, clusters(facts))
    assert f"Heard {heard} of 4 nodes" in said(view)
    assert ("sim-002 silent for 31 s" in said(view)) is (heard == 3)
    # The hub's answer is older than what the pages show: it is heard again.
    late = status(nodes=[body(NODES[0], NOON - seconds(60)), *HUB["nodes"][1:]])
    again = pipeline(replace(WELL, status=late), NOON, clusters(busy_fleet(NODES)))
    assert "Heard 4 of 4 nodes" in said(again)


def test_a_gap_of_the_window_lowers_the_coverage_of_a_node_that_is_heard_again() -> None:
    gap = replace(WELL, spans=(*WELL.spans[:3], span(NODES[3], samples=600)))
    (cluster,) = pipeline(gap, NOON).clusters
    assert [node.coverage_percent for node in cluster.nodes[:3]] == [100.0] * 3
    assert cluster.nodes[3].coverage_percent == pytest.approx(67, abs=0.5)


@pytest.mark.parametrize("offset", [-90.0, 2.5])
@pytest.mark.parametrize("clock", [None, "corrected", "wrong"])
def test_a_clock_that_is_wrong_is_named_and_makes_no_data_old(
    offset: float, clock: str | None
) -> None:
    first = body(NODES[0], offset_seconds=offset, clock=clock)
    # What the hub has put right has the right time.
    at = NOON + seconds(offset) if clock is None else NOON
    wrong = replace(
        WELL,
        status=status(nodes=[first, *HUB["nodes"][1:]]),
        nodes=(row(NODES[0], at), *WELL.nodes[1:]),
    )
    view = pipeline(wrong, NOON)
    assert view.verdict == (
        "Pages can be trusted, with care: cluster simulated: 1 clock more than 2 s off:"
        f" sim-001 ({offset:+.1f} s)."
    )
    assert view.clusters[0].nodes[0].lag_seconds == pytest.approx(0.0, abs=0.1)


def test_an_analyzer_that_is_dead_is_said_first_with_since_when_and_what_to_do() -> None:
    at = NOON - timedelta(minutes=4)
    dead = replace(WELL, pulses=(replace(ANALYZER, at=at), ALERTS), status=status(refused_lines=7))
    view = pipeline(dead, NOON)
    assert (
        "the analyzer service has been silent for 4 min, since 11:56:00 UTC on 31 Jan"
        in view.verdict
    )
    assert view.problems[0].action == "Check that `gpuvigil analyze` runs, and read its log."
    began_anew = {**dead.status, "started_at": to_text(NOON - timedelta(seconds=20))}
    early = pipeline(replace(dead, status=began_anew), NOON)
    assert "the hub started 20 s ago, and the analyzer service has yet to report" in early.verdict
    assert early.problems[0].action == "Wait a minute."
    assert "The hub refused 7 lines since 10:00:00 UTC" in said(view)


def test_a_slow_pass_of_the_analyzer_is_said() -> None:
    slow = pulse("analyzer", tick_seconds=10.0, pass_seconds=14.0)
    view = pipeline(replace(WELL, pulses=(slow, ALERTS)), NOON)
    assert "takes 14.0 s and is due every 10 s" in view.verdict


def test_detectors_that_fail_are_named() -> None:
    failing = pulse("analyzer", tick_seconds=10.0, failing={"gpu_hot": "KeyError('x')"})
    view = pipeline(replace(WELL, pulses=(failing, ALERTS)), NOON)
    assert "detectors fail, so their faults go unseen: gpu_hot" in view.verdict
    well = pulse("analyzer", tick_seconds=10.0, failing={})
    assert "detectors fail" not in pipeline(replace(WELL, pulses=(well, ALERTS)), NOON).verdict


def test_a_channel_that_fails_is_said_with_its_error_and_the_next_try() -> None:
    about = incident("gpu_lost", gpu(5), Severity.CRITICAL)
    failing = replace(
        notice(
            about,
            state="due",
            verdict="backing_off",
            last_error="cannot connect",
            first_due_at=to_text(NOON - timedelta(minutes=9)),
        ),
        due_at=NOON + seconds(90),
    )
    reminder = replace(notice(about, at=NOON - seconds(1), state="due"), due_at=NOON + seconds(9e3))
    given_up = notice(about, at=NOON - seconds(2), channel="old", state="dead", last_error="404")
    view = pipeline(replace(WELL, notices=(failing, reminder, given_up)), NOON)
    old, ops = view.outboxes
    assert (ops.failing, ops.later, ops.waiting, ops.dead) == (1, 1, 0, 0)
    assert (old.dead, old.configured) == (1, False)
    assert "channel old: 1 message given up: 404." in [p.text for p in view.problems]
    text = said(view)
    assert "Channel ops: 1 message waiting since 11:51:00 UTC on 31 Jan: cannot connect." in text
    assert "next try in 90 s" in text
    assert "not configured any more" in text


def test_a_backlog_waits_for_its_turn_and_not_for_its_time() -> None:
    about = incident("gpu_lost", gpu(5), Severity.CRITICAL)
    backlog = tuple(
        replace(
            notice(about, at=NOON - seconds(number), state="due", verdict="queued"),
            due_at=NOON + seconds(60 + number),
        )
        for number in range(3)
    )
    (ops,) = pipeline(replace(WELL, notices=backlog), NOON).outboxes
    assert (ops.waiting, ops.later) == (3, 0)


def test_a_message_given_up_long_ago_is_counted_and_worries_nobody() -> None:
    about = incident("gpu_lost", gpu(5), Severity.CRITICAL)
    old = notice(about, at=NOON - timedelta(days=3), state="dead", last_error="404")
    view = pipeline(replace(WELL, notices=(old,)), NOON)
    assert view.problems == ()
    assert view.outboxes[0].dead == 1


def test_a_channel_that_has_sent_nothing_says_so() -> None:
    assert " none yet" in said(pipeline(WELL, NOON)).partition("Outbox")[2]
    assert "not known" not in said(pipeline(WELL, NOON)).partition("Outbox")[2]


def test_without_a_channel_the_page_says_that_nobody_is_told_elsewhere() -> None:
    view = pipeline(replace(WELL, pulses=(ANALYZER, pulse("alerts", channels=[]))), NOON)
    assert "no channel is configured" in view.verdict
    assert said(view).count("channel is configured") == 1, "once is enough"


def test_versions_that_differ_are_named() -> None:
    mixed = replace(
        WELL,
        status=status(nodes=[body(NODES[0], version="0.0.9"), *HUB["nodes"][1:]]),
        pulses=(replace(ANALYZER, body={**ANALYZER.body, "version": "0.2.0"}), ALERTS),
    )
    texts_ = [problem.text for problem in pipeline(mixed, NOON).problems]
    assert texts_ == [
        f"the hub is {__version__}, and analyzer 0.2.0.",
        f"cluster simulated: 1 collector of another version than the hub's {__version__}:"
        " sim-001 (0.0.9).",
    ]


@pytest.mark.parametrize(
    ("values", "lately", "problem"),
    [
        ({"spool_oldest_seconds": 400.0, "spool_bytes": MIB}, {}, "1 node with data waiting"),
        ({"spool_writable": 0}, {}, "1 spool on a disk that is full or fails: "),
        ({"dropped_bodies": 9}, {"dropped_bodies_increase": 4}, "dropped in the last 15 minutes"),
        ({"driver_silent_seconds": 75.0}, {}, "the driver does not answer on 1 node"),
        ({}, {"reader_restarts_increase": 2}, "readers were replaced"),
        (
            {"load_average": 256.0, "sweep_seconds": 0.5},
            {"cpu_milliseconds_increase": 64 * 900_000},
            "1 collector with too little processor time: sim-001 (load 256 on 64 processors).",
        ),
    ],
)
def test_what_a_collector_says_against_itself_is_said_with_its_name(
    values: dict[str, Any], lately: dict[str, Any], problem: str
) -> None:
    sources = replace(
        WELL,
        nodes=(row(NODES[0], **values), *WELL.nodes[1:]),
        spans=(span(NODES[0], **lately), *WELL.spans[1:]),
    )
    (found,) = pipeline(sources, NOON).problems
    assert problem in found.text
    assert "sim-001" in found.text


@pytest.mark.parametrize(
    ("values", "lately"),
    [
        ({"load_average": 255.0, "sweep_seconds": 0.5}, {"cpu_milliseconds_increase": 57_600_000}),
        ({"load_average": 256.0, "sweep_seconds": 0.4}, {"cpu_milliseconds_increase": 57_600_000}),
        ({"load_average": 256.0, "sweep_seconds": None}, {"cpu_milliseconds_increase": 57_600_000}),
        ({"load_average": 256.0, "sweep_seconds": 0.5}, {"cpu_milliseconds_increase": None}),
        ({"load_average": 256.0, "sweep_seconds": 0.5}, {}),
        ({"sweep_seconds": 0.5}, {"cpu_milliseconds_increase": 57_600_000}),
    ],
)
def test_a_busy_machine_that_reads_its_gpus_in_time_starves_no_collector(
    values: dict[str, Any], lately: dict[str, Any]
) -> None:
    sources = replace(
        WELL,
        nodes=(row(NODES[0], **values), *WELL.nodes[1:]),
        spans=(span(NODES[0], **lately), *WELL.spans[1:]),
    )
    assert pipeline(sources, NOON).problems == ()


@pytest.mark.medium
def test_of_many_nodes_only_the_worst_are_named_with_how_many_more() -> None:
    nodes = [node(f"n{number:04d}", "lab") for number in range(1250)]
    sources = replace(
        WELL,
        status=status(nodes=[body(one, offset_seconds=3.0 + i) for i, one in enumerate(nodes)]),
        nodes=tuple(row(one) for one in nodes),
        spans=tuple(span(one) for one in nodes),
        inventories=tuple(inventory(one, version=__version__) for one in nodes),
    )
    text = said(pipeline(sources, NOON))
    assert "1,250 clocks more than 2 s off: n1249 (+1252.0 s), n1248 (+1251.0 s)" in text
    assert "and 1,247 more" in text
    assert len(text) < 6000


def test_real_and_simulated_collectors_are_never_summed() -> None:
    real = node("n1", "lab")
    both = replace(
        WELL,
        status=status(nodes=[*HUB["nodes"], body(real)]),
        inventories=(*WELL.inventories, inventory(real, version=__version__)),
    )
    found = pipeline(both, NOON).clusters
    assert [(one.name, one.simulated, len(one.nodes)) for one in found] == [
        ("lab", False, 1),
        ("simulated", True, 4),
    ]


def test_a_full_queue_is_said() -> None:
    full = status(queue={"bodies": 9, "bytes": 60 * MIB, "most_bytes": 64 * MIB})
    assert "queue is 94 % full" in pipeline(replace(WELL, status=full), NOON).verdict


def damaged(at: datetime) -> dict[str, Any]:
    row = {"at": to_text(at), "file": "/data/gpu.parquet", "reason": "checksum", "lines": 5}
    return status(store={**STORE, "damaged": [row]})


def test_a_damaged_file_is_said_as_long_as_its_numbers_would_be_kept() -> None:
    (found,) = pipeline(replace(WELL, status=damaged(NOON - timedelta(days=3))), NOON).problems
    assert found.level is Level.WRONG
    assert "set 1 damaged file aside, the last at " in found.text
    assert "/data/gpu.parquet" in found.text
    assert "`gpuvigil store verify`" in found.action
    later = pipeline(replace(WELL, status=damaged(NOON - timedelta(days=15))), NOON)
    assert later.problems == ()
    assert "Damaged files 1" in said(later)


def repaired(**values: Any) -> dict[str, Any]:
    row = {
        "at": to_text(NOON),
        "file": "/data/records.sqlite",
        "reason": "it is empty",
        "moved_to": "/data/records.sqlite.damaged-1",
        "backup_at": to_text(NOON - timedelta(hours=1)),
        "missing_since": None,
        "missing_until": None,
        "empty": False,
        **values,
    }
    return status(records={"backup_at": to_text(NOON), "repairs": [row]})


def test_repaired_records_are_said_with_what_is_missing() -> None:
    (found,) = pipeline(replace(WELL, status=repaired()), NOON).problems
    assert found.level is Level.CARE
    assert "restored from the backup of 11:00:00 UTC on 31 Jan" in found.text
    assert found.text.endswith("nothing is missing.")
    assert "/data/records.sqlite" in found.action
    span = {"missing_since": to_text(NOON - timedelta(hours=1)), "missing_until": to_text(NOON)}
    (found,) = pipeline(replace(WELL, status=repaired(**span)), NOON).problems
    assert found.level is Level.WRONG
    assert "records from 11:00:00 UTC on 31 Jan to 12:00:00 UTC on 31 Jan may be" in found.text
    (found,) = pipeline(replace(WELL, status=repaired(empty=True)), NOON).problems
    assert "there was no backup: they begin anew" in found.text
    assert "Last backup of the records 12:00:00 UTC" in said(
        pipeline(replace(WELL, status=repaired()), NOON)
    )


def test_a_full_store_that_drops_its_oldest_is_said() -> None:
    dropped = {"lines": 1200, "until": to_text(NOON - timedelta(hours=2))}
    view = pipeline(replace(WELL, status=status(store={**STORE, "dropped": dropped})), NOON)
    assert view.verdict == (
        "Pages may be wrong: the hub's store is full and has deleted its oldest 1,200 lines,"
        " up to 10:00:00 UTC on 31 Jan."
    )
    assert "Raise `hub.store_bytes`" in view.problems[0].action


def test_recent_telemetry_that_leaves_too_little_room_is_said_just_above_half() -> None:
    half = {**STORE, "most_bytes": 100 * MIB, "recent_bytes": 50 * MIB}
    assert pipeline(replace(WELL, status=status(store=half)), NOON).problems == ()
    more = {**half, "recent_bytes": 50 * MIB + 1}
    (found,) = pipeline(replace(WELL, status=status(store=more)), NOON).problems
    assert "recent telemetry alone takes more than half of hub.store_bytes" in found.text
    assert "`hub.hot_hours`" in found.action


def test_a_flood_of_new_series_is_said_with_the_worst_nodes() -> None:
    floods = [
        {"cluster": "lab", "node": f"n{i}", "refused_lines": i, "since": to_text(NOON)}
        for i in range(1, 6)
    ]
    (found,) = pipeline(replace(WELL, status=status(series={"floods": floods})), NOON).problems
    assert found.level is Level.CARE
    assert "lab/n5 (5 lines), lab/n4 (4 lines), lab/n3 (3 lines) and 2 more." in found.text
    assert "hub.series_per_node_count" in found.action


def test_the_hubs_own_retention_is_not_shown_for_numbers_that_are_elsewhere() -> None:
    view = pipeline(replace(WELL, elsewhere=True), NOON)
    text = said(view)
    assert "numbers as long as the store in [store] does, 500 d of records" in text
    assert "14 d" not in text
    lost = pipeline(replace(WELL, elsewhere=True, status=damaged(NOON)), NOON)
    assert [one.level for one in lost.problems] == [Level.CARE]


def test_what_became_of_messages_is_said_in_words() -> None:
    counts = {"due": 14, "sent": 6, "held": 1_022, "superseded": 1, "dead": 2}
    alerts = pulse("alerts", channels=[], counts=counts)
    text = said(pipeline(replace(WELL, pulses=(ANALYZER, alerts)), NOON))
    assert (
        "6 sent; 1,022 not sent, each incident says why; 1 superseded by an update; 2 given up"
        in text
    )
    assert "due 14" not in text  # what is due stands in the outbox
    young = pulse("alerts", channels=[], counts={"due": 1, "held": 0})
    view = pipeline(replace(WELL, pulses=(ANALYZER, young)), NOON)
    assert "Messages since its start none yet" in said(view)
