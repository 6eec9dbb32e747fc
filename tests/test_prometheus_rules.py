"""The shipped alert rules, by Prometheus's own `promtool`: each fires above its limit and not below."""

import json
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuvigil import metrics
from gpuvigil.faults.xids import xids
from gpuvigil.model import Severity

PROMETHEUS = Path(__file__).parent.parent / "packaging/prometheus"
RULES = PROMETHEUS / "gpuvigil.rules.yml"
INCIDENTS = PROMETHEUS / "gpuvigil-incidents.rules.yml"
ITSELF = PROMETHEUS / "gpuvigil-itself.rules.yml"
FILES = (RULES, INCIDENTS, ITSELF)
HUB = "hub_busy_answers hub_dropped_lines hub_failed_commits hub_failed_tidying"
# What the other services show, each with a test of its own there.
OTHERS = {f"gpuvigil_{name}_total" for name in HUB.split()} | {
    "gpuvigil_analyzer_last_pass_timestamp_seconds",
    "gpuvigil_analyzer_failing_detectors",
    "gpuvigil_alerts_failures_in_a_row",
    "gpuvigil_gpu_held",
    "gpuvigil_incidents",
    "gpuvigil_incidents_not_shown",
}

Series = Mapping[str, str]  # values in promtool's notation, by name and further labels


@dataclass(frozen=True)
class Case:
    """Series of a node where the alert fires, and of one that is just below its limit; a sample a minute."""

    alert: str
    bad: Series
    well: Series
    minutes: int = 20
    file: Path = RULES


def stays(value: float, minutes: int = 100) -> str:
    return f"{value}x{minutes}"


def rises(step: float, minutes: int = 100) -> str:
    return f"0+{step}x{minutes}"


IDLE = {"gpu_utilization_percent": stays(0), "gpu_compute_processes": stays(1)}
CASES = (
    Case(
        "GpuvigilXidCritical",
        {'gpu_xids_total{xid="79"}': "_x15 1x20"},
        {'gpu_xids_total{xid="79"}': "1x35", 'gpu_xids_total{xid="13"}': "_x15 1x20"},
    ),
    Case(
        "GpuvigilXidCritical",
        {'gpu_xids_total{xid="48"}': "1x15 2x20"},
        {'gpu_xids_total{xid="48"}': "1x5 2x30"},
    ),
    Case(
        "GpuvigilXidWarning",
        {'gpu_xids_total{xid="32"}': "_x15 1x20"},
        {'gpu_xids_total{xid="31"}': "_x15 1x20"},
    ),
    Case("GpuvigilGpuLost", {"gpu_up": "1x15 0x20"}, {"gpu_up": "1x19 0x20"}),
    Case("GpuvigilGpuLost", {"gpu_pcie_present": "1x15 0x20"}, {"gpu_pcie_present": stays(1)}),
    Case(
        "GpuvigilDriverSilent",
        {"node_driver_answering": "1x16 0x20"},
        {"node_driver_answering": "1x18 0x20"},
    ),
    Case(
        "GpuvigilEccUncorrected",
        {"gpu_ecc_uncorrected_errors_total": "3x15 4x20"},
        {"gpu_ecc_uncorrected_errors_total": "3x5 4x30"},
    ),
    Case("GpuvigilRowRemapFailed", {"gpu_remap_failure": "1x30"}, {"gpu_remap_failure": "0x30"}),
    Case("GpuvigilRowRemapPending", {"gpu_remap_pending": "1x30"}, {"gpu_remap_pending": "0x30"}),
    Case(
        "GpuvigilGpuHot",
        {"gpu_hardware_thermal_slowdown_seconds_total": rises(6.6)},
        {"gpu_hardware_thermal_slowdown_seconds_total": rises(5.4)},
    ),
    Case(
        "GpuvigilNvlinkErrors",
        {"gpu_nvlink_crc_errors_total": "0x15 11x30"},
        {"gpu_nvlink_crc_errors_total": "0x15 9x30"},
        40,
    ),
    Case(
        "GpuvigilNvlinkDown",
        {"gpu_nvlink_links_up": stays(17), "gpu_nvlink_links_expected": stays(18)},
        {"gpu_nvlink_links_up": stays(18), "gpu_nvlink_links_expected": stays(18)},
    ),
    Case(
        "GpuvigilGpuIdleHeld",
        IDLE,
        {**IDLE, "gpu_utilization_percent": "0x30 1x70"},
        70,
    ),
    Case("GpuvigilGpuIdleHeld", IDLE, {"gpu_utilization_percent": stays(0)}, 70),
    Case(
        "GpuvigilGpuIdleHeld",
        {"gpu_utilization_percent": stays(0), 'gpu_held{holder="job 7"}': stays(1)},
        {**IDLE, "gpu_utilization_percent": "_x30 0x70"},
        70,
    ),
    Case(
        "GpuvigilPortDown",
        {"port_up": stays(0), "port_link_downed_total": stays(1)},
        {"port_up": stays(0), "port_link_downed_total": stays(0)},
    ),
    Case(
        "GpuvigilPortDown",
        {"port_up": stays(0), "port_link_downed_total": stays(1), "port_enabled": stays(1)},
        {"port_up": stays(0), "port_link_downed_total": stays(1), "port_enabled": stays(0)},
    ),
    Case(
        "GpuvigilPortFlapping",
        {"port_link_downed_total": "0x14 3x30"},
        {"port_link_downed_total": "0x14 2x30"},
    ),
    Case(
        "GpuvigilPortErrors",
        {"port_symbol_errors_total": "0x14 21x30"},
        {"port_symbol_errors_total": "0x14 17x30"},
    ),
    Case(
        "GpuvigilPortErrors",
        {"port_receive_errors_total": rises(660)},
        {"port_receive_errors_total": rises(540)},
    ),
    Case(
        "GpuvigilNodeSilent",
        {"node_last_tick_timestamp_seconds": "0+60x9 stale _x20"},
        {"node_last_tick_timestamp_seconds": "0+60x13 stale _x20"},
        18,
    ),
    Case(
        "GpuvigilCollectorStands",
        {"node_last_tick_timestamp_seconds": "0+60x17 1020x20"},
        {"node_last_tick_timestamp_seconds": "0+60x18 1080x20"},
    ),
    Case(
        "GpuvigilGpusMissing",
        {"node_gpus_answering": stays(7), "node_gpus_expected": stays(8)},
        {"node_gpus_answering": stays(8), "node_gpus_expected": stays(8)},
    ),
    Case("GpuvigilHostFails", {"node_fans_failed": stays(1)}, {"node_fans_failed": stays(0)}),
    Case("GpuvigilHostFails", {"node_mounts_hung": stays(1)}, {"node_mounts_hung": stays(0)}),
    Case(
        "GpuvigilCollectorDropsData",
        {"node_dropped_bodies_total": "0x15 1x20"},
        {"node_dropped_bodies_total": "0x5 1x30"},
    ),
    Case(
        "GpuvigilCollectorDropsData",
        {"node_spool_writable": "1x15 0x20"},
        {"node_spool_writable": "1x30"},
    ),
    Case(
        "GpuvigilHubFull", {"hub_busy_answers_total": rises(1)}, {"hub_busy_answers_total": "5x99"}
    ),
    Case(
        "GpuvigilHubFull",
        {"hub_dropped_lines_total": rises(1)},
        {"hub_dropped_lines_total": "5x99"},
    ),
    Case(
        "GpuvigilHubFails",
        {"hub_failed_commits_total": rises(1)},
        {"hub_failed_commits_total": "5x99"},
    ),
    Case(
        "GpuvigilAnalyzerStands",
        {"analyzer_last_pass_timestamp_seconds": "0+60x17 1020x20"},
        {"analyzer_last_pass_timestamp_seconds": "0+60x18 1080x20"},
    ),
    Case(
        "GpuvigilAnalyzerStands",
        {"analyzer_failing_detectors": stays(1)},
        {"analyzer_failing_detectors": stays(0)},
    ),
    Case(
        "GpuvigilScrapeFails",
        {'up{job="gpuvigil-server"}': "1x13 0x20"},
        {'up{job="gpuvigil-server"}': "1x16 0x20"},
    ),
    Case(
        "GpuvigilMessagesFail",
        {'alerts_failures_in_a_row{channel="chat"}': stays(3)},
        {'alerts_failures_in_a_row{channel="chat"}': stays(2)},
    ),
    *(
        Case(
            f"GpuvigilIncident{severity.value.title()}",
            {f'incidents{{severity="{severity.value}",held="no"}}': stays(1)},
            {f'incidents{{severity="{severity.value}",held="yes"}}': stays(1)},
            file=INCIDENTS,
        )
        for severity in Severity
    ),
    Case(
        "GpuvigilIncidentsNotShown",
        {"incidents_not_shown": stays(1)},
        {"incidents_not_shown": stays(0)},
        file=INCIDENTS,
    ),
)


@pytest.fixture(scope="module")
def promtool(needs: Callable[[str, str], str]) -> Callable[..., str]:
    program = needs("promtool", "scripts/install-test-servers")

    def run(*arguments: object) -> str:
        done = subprocess.run(
            [program, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def read(file: Path) -> list[dict[str, Any]]:
    groups = yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def given(node: str, series: Series) -> list[dict[str, str]]:
    found = []
    for name, values in series.items():
        metric, _, labels = name.rstrip("}").partition("{")
        own = f'cluster="c",node="{node}",uuid="GPU-{node}",device="mlx5_0",port="1"'
        more = f",{labels}" if labels else ""
        whole = metric if metric == "up" else f"gpuvigil_{metric}"
        found.append({"series": f"{whole}{{{own}{more}}}", "values": values})
    return found


def test_promtool_finds_nothing_wrong(promtool: Callable[..., str]) -> None:
    said = promtool("check", "rules", *FILES)
    for file in FILES:
        assert f"SUCCESS: {len(read(file))} rules found" in said
    config = PROMETHEUS / "scrape.yml"
    assert "SUCCESS" in promtool("check", "config", "--syntax-only", config)
    named = yaml.safe_load(config.read_text(encoding="utf-8"))["rule_files"]
    assert {Path(it).name for it in named} == {INCIDENTS.name, ITSELF.name}


@pytest.mark.medium
def test_each_rule_fires_above_its_limit_and_not_below(
    promtool: Callable[..., str], tmp_path: Path
) -> None:
    every = [rule["alert"] for file in FILES for rule in read(file)]
    assert {case.alert for case in CASES} == set(every)
    assert len(every) == len(set(every))
    tests = [
        {
            "interval": "1m",
            "name": case.alert,
            "input_series": [*given("bad", case.bad), *given("well", case.well)],
            "promql_expr_test": [
                {
                    "expr": f'group by (alertname, node) (ALERTS{{alertstate="firing",alertname="{case.alert}"}})',
                    "eval_time": f"{case.minutes}m",
                    "exp_samples": [
                        {"labels": f'{{alertname="{case.alert}",node="bad"}}', "value": 1}
                    ],
                }
            ],
        }
        for case in CASES
    ]
    file = tmp_path / "tests.yml"
    # YAML holds JSON.
    whole = {
        "rule_files": list(map(str, FILES)),
        "evaluation_interval": "1m",
        "tests": tests,
    }
    file.write_text(json.dumps(whole), encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", file)


WORDS = (
    (
        INCIDENTS,
        'gpuvigil_incidents{cluster="c",node="n1",fault="f",title="Fan failed",severity="critical",held="no"}',
        "GpuvigilIncidentCritical",
        "Fan failed: n1",
        "Incidents of this kind (`f`) that stand on node n1 of cluster c: 2. gpuvigil's page *Incidents*,"
        " or `gpuvigil why n1`, says since when, by what evidence, and what to do first.",
    ),
    (
        INCIDENTS,
        'gpuvigil_incidents{cluster="c",fault="f",title="Leaf is down",severity="critical",held="no"}',
        "GpuvigilIncidentCritical",
        "Leaf is down: c",
        "Incidents of this kind (`f`) that stand on cluster c: 2. gpuvigil's page *Incidents*"
        " says since when, by what evidence, and what to do first.",
    ),
    (
        RULES,
        'gpuvigil_node_fans_failed{cluster="c",node="n1"}',
        "GpuvigilHostFails",
        "A fan of n1 fails",
        "The node itself tells of a fan that fails or does not answer. `ipmitool sel list` or the BMC names a"
        " part of the machine, the kernel log a mount. With gpuvigil's services: `gpuvigil why n1`.",
    ),
)


@pytest.mark.parametrize(("file", "series", "alert", "summary", "description"), WORDS)
def test_an_alert_alone_says_what_is_wrong_and_where(
    promtool: Callable[..., str],
    tmp_path: Path,
    file: Path,
    series: str,
    alert: str,
    summary: str,
    description: str,
) -> None:
    (rule,) = [it for it in read(file) if it["alert"] == alert]
    named = dict(re.findall(r'(\w+)="([^"]*)"', series)) | rule["labels"]
    if file is RULES:
        named["part"] = "fan"
    expected = {
        "exp_labels": named,
        "exp_annotations": {"summary": summary, "description": description},
    }
    whole = {
        "rule_files": [str(file)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": series, "values": "2x10"}],
                "alert_rule_test": [
                    {"eval_time": "5m", "alertname": alert, "exp_alerts": [expected]}
                ],
            }
        ],
    }
    tests = tmp_path / "tests.yml"
    # YAML holds JSON.
    tests.write_text(json.dumps(whole), encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", tests)


def test_every_metric_that_a_rule_asks_for_is_shown_somewhere() -> None:
    shown = {metric.prometheus for one in metrics.EXPORTED for metric in one.metrics} | OTHERS
    for file in FILES:
        for rule in read(file):
            asked = set(re.findall(r"gpuvigil_\w+", rule["expr"]))
            assert asked or rule["expr"].startswith("up{job=")
            assert asked <= shown, rule["alert"]
            assert rule["labels"]["severity"] in {it.value for it in Severity}
            assert set(rule["annotations"]) == {"summary", "description"}


def test_xids_are_as_severe_as_in_gpuvigils_own_table() -> None:
    wanted = {severity: set[int]() for severity in Severity}
    for row in xids().values():
        wanted[row.severity].add(row.code)
    rules = {rule["alert"]: rule["expr"] for rule in read(RULES)}

    def codes(alert: str, sign: str) -> list[set[int]]:
        found = re.findall(rf'xid{sign}"([\d|]+)"', rules[alert])
        return [set(map(int, one.split("|"))) for one in found]

    assert codes("GpuvigilXidCritical", "=~") == [wanted[Severity.CRITICAL]] * 2
    left_out = wanted[Severity.CRITICAL] | wanted[Severity.INFO]
    assert codes("GpuvigilXidWarning", "!~") == [left_out] * 2
