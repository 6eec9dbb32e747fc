"""gpuvigil tells of its own troubles once, by channels that work, and calls who minds its end."""

import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from alerts.decisions.attempts import attempt_ended, attempt_started
from alerts.decisions.decide import decide, judge, ruled
from alerts.delivery.batches import MOST
from alerts.delivery.hub_access import Context
from alerts.delivery.self_check import SelfChecker, drops_data, last_day
from alerts.messages.channel import Delivered
from alerts.messages.message import message
from alerts.messages.self_monitoring import (
    FAILURES,
    Trouble,
    analyzer_trouble,
    channel_trouble,
    collector_trouble,
    detectors_trouble,
    digest,
    digest_of,
    ended,
    of_gone_channels,
    opened,
    reader_trouble,
    spool_trouble,
)
from alerts.routing.case import Case, ChannelProfile
from alerts.routing.notice import NoticeState, Verdict
from collector.spool.batches import WRITE_PATH
from gpuvigil.clock import ManualClock, to_text
from gpuvigil.config import AlertsSettings, RouteSettings
from gpuvigil.errors import HubRefused
from gpuvigil.faults import FAULTS
from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import Signal
from gpuvigil.log import Log
from gpuvigil.model import (
    Inventory,
    OutOfService,
    Record,
    RecordKind,
    Severity,
    Subject,
    Transition,
    fingerprint,
)
from tests.hub.talk import identity
from tests.polling import wait_until
from tests.receiver import Received, Receiver, too_many
from tests.servers import HubProcess, QuickHub

from .examples import NOON, REAL, a_transition, an_incident, seconds
from .month.shelf import ShelfHub, Shelves
from .process import AlertsProcess
from .test_service import Story

ROUTES = [
    ChannelProfile(name=name, minimum_severity=Severity.WARNING) for name in ("chat", "pager")
]
BROKEN = {
    "name": "chat",
    "failures": FAILURES,
    "refusals": 0,
    "last_error": "no answer within 10 s",
}


def a_pulse(at: datetime) -> Record:
    return Record(
        kind=RecordKind.PULSE,
        id="analyzer",
        at=at,
        subject="analyzer",
        version=int(at.timestamp() * 1e6),
    )


def verdicts(step: Transition | None, settings: AlertsSettings | None = None) -> dict[str, Verdict]:
    assert step is not None
    decided = decide(step, ROUTES, [], NOON, settings or AlertsSettings())
    return {str(one.channel): one.verdict for one in decided}


def trouble() -> Trouble:
    found = channel_trouble(BROKEN)
    assert found is not None
    return found


def test_an_analyzer_that_lives_is_no_trouble_and_one_that_stopped_is() -> None:
    assert analyzer_trouble(None, NOON) is None  # none was ever started
    assert analyzer_trouble(a_pulse(NOON - seconds(59)), NOON) is None
    found = analyzer_trouble(a_pulse(NOON - seconds(300)), NOON)
    assert found is not None
    assert found.value == "last heard of 5 min ago"


def test_what_was_said_before_anybody_could_hear_it_is_nobodys_silence() -> None:
    """An hour without the hub: what it knows is an hour old when it is back."""
    old, nodes = a_pulse(NOON - seconds(3600)), [{"received_at": to_text(NOON - seconds(3600))}]
    for trouble_of, patience in (
        (partial(analyzer_trouble, old), 60),
        (partial(collector_trouble, nodes), 180),
    ):
        assert trouble_of(NOON, NOON) is None
        assert trouble_of(NOON, NOON - seconds(patience - 1)) is None
        assert trouble_of(NOON, NOON - seconds(patience)) is not None


@pytest.mark.server
def test_a_hub_that_was_away_makes_nobody_silent_when_it_is_back(tmp_path: Path) -> None:
    started = datetime.now(timezone.utc)
    clock = ManualClock(started)
    with QuickHub(tmp_path) as process, closing(process.hub()) as hub:

        def told() -> list[object]:
            steps = hub.records(RecordKind.TRANSITION, parent="self-analyzer")
            return [one.body["to_state"] for one in steps]

        hub.write_records([a_pulse(started)])
        watch = SelfChecker(replace(a_desk(hub, "away"), clock=clock), [])
        watch.step()
        clock.advance(3600.0)
        watch.step()
        assert told() == []
        for _ in range(6):
            clock.advance(10.0)
            watch.step()
        assert told() == ["open"]
        hub.write_records([a_pulse(clock.now())])
        watch.step()
        assert told() == ["open", "resolved"]


def a_word(kind: RecordKind, at: datetime, node: str = "mgmt") -> Record:
    """Of whoever asks the scheduler of `lab` or reads its switches."""
    key = Subject(cluster="lab", node=node).key
    return Record(kind=kind, id=key, at=at, subject=key, version=int(at.timestamp() * 1e6))


@pytest.mark.parametrize(("minutes", "is_told"), [
    (0, False), (24.9, False), (25, True), (24 * 60 - 1, True), (24 * 60, False),
])  # fmt: skip
@pytest.mark.parametrize("kind", [RecordKind.SCHEDULER, RecordKind.SWITCH, RecordKind.EQUIPMENT])
def test_a_reader_that_fell_silent_is_missed_for_a_day(
    kind: RecordKind, minutes: float, is_told: bool
) -> None:
    last = a_word(kind, NOON - timedelta(minutes=minutes))
    found = reader_trouble(last, NOON)
    assert (found is not None) is is_told
    assert reader_trouble(last, NOON, NOON - timedelta(minutes=24)) is None


def test_a_reader_is_told_by_its_cluster_with_what_to_do() -> None:
    found = reader_trouble(a_word(RecordKind.SWITCH, NOON - timedelta(hours=2)), NOON)
    assert found is not None
    assert (found.incident, found.severity) == ("self-switches-lab", Severity.WARNING)
    assert found.title == "Switches are no longer read; what fails in them goes undetected"
    assert found.value == "cluster lab, last heard of 2 h ago"
    assert (
        found.action
        == "Check the log of 'gpuvigil infiniband' or 'gpuvigil switches' and restart it."
    )


@pytest.mark.parametrize(("node", "incident", "action"), [
    ("mgmt", "self-slurm-lab", "Check the log of 'gpuvigil slurm' on mgmt and restart it."),
    ("kubernetes", "self-kubernetes-lab", "Check the log of 'gpuvigil kubernetes' and restart it."),
])  # fmt: skip
def test_whoever_asks_a_scheduler_is_told_by_its_command(
    node: str, incident: str, action: str
) -> None:
    found = reader_trouble(a_word(RecordKind.SCHEDULER, NOON - timedelta(hours=2), node), NOON)
    assert found is not None
    assert (found.incident, found.action) == (incident, action)


@pytest.mark.server
def test_of_two_schedulers_that_of_the_silent_one_is_told_and_one_that_moved_is_not(
    tmp_path: Path,
) -> None:
    clock = ManualClock(datetime.now(timezone.utc))
    with QuickHub(tmp_path) as process, closing(process.hub()) as hub:
        line = f"node,cluster=lab,node=n1 up=1i {int(clock.now().timestamp())}000000000"
        hub.request("POST", WRITE_PATH, line.encode(), {**identity(1), "Gpuvigil-Cluster": "lab"})
        for node in ("kubernetes", "former"):
            hub.write_records([a_word(RecordKind.SCHEDULER, clock.now(), node)])
        watch = SelfChecker(replace(a_desk(hub, "readers"), clock=clock), [])
        for _ in range(3 * 28):
            clock.advance(20.0)
            hub.write_records([a_word(RecordKind.SCHEDULER, clock.now())])
            watch.step()
        told = hub.records(RecordKind.TRANSITION, parent="self-kubernetes-lab")
        assert [one.body["to_state"] for one in told] == ["open"]
        assert hub.records(RecordKind.TRANSITION, parent="self-slurm-lab") == ()


@pytest.mark.server
def test_a_silent_reader_is_told_once_and_ends_when_it_is_back(tmp_path: Path) -> None:
    clock = ManualClock(datetime.now(timezone.utc))
    with QuickHub(tmp_path) as process, closing(process.hub()) as hub:
        line = f"node,cluster=lab,node=n1 up=1i {int(clock.now().timestamp())}000000000"
        hub.request("POST", WRITE_PATH, line.encode(), {**identity(1), "Gpuvigil-Cluster": "lab"})
        hub.write_records([a_word(RecordKind.SWITCH, clock.now())])
        watch = SelfChecker(replace(a_desk(hub, "readers"), clock=clock), [])

        def told(minutes: int) -> list[object]:
            end = clock.now() + timedelta(minutes=minutes)
            while clock.now() < end:
                clock.advance(20.0)
                watch.step()
            steps = hub.records(RecordKind.TRANSITION, parent="self-switches-lab")
            return [one.body["to_state"] for one in steps]

        assert told(24) == []
        assert told(4) == ["open"]
        hub.write_records([a_word(RecordKind.SWITCH, clock.now())])
        assert told(2) == ["open", "resolved"]
        assert hub.records(RecordKind.TRANSITION, parent="self-slurm-lab") == ()


def test_full_spools_are_gpuvigils_trouble_when_they_are_many() -> None:
    names = [f"n{number}" for number in range(40)]
    assert spool_trouble(names[:2], 2) is None  # each is told as its node's
    assert spool_trouble(names[:3], 40) is None
    found = spool_trouble(names[:12], 40)
    assert found is not None
    assert found.value.startswith("12 of 40 nodes: n0, n1")
    assert found.value.endswith("n9 and 2 more")


@pytest.mark.parametrize(
    ("fault", "covers", "drops"),
    [
        ("host_disk", (), True),
        ("host_space", (f"n1: {FAULTS['host_disk'].title}",), True),
        ("host_space", ("n1: GPU is too hot",), False),
        ("host_space", (), False),
    ],
)
def test_a_spool_that_takes_nothing_counts_where_it_follows_from_another_fault_too(
    fault: str, covers: tuple[str, ...], drops: bool
) -> None:
    assert drops_data(replace(an_incident(fault=fault), covers=covers)) is drops


def test_a_spool_that_takes_nothing_counts_where_its_incident_is_called_by_its_cause() -> None:
    place = an_incident().subject.of_node()
    space = an_incident(fault="host_space", subject=place)
    assert drops_data(replace(space, fingerprint=fingerprint("host_disk", place)))
    assert not drops_data(replace(space, fingerprint=fingerprint("host_space", place)))


@pytest.mark.server
def test_full_spools_are_told_once_and_end_when_there_is_room_again(tmp_path: Path) -> None:
    clock = ManualClock(NOON)

    def full(state: str, version: int, cluster: str = "lab") -> list[Record]:
        told = an_incident(fault="host_disk", state=state, version=version)
        places = [Subject(cluster=cluster, node=f"n{number}") for number in range(3)]
        return [
            replace(told, id=f"i-{cluster}-{one.node}", subject=one).to_record() for one in places
        ]

    with QuickHub(tmp_path) as process, closing(process.hub()) as hub:
        watch = SelfChecker(replace(a_desk(hub, "away"), clock=clock), [])
        played = full("open", 1, "selftest")  # those are full on purpose
        for records in (played, full("open", 1), [], full("resolved", 2)):
            hub.write_records(records)
            watch.step()
            clock.advance(60.0)
        steps = hub.records(RecordKind.TRANSITION, parent="self-spools")
        assert [one.body["to_state"] for one in steps] == ["open", "resolved"]


def test_a_detector_that_fails_is_told_by_name() -> None:
    well = replace(a_pulse(NOON), body={"failing": {}})
    assert detectors_trouble(None) is None
    assert detectors_trouble(a_pulse(NOON)) is None
    assert detectors_trouble(well) is None
    found = detectors_trouble(replace(well, body={"failing": {"gpu_hot": "KeyError('x')"}}))
    assert found is not None
    assert found.value == "gpu_hot: KeyError('x')"


def test_only_that_all_collectors_are_silent_is_said_here() -> None:
    old, new = ({"received_at": to_text(NOON - seconds(age))} for age in (600, 10))
    assert collector_trouble([], NOON) is None
    assert collector_trouble([old, new], NOON) is None
    assert collector_trouble([old, old], NOON) is not None


@pytest.mark.server
@pytest.mark.parametrize(("several", "told"), [(True, []), (False, ["open"])])
def test_a_silence_of_all_that_the_analyzer_told_is_not_told_again(
    tmp_path: Path, several: bool, told: list[str]
) -> None:
    clock = ManualClock(datetime.now(timezone.utc))
    with QuickHub(tmp_path) as process, closing(process.hub()) as hub:
        nodes = [Subject(cluster="c", node=f"n{number}") for number in range(4)]
        for number, node in enumerate(nodes):
            send(hub, node, number + 1)
        silent = replace(
            an_incident(),
            fault="node_silent",
            subject=nodes[0],
            members=tuple(node.key for node in (nodes if several else nodes[-1:])),
        )
        hub.write_records([silent.to_record()])
        watch = SelfChecker(replace(a_desk(hub, "all"), clock=clock), [])
        for _ in range(9):
            watch.step()
            clock.advance(25.0)
        steps = hub.records(RecordKind.TRANSITION, parent="self-collectors")
        assert [one.body["to_state"] for one in steps] == told
        # The dead man's switch stops all the same.
        assert watch.well_at is not None
        assert clock.now() - watch.well_at > timedelta(seconds=25)


def send(hub: Hub, node: Subject, sequence: int) -> None:
    """A body of the node reaches the hub now."""
    headers = {
        "Gpuvigil-Cluster": node.cluster,
        "Gpuvigil-Node": node.node,
        "Gpuvigil-Boot": "b",
        "Gpuvigil-Lane": "live",
        "Gpuvigil-Sequence": str(sequence),
    }
    line = f"gpu,cluster={node.cluster},node={node.node},uuid=G,model=H utilization_percent=1"
    hub.request("POST", "/api/v2/write", line.encode(), headers=headers)


def test_that_a_channel_fails_does_not_travel_by_it() -> None:
    step = opened(trouble(), None, NOON)
    assert verdicts(step) == {"chat": Verdict.OWN_CHANNEL, "pager": Verdict.FIRST}
    assert channel_trouble({**BROKEN, "failures": FAILURES - 1}) is None


def test_a_trouble_is_told_once_until_it_is_over_and_anew_when_it_comes_back() -> None:
    first = opened(trouble(), None, NOON)
    assert first is not None
    assert opened(trouble(), first, NOON) is None
    over = ended(first, NOON + seconds(60))
    assert over is not None
    assert ended(over, NOON) is None
    again = opened(trouble(), over, NOON + seconds(90))
    assert again is not None
    assert [one.number for one in (first, over, again)] == [1, 2, 3]
    assert [one.to_state for one in (first, over, again)] == ["open", "resolved", "open"]
    notice = decide(over, ROUTES, [], NOON, AlertsSettings())[-1]
    said = message(notice, NOON, "https://gpus.example.org")
    assert said.ends_at == NOON + seconds(60)
    assert said.link == "https://gpus.example.org/pipeline"


def test_what_stands_about_a_channel_that_is_gone_ends_and_what_is_configured_stays() -> None:
    chat = opened(trouble(), None, NOON)
    mail = channel_trouble({**BROKEN, "name": "mail"})
    analyzer = analyzer_trouble(a_pulse(NOON - seconds(300)), NOON)
    assert mail is not None
    assert analyzer is not None
    others = [opened(mail, None, NOON), opened(analyzer, None, NOON)]
    steps = [one for one in (chat, *others) if one is not None]
    (over,) = of_gone_channels(steps, {"mail"}, NOON + seconds(60))
    assert (over.incident, over.number, over.to_state) == ("self-channel-chat", 2, "resolved")
    assert of_gone_channels([over, *steps], {"mail"}, NOON) == []


def test_a_digest_is_told_once_also_where_a_route_repeats_what_stands() -> None:
    step = digest("chat", [held("chat", "GPU idle", 1)], NOON - seconds(60), NOON + seconds(1))
    assert step is not None
    notice = decide(step, ROUTES, [], NOON, AlertsSettings())[0]
    (told,) = attempt_ended(
        attempt_started(notice, NOON, 15.0), Delivered(), NOON, 0.5, AlertsSettings(), 60.0
    )
    assert told.state is NoticeState.SENT
    reminder = replace(notice, repeat=1)  # as an earlier version left it
    case = Case(
        notice=reminder, profile=ROUTES[0], siblings=(told,), now=NOON, settings=AlertsSettings()
    )
    assert judge(case).state is NoticeState.NOT_SENT


def held(
    channel: str, title: str, number: int, at: datetime = NOON, fault: str = "gpu_lost"
) -> Record:
    step = a_transition(1, id=f"i-{number}", title=title, severity=Severity.INFO, fault=fault)
    route = RouteSettings(match=('severity="info"',), receivers=(channel,), digest=True)
    info = [ChannelProfile(name=channel, minimum_severity=Severity.INFO)]
    (notice,) = decide(step, info, [], at, AlertsSettings(routes=(route,)))
    assert notice.state is NoticeState.NOT_SENT
    return replace(notice.to_record(), at=at)


def test_a_digest_counts_what_was_held_for_its_channel_and_goes_there_alone() -> None:
    records = [
        held("chat", "GPU idle", 1),
        held("chat", "GPU idle", 2),
        held("chat", "Clocks lowered", 3),
        held("pager", "GPU idle", 4),
        held("chat", "GPU idle", 5, NOON - timedelta(days=2)),
    ]
    step = digest("chat", records, NOON - timedelta(days=1), NOON + seconds(1))
    critical = RouteSettings(match=('severity="critical"',), receivers=("pager",))
    settings = AlertsSettings(routes=(critical,))
    assert verdicts(step, settings) == {"chat": Verdict.FIRST, "pager": Verdict.NOT_ROUTED}
    assert step is not None
    notice = decide(step, ROUTES, [], NOON, settings)[0]
    said = message(notice, NOON, "https://gpus.example.org")
    assert said.summary.startswith("Digest since 19 Nov 12:00 UTC: 3 info incidents")
    assert said.evidence == "GPU idle: 2; Clocks lowered: 1"
    assert digest("other", records, NOON - timedelta(days=1), NOON) is None


def test_a_digest_counts_how_gpus_are_held_by_what_it_is_and_not_by_holder() -> None:
    records = [
        held("chat", "2 GPUs allocated to job 7 of alice and idle", 1, fault="gpu_idle_held"),
        held("chat", "GPU is allocated but idle", 2, fault="gpu_idle_held"),
        held("chat", "8 GPUs allocated to job 8 of bob for hours ...", 3, fault="gpu_underused"),
        held("chat", "Xid 13: a program's", 4, fault="gpu_program"),
    ]
    step = digest("chat", records, NOON - timedelta(days=1), NOON + seconds(1))
    assert step is not None
    said = message(decide(step, ROUTES, [], NOON, AlertsSettings())[0], NOON, "https://gpus.org")
    assert said.evidence == (
        "GPU is allocated but idle: 2; GPU has been allocated for hours and is hardly used: 1;"
        " Xid 13: a program's: 1"
    )


def test_a_digest_says_first_what_stands_and_nobody_has_taken() -> None:
    lost = an_incident(subject=REAL, label="n1 GPU 5", since=NOON - timedelta(hours=30))
    taken = replace(lost, id="i-2", state="acknowledged")
    hot = [
        replace(lost, id=f"h-{n}", severity=Severity.WARNING, title="GPU is hot") for n in range(4)
    ]
    out = replace(lost, out_of_service=OutOfService("DRAIN", "drained by ada"))
    others = [taken, replace(lost, severity=Severity.INFO), an_incident(), out]
    day = (NOON - timedelta(days=1), NOON + seconds(1))
    step = digest("chat", [held("chat", "GPU idle", 1)], *day, [*hot, *others, lost])
    assert step is not None
    said = message(decide(step, ROUTES, [], NOON, AlertsSettings())[0], NOON, "https://x.org")
    assert said.evidence == (
        "nobody has taken: GPU fell off the bus, n1 GPU 5 (critical, 1 d 6 h);"
        " GPU is hot, n1 GPU 5 (warning, 1 d 6 h); GPU is hot, n1 GPU 5 (warning, 1 d 6 h)"
        " and 2 more; GPU idle: 1"
    )
    assert said.action.startswith("Acknowledge or silence what nobody has taken")


def test_a_digest_names_nothing_of_which_no_route_tells_its_channel() -> None:
    clock = ManualClock(NOON + seconds(60))
    hub = ShelfHub(Shelves(), clock)
    place = REAL.of_node()
    rack = Inventory(subject=place, at=NOON, boot="b", tick_seconds=5.0, version="1", rack="r1")
    theirs = replace(an_incident(), id="i-2", subject=Subject(cluster="lab", node="n2", gpu="G"))
    active = [an_incident(subject=REAL, label="n1 GPU 5"), replace(theirs, label="n2 GPU 7")]
    hub.write_records([held("chat", "GPU idle", 9, NOON - seconds(60)), rack.to_record()])
    hub.write_records(one.to_record() for one in active)
    way = RouteSettings(match=('rack="r1"',), receivers=("chat",), digest=True)
    context = a_desk(hub, "chat")
    settings = replace(context.settings, routes=(way,))
    SelfChecker(replace(context, clock=clock, settings=settings), []).step()
    (step,) = hub.records(RecordKind.TRANSITION)
    said = json.dumps(step.body)
    assert "nobody has taken" in said
    assert "n1 GPU 5" in said
    assert "n2" not in said


def test_what_was_written_otherwise_is_left_out_of_a_digest_and_takes_nothing_down() -> None:
    whole = held("chat", "GPU idle", 1)
    odd = replace(held("chat", "GPU idle", 2), body={**whole.body, "snapshot": {"of": "a moon"}})
    step = digest("chat", [odd, whole], NOON - seconds(60), NOON + seconds(60))
    assert step is not None
    assert "1 info incident" in step.snapshot["body"]["title"]


def test_what_waits_over_the_hour_of_a_digest_is_in_the_next_one() -> None:
    way = RouteSettings(receivers=("chat",), digest=True, wait_seconds=60.0)
    step = a_transition(1, severity=Severity.INFO)
    info = ChannelProfile(name="chat", minimum_severity=Severity.INFO)
    settings = AlertsSettings(routes=(way,), digest_at="12:00")
    (waiting,) = decide(step, [info], [], NOON - seconds(30), settings)
    assert waiting.verdict is Verdict.WAITS_FOR_CAUSE
    later = NOON + seconds(30)
    case = Case(notice=waiting, profile=info, siblings=(), now=later, settings=settings)
    record = ruled(waiting, judge(case), later).to_record()
    first = last_day("12:00", NOON + seconds(60))
    second = last_day("12:00", NOON + timedelta(days=1, seconds=60))
    assert (first[1], second[0]) == (NOON, NOON)
    assert last_day("12:00", NOON + seconds(59))[1] == NOON - timedelta(days=1)
    assert digest("chat", [record], *first) is None
    assert digest("chat", [record], *second) is not None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with QuickHub(tmp_path_factory.mktemp("hub")) as process:
        yield process


def about(received: list[Received], fault: str) -> list[str]:
    """The statuses of what was said about a fault."""
    payloads = [one.payload for one in received]
    return [p["status"] for p in payloads if p["commonLabels"]["alertname"] == fault]


@pytest.mark.server
def test_the_service_tells_of_itself_by_the_channels_that_work(
    server: HubProcess, tmp_path: Path
) -> None:
    hub = server.hub()
    with Receiver() as broken, Receiver() as well, Receiver() as dead_man:
        broken.answer(too_many(0))
        channels: dict[str, Any] = {"broken": {"url": broken.url}, "well": {"url": well.url}}
        alerts = AlertsProcess(server, tmp_path, **channels)
        text = alerts.config.read_text(encoding="utf-8")
        more = (
            f'[alerts]\nmetrics_port = 0\ndead_man_url = "{dead_man.url}"\ndead_man_seconds = 0.5'
        )
        alerts.config.write_text(text.replace("[alerts]", more), encoding="utf-8")
        with alerts:
            Story(hub).tell(Signal.CONFIRMED)
            well.wait(lambda got: "firing" in about(got, "gpuvigil_channel"), 60.0)
            dead_man.wait_for(2, 60.0)
            hub.write_records([a_pulse(datetime.now(timezone.utc) - timedelta(seconds=120))])
            well.wait(lambda got: "firing" in about(got, "gpuvigil_analyzer"), 60.0)
            hub.write_records([a_pulse(datetime.now(timezone.utc))])
            well.wait(lambda got: about(got, "gpuvigil_analyzer") == ["firing", "resolved"], 60.0)
            (pulse,) = wait_until(
                "a pulse", lambda: hub.records(RecordKind.PULSE, subject="alerts", limit=1)
            )
            found = re.search(r"metrics .*port=(\d+)", alerts.said)
            assert found is not None, alerts.said
            with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/metrics") as answer:
                metrics = answer.read().decode()
        assert about(broken.received(), "gpuvigil_channel") == []
    assert 'gpuvigil_alerts_failures_total{channel="well"} 0' in metrics
    failed = re.search(r'gpuvigil_alerts_failures_in_a_row\{channel="broken"\} (\d+)', metrics)
    assert failed is not None
    assert int(failed[1]) >= FAILURES
    (counted,) = [one for one in pulse.body["channels"] if one["name"] == "well"]
    assert counted["attempts_total"] >= 1
    assert counted["failures_total"] == 0


@pytest.mark.server
def test_a_digest_is_told_whichever_request_to_the_hub_fails_and_what_is_gone_ends(
    server: HubProcess,
) -> None:
    hub = server.hub()
    gone = opened(trouble(), None, NOON)
    assert gone is not None
    said = {"channels": [{"name": "chat"}]}
    before = Record(
        kind=RecordKind.PULSE, id="alerts:before", at=NOON, subject="alerts", version=1, body=said
    )
    hub.write_records([gone.to_record(), before])
    for failing in range(1, 10):
        name = f"late-{failing}"
        hub.write_records([held(name, "GPU idle", failing, NOON - seconds(60))])
        tokens = iter([server.service_token] * (failing - 1) + ["x" * 22])
        with closing(Hub(server.url, partial(next, tokens, server.service_token))) as unsteady:
            watch = SelfChecker(a_desk(unsteady, name), [])
            for _ in range(3):
                with suppress(HubRefused):
                    watch.step()
        told = hub.records(RecordKind.TRANSITION, parent=f"self-digest-{name}-2026-11-19")
        assert len(told) == 1, failing
    steps = hub.records(RecordKind.TRANSITION, parent=gone.incident)
    assert [one.body["to_state"] for one in steps] == ["open", "resolved"]


def test_a_digest_knows_also_what_was_held_before_a_storm_of_other_channels() -> None:
    shelves, before = Shelves(), NOON - timedelta(hours=1)
    hub = ShelfHub(shelves, ManualClock(NOON))
    other = held("pager", "GPU hot", 2, before)
    storm = (
        replace(other, id=f"{other.id}-{number}", at=before + seconds(number / 10))
        for number in range(MOST + 1)
    )
    hub.write_records([held("chat", "GPU idle", 1, before), *storm])
    SelfChecker(a_desk(hub, "chat"), []).step()
    begin = NOON - timedelta(days=1)
    assert hub.records(RecordKind.TRANSITION, parent=digest_of("chat", begin))


def a_desk(hub: Hub, channel: str) -> Context:
    """Of a process that looks a minute after a digest's hour, and has no channel to fail."""
    way = RouteSettings(receivers=(channel,), digest=True)
    return Context(
        connect=lambda: hub,
        owner="a test",
        settings=AlertsSettings(routes=(way,), digest_at="12:00"),
        clock=ManualClock(NOON + seconds(60)),
        stop=threading.Event(),
        log=Log("alerts"),
    )
