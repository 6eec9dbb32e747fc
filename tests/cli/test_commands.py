"""What the commands show of a small fleet, and against a real hub."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import IO

import pytest

from accounting.cost.money import Prices
from accounting.efficiency.idle_reason import Idleness
from accounting.usage import Usage
from accounting.usage.ledger import Ledger, summed
from accounting.usage.ledger_query import Answer
from cli.tables import status, who
from cli.tables import usage as used
from dashboard.data.attention import Attention
from dashboard.lists import holders
from dashboard.lists.fleet_now import FleetNow, moment_of, with_jobs
from dashboard.lists.idle_reasons import reasons_of
from dashboard.lists.table import Grid, json_text, text
from dashboard.model.facts import Facts
from dashboard.model.newest_rows import gpu_table
from gpuvigil.config import AnalyzerSettings, CostSettings, PriceSettings
from gpuvigil.errors import ConfigError
from gpuvigil.model import SELFTEST_CLUSTER, Event, EventKind, Job, Record, Severity, Subject
from gpuvigil.schedulers.jobs import by_holder
from tests.dashboard.scene import (
    LONG_AGO,
    NOON,
    allocation,
    busy_fleet,
    gpu,
    heard,
    incident,
    inventory,
    node,
    pulses,
    row,
)
from tests.dashboard.servers import Feed
from tests.report.weeks import share, usage
from tests.servers import ROOT, HubProcess, QuickHub

pytestmark = pytest.mark.slow

FIRST, SECOND = node("n-1", "prod"), node("n-2", "prod")


def facts() -> Facts:
    """Job 7 of ann has four GPUs, one at 0 %; ben's processes have two at 0 %; one GPU is lost."""
    used_percent = {0: 90, 1: 70, 2: 80, 3: 0}
    rows = [row(gpu(i, FIRST), i, utilization_percent=v) for i, v in used_percent.items()]
    rows += [
        row(gpu(i, SECOND), i, utilization_percent=0, compute_processes=int(i < 2))
        for i in range(3)
    ]
    rows.append(
        row(
            gpu(3, SECOND),
            3,
            up=0,
            unmeasured_reason=3,
            utilization_percent=None,
            compute_processes=None,
        )
    )
    held = [allocation(gpu(i, FIRST), "job 7") for i in range(4)]
    held += [allocation(gpu(i, SECOND), f"pid {i}", "ben") for i in (0, 1)]
    held[0] = replace(held[0], partition="gpu", account="physics")
    idle = incident("gpu_idle_held", gpu(0, SECOND), Severity.WARNING, label="n-2 GPU 0")
    lost = incident(
        "gpu_lost", gpu(3, SECOND), Severity.CRITICAL, label="n-2 GPU 3", action="Look."
    )
    return Facts(
        now=NOON,
        gpus=gpu_table(rows),
        last_seen=heard([FIRST, SECOND]),
        inventories=(inventory(FIRST, 4), inventory(SECOND, 4)),
        allocations=tuple(held),
        incidents=(idle, lost),
        pulses=pulses(),
    )


@pytest.fixture(name="moment")
def moment_fixture() -> FleetNow:
    return moment_of(facts(), AnalyzerSettings())


def rows(grid: Grid) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(json_text(grid))
    return found


def test_status_names_the_worst_first_and_what_to_do_about_it(moment: FleetNow) -> None:
    grid = status.grid(moment)
    assert [(one["severity"], one["where"]) for one in rows(grid)] == [
        ("critical", "n-2 GPU 3"),
        ("warning", "n-2 GPU 0"),
    ]
    said = text(grid, 80)
    assert "prod: 8 GPUs: 3 active" in said
    assert "1 unavailable" in said
    assert said.splitlines()[-1] == "First: n-2 GPU 3: Look."
    quiet = replace(facts(), incidents=())
    calm = text(status.grid(moment_of(quiet, AnalyzerSettings())), 80)
    assert calm.splitlines()[-1] == "Nothing needs attention."
    cluster = moment.clusters[0]
    free = replace(cluster.strip, held_percent=0.0, used_percent=None)
    assert "; 0 % allocated; " in status.sentence(replace(cluster, strip=free))


def test_a_site_without_a_node_is_not_called_well() -> None:
    moment = moment_of(Facts(now=NOON, pulses=pulses(NOON)), AnalyzerSettings())
    assert text(status.grid(moment), 80).splitlines() == [
        "No node has reported yet: 'gpuvigil join' on each makes it report."
    ]
    assert status.exit_code(moment) == 3


def test_monitoring_reads_how_bad_it_is_from_the_exit_code(moment: FleetNow) -> None:
    critical, warning = moment.view.attention
    info = replace(warning, incident=replace(warning.incident, severity=Severity.INFO))
    blind = ("The analyzer service is silent.",)

    def code(*active: Attention, warnings: tuple[str, ...] = (), clusters: bool = True) -> int:
        view = replace(moment.view, attention=active, warnings=warnings)
        shown = moment.clusters if clusters else ()
        return status.exit_code(replace(moment, view=view, clusters=shown))

    assert code() == code(info) == 0
    assert code(warning) == code(info, warning, warnings=blind) == 1
    assert code(warning, critical) == code(critical, warnings=blind) == 2
    # Without an analyzer an empty list means nothing.
    assert code(warnings=blind) == code(info, warnings=blind) == 3
    # Of other clusters than the one that was asked for nothing counts.
    assert code(critical, clusters=False) == 0


def test_top_counts_a_job_and_the_processes_of_a_user_as_one_holder_each(moment: FleetNow) -> None:
    job, processes = rows(holders.top(moment))
    assert (job["holder"], job["user"], job["gpus"], job["idle_gpus"]) == ("job 7", "ann", 4, 1)
    assert (job["used_percent"], job["partition"], job["account"]) == (60.0, "gpu", "physics")
    assert (processes["holder"], processes["user"], processes["gpus"]) == ("processes", "ben", 2)
    assert job["held_for_seconds"] == (NOON - LONG_AGO).total_seconds()
    assert (job["nodes"], processes["nodes"]) == ("n-1", "n-2")


def test_programs_are_told_all_nodes_and_people_the_first(moment: FleetNow) -> None:
    wide = replace(holders.top(moment), rows=[[1, 0, *[None] * 5, "n-1 n-2 n-10", *[None] * 5]])
    assert json.loads(json_text(wide))[0]["nodes"] == "n-1 n-2 n-10"
    assert "n-1 +2" in text(wide, 80)


def test_idle_says_how_long_only_where_an_incident_does(moment: FleetNow) -> None:
    first, second = rows(holders.idle(moment, {}))
    assert (first["user"], first["idle_gpus"], first["gpus"]) == ("ben", 2, 2)
    assert first["idle_for_seconds"] == 60.0
    assert (second["user"], second["idle_gpus"], second["idle_for_seconds"]) == ("ann", 1, None)
    assert "not for long enough" in text(holders.idle(moment, {}), 80)
    busy = moment_of(busy_fleet([node("n-1", "prod")]), AnalyzerSettings())
    assert "No allocated GPU is idle now." in text(holders.idle(busy, {}), 80)


def test_idle_says_of_which_gpus_it_cannot_judge_and_what_is_missing(moment: FleetNow) -> None:
    assert "Cannot judge" not in text(holders.idle(moment, {}), 80)
    fields = ({"utilization_percent": None}, {"utilization_percent": 0, "compute_processes": None})
    blind = [row(gpu(i, SECOND), i, **fields[int(i == 3)]) for i in range(4)]
    unseen = replace(facts(), gpus=gpu_table(blind), incidents=(), allocations=())
    said = text(holders.idle(moment_of(unseen, AnalyzerSettings()), {}), 80)
    assert "Cannot judge 3 GPUs: utilisation not measured." in said
    assert "Cannot judge 1 GPU: processes not measured." in said


def test_idle_does_not_say_that_no_holder_is_known_where_some_are() -> None:
    one = node("n-1", "prod")
    cells = [row(gpu(i, one), i, compute_processes=None) for i in range(4)]
    exporters = replace(busy_fleet([one], 4), gpus=gpu_table(cells))

    def said(*known: int) -> str:
        held = tuple(allocation(gpu(i, one)) for i in known)
        moment = moment_of(replace(exporters, allocations=held), AnalyzerSettings())
        return " ".join(text(holders.idle(moment, {}), 80).split())

    assert "Who holds the GPUs is not known: a collector" in said()
    some = said(0, 1)
    assert "No allocated GPU is idle now. Who holds 2 of 4 GPUs is not known: a collector" in some
    assert "Who holds the GPUs" not in some
    assert "is not known" not in said(0, 1, 2, 3)


def test_idle_says_what_it_cost_where_there_is_a_price(moment: FleetNow) -> None:
    prices = Prices(settings=CostSettings(prices=(PriceSettings(per_gpu_hour=60.0),)))
    first, second = rows(holders.idle(moment, {}, prices))
    assert first["idle_cost"] == pytest.approx(1.0)  # of two GPUs one has been so for a minute
    assert second["idle_cost"] is None
    assert "COST EUR" in text(holders.idle(moment, {}, prices), 80)
    assert "idle_cost" not in rows(holders.idle(moment, {}))[0]


def held_since(moment: FleetNow, at: datetime) -> FleetNow:
    allocations = {
        gpu: tuple(replace(one, started_at=at) for one in held)
        for gpu, held in moment.allocations.items()
    }
    return replace(moment, allocations=allocations)


def test_who_takes_over_an_idle_gpu_is_not_charged_for_the_time_before(moment: FleetNow) -> None:
    prices = Prices(settings=CostSettings(prices=(PriceSettings(per_gpu_hour=60.0),)))
    taken_over = held_since(moment, NOON - timedelta(seconds=15))
    first = rows(holders.idle(taken_over, {}, prices))[0]
    assert (first["user"], first["idle_for_seconds"]) == ("ben", 15.0)
    assert first["idle_cost"] == pytest.approx(0.25)


def test_idle_says_why_from_what_was_measured_over_the_span(moment: FleetNow) -> None:
    still = {
        "utilization_percent_count": 1800,  # a tick of a second
        "utilization_percent_max": 0.0,
        "memory_utilization_percent_max": 0.0,
        "compute_processes_max": 1.0,
        "memory_used_bytes_min": 60e9,
        "memory_total_bytes_max": 80e9,
        "power_watts_min": 90.0,
        "power_limit_watts_max": 700.0,
        "power_watts_max": 95.0,
        "power_watts_mean": 92.0,
        "sm_activity_percent_max": 0.0,
        "clock_event_reasons_last": 1,
        "first_at": moment.now - timedelta(minutes=30),
    }
    busy = {**still, "utilization_percent_max": 90.0}
    spans = {gpu(i, FIRST).key: busy if i < 3 else still for i in range(4)}
    spans |= {gpu(0, SECOND).key: still, gpu(1, SECOND).key: busy}
    # Whoever had them before may have left them idle.
    assert reasons_of(held_since(moment, moment.now), spans, AnalyzerSettings()) == {}
    moment = held_since(moment, moment.now - timedelta(hours=2))
    found = reasons_of(moment, spans, AnalyzerSettings())
    assert found == {
        gpu(3, FIRST).key: Idleness.SOME_GPUS,
        gpu(0, SECOND).key: Idleness.MEMORY_PARKED,
    }
    # What a faster node sends says nothing of how much is missing here.
    spans[gpu(1, SECOND).key] = {**busy, "utilization_percent_count": 18_000}
    assert reasons_of(moment, spans, AnalyzerSettings()) == found
    spans[gpu(3, FIRST).key] = {**still, "utilization_percent_count": 200}
    found = reasons_of(moment, spans, AnalyzerSettings())
    assert found[gpu(3, FIRST).key] is Idleness.NO_DATA
    said = {one["user"]: one["why"] for one in rows(holders.idle(moment, found))}
    assert said == {"ben": "memory parked", "ann": "no trustworthy data"}


def test_who_names_the_holders_of_a_node_or_of_one_gpu(moment: FleetNow) -> None:
    found = rows(who.grid(moment, "n-2"))
    assert [(one["gpu"], one["state"], one["user"]) for one in found] == [
        ("0", "idle", "ben"),
        ("1", "idle", "ben"),
        ("2", "free", None),
        ("3", "unavailable", None),
    ]
    (one,) = rows(who.grid(moment, "n-1:3"))
    assert (one["holder"], one["used_percent"], one["uuid"]) == ("job 7", 0.0, gpu(3, FIRST).gpu)
    assert rows(who.grid(moment, f"n-1:{gpu(3, FIRST).gpu}")) == [one]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [("n-9", "there is no node 'n-9'"), ("n-1:9", "has no GPU '9'; it has 4 GPUs")],
)
def test_who_says_what_there_is_not(moment: FleetNow, wanted: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        who.grid(moment, wanted)


def test_who_asks_which_of_two_nodes_of_a_name_is_meant() -> None:
    both = busy_fleet([node("n-1", "a"), node("n-1", "b")], 1)
    with pytest.raises(ConfigError, match="--cluster"):
        who.grid(moment_of(both, AnalyzerSettings()), "n-1")
    assert rows(who.grid(moment_of(both, AnalyzerSettings(), "b"), "n-1"))[0]["cluster"] == "b"


def test_usage_adds_up_what_each_user_held() -> None:
    shares = [share("job 1", "ann", gpus=2), share("job 2", "ann"), share("processes", "ben")]
    counted = usage(shares)
    asked = [answered(counted)]
    by_user, by_job = (rows(used.grid(asked, by)) for by in ("user", "job"))
    hours = [float(str(one["gpu_hours"])) for one in by_user]
    total = sum(one.allocated for one in counted.shares) / 3600
    assert sum(hours) == pytest.approx(total, abs=0.01)
    assert [one["user"] for one in by_user] == ["ann", "ben"]
    assert {one["job"] for one in by_job} == {"job 1 (ann)", "job 2 (ann)", "processes (ben)"}
    shared = [float(str(one["share_percent"])) for one in by_job]
    assert sum(shared) == pytest.approx(100, abs=0.01)


def answered(counted: Usage) -> Answer:
    """A usage as its ledger."""
    length = counted.end - counted.start
    ledgers = map(Ledger.of, counted.buckets)
    whole = summed(ledgers, counted.cluster, counted.start, length, counted.end)
    return Answer(ledger=whole, until=counted.end, asked_until=counted.end, parts=(whole,))


def test_usage_by_node_model_and_state_adds_up_to_what_is_installed() -> None:
    counted = usage([share("job 1", "ann", gpus=2)])
    for by in ("node", "model", "state"):
        hours = [float(str(one["gpu_hours"])) for one in rows(used.grid([answered(counted)], by))]
        assert sum(hours) == pytest.approx(counted.seconds.installed / 3600, abs=0.01)


def test_usage_says_what_was_shared_and_how_far_it_is_counted() -> None:
    one = replace(share("processes", "ann"), shared=7200.0)
    answer = answered(usage([one]))
    early = replace(answer, until=answer.asked_until - timedelta(minutes=15))
    grid = used.grid([early], "user")
    assert "shared, not attributable" in grid.notes[0]
    assert any("counted until" in line for line in grid.head)
    assert not used.grid([answered(usage([share()]))], "user").notes


PRICES = Prices(
    settings=CostSettings(
        carbon_grams=400.0, prices=(PriceSettings(model="H100", per_gpu_hour=2.0),)
    )
)


def test_usage_says_what_hours_cost_where_they_have_a_price_and_else_no_word_of_money() -> None:
    priced = replace(share("job 1", "ann", gpus=2), model="H100")
    asked = answered(usage([priced, replace(share("job 2", "ben"), model="T4")]))
    ann, ben = sorted(rows(used.grid([asked], "user", PRICES)), key=lambda one: str(one["user"]))
    assert ann["cost"] == pytest.approx(2.0 * float(str(ann["gpu_hours"])))
    assert ann["idle_cost"] == pytest.approx(2.0 * float(str(ann["idle_gpu_hours"])))
    assert (ben["cost"], ben["idle_cost"]) == (None, None)
    grid = used.grid([asked], "user", PRICES)
    assert "COST EUR" in [column.title for column in grid.columns]
    (said,) = (line for line in grid.head if "allocated at 0 % = " in line)
    assert float(str(ben["idle_gpu_hours"])) > 0  # and has no price, so that it is not in it
    hours, cost = float(str(ann["idle_gpu_hours"])), float(str(ann["idle_cost"]))
    assert said == f"  {hours:,.1f} GPU-hours allocated at 0 % = {PRICES.formatted(cost)}"
    for by in used.BY:
        plain = used.grid([asked], by)
        assert not {"cost", "idle_cost"} & {column.key for column in plain.columns}
        assert "EUR" not in str((plain.head, plain.notes))


def test_what_a_state_costs_adds_up_to_what_the_installed_hours_cost() -> None:
    asked = answered(usage([share("job 1", "ann", gpus=2)]))
    models = {one["model"] for one in asked.ledger.places.to_pylist()}
    prices = (PriceSettings(model=models.pop(), per_gpu_hour=3.0),)
    of = Prices(settings=CostSettings(prices=prices))
    by_state, by_node = (rows(used.grid([asked], by, of)) for by in ("state", "node"))
    installed = 3.0 * asked.ledger.seconds.installed / 3600
    for found in (by_state, by_node):
        assert sum(float(str(one["cost"])) for one in found) == pytest.approx(installed)


def test_a_new_price_in_the_middle_counts_from_its_day_on() -> None:
    dearer = PriceSettings(model="H100", per_gpu_hour=4.0, since="2026-11-02")
    of = Prices(settings=CostSettings(prices=(*PRICES.settings.prices, dearer)))
    one = answered(usage([replace(share("job 1", "ann", gpus=2), model="H100")])).ledger
    day = datetime(2026, 11, 1, tzinfo=timezone.utc)
    parts = tuple(replace(one, start=day + timedelta(days=n)) for n in range(2))
    whole = summed(parts, one.cluster, day, 2 * one.length, one.counted_at)
    end = day + timedelta(days=2)
    asked = Answer(ledger=whole, until=end, asked_until=end, parts=parts)
    (ann,) = rows(used.grid([asked], "user", of))
    assert ann["cost"] == pytest.approx(3.0 * float(str(ann["gpu_hours"])))
    assert ann["most_gpus"] == 2


def test_usage_goes_by_account_and_partition_where_nodes_were_told() -> None:
    told = replace(share("job 1", "ann"), account="physics", partition="gpu")
    more = replace(share("job 2", "ben"), account="physics", partition="debug")
    asked = [answered(usage([told, more, share("processes", "ann")]))]
    accounts = {one["account"]: one["most_gpus"] for one in rows(used.grid(asked, "account"))}
    assert set(accounts) == {"physics", "unknown"}
    partitions = {one["partition"] for one in rows(used.grid(asked, "partition"))}
    assert partitions == {"gpu", "debug", "unknown"}


def of_a_job_that_failed() -> list[Record]:
    """Job 17 of ann had a GPU of n-9, which fell off the bus a minute before its end."""
    lost = gpu(0, Subject(cluster="prod", node="n-9"))
    held = replace(allocation(lost, "job 17"), ended_at=NOON, exit_code="1:0", command=None)
    held = replace(held, started_at=NOON - timedelta(hours=1))
    said = Job(
        told_by=Subject(cluster="prod", node="login"),
        number="17",
        state="FAILED",
        submitted_at=NOON - timedelta(hours=2),
        started_at=held.started_at,
        ended_at=NOON,
        seen_at=NOON,
        user="ann",
        name="train",
        nodes=("n-9",),
        exit_code="1:0",
    )
    xid = Event(
        kind=EventKind.XID, subject=lost, at=NOON - timedelta(minutes=1), id="n-9 xid 79", xid=79
    )
    return [held.to_record(), said.to_record(), xid.to_record()]


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with QuickHub(tmp_path_factory.mktemp("hub")) as hub, Feed(hub) as feed:
        held = allocation(gpu(0, Subject(cluster="simulated", node="sim-001")), "job 7")
        played = gpu(0, Subject(cluster=SELFTEST_CLUSTER, node="selftest-1"))
        marked = [allocation(played, f"job {number}").to_record() for number in (7, 18)]
        feed.hub.write_records([held.to_record(), *of_a_job_that_failed(), *marked])
        yield hub


def run(
    hub: HubProcess, command: str, *arguments: str, into: IO[str] | None = None
) -> subprocess.CompletedProcess[str]:
    config: Path = hub.directory / "terminal.toml"
    config.write_text(
        f'[hub]\nurl = "{hub.url}"\nservice_token_file = "{hub.service_token_file}"\n'
    )
    program = (
        f"import sys; from cli.table_commands import {command}_main as main;"
        " sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.run(
        [sys.executable, "-c", program, "--config", str(config), *arguments],
        cwd=ROOT,
        stdout=into or subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.mark.server
def test_the_commands_ask_a_real_hub(fed: HubProcess) -> None:
    done = run(fed, "top", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert {one["holder"] for one in json.loads(done.stdout)} == {"job 7", "unknown"}
    done = run(fed, "who", "sim-001:0", "--cluster", "simulated")
    assert done.returncode == 0, done.stderr
    shown = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert shown[shown.index("GPU") :][:2] == ["GPU", "0"]
    assert run(fed, "status").returncode == 0
    assert run(fed, "status", "--exit-code").returncode == 0
    assert run(fed, "status", "--exit-code", "--cluster", "nope").returncode == 3
    assert run(fed, "idle", "-o", "csv").stdout.startswith("idle_gpus,gpus,")
    done = run(fed, "usage", "--last", "15m", "-o", "json")
    assert done.returncode == 0, done.stderr
    done = run(fed, "why", "17", "-o", "json")
    assert done.returncode == 0, done.stderr
    first, end = json.loads(done.stdout)
    assert (first["what"].partition(":")[0], first["speaks_for"]) == ("Xid 79", "hardware")
    assert (end["what"], end["why"], end["user"]) == ("FAILED, exit code 1:0", "hardware", "ann")
    said = run(fed, "why", "17").stdout.splitlines()
    assert [line[:10] for line in said].count("2026-01-31") == 2
    assert not any("…" in line for line in said)
    # The selftest has a job 7 too, which is nobody's.
    assert "it is running" in run(fed, "why", "7").stdout


@pytest.mark.server
@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("queue", "No scheduler is read"),
        ("inefficient", "holder"),
        ("inference", "server"),
        ("lemons", "Nothing failed twice in 30 days."),
        ("rma", ""),
        ("idle", ""),
        ("usage", ""),
    ],
)
def test_a_command_without_rows_says_so_into_a_pipe(
    fed: HubProcess, command: str, says: str
) -> None:
    done = run(fed, command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert says in done.stdout


@pytest.mark.server
def test_what_is_wrong_is_one_line(fed: HubProcess) -> None:
    for command, arguments, said in (
        ("who", ["nope"], "there is no node 'nope'"),
        ("status", ["--cluster", "nope"], "--cluster nope: there is no such cluster"),
        ("usage", ["--last", "x"], "--last 'x' is no length"),
        ("why", ["4711"], "no scheduler or node has reported a job '4711'"),
        ("why", ["18"], "no scheduler or node has reported a job '18'"),
    ):
        done = run(fed, command, *arguments)
        assert done.returncode == 2
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert done.stdout == ""
    with Path("/dev/full").open("w") as full:  # a disk without room
        done = run(fed, "top", into=full)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "cannot be written: No space left" in done.stderr


def test_who_says_where_slurm_and_a_node_disagree() -> None:
    said = Job(
        told_by=node("login", "prod"),
        number="7",
        state="FAILED",
        submitted_at=LONG_AGO - timedelta(hours=1),
        ended_at=LONG_AGO - timedelta(minutes=30),
        seen_at=NOON,
        account="chemistry",
        name="train",
        nodes=("n-1",),
    )
    moment = with_jobs(moment_of(facts(), AnalyzerSettings()), by_holder([said]))
    grid = who.grid(moment, "n-1")
    assert "job 7: Slurm says it ended as FAILED, and no epilog told of it." in text(
        grid, 80
    ).replace("\n  ", " ")
    accounts = {one["gpu"]: one["account"] for one in rows(grid)}
    assert accounts == {"0": "physics", "1": "chemistry", "2": "chemistry", "3": "chemistry"}
