import json
import struct
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.data.attention import attention
from dashboard.data.flapping import flapping
from dashboard.data.fleet_map import encoded
from dashboard.data.views import FleetView, fleet_view
from dashboard.fleet import clusters, silent_nodes
from dashboard.layout.panels import attention_items, attention_title, header, ports, strip, warnings
from dashboard.model.cluster import DisplayState
from dashboard.model.delivery_status import delivery_statuses
from dashboard.model.facts import Facts, RecordCache
from dashboard.model.newest_rows import gpu_table, port_table
from dashboard.overview.deep_link import place
from gpuvigil.clock import to_text
from gpuvigil.config import AnalyzerSettings
from gpuvigil.metrics import GPU
from gpuvigil.model import (
    SELFTEST_CLUSTER,
    Event,
    EventKind,
    PortIdentity,
    Record,
    RecordKind,
    Severity,
    Subject,
)
from gpuvigil.numbers_in_words import measured, unbroken
from gpuvigil.web.markup import Html, joined, tag

from .scene import (
    LONG_AGO,
    NOON,
    allocation,
    busy_fleet,
    gpu,
    heard,
    incident,
    inventory,
    node,
    notice,
    port_row,
    pulses,
    row,
)
from .scene import port as make_port

HOSTILE = "<img src=x onerror=alert(1)>\"'&"


def view_of(facts: Facts) -> FleetView:
    return fleet_view(facts, AnalyzerSettings(), NOON)


def test_the_worst_comes_first_and_real_before_simulated() -> None:
    real = incident("port_down", node("n", "real"), Severity.INFO)
    small = incident("gpu_lost", gpu(1), Severity.CRITICAL, gpus=1)
    wide = incident("node_silent", node(), Severity.WARNING, gpus=8)
    vast = incident("node_silent", node("leaf"), Severity.WARNING, gpus=512)
    may = incident("port_flapping", node("spine"), Severity.CRITICAL, gpus=1)
    found = attention((wide, vast, may, small, real), (), NOON)
    # A warning is no critical, however many GPUs it blocks.
    assert [one.id for one in found] == [real.id, small.id, may.id, vast.id, wide.id]


def test_what_cannot_work_comes_before_what_may_suffer_and_then_the_oldest() -> None:
    suffers = incident("gpu_xid", gpu(1), Severity.CRITICAL, gpus=64)
    old = incident("gpu_lost", gpu(2), Severity.CRITICAL, since=LONG_AGO - timedelta(hours=1))
    new = incident("gpu_lost", gpu(3), Severity.CRITICAL)
    waits = incident("driver_silent", node(), Severity.CRITICAL, gpus=8)
    found = attention((suffers, new, old, waits), (), NOON)
    assert [one.id for one in found] == [waits.id, old.id, new.id, suffers.id]


def test_an_incident_says_what_where_impact_and_what_to_do() -> None:
    one = incident("gpu_lost", gpu(5), Severity.CRITICAL, label="sim-001 GPU 5", action="Drain.")
    (item,) = attention_items(view_of(replace(busy_fleet([node()]), incidents=(one,))), {})
    assert item["title"] == "gpu_lost"
    assert item["label"] == "sim-001 GPU 5"
    assert item["impact"] == [("1 GPU blocked · for 60\u00a0s", "")]
    assert item["action"] == "Drain."
    assert item["simulated"] is True
    assert item["told"] == []
    assert item["page"] == f"/incidents?incident={one.id}"
    assert item["place"].startswith(f"/gpu?cluster=simulated&node=sim-001&gpu={gpu(5).gpu}&from=")


def test_it_is_said_whom_we_told_and_why_not() -> None:
    one = incident("gpu_lost", gpu(5), Severity.CRITICAL)
    before = NOON - timedelta(seconds=4)
    notices = (
        notice(one, before),
        notice(
            one, NOON, state="held", reason="last update sent less than the update interval ago"
        ),
        notice(one, NOON, channel="pager", state="held", reason="simulated"),
        notice(one, NOON, channel="slow", state="due", reason="the receiver failed", attempts=2),
        notice(one, NOON, channel="gone", state="dead", reason="refused for good"),
    )
    assert [f"{told.channel}: {told.text}" for told in delivery_statuses(notices, NOON)] == [
        "ops: sent 4 s ago",
        "gone: could not be sent: refused for good",
        "pager: not sent: simulated",
        "slow: not sent yet: the receiver failed, 2 tries",
    ]


def test_that_no_channel_was_configured_is_not_said_once_a_channel_was_told() -> None:
    one = incident("gpu_lost", gpu(5), Severity.CRITICAL)
    none = notice(one, LONG_AGO, channel=None, state="held", reason="no channel is configured")
    assert delivery_statuses([none], NOON) == ()
    sent = notice(one, NOON - timedelta(minutes=11), number=2)
    assert [f"{t.channel}: {t.text}" for t in delivery_statuses([none, sent], NOON)] == [
        "ops: sent 11 min ago"
    ]
    later = replace(none, body={**none.body, "number": 3})
    assert [f"{t.channel}: {t.text}" for t in delivery_statuses([later, sent], NOON)] == [
        "ops: sent 11 min ago",
        "its last change was not sent: no channel is configured",
    ]


def test_a_failure_after_what_was_sent_is_said() -> None:
    one = incident("gpu_lost", gpu(5), Severity.CRITICAL)
    sent = notice(one, LONG_AGO, number=1)
    failed = notice(one, NOON, number=2, state="dead", reason="refused for good")
    held = notice(one, NOON, number=2, state="held", reason="told less than an hour ago")
    assert [t.text for t in delivery_statuses([sent, failed], NOON)] == [
        "sent 60 s ago; then could not be sent: refused for good"
    ]
    assert [t.text for t in delivery_statuses([sent, held], NOON)] == ["sent 60 s ago"]


def test_a_channel_that_fails_is_said_also_when_its_incident_is_over() -> None:
    one = incident("gpu_lost", gpu(5), Severity.CRITICAL)
    waiting = {
        "state": "due",
        "verdict": "backing_off",
        "attempts": 2,
        "last_error": "answered 503",
        "first_due_at": to_text(LONG_AGO),
        "sent_at": None,
    }
    due = NOON + timedelta(seconds=30)
    first = replace(notice(one, LONG_AGO, **waiting), due_at=due)
    second = replace(notice(one, NOON, **{**waiting, "first_due_at": to_text(NOON)}), due_at=due)
    reminder = notice(one, NOON, channel="pager", state="due", verdict="reminder", sent_at=None)
    book = RecordCache()
    book.apply([one.to_record(), first, second, reminder])
    book.apply([replace(one, state="resolved", version=2).to_record()])
    facts = book.onto(busy_fleet([node()]))
    assert facts.incidents == ()
    assert view_of(replace(facts, pulses=pulses())).failing_channels == (
        "Channel ops: 2 messages waiting since 11:59:00 UTC on 31 Jan, last error: answered 503;"
        " next try 12:00:30 UTC on 31 Jan.",
    )
    book.apply(
        [replace(one_, version=2, body={**one_.body, "state": "sent"}) for one_ in (first, second)]
    )
    assert book.onto(facts).notices == ()


def test_what_a_link_names_and_is_not_known_is_said() -> None:
    view = view_of(busy_fleet([node()], gpus=2))
    found = place(view, {"node": "sim-001", "gpu": "1"})
    assert found.gpu is not None
    assert found.unknown == ()
    for query, said in (
        ({"cluster": "x"}, "The link's cluster 'x' is not known; this is simulated."),
        ({"node": "n9", "gpu": "1"}, "The link's node 'n9' is not known in cluster simulated."),
        ({"node": "sim-001", "gpu": "7"}, "The link's GPU '7' is not known on node sim-001."),
        ({"gpu": "7"}, "The link names GPU '7', but no node."),
    ):
        assert place(view, query).unknown == (said,)
    assert place(view_of(Facts(now=NOON)), {"node": "n9"}).unknown == ()


def test_a_link_without_a_cluster_finds_its_node_in_any() -> None:
    view = view_of(busy_fleet([node("n1", "real"), node()], gpus=1))
    found = place(view, {"node": "sim-001", "gpu": "0"})
    assert found.cluster is not None
    assert found.cluster.name == "simulated"


def test_gpus_that_a_hang_hides_stand_beside_those_that_fail() -> None:
    hang = incident("driver_silent", node("a"), Severity.CRITICAL, gpus=8)
    lost = incident("gpu_lost", gpu(0, node("b")), Severity.CRITICAL)
    view = view_of(replace(busy_fleet([node("a"), node("b")]), incidents=(hang, lost)))
    numbers = view.clusters[0].strip
    assert (numbers.looks[DisplayState.FAILED], numbers.looks[DisplayState.UNKNOWN]) == (1, 8)
    text = strip(numbers)
    assert (
        '<div class="tile failed"><div class="name">Unavailable or failing</div><div class="value">1'
        in text
    )
    assert '<strong class="hung">8 of the unknown: driver hangs</strong>' in text
    hung = incident("gpu_silent", gpu(1, node("b")), Severity.CRITICAL)
    view = view_of(replace(busy_fleet([node("a"), node("b")]), incidents=(hang, hung)))
    text = strip(view.clusters[0].strip)
    assert "9 of the unknown: 8 driver hangs, 1 GPU hangs" in text


def test_of_gpus_that_nobody_knows_none_is_counted_as_well() -> None:
    facts = busy_fleet([node("a"), node("b")])
    silent = replace(facts, last_seen=heard([node("a"), node("b")], LONG_AGO))
    text = strip(view_of(silent).clusters[0].strip)
    for name in (
        "Unavailable or failing",
        "Degraded",
        "Allocated but idle",
        "GPUs allocated",
        "Power",
    ):
        assert f'<div class="name">{name}</div><div class="value">–</div>' in text
    partly = replace(facts, last_seen={**facts.last_seen, **heard([node("b")], LONG_AGO)})
    text = strip(view_of(partly).clusters[0].strip)
    assert '<div class="value">0</div><div class="below">of 8 known, 8 unknown</div>' in text


def test_power_is_told_where_limits_are_not_measured() -> None:
    facts = busy_fleet([node()], gpus=2)
    rows = [{**one, "power_limit_watts": None} for one in facts.gpus.to_pylist()]
    text = strip(view_of(replace(facts, gpus=gpu_table(rows))).clusters[0].strip)
    assert '<div class="below">limits not measured</div>' in text
    assert '<div class="name">Power</div><div class="value">–' not in text


def silences(facts: Facts) -> list[str]:
    return [line for line in view_of(facts).warnings if "service" not in line]


@pytest.mark.parametrize(
    ("silent", "told"),
    [(3, "3 nodes are not reporting"), (4, "gpuvigil receives no data from 4 of 8")],
)
def test_nodes_that_stop_together_point_at_the_way_to_gpuvigil(silent: int, told: str) -> None:
    nodes = [node(f"n{number}") for number in range(8)]
    facts = busy_fleet(nodes)
    facts = replace(facts, last_seen={**facts.last_seen, **heard(nodes[:silent], LONG_AGO)})
    (warning,) = silences(facts)
    assert warning.startswith(told)
    assert warning.endswith(f" The state of {8 * silent} GPUs is unknown.")


@pytest.mark.parametrize("silent", [1, 4])
def test_nodes_that_have_not_sent_to_a_hub_that_just_started_are_not_called_silent(
    silent: int,
) -> None:
    nodes = [node(f"n{number}") for number in range(8)]
    facts = busy_fleet(nodes)
    facts = replace(facts, last_seen={**facts.last_seen, **heard(nodes[:silent], LONG_AGO)})
    young = replace(facts, listening_since=NOON - timedelta(seconds=12))
    (warning,) = silences(young)
    assert warning.startswith(
        f"The hub started 12 s ago: {silent} of 8 nodes of cluster simulated have yet to send data. "
    )
    since = NOON - timedelta(seconds=50)
    again = {**facts.last_seen, **heard(nodes[:silent], since)}
    for late in (
        replace(facts, listening_since=NOON - timedelta(seconds=61)),
        replace(facts, last_seen=again, listening_since=since - timedelta(seconds=1)),
    ):
        (warning,) = silences(late)
        assert "yet to send" not in warning


def test_a_silent_node_that_is_named_leads_to_its_page() -> None:
    nodes = [node(name) for name in ("n1", "n10", "n2")]
    facts = busy_fleet(nodes)
    facts = replace(facts, last_seen={**facts.last_seen, **heard([nodes[0], nodes[1]], LONG_AGO)})
    drawn = warnings(view_of(facts))
    for name in ("n1", "n10"):
        assert f'<a href="/node?cluster=simulated&amp;node={name}">{name}</a>' in drawn
    assert "node=n2" not in drawn


def test_nodes_that_died_one_after_the_other_are_named_and_so_is_a_rack() -> None:
    nodes = [node(f"n{number}") for number in range(8)]
    facts = replace(busy_fleet(nodes), listening_since=NOON - timedelta(days=9))
    died = {("simulated", f"n{number}"): NOON - timedelta(days=number) for number in range(1, 6)}
    (warning,) = silences(replace(facts, last_seen={**facts.last_seen, **died}))
    assert warning.startswith("5 nodes are not reporting in cluster simulated: n1 (")
    racked = tuple(inventory(one, 8, "a" if one in nodes[:4] else "b") for one in nodes)
    dark = replace(
        facts, inventories=racked, last_seen={**facts.last_seen, **heard(nodes[:4], LONG_AGO)}
    )
    (warning,) = silences(dark)
    assert warning.startswith("4 nodes are not reporting")


def test_what_flaps_says_how_it_is_now_and_when_it_closes() -> None:
    here = Subject(cluster="simulated", node="sim-001", device="eth0", port="1")
    one = incident("port_down", here, Severity.WARNING, state="flapping")
    last = Event(kind=EventKind.PORT_UP, subject=here, at=NOON - timedelta(minutes=11), id="e")
    settings = AnalyzerSettings()
    up = "up again, quiet for 11 min; closes after 30 quiet minutes"
    assert flapping(one, "up", last, settings, NOON) == up
    assert flapping(one, "down", last, settings, NOON).startswith("down for 11 min now; closes")
    assert flapping(one, "unknown", last, settings, NOON).startswith("port unknown now; closes")
    counted = replace(one, fault="port_flapping", state="open")
    assert (
        flapping(counted, "up", None, settings, NOON)
        == "port up now; closes after 61 quiet minutes"
    )
    assert flapping(replace(one, state="open"), "up", last, settings, NOON) == ""
    ports = (make_port("eth0", True),)
    facts = replace(
        busy_fleet([node()]),
        inventories=(inventory(node(), ports=ports),),
        ports=port_table([port_row(node(), "eth0", 1)]),
    )
    book = RecordCache()
    book.apply([one.to_record(), last.to_record(), inventory(node(), ports=ports).to_record()])
    (item,) = attention_items(view_of(replace(book.onto(facts), pulses=pulses())), {})
    assert item["impact"][-1][0].endswith(f"flapping: {unbroken(up)}")


def test_what_was_told_before_it_came_back_does_not_count() -> None:
    one = incident("gpu_lost", gpu(5), Severity.CRITICAL)
    before = (
        notice(one, LONG_AGO, number=1, kind="fired"),
        notice(one, LONG_AGO, number=2, kind="resolved"),
    )
    assert delivery_statuses(before, NOON) == ()
    again = notice(one, NOON, number=3, kind="fired", state="due", reason="the receiver failed")
    assert [told.text for told in delivery_statuses((*before, again), NOON)] == [
        "not sent yet: the receiver failed"
    ]


def test_simulated_incidents_are_counted_by_themselves() -> None:
    simulated = incident("gpu_lost", gpu(5), Severity.CRITICAL)
    real = incident("port_down", node("n", "real"), Severity.WARNING)
    facts = busy_fleet([node()])
    for incidents, said in (
        ((), "nothing"),
        ((simulated,), "1 simulated"),
        ((simulated, real), "1 + 1 simulated"),
    ):
        view = view_of(replace(facts, incidents=incidents))
        assert f"<small>{said}</small>" in attention_title(view)


def test_all_is_quiet_when_everybody_reports() -> None:
    assert view_of(busy_fleet([node()])).warnings == ()


def test_a_node_that_stopped_reporting_is_named_with_its_gpus() -> None:
    facts = busy_fleet([node("a"), node("b")])
    (warning,) = view_of(
        replace(facts, last_seen={**facts.last_seen, ("simulated", "b"): LONG_AGO})
    ).warnings
    assert warning == (
        "1 node is not reporting in cluster simulated: b (60 s ago). The state of 8 GPUs is unknown."
    )
    # Of what it may have kept while the hub was away something may have come.
    alone = {name: at for name, at in facts.last_seen.items() if name[1] != "b"}
    (warning,) = view_of(replace(facts, last_seen=alone, gpus=gpu_table([]))).warnings
    assert ": b (no live data)." in warning


def test_a_silent_analyzer_is_said() -> None:
    facts = busy_fleet([node()])
    (old, *_) = view_of(replace(facts, pulses=pulses(NOON - timedelta(minutes=5)))).warnings
    assert old.startswith("The analyzer service has been silent for 5 min, since 11:55:00 UTC")
    for age, said in (
        (
            5,
            "The hub started 5 s ago, and the analyzer service has yet to report: faults go undetected",
        ),
        (61, "No analyzer service has reported: faults go undetected."),
    ):
        young = replace(facts, pulses=(), listening_since=NOON - timedelta(seconds=age))
        (never, *_) = view_of(young).warnings
        assert never.startswith(said)
    began_anew = replace(
        facts,
        pulses=pulses(NOON - timedelta(minutes=5)),
        listening_since=NOON - timedelta(seconds=5),
    )
    (early, *_) = view_of(began_anew).warnings
    assert early.startswith("The hub started 5 s ago, and the analyzer service has yet to report")
    (never, *_) = view_of(replace(facts, pulses=())).warnings
    assert never.startswith("No analyzer service has reported")


def test_while_data_catch_up_the_last_picture_stays_and_its_time_is_said() -> None:
    facts = replace(busy_fleet([node()]), not_back=1)
    view = fleet_view(facts, AnalyzerSettings(), NOON + timedelta(minutes=3))
    assert view.warnings == (
        "The hub is back after an outage, and data is catching up: 1 node not heard yet."
        " The numbers below are of 12:00:00 UTC on 31 Jan.",
    )
    assert view.clusters[0].strip.looks[DisplayState.ACTIVE] == 8
    assert view.rows_at == NOON


def test_nodes_are_silent_only_by_what_the_facts_say() -> None:
    facts = busy_fleet([node("a"), node("b")])
    assert silent_nodes(facts) == set()
    assert silent_nodes(replace(facts, last_seen=heard([node("a")], LONG_AGO))) == {node("a")}


def test_the_first_cluster_with_gpus_is_shown_unless_another_is_asked_for() -> None:
    facts = busy_fleet([node()])
    local = inventory(node("bench", "local"), gpus=0)
    view = view_of(replace(facts, inventories=(*facts.inventories, local)))
    assert [one.name for one in view.clusters] == ["local", "simulated"]
    shown = view.cluster(None)
    assert shown is not None
    assert shown.name == "simulated"
    asked = view.cluster("local")
    assert asked is not None
    assert asked.name == "local"


def test_the_map_holds_every_cell_and_unmeasured_is_no_number() -> None:
    facts = busy_fleet([node("a"), node("b")], gpus=2)
    unmeasured = row(gpu(0, node("a")), 0, power_watts=None, temperature_celsius=None)
    (cluster,) = clusters(replace(facts, gpus=gpu_table([unmeasured, *facts.gpus.to_pylist()[1:]])))
    data = encoded(cluster)
    (length,) = struct.unpack_from("<I", data)
    told = json.loads(data[4 : 4 + length])
    assert told["blocks"] == [["a", [["a", 2]]], ["b", [["b", 2]]]]
    rest = data[4 + length :]
    assert len(rest) == 4 * (4 + 6)
    assert list(rest[:4]) == [DisplayState.ACTIVE] * 4
    assert list(rest[4:8]) == [90] * 4
    assert list(rest[8:12]) == [0, 1, 0, 1]
    assert list(rest[12:16]) == [255, 60, 60, 60]
    powers = struct.unpack_from("<4H", rest, 16 + 16)
    assert powers == (65535, 500, 500, 500)


def test_a_gpu_without_an_index_is_named_by_its_uuid_on_the_map() -> None:
    facts = replace(
        busy_fleet([node()], 1), inventories=(), gpus=gpu_table([row(gpu(0), index=None)])
    )
    (cluster,) = clusters(facts)
    data = encoded(cluster)
    (length,) = struct.unpack_from("<I", data)
    assert json.loads(data[4 : 4 + length])["unnumbered"] == {"0": gpu(0).gpu}


@given(st.text())
def test_text_never_becomes_html(text: str) -> None:
    assert tag("p", text, title=text).count("<") == 2
    assert "<" not in joined(text)
    assert joined(Html("<b>"), "<b>") == "<b>&lt;b&gt;"


def test_hostile_names_are_escaped_everywhere_on_the_page() -> None:
    here = node(HOSTILE, HOSTILE)
    facts = busy_fleet([here], gpus=1)
    facts = replace(
        facts,
        allocations=(allocation(gpu(0, here), HOSTILE, HOSTILE),),
        incidents=(incident("gpu_xid", gpu(0, here), Severity.WARNING, action=HOSTILE),),
        inventories=(inventory(here, 1, driver_state=HOSTILE, ports=(make_port(HOSTILE, True),)),),
        last_seen={(HOSTILE, HOSTILE): LONG_AGO},
    )
    view = view_of(facts)
    (cluster,) = view.clusters
    drawn = joined(
        header(view, cluster, NOON),
        warnings(view),
        strip(cluster.strip),
        ports(cluster),
    )
    assert "<img" not in drawn
    assert "&lt;img" in drawn


def test_a_port_on_the_overview_leads_to_its_node_and_one_of_the_fabric_to_its_link() -> None:
    here = node("n1", "prod")
    fabric = PortIdentity(device="mlx5_0", port="1", kind="roce", role="fabric", was_up=True)
    known = inventory(here, 1, ports=(make_port("eno1", True), fabric))
    facts = replace(busy_fleet([here], gpus=1), inventories=(known,))
    (cluster,) = view_of(facts).clusters
    drawn = ports(cluster)
    assert drawn.count('<a href="/node?cluster=prod&amp;node=n1">n1</a>') == 2
    assert "/network?link=prod%2Fn1%2Fport%2Fmlx5_0%2F1" in drawn
    assert "eno1</td>" in drawn


def test_a_value_is_written_with_the_unit_of_its_name() -> None:
    said = {
        "memory_used_bytes": "60.00 GiB",
        "sm_clock_hertz": "1,980 MHz",
        "power_watts": "500 W",
        "clock_event_reasons": "software power cap",
        "compute_processes": "2",
    }
    values = {
        "memory_used_bytes": 60 * 2**30,
        "sm_clock_hertz": 1_980_000_000,
        "power_watts": 500.2,
        "clock_event_reasons": 4,
        "compute_processes": 2,
    }
    assert {name: measured(GPU.metric(name), value) for name, value in values.items()} == said


def test_a_book_keeps_what_stands_and_drops_what_ended() -> None:
    one = incident("gpu_lost", gpu(5), Severity.CRITICAL)
    book = RecordCache()
    book.apply([one.to_record(), notice(one), allocation(gpu(1)).to_record()])
    kept = book.onto(Facts(now=NOON))
    assert (len(kept.incidents), len(kept.notices), len(kept.allocations)) == (1, 1, 1)
    ended = replace(allocation(gpu(1)), ended_at=NOON)
    book.apply([replace(one, state="resolved", version=2).to_record(), ended.to_record()])
    kept = book.onto(Facts(now=NOON))
    assert (kept.incidents, kept.notices, kept.allocations) == ((), (), ())


def test_a_record_that_cannot_be_read_takes_no_other_down() -> None:
    strange = Record(kind=RecordKind.INVENTORY, id="x", at=NOON, subject="a/b", body={"new": 1})
    book = RecordCache()
    book.apply([strange, inventory(node()).to_record()])
    assert len(book.onto(Facts(now=NOON)).inventories) == 1


@pytest.mark.parametrize(
    ("age_minutes", "back_minutes"), [(None, 60), (1, 15), (29, 15), (30, 60), (6000, 60)]
)
def test_pages_look_back_as_far_as_there_is_something(
    age_minutes: int | None, back_minutes: int
) -> None:
    oldest = None if age_minutes is None else NOON - timedelta(minutes=age_minutes)
    view = fleet_view(Facts(now=NOON, oldest_at=oldest), AnalyzerSettings(), NOON)
    assert view.span == (NOON - timedelta(minutes=back_minutes), NOON)


def test_the_selftest_is_on_no_page() -> None:
    marked = node("t1.gpu-lost", cluster=SELFTEST_CLUSTER)
    stands = incident("gpu_lost", gpu(0, marked), Severity.CRITICAL)
    book = RecordCache()
    book.apply([stands.to_record(), inventory(marked).to_record()])
    facts = book.onto(busy_fleet([node(), marked]))
    assert (facts.incidents, facts.inventories) == ((), ())
    assert [one.name for one in view_of(facts).clusters] == [node().cluster]
