"""What other limits would have changed in the past, and what is recommended of it."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluation.backtest.proposals import TRIED, Limit, limits, proposals, votes_on
from evaluation.backtest.rule_counts import counted
from evaluation.backtest.rule_counts import lines as rule_lines
from evaluation.backtest.tune_command import lines, main
from evaluation.fingerprint import ROOT
from evaluation.judge.claims import Claim
from evaluation.replay import Replay
from gpuvigil.clock import SystemClock
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Opinion, Record, Severity, Subject
from tests.alerts.examples import REAL, an_incident
from tests.evaluation.made import NOON, gpu, port
from tests.evaluation.test_backtest import MINUTE, claim, trouble
from tests.evaluation.test_backtest import lines as as_lines
from tests.servers import HubProcess

DOCUMENT = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
LIMIT = Limit(key="port_down_seconds", now=30.0, other=60.0)


def warned(fault: str, minute: float, **more: Any) -> Claim:
    loud = NOON + minute * MINUTE
    return claim(
        fault, port(1), minute, severity=Severity.WARNING, pages=(), loud_from=loud, **more
    )


def vote(incident: str, useful: bool) -> Opinion:
    return Opinion(
        id=f"{incident} {useful}",
        incident=incident,
        fault="port_down",
        subject=port(1),
        by="ada",
        useful=useful,
        at=NOON,
    )


def test_each_limit_is_tried_at_half_and_twice_and_a_count_stays_one() -> None:
    tried = {(one.key, one.other) for one in limits(AnalyzerSettings())}
    assert {key for key, _ in tried} == set(TRIED)
    # What is offered beside an incident is among them, but for notes, which are told to nobody.
    assert {"steady_seconds", "silent_verdict_seconds"} <= set(TRIED)
    assert "idle_after_seconds" not in TRIED
    said = DOCUMENT.partition("## `gpuvigil tune`")[2].partition(" at half and at twice")[0]
    assert re.findall(r"`(\w+)`", said) == list(TRIED)
    assert {("port_down_seconds", 15.0), ("port_down_seconds", 60.0)} <= tried
    assert {other for key, other in tried if key == "port_flap_count"} == {2, 6}
    twice = [one.other for one in limits(replace(AnalyzerSettings(), port_flap_count=2))]
    assert 1 not in twice
    # It is applied as what it is.
    count = Limit(key="port_flap_count", now=3, other=6)
    assert count.applied(AnalyzerSettings()).port_flap_count == 6
    assert LIMIT.applied(AnalyzerSettings()).port_down_seconds == 60.0


@pytest.mark.parametrize(
    ("would", "votes", "recommended"),
    [
        ([], [], True),
        ([], [False, False], True),
        ([], [False, True], False),  # somebody needed it
        ([warned("port_down", 5)], [], False),  # nothing changes
    ],
)
def test_recommended_is_what_only_silences_what_nobody_found_useful(
    would: Sequence[Claim], votes: Sequence[bool], recommended: bool
) -> None:
    today = [warned("port_down", 5)]
    said = [vote("recorded", useful) for useful in votes]
    recorded = [warned("port_down", 6, id="recorded")]
    voted = votes_on(recorded, today, said, NOON)
    (one,) = proposals(today, {LIMIT: would}, voted, NOON)
    assert one.is_recommended is recommended
    assert (one.noise, one.useful) == (votes.count(False), votes.count(True))


def test_what_wakes_somebody_is_never_recommended_away_nor_for_more_elsewhere() -> None:
    critical = claim("gpu_lost", gpu(0), 5, loud_from=NOON + 5 * MINUTE)
    (one,) = proposals([critical], {LIMIT: []}, lambda _: [], NOON)
    assert len(one.fewer) == 1
    assert not one.is_recommended
    today, more = [warned("port_down", 5)], [warned("port_flapping", 50)]
    (one,) = proposals(today, {LIMIT: more}, lambda _: [], NOON)
    assert (len(one.fewer), len(one.more)) == (1, 1)
    assert not one.is_recommended


def test_notes_count_for_nobody_and_the_best_stand_first() -> None:
    note = replace(warned("gpu_idle_held", 5), severity=Severity.INFO, loud_from=None)
    other = replace(LIMIT, other=15.0)
    today = [warned("port_down", 5), note]
    found = proposals(
        today, {other: [*today, warned("port_down", 40)], LIMIT: []}, lambda _: [], NOON
    )
    assert [one.limit for one in found] == [LIMIT, other]
    assert [len(one.fewer) for one in found] == [1, 0]
    told = list(
        lines(found, {"from": "2026-01-31T12:00:00Z", "to": "2026-01-31T13:00:00Z", "told": 1})
    )
    assert (
        told[0]
        == "2026-01-31 12:00 to 2026-01-31 13:00 UTC: 1 warning or critical with the limits as they are"
    )
    assert told[2:4] == [
        "port_down_seconds = 60 instead of 30: 1 fewer: recommended",
        f"  not told: 2026-01-31 12:05  warning  port_down  {port(1).key}",
    ]
    assert "port_down_seconds = 15 instead of 30: 1 more:" in told
    assert told[-1] == "  [analyzer] port_down_seconds = 60 in gpuvigil.toml"


def test_rules_are_counted_with_those_on_trial_first() -> None:
    tried = an_incident(fault="port_setup", subject=REAL)
    several = [replace(tried, id=f"i-{number}") for number in range(5)]
    lost = an_incident(id="i-7", subject=REAL)
    played = replace(tried, id="i-9", subject=Subject(cluster="simulated", node="n1"))
    never = replace(tried, id="i-8", state="dismissed")
    votes = [
        Opinion.given(one, "ada", useful=useful, at=NOON)
        for one, useful in ((several[0], True), (several[1], False), (lost, False))
    ]
    rows = counted(votes, [*several, lost, played, never], ())
    assert list(rule_lines(rows)) == [
        "",
        "What people said of incidents here, by rule:",
        "  port_setup: 1 right, 1 wrong, 3 not judged; on trial",
        "  gpu_lost: 0 right, 1 wrong, 0 not judged; proven",
    ]
    assert list(rule_lines([])) == []
    assert not counted(votes, [], ("all",))[0].on_trial


@pytest.mark.server
@pytest.mark.site
def test_a_hub_is_asked_for_its_past(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = SystemClock().now().replace(second=0, microsecond=0)
    start = now - 40 * MINUTE
    made = trouble(start)
    told = made.blocks(40, start)
    with HubProcess(tmp_path) as hub:
        store = hub.hub()
        assert store.request("POST", "/api/v2/write?precision=ns", as_lines(told)).status == 204
        settings = AnalyzerSettings(trend_seconds=600.0, idle_after_seconds=600.0)
        replay = Replay(settings)
        records: list[Record] = [it.to_record() for it in told[0].inventories]
        records += [it.to_record() for it in made.events]
        records += [it.to_record() for it in made.allocations]
        for block in told:
            replay.feed(block)
        records += [step.to_record() for step in replay.transitions]
        (silent,) = {step.incident for step in replay.transitions if step.subject.node == "n2"}
        records.append(vote(silent, useful=False).to_record())
        store.write_records(records)
        config = tmp_path / "gpuvigil.toml"
        config.write_text(
            f'[hub]\nurl = "{hub.url}"\nservice_token_file = "{hub.service_token_file}"\n'
            "[analyzer]\nidle_after_seconds = 600\ntrend_seconds = 600\nunderused_after_seconds = 1200\n"
            "silent_verdict_seconds = 900\n"
        )
        assert main(["--config", str(config), "--last", "39m", "-o", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
    of = {(one["key"], one["other"]): one for one in found["limits"]}
    # The node was silent for 23 minutes.
    longer, sooner = (of["silent_verdict_seconds", other] for other in (1800.0, 450.0))
    assert [one["fault"] for one in longer["fewer"]] == ["node_silent"]
    assert (longer["more"], longer["noise"], longer["recommended"]) == ([], 1, True)
    assert (sooner["fewer"], sooner["more"]) == ([], [])
    assert found["told"] == 3
    (rule,) = found["rules"]
    assert rule == {
        "rule": "port_down",
        "right": 0,
        "wrong": 1,
        "unjudged": 0,
        "on_trial": False,
    }
    assert {one["key"] for one in found["limits"]} == set(TRIED)
