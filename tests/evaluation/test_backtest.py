"""What the detectors would say of the past that a hub keeps, against what was said."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from evaluation.backtest.backtest_command import main
from evaluation.backtest.compare import Account, accounts, pairs, raised
from evaluation.backtest.past import Past, blocks
from evaluation.judge.claims import Claim, IncidentText, claims
from evaluation.replay import Replay
from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.config import AnalyzerSettings
from gpuvigil.lifecycle import Signal, State
from gpuvigil.lineprotocol import encode
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.model import Allocation, EventKind, Holder, OutOfService, Record, Severity, Subject
from gpuvigil.store.memory import MemoryStore
from simulator.fleet import Block
from tests.alerts.examples import a_transition, opened, resolved
from tests.evaluation.made import NOON, TICK, Made, event, gpu, port
from tests.servers import HubProcess

SETTINGS = AnalyzerSettings(idle_after_seconds=600.0)
LATER = NOON + timedelta(minutes=12)
MINUTE = timedelta(minutes=1)


def lines(made: Sequence[Block]) -> bytes:
    text = []
    for name, table in ((name, table) for block in made for name, table in block.tables.items()):
        keys = MEASUREMENTS[name].tags
        for row in table.to_pylist():
            at = row.pop("at")
            named = {tag: value for tag in keys if (value := row.pop(tag)) is not None}
            text.append(encode(name, named, row, to_ns(at)))
    return "\n".join(line for line in text if line is not None).encode()


def claim(fault: str, subject: Subject, minute: float, **more: Any) -> Claim:
    at = NOON + minute * MINUTE
    usual: dict[str, Any] = {
        "id": f"{fault} {minute}",
        "fault": fault,
        "subject": subject,
        "severity": Severity.CRITICAL,
        "texts": ((at, IncidentText(title=fault)),),
        "action": "look",
        "spans": ((at, at + 10 * MINUTE),),
        "pages": (at,),
    }
    return Claim(**usual | more)


def trouble(start: datetime = NOON) -> Made:
    """A GPU that is lost, one that its job leaves idle, a port that goes down, a silent node."""
    later = start + (LATER - NOON)

    def change(subject: Subject, at: datetime) -> dict[str, Any] | None:
        if subject == gpu(0, 1):
            return {
                "utilization_percent": 0,
                "memory_utilization_percent": 0,
                "power_watts": 75.0,
            }
        if subject == port(1) and at > later:
            return {"up": 0, "physical_state": 2}
        return None if subject.node == "n2" and at > later + 5 * MINUTE else {}

    job = Allocation(
        subject=gpu(0, 1),
        holder=Holder.parse("job 7"),
        user="ada",
        command=None,
        started_at=start - 60 * MINUTE,
    )
    return Made(
        nodes=3,
        change=change,
        events=(event(EventKind.XID, gpu(1), later, xid=79),),
        allocations=(job,),
    )


def trouble_in_blocks(made: Made, start: datetime) -> list[Block]:
    """Whoever asks later finds the job that runs, whenever it began."""
    first, *others = made.blocks(40, start)
    return [replace(first, allocations=made.allocations), *others]


@pytest.mark.slow
@pytest.mark.site
def test_the_past_as_a_store_gives_it_leads_to_the_same_incidents() -> None:
    store, made = MemoryStore(), trouble()
    told = trouble_in_blocks(made, NOON)
    store.write(lines(told))
    # A selftest ran meanwhile: its node was lost for good.
    store.write(f"node,cluster=selftest,node=t.a driver_answering=0i {to_ns(LATER)}".encode())
    kept = Past(
        start=NOON,
        end=NOON + 40 * MINUTE,
        events=made.events,
        inventories=told[0].inventories,
        allocations=made.allocations,
        unreadable=0,
        cut=False,
    )
    first, second = Replay(SETTINGS), Replay(SETTINGS)
    for block in told:
        first.feed(block)
    for again in blocks(store, kept):
        second.feed(again)
    was, would = claims(first.transitions), claims(second.transitions)
    assert {it.fault for it in was} == {"gpu_lost", "gpu_idle_held", "port_down", "node_silent"}
    found = pairs(was, would, NOON)
    assert [pair for pair in found if pair.changes] == []
    for pair in found:
        assert pair.was is not None
        assert pair.would is not None
        assert abs(pair.was.opened_at - pair.would.opened_at) <= TICK


@pytest.mark.server
@pytest.mark.site
def test_a_hub_is_asked_and_another_limit_tells_who_would_not_have_been_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The incidents of a past that was written just now, by this machine's clock."""
    now = SystemClock().now().replace(second=0, microsecond=0)
    start = now - 40 * MINUTE
    made = trouble(start)
    told = made.blocks(40, start)
    with HubProcess(tmp_path) as hub:
        store = hub.hub()
        written = lines(told)
        assert store.request("POST", "/api/v2/write?precision=ns", written).status == 204
        replay = Replay(SETTINGS)
        records: list[Record] = [it.to_record() for it in told[0].inventories]
        records += [it.to_record() for it in made.events]
        records += [it.to_record() for it in made.allocations]
        for block in told:
            replay.feed(block)
        records += [step.to_record() for step in replay.transitions]
        store.write_records(records)
        config = tmp_path / "gpuvigil.toml"
        config.write_text(
            f'[hub]\nurl = "{hub.url}"\nservice_token_file = "{hub.service_token_file}"\n'
        )
        common = ["--config", str(config), "--last", "39m"]
        for key in ("trend_seconds", "steady_seconds"):
            common += ["--set", f"analyzer.{key}=600"]
        assert main([*common, "-o", "json", "--set", "analyzer.idle_after_seconds=600"]) == 0
        same = json.loads(capsys.readouterr().out)
        assert set(same["faults"]) == {"gpu_lost", "gpu_idle_held", "port_down", "node_silent"}
        assert same["all"]["was"] == same["all"]["would"] == same["all"]["both"] == 4
        assert main([*common, "--set", "analyzer.idle_after_seconds=3600"]) == 0
        said = capsys.readouterr().out
        assert [
            line.split()[-4:] for line in said.splitlines() if line.startswith("GPU is allocated")
        ]
        gone = said.partition("would no longer be raised:\n")[2].splitlines()
        assert [line.split()[-1] for line in gone] == [gpu(0, 1).key]
        assert max(map(len, said.splitlines())) <= 80


def test_two_accounts_of_one_incident_are_one_and_the_nearest_is_meant() -> None:
    was = [claim("gpu_lost", gpu(0), 0), claim("gpu_lost", gpu(0), 60), claim("gpu_hot", gpu(0), 5)]
    would = [
        claim("gpu_lost", gpu(0), 61, severity=Severity.WARNING),
        claim("gpu_lost", gpu(0), 0.5),
        claim("gpu_lost", gpu(1), 0),
    ]
    found = pairs(was, would, NOON)
    assert [(it.either.fault, it.was in was, it.would in would) for it in found] == [
        ("gpu_lost", True, True),
        ("gpu_lost", False, True),
        ("gpu_hot", True, False),
        ("gpu_lost", True, True),
    ]
    assert [it.changes for it in found] == [False, True, True, True]
    of = accounts(found)
    assert of["gpu_lost"] == Account(was=2, would=3, both=2, pages_were=2, pages_would=2)
    assert of[""] == Account(was=3, would=3, both=2, pages_were=3, pages_would=2)


def test_what_stood_before_the_span_is_no_news_of_it() -> None:
    old = claim("gpu_lost", gpu(0), -30, spans=((NOON - 30 * MINUTE, None),))
    new = claim("gpu_lost", gpu(0), 10)
    assert pairs([old], [new], NOON) == []
    assert pairs([old], [], NOON) == []
    assert len(pairs([], [new], NOON)) == 1


def test_what_moves_in_a_span_but_began_before_it_is_no_news_of_it() -> None:
    acknowledged = Signal.ACKNOWLEDGED, State.ACKNOWLEDGED, State.OPEN
    stood = a_transition(3, *acknowledged, at=NOON + MINUTE, subject=gpu(0))
    (old,) = raised([stood])
    assert old.opened_at < NOON - timedelta(days=1_000)
    new = claim(old.fault, gpu(0), 2, spans=((NOON + 2 * MINUTE, None),))
    assert pairs([old], [new], NOON) == []
    (opens,) = raised([opened(at=NOON + MINUTE), resolved(at=NOON + 2 * MINUTE)])
    assert opens.spans == ((NOON + MINUTE, NOON + 2 * MINUTE),)


def test_nobody_was_woken_while_the_node_was_out_of_service() -> None:
    out = OutOfService("DRAIN", "drained by ops")
    steps = [opened(at=NOON, out_of_service=out), resolved(at=NOON + MINUTE)]
    (quiet,) = raised(steps)
    (told,) = raised([opened(at=NOON), resolved(at=NOON + MINUTE)])
    assert (quiet.severity, quiet.pages) == (Severity.CRITICAL, ())
    assert told.pages == (NOON,)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--set", "analyzer.xid_overrides=63=warning,79"], "'79' is not like 63=warning"),
        (["--set", "analyzer.nothing=5"], "keys are"),
        (["--set", "clear_seconds"], "write analyzer.KEY=VALUE"),
        (["--set", "analyzer.clear_seconds=soon"], "--set analyzer.clear_seconds: 'soon' is"),
        (["--last", "7"], "is no length"),
        (["--last", "6h", "--from", "2026-11-14"], "not both"),
        (["--from", "2030-01-01"], "not before the end"),
    ],
)
def test_wrong_arguments_are_one_line(
    given: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "gpuvigil.toml"
    config.write_text('[hub]\nurl = "http://127.0.0.1:1"\n')
    assert main(["--config", str(config), *given]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
