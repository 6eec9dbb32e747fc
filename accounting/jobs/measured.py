"""The store queries about jobs, and how their rows become one job's figures: pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import fsum
from statistics import median
from typing import Any

from gpuvigil.store import Aggregate, Function

from .bound import COVERAGE, Activity, Steps

Row = Mapping[str, Any]
_MEAN, _MAX, _MIN, _LAST = Function.MEAN, Function.MAX, Function.MIN, Function.LAST
_COUNTED = Aggregate(function=Function.COUNT, field="utilization_percent")
_OF_GPUS = tuple(
    Aggregate(function=function, field=field)
    for function, field in (
        (_MEAN, "utilization_percent"),
        (_MAX, "utilization_percent"),
        (_MEAN, "sm_activity_percent"),
        (_MAX, "sm_activity_percent"),
        (_MEAN, "tensor_activity_percent"),
        (_MEAN, "dram_activity_percent"),
        (_MEAN, "power_watts"),
        (_MAX, "power_limit_watts"),
        (_MEAN, "sm_clock_hertz"),
        (Function.INCREASE, "nvlink_receive_bytes"),
        (_MAX, "nvlink_links_up"),
        (_MEAN, "pcie_receive_bytes_per_second"),
        (_MAX, "pcie_generation"),
        (_MAX, "pcie_width"),
    )
)
_OF_STEPS = tuple(
    Aggregate(function=function, field=field)
    for function, field in (
        (Function.INCREASE, "step"),
        (_MEAN, "step_seconds"),
        (_MEAN, "step_own_seconds"),
        (_MEAN, "step_input_seconds"),
        (_LAST, "checkpoint_age_seconds"),
        (_LAST, "rank"),
        (_MAX, "step_phase"),
        (_MEAN, "step_phase"),
    )
)
ASKED_OF_PORTS = (
    Aggregate(function=_MAX, field="speed_bits_per_second"),
    *(
        Aggregate(function=Function.INCREASE, field=field)
        for field in ("receive_bytes", "transmit_bytes", "receive_pause_microseconds")
    ),
)
# Bytes on a node's own disks and on network file systems; object stores are in neither.
READ = ("disk_read_bytes", "shared_read_bytes")
WRITTEN = ("disk_write_bytes", "shared_write_bytes")
# Bytes of the job itself, on its node's own disks.
OWN_READ, OWN_WRITTEN = "job_disk_read_bytes", "job_disk_write_bytes"
ASKED = (
    _COUNTED,
    *_OF_GPUS,
    *_OF_STEPS,
    *(Aggregate(function=Function.INCREASE, field=field) for field in (OWN_READ, OWN_WRITTEN)),
)
ASKED_OF_HOSTS = tuple(
    Aggregate(function=Function.INCREASE, field=field)
    for field in (
        "cpu_milliseconds",
        "cpu_busy_milliseconds",
        "cpu_pressure_microseconds",
        *READ,
        *WRITTEN,
    )
)
# Per lane and direction, in bytes a second after encoding (PCI-SIG's raw rates: 2.5, 5, 8, 16, 32, 64 GT/s).
_LANE_BYTES = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
# Per NVLink and direction (NVIDIA: 18 links are 900 GB/s both ways on H100, 1.8 TB/s on B200).
_LINK_BYTES, _NEWER_LINK_BYTES = 25e9, 50e9
_NEWER = ("B100", "B200", "B300", "GB10", "GB200", "GB300")
# Fewer steps than this in a span give no measure of the time between them [ours].
LEAST_STEPS = 5.0
# `step_phase` of a rank that writes a checkpoint or waits for it; evaluation and a stop have higher values.
_CHECKPOINT = 3.0
# A rate over less time says nothing.
_LEAST_SECONDS = 15.0
# A job communicates through the first of these that a node has, as in `Inventory.fabric_role`.
_ROLES = ("fabric", "storage", "management")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The traffic of one node's ports: shares of their speed, the mean over the ports of a role."""

    fabric_share: float | None = None
    fabric_wait_percent: float | None = None
    fabric_bytes_per_second: float | None = None
    storage_received_share: float | None = None
    storage_sent_share: float | None = None


Node = tuple[str, str]  # cluster, node


def ports_of(rows: Iterable[Row]) -> Mapping[Node, Ports]:
    """Return the ports by node, from rows of `ASKED_OF_PORTS`."""
    by_node: dict[Node, dict[str, list[_Port]]] = {}
    for row in rows:
        port = _port(row)
        if port is not None:
            roles = by_node.setdefault((row["cluster"], row["node"]), {})
            roles.setdefault(row["role"] or "management", []).append(port)
    return {node: _node_ports(roles) for node, roles in by_node.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The load of one node's processors, and what was read and written on it."""

    cpu_percent: float | None = None
    cpu_pressure_percent: float | None = None
    read_bytes_per_second: float | None = None
    written_bytes_per_second: float | None = None


def hosts_of(rows: Iterable[Row]) -> Mapping[Node, Host]:
    """Return the hosts by node, from rows of `ASKED_OF_HOSTS`."""
    return {(row["cluster"], row["node"]): _host(row) for row in rows}


def _host(row: Row) -> Host:
    seconds, waited = _length(row), row["cpu_pressure_microseconds_increase"]
    if seconds is None:
        return Host()
    share = _of(row["cpu_busy_milliseconds_increase"], row["cpu_milliseconds_increase"])
    return Host(
        cpu_percent=None if share is None else 100.0 * share,
        cpu_pressure_percent=None if waited is None else min(waited / seconds / 1e4, 100.0),
        read_bytes_per_second=_moved(row, READ, seconds),
        written_bytes_per_second=_moved(row, WRITTEN, seconds),
    )


def _moved(row: Row, names: Iterable[str], seconds: float) -> float | None:
    """Return the bytes a second over all the counters that were measured; None where none was."""
    told = [it for name in names if (it := row[f"{name}_increase"]) is not None]
    return fsum(told) / seconds if told else None


@dataclass(frozen=True, slots=True)
class _Port:
    received: float  # bytes a second
    sent: float
    wait_percent: float | None
    speed: float | None  # bytes a second


def _port(row: Row) -> _Port | None:
    seconds = _length(row)
    received, sent = row["receive_bytes_increase"], row["transmit_bytes_increase"]
    if seconds is None or received is None or sent is None:
        return None
    waited, bits = row["receive_pause_microseconds_increase"], row["speed_bits_per_second_max"]
    return _Port(
        received=received / seconds,
        sent=sent / seconds,
        wait_percent=None if waited is None else min(waited / seconds / 1e4, 100.0),
        speed=bits / 8.0 if bits else None,
    )


def _length(row: Row) -> float | None:
    """Return the seconds between a row's first and last line; None where that is too short for a rate."""
    seconds: float = (row["last_at"] - row["first_at"]).total_seconds()
    return seconds if seconds >= _LEAST_SECONDS else None


def _node_ports(roles: Mapping[str, Sequence[_Port]]) -> Ports:
    talks = next(role for role in _ROLES if role in roles) if set(roles) & set(_ROLES) else ""
    fabric = roles.get(talks, ())
    storage = roles.get("storage", ()) if talks == "fabric" else ()
    return Ports(
        fabric_share=_share([(max(it.received, it.sent), it.speed) for it in fabric]),
        fabric_wait_percent=_mean([it.wait_percent for it in fabric]),
        fabric_bytes_per_second=fsum(max(it.received, it.sent) for it in fabric)
        if fabric
        else None,
        storage_received_share=_share([(it.received, it.speed) for it in storage]),
        storage_sent_share=_share([(it.sent, it.speed) for it in storage]),
    )


def _share(moved: Sequence[tuple[float, float | None]]) -> float | None:
    """Return the share of the summed speeds; None where a speed is missing."""
    speeds = [speed for _, speed in moved if speed]
    if not speeds or len(speeds) < len(moved):
        return None
    return fsum(bytes_ for bytes_, _ in moved) / fsum(speeds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One GPU of a job over the span; None is not measured."""

    key: str
    coverage: float
    utilization_percent: float | None = None
    utilization_most_percent: float | None = None
    sm_percent: float | None = None
    sm_most_percent: float | None = None
    tensor_percent: float | None = None
    dram_percent: float | None = None
    watts: float | None = None
    limit_watts: float | None = None
    clock_hertz: float | None = None
    nvlink_bytes_per_second: float | None = None
    nvlink_share: float | None = None
    pcie_bytes_per_second: float | None = None
    pcie_share: float | None = None
    steps_made: float | None = None
    step_seconds: float | None = None  # of its last steps, also where it makes none now
    own_seconds: float | None = None
    input_seconds: float | None = None
    outside_share: float | None = None  # share of the span in no step
    checkpoint_age_seconds: float | None = None
    checkpoint_share: float | None = None  # upper bound of the share of the span
    # By its whole job on its node's own disks, as the job's control group counts them.
    read_bytes_per_second: float | None = None
    written_bytes_per_second: float | None = None
    node: Node | None = None
    number: int | None = None  # as its program numbers it
    span_seconds: float | None = None  # time for which it was seen

    @property
    def after_own_seconds(self) -> float | None:
        """The part of a step after the rank's own work: the rest of the passes, communication and waits."""
        if self.step_seconds is None or self.own_seconds is None:
            return None
        return max(self.step_seconds - self.own_seconds - (self.input_seconds or 0.0), 0.0)


def rank(key: str, row: Row | None, span: timedelta, tick_seconds: float) -> Rank:
    """Read a row of `ASKED`; a row of None, where the store has nothing on the GPU, has a coverage of 0."""
    if row is None:
        return Rank(key=key, coverage=0.0)
    expected = max(span.total_seconds() / tick_seconds, 1.0)
    seconds = _length(row)
    nvlink = _rate(row.get("nvlink_receive_bytes_increase"), seconds)
    pcie = row.get("pcie_receive_bytes_per_second_mean")
    return Rank(
        key=key,
        coverage=min((row[_COUNTED.column] or 0) / expected, 1.0),
        utilization_percent=row["utilization_percent_mean"],
        utilization_most_percent=row["utilization_percent_max"],
        sm_percent=row["sm_activity_percent_mean"],
        sm_most_percent=row.get("sm_activity_percent_max"),
        tensor_percent=row["tensor_activity_percent_mean"],
        dram_percent=row["dram_activity_percent_mean"],
        watts=row["power_watts_mean"],
        limit_watts=row["power_limit_watts_max"],
        clock_hertz=row["sm_clock_hertz_mean"],
        nvlink_bytes_per_second=nvlink,
        nvlink_share=_of(nvlink, _nvlink_speed(row)),
        pcie_bytes_per_second=pcie,
        pcie_share=_of(pcie, _pcie_speed(row)),
        steps_made=row.get("step_increase"),
        step_seconds=row.get("step_seconds_mean"),
        own_seconds=row.get("step_own_seconds_mean"),
        input_seconds=row.get("step_input_seconds_mean"),
        outside_share=_outside(row, seconds),
        checkpoint_age_seconds=row.get("checkpoint_age_seconds_last"),
        checkpoint_share=_in_checkpoint(row),
        read_bytes_per_second=_rate(row.get(f"{OWN_READ}_increase"), seconds),
        written_bytes_per_second=_rate(row.get(f"{OWN_WRITTEN}_increase"), seconds),
        node=(row["cluster"], row["node"]),
        number=None if row.get("rank_last") is None else int(row["rank_last"]),
        span_seconds=seconds,
    )


def _rate(moved: float | None, seconds: float | None) -> float | None:
    return None if moved is None or seconds is None else moved / seconds


def _of(value: float | None, whole: float | None) -> float | None:
    return None if value is None or not whole else value / whole


def _nvlink_speed(row: Row) -> float | None:
    links: float | None = row["nvlink_links_up_max"]
    newer = any(name in (row.get("model") or "") for name in _NEWER)
    return None if not links else links * (_NEWER_LINK_BYTES if newer else _LINK_BYTES)


def _pcie_speed(row: Row) -> float | None:
    lane = _LANE_BYTES.get(int(row["pcie_generation_max"] or 0))
    lanes: float | None = row["pcie_width_max"]
    return None if lane is None or not lanes else lane * lanes


def _outside(row: Row, seconds: float | None) -> float | None:
    steps, length = row.get("step_increase"), row.get("step_seconds_mean")
    if steps is None or length is None or seconds is None or steps < LEAST_STEPS:
        return None
    share: float = 1.0 - steps * length / seconds
    return min(max(share, 0.0), 1.0)


def _in_checkpoint(row: Row) -> float | None:
    """Return an upper bound by the mean of its phases; None if none was reported, or a higher phase hides it."""
    most, mean = row.get("step_phase_max"), row.get("step_phase_mean")
    if most is None or mean is None or most > _CHECKPOINT:
        return None
    return float(mean) / _CHECKPOINT if most == _CHECKPOINT else 0.0


def activity(
    ranks: Sequence[Rank],
    nodes: Iterable[Node],
    ports: Mapping[Node, Ports],
    hosts: Mapping[Node, Host],
    with_others: Collection[Node] = (),
) -> Activity:
    """Return a job's activity from all its GPUs and from the ports and hosts of its nodes.

    On nodes that it has with others, only what the job itself reads and writes counts.
    """
    here = list(nodes)
    of_hosts = [
        _without_others(hosts.get(node, Host()), node, ranks)
        if node in with_others
        else hosts.get(node, Host())
        for node in here
    ]
    of_ports = [ports.get(node, Ports()) for node in here]

    def mean(name: str, of: Sequence[object] = ranks) -> float | None:
        return _mean([getattr(one, name) for one in of])

    most = [
        one.utilization_most_percent for one in ranks if one.utilization_most_percent is not None
    ]
    return Activity(
        gpus=len(ranks),
        nodes=len(here),
        coverage=fsum(one.coverage for one in ranks) / len(ranks) if ranks else 0.0,
        utilization_percent=mean("utilization_percent"),
        utilization_most_percent=max(most, default=None),
        sm_percent=mean("sm_percent"),
        sm_most_percent=mean("sm_most_percent"),
        tensor_percent=mean("tensor_percent"),
        dram_percent=mean("dram_percent"),
        power_share=_share(
            [(one.watts, one.limit_watts) for one in ranks if one.watts is not None]
        ),
        nvlink_bytes_per_second=mean("nvlink_bytes_per_second"),
        nvlink_share=mean("nvlink_share"),
        pcie_bytes_per_second=mean("pcie_bytes_per_second"),
        pcie_share=mean("pcie_share"),
        fabric_share=mean("fabric_share", of_ports),
        fabric_wait_percent=mean("fabric_wait_percent", of_ports),
        fabric_bytes_per_second=mean("fabric_bytes_per_second", of_ports),
        storage_received_share=mean("storage_received_share", of_ports),
        storage_sent_share=mean("storage_sent_share", of_ports),
        cpu_percent=mean("cpu_percent", of_hosts),
        cpu_pressure_percent=mean("cpu_pressure_percent", of_hosts),
        read_bytes_per_second=mean("read_bytes_per_second", of_hosts),
        # The maximum, since one rank may write for all.
        written_bytes_per_second=max(
            (it for one in of_hosts if (it := one.written_bytes_per_second) is not None),
            default=None,
        ),
        with_others=not set(here).isdisjoint(with_others),
        steps=steps_of(ranks),
        checkpoint_share=_middle([one.checkpoint_share for one in ranks]),
        checkpoints=any(map(_wrote, ranks)),
    )


def _without_others(host: Host, node: Node, ranks: Iterable[Rank]) -> Host:
    """Return the host with what the job reads and writes on it, which each of its GPUs there says."""
    mine = [one for one in ranks if one.node == node]
    read = [it for one in mine if (it := one.read_bytes_per_second) is not None]
    written = [it for one in mine if (it := one.written_bytes_per_second) is not None]
    return replace(
        host,
        read_bytes_per_second=max(read, default=None),
        written_bytes_per_second=max(written, default=None),
    )


def steps_of(ranks: Sequence[Rank]) -> Steps | None:
    """Return the steps by the ranks that make any; None where these are too few of the job's GPUs."""
    told = [one for one in ranks if one.step_seconds and one.steps_made != 0.0]
    if not told or len(told) < COVERAGE * len(ranks):
        return None
    return Steps(
        seconds=median(one.step_seconds or 0.0 for one in told),
        ranks=len(told),
        own_seconds=_middle([one.own_seconds for one in told]),
        input_seconds=_middle([one.input_seconds for one in told]),
        outside_share=_middle([one.outside_share for one in told]),
    )


def _wrote(one: Rank) -> bool:
    """Return whether the rank's last checkpoint was written within the span seen."""
    age, seen = one.checkpoint_age_seconds, one.span_seconds
    return age is not None and seen is not None and age < seen


def checkpoint_age(ranks: Iterable[Rank]) -> timedelta | None:
    """Return the age of the job's last checkpoint: the oldest of its ranks' ages; None without any."""
    ages = [one.checkpoint_age_seconds for one in ranks if one.checkpoint_age_seconds is not None]
    return timedelta(seconds=max(ages)) if ages else None


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the measured values; None where they are too few."""
    seen = [value for value in values if value is not None]
    return fsum(seen) / len(seen) if seen and len(seen) >= COVERAGE * len(values) else None


def _middle(values: Sequence[float | None]) -> float | None:
    seen = [value for value in values if value is not None]
    return median(seen) if seen and len(seen) >= COVERAGE * len(values) else None


def whole_span(started: datetime, span: tuple[datetime, datetime]) -> bool:
    """Return whether a job ran for the whole span: measurements before its start belong to other jobs."""
    return started <= span[0]
