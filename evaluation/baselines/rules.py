"""The static rules that peers ship and enable, one row each with its source.

Only rules on fields of the catalogue can be written down; what a peer ships beside them is not judged
here. A rule is a limit on one field's aggregate over a span, a code in a list, or silence. The spans are
those of the peer: `SETTINGS` gives their length for each peer's rules. A code stands until the GPU is reset
or back, or its node boots.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from analyzer.correlation.all_detectors import Detector
from analyzer.window.index import Numbers
from analyzer.window.window import Need, Span, Window
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Event, EventKind, Evidence, Finding, Severity, Subject
from gpuvigil.store import Aggregate, Function

from ..judge.fault_names import NAMING

Test = Callable[[Numbers], Numbers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A limit, and what the peer reports when it is exceeded."""

    name: str
    names: tuple[str, ...]  # kinds of fault that its message names
    severity: Severity
    source: str
    measurement: str = "gpu"
    field: str = ""
    function: Function = Function.MAX
    span: Span = Span.RECENT
    test: Test = lambda values: values > 0
    xids: frozenset[int] = frozenset()
    fatal_sxids: bool = False  # any SXid that an NVSwitch calls fatal
    silent: timedelta | None = None  # how long the node has been silent

    @property
    def fault(self) -> str:
        return self.name + NAMING + "|".join(self.names)


def above(limit: float) -> Test:
    """Test for more than the limit."""
    return lambda values: values > limit


def least(limit: float) -> Test:
    """Test for the limit or more."""
    return lambda values: values >= limit


def equal(value: float) -> Test:
    """Test for exactly this value."""
    return lambda values: values == value


_GROWS = Function.INCREASE
_LAST = Function.LAST
_WARN, _FAIL = Severity.WARNING, Severity.CRITICAL
_DCGM = "NVIDIA/DCGM modules/health/DcgmHealthWatch.cpp"
_LIMITS = "NVIDIA/DCGM common/DcgmGPUHardwareLimits.h"
_GPUD = "leptonai/gpud components/accelerator/nvidia"
_NGE = "nvidia_gpu_exporter prometheusrule.yaml"
_NETDATA = "netdata health.d/dcgm.conf"
# Errors per minute and lane at a bit error rate of 1e-12, times 16 lanes, over a 1-minute window.
_REPLAYS_GEN5_X16 = 31.0

_DCGM_RULES = (
    Rule(
        name="dcgm pcie replay rate",
        names=("PCIe replays",),
        severity=_WARN,
        source=f"{_DCGM}: Gen5 x16, 31/min",
        field="pcie_replays",
        function=_GROWS,
        test=above(_REPLAYS_GEN5_X16),
    ),
    Rule(
        name="dcgm retired pages",
        names=("retired pages",),
        severity=_FAIL,
        source=f"{_LIMITS}: 63",
        field="retired_pages_uncorrected",
        function=_LAST,
        test=least(63),
    ),
    Rule(
        name="dcgm retired pages pending",
        names=("retired pages",),
        severity=_WARN,
        source=_DCGM,
        field="retired_pages_pending",
        function=_LAST,
    ),
    Rule(
        name="dcgm double-bit error",
        names=("ECC uncontained", "ECC contained"),
        severity=_FAIL,
        source=f"{_DCGM}: any volatile",
        field="ecc_uncorrected_errors",
        function=_GROWS,
    ),
    Rule(
        name="dcgm row remap failure",
        names=("remap failure",),
        severity=_FAIL,
        source=_DCGM,
        field="remap_failure",
        function=_LAST,
    ),
    Rule(
        name="dcgm uncorrectable remaps",
        names=("remap failure",),
        severity=_WARN,
        source=f"{_DCGM}: 512",
        field="remapped_rows_uncorrected",
        function=_LAST,
        test=least(512),
    ),
    Rule(
        name="dcgm thermal violation",
        names=("HW thermal", "heatsink"),
        severity=_WARN,
        source=f"{_DCGM}: any in 1 min",
        field="thermal_violation_seconds",
        function=_GROWS,
    ),
    Rule(
        name="dcgm power violation",
        names=("power brake", "PSU", "power feed"),
        severity=_WARN,
        source=f"{_DCGM}: any in 1 min",
        field="power_cap_seconds",
        function=_GROWS,
    ),
    Rule(
        name="dcgm nvlink replay",
        names=("NVLink replay",),
        severity=_FAIL,
        source=f"{_DCGM}: any",
        field="nvlink_replay_errors",
        function=_GROWS,
    ),
    Rule(
        name="dcgm nvlink recovery",
        names=("NVLink replay",),
        severity=_FAIL,
        source=f"{_DCGM}: any",
        field="nvlink_recovery_errors",
        function=_GROWS,
    ),
    # From 1 CRC error per second on it warns, from 100 on it fails; over the 60 s of the window.
    Rule(
        name="dcgm nvlink crc",
        names=("NVLink CRC",),
        severity=_WARN,
        source=f"{_DCGM}: 1/s",
        field="nvlink_crc_errors",
        function=_GROWS,
        test=least(60),
    ),
    Rule(
        name="dcgm nvlink crc fail",
        names=("NVLink CRC",),
        severity=_FAIL,
        source=f"{_DCGM}: 100/s",
        field="nvlink_crc_errors",
        function=_GROWS,
        test=least(6000),
    ),
    Rule(
        name="dcgm xid fail",
        names=("ECC uncontained", "off the bus", "GSP hang", "remap failure", "NVLink down"),
        severity=_FAIL,
        source=f"{_DCGM}: m_devastatingXids",
        xids=frozenset({48, 64, 74, 79, 95, 119, 120, 140}),
    ),
    Rule(
        name="dcgm xid warn",
        names=("ECC contained", "remap pending"),
        severity=_WARN,
        source=f"{_DCGM}: m_subsystemXids",
        xids=frozenset({31, 43, 62, 63, 94}),
    ),
    Rule(
        name="dcgm nvswitch fatal",
        names=("NVSwitch",),
        severity=_FAIL,
        source=f"{_DCGM}: DCGM_HEALTH_WATCH_NVSWITCH_FATAL",
        fatal_sxids=True,
    ),
)
_GPUD_RULES = (
    Rule(
        name="gpud remapped rows",
        names=("remap failure",),
        severity=_FAIL,
        source=f"{_GPUD}/remapped-rows",
        field="remap_failure",
        function=_LAST,
    ),
    Rule(
        name="gpud remap pending",
        names=("remap pending",),
        severity=_WARN,
        source=f"{_GPUD}/remapped-rows",
        field="remap_pending",
        function=_LAST,
    ),
    # 0.6 events a minute over 10 min; a second of slowdown counts as an event.
    Rule(
        name="gpud hw slowdown",
        names=("HW thermal",),
        severity=_FAIL,
        source=f"{_GPUD}/hw-slowdown: 0.6/min over 10 min",
        field="hardware_thermal_slowdown_seconds",
        function=_GROWS,
        span=Span.IDLE,
        test=least(6),
    ),
    Rule(
        name="gpud hw power brake",
        names=("power brake", "power feed", "PSU"),
        severity=_FAIL,
        source=f"{_GPUD}/hw-slowdown: 0.6/min over 10 min",
        field="power_brake_seconds",
        function=_GROWS,
        span=Span.IDLE,
        test=least(6),
    ),
    Rule(
        name="gpud gpu lost",
        names=("off the bus",),
        severity=_FAIL,
        source=f"{_GPUD}: a GPU that does not answer",
        field="up",
        function=_LAST,
        test=equal(0),
    ),
    Rule(
        name="gpud ib drop",
        names=("port down",),
        severity=_WARN,
        source="leptonai/gpud infiniband/store/scan_drops.go: 4 min",
        measurement="port",
        field="up",
        function=Function.MAX,
        span=Span.RECENT,
        test=equal(0),
    ),
    Rule(
        name="gpud ib flap",
        names=("port flap",),
        severity=_WARN,
        source="leptonai/gpud infiniband/store/scan_flaps.go: 3 in 12 h",
        measurement="port",
        field="link_downed",
        function=_GROWS,
        span=Span.FLAP,
        test=least(3),
    ),
    Rule(
        name="gpud xid fatal",
        names=("ECC uncontained", "off the bus", "GSP hang", "remap failure", "NVLink down"),
        severity=_FAIL,
        source=f"{_GPUD}/xid",
        xids=frozenset({48, 62, 63, 64, 74, 79, 94, 95, 119, 120, 140, 143}),
    ),
    Rule(
        name="gpud xid warn",
        names=(),
        severity=_WARN,
        source=f"{_GPUD}/xid",
        xids=frozenset({13, 31, 43, 109}),
    ),
    Rule(
        name="gpud fabric manager",
        names=("fabric manager",),
        severity=_FAIL,
        source=f"{_GPUD}/fabric-manager",
        field="fabric_state",
        function=_LAST,
        test=lambda values: (values == 1) | (values == 2),
    ),
    Rule(
        name="gpud sxid fatal",
        names=("NVSwitch",),
        severity=_FAIL,
        source=f"{_GPUD}/sxid",
        fatal_sxids=True,
    ),
)
_NGE_RULES = (
    # Active for 5 minutes, less the tick at which a counter is read.
    Rule(
        name="nge hw thermal slowdown",
        names=("HW thermal",),
        severity=_FAIL,
        source=f"{_NGE}: 5 min",
        field="hardware_thermal_slowdown_seconds",
        function=_GROWS,
        test=least(290),
    ),
    Rule(
        name="nge power brake",
        names=("power brake", "power feed"),
        severity=_FAIL,
        source=f"{_NGE}: 5 min",
        field="power_brake_seconds",
        function=_GROWS,
        test=least(290),
    ),
    Rule(
        name="nge xid critical",
        names=("ECC uncontained", "off the bus", "GSP hang", "remap failure", "NVLink down"),
        severity=_FAIL,
        source=_NGE,
        xids=frozenset({48, 62, 64, 74, 79, 95, 119, 120}),
    ),
    Rule(
        name="nge xid warning",
        names=("ECC contained",),
        severity=_WARN,
        source=_NGE,
        xids=frozenset({94}),
    ),
)
_NETDATA_RULES = (
    Rule(
        name="netdata thermal violation",
        names=("HW thermal", "heatsink"),
        severity=_WARN,
        source=f"{_NETDATA}: > 0 in 5 min",
        field="thermal_violation_seconds",
        function=_GROWS,
    ),
    Rule(
        name="netdata power violation",
        names=("power brake", "PSU", "power feed"),
        severity=_WARN,
        source=f"{_NETDATA}: > 0 in 5 min",
        field="power_cap_seconds",
        function=_GROWS,
    ),
)
# Hardly any site goes without this rule; it is the first example of Prometheus's own documentation.
_PROMETHEUS_RULES = (
    Rule(
        name="InstanceDown",
        names=("dead node", "dead collector", "cut off"),
        severity=_FAIL,
        source="Prometheus documentation, alerting rules: up == 0 for 5m, severity page",
        silent=timedelta(minutes=5),
    ),
)


# How far back each peer's rules look.
SETTINGS: Mapping[str, AnalyzerSettings] = {
    "DCGM health": AnalyzerSettings(window_seconds=60.0),
    "gpud": AnalyzerSettings(
        window_seconds=240.0, idle_after_seconds=600.0, port_flap_window_seconds=12 * 3600.0
    ),
    "nvidia_gpu_exporter": AnalyzerSettings(window_seconds=300.0),
    "netdata": AnalyzerSettings(window_seconds=300.0),
}


def detector(rule: Rule) -> Detector:
    """Return a rule as a detector."""
    needs: tuple[Need, ...] = ()
    if rule.field:
        aggregate = Aggregate(function=rule.function, field=rule.field)
        needs = (Need(measurement=rule.measurement, span=rule.span, aggregates=(aggregate,)),)
    return Detector(
        name=rule.name,
        find=lambda window: list(_findings(rule, window)),
        faults=(rule.fault,),
        needs=needs,
        reads_events=bool(rule.xids) or rule.fatal_sxids,
        sentence=rule.name,
        source=rule.source,
    )


def _findings(rule: Rule, window: Window) -> Iterator[Finding]:
    if rule.xids or rule.fatal_sxids:
        yield from _codes(rule, window)
        return
    if rule.silent is not None:
        yield from _silent(rule, rule.silent, window)
        return
    rows = window.get(rule.measurement, rule.span)
    column = Aggregate(function=rule.function, field=rule.field).column
    for subject, row in rows.where(rule.test(rows.values(column))):
        if subject.kind == "port" and not _was_up(window, subject):
            continue
        evidence = Evidence(name=rule.field, value=str(row[column]))
        yield Finding(
            fault=rule.fault,
            subject=subject,
            severity=rule.severity,
            since=row["first_at"],
            evidence=(evidence,),
            detector=rule.name,
            action="",
            source=rule.source,
            title=rule.name,
        )


def _was_up(window: Window, port: Subject) -> bool:
    """Return whether a port was up: peers have that in their configuration, here the inventory says it."""
    inventory = window.inventories.get(port.of_node().key)
    return inventory is None or any(
        known.was_up and (known.device, known.port) == (port.device, port.port)
        for known in inventory.ports
    )


def _codes(rule: Rule, window: Window) -> Iterator[Finding]:
    kind = EventKind.SXID if rule.fatal_sxids else EventKind.XID
    newest = {
        event.subject: event
        for event in window.all_events(kind)
        if event.xid in rule.xids or (rule.fatal_sxids and _FATAL.search(event.message))
    }
    for subject, event in newest.items():
        if not _is_cured(window, event):
            code = event.xid or event.sxid
            yield Finding(
                fault=rule.fault,
                subject=subject,
                severity=rule.severity,
                since=event.at,
                evidence=(Evidence(name="code", value=str(code)),),
                detector=rule.name,
                action="",
                source=rule.source,
                title=f"{rule.name}: {code}",
                xid=event.xid,
                sxid=event.sxid,
                certain=True,
            )


_FATAL = re.compile(r"(?<!non-)\bfatal\b", re.IGNORECASE)
_CURES = (EventKind.BOOT, EventKind.GPU_RESET, EventKind.GPU_BACK)


def _is_cured(window: Window, event: Event) -> bool:
    """Return whether something ended the fault since the event."""
    node = event.subject.of_node()
    return any(
        cure.at > event.at and cure.subject in {event.subject, node}
        for cure in window.node_events(node, *_CURES)
    )


def _silent(rule: Rule, after: timedelta, window: Window) -> Iterator[Finding]:
    for key, heard in window.last_seen.items():
        since = max(heard, window.listening_since or heard)
        if window.now - since > after:
            yield Finding(
                fault=rule.fault,
                subject=Subject.parse(key),
                severity=rule.severity,
                since=heard,
                evidence=(),
                detector=rule.name,
                action="",
                source=rule.source,
                title=rule.name,
                certain=True,
            )


RULES: Mapping[str, Sequence[Detector]] = {
    name: tuple(map(detector, rules))
    for name, rules in {
        "DCGM health": _DCGM_RULES,
        "gpud": _GPUD_RULES,
        "nvidia_gpu_exporter": _NGE_RULES,
        "netdata": _NETDATA_RULES,
        "Prometheus": _PROMETHEUS_RULES,
    }.items()
}
