"""Which faults the selftest makes happen: at least one for each detector of the analyzer.

Each has a node of its own, so that none explains another, and tells what a collector would tell of
it: numbers tick by tick, the hour before included, and events. Numbers are far beyond the limits
that `docs/detectors.md` names; where a limit is a setting, it is asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import EventKind, PortIdentity, Unmeasured

GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Grows:
    """The value of a counter that grows by so much a second."""

    per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """A number that was another one until a recent span before the selftest began."""

    before: float
    after: float


Fields = Mapping[str, "float | Grows | Turns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An event, so many seconds before the faults are told; about the first GPU or port, or the node."""

    kind: EventKind
    on: str = "node"  # or "gpu", "port"
    seconds_ago: float = 1.0
    xid: int | None = None
    sxid: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Who holds, or held, the first GPUs; in seconds before the selftest begins."""

    holder: str
    gpus: int = 1
    started_ago: float
    ended_ago: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: which rule has to find it, and what the nodes that have it tell."""

    rule: str  # the detector
    fault: str  # a key of `gpuvigil.faults.FAULTS`
    nodes: int = 1
    gpus: Sequence[Fields] = ()  # the first GPUs, a line each tick; of the others nothing is read
    port: PortIdentity | None = None
    port_fields: Fields = field(default_factory=dict)
    node_fields: Fields = field(default_factory=lambda: {"driver_answering": 1})
    told: Callable[[AnalyzerSettings], Sequence[Told]] = lambda _: ()
    held: Held | None = None
    gpus_installed: int = 5
    driver: str = "580.0"
    inventory_seconds_ago: float = 0.0
    driverless_seconds_ago: float | None = None
    rack: str = "selftest"
    clock_ahead_seconds: float = 0.0
    is_silent: bool = False  # after the first numbers
    ticks_slowly: bool = False  # as slowly as the idle span allows: it is long, and told in advance

    @property
    def names(self) -> tuple[str, ...]:
        """What its nodes are called, without the run."""
        name = self.fault.replace("_", "-")
        return (name,) if self.nodes == 1 else tuple(f"{name}-{n + 1}" for n in range(self.nodes))


def _events(*told: Told) -> Callable[[AnalyzerSettings], Sequence[Told]]:
    return lambda _: told


def _port(device: str, role: str) -> PortIdentity:
    return PortIdentity(device=device, port="1", kind="infiniband", role=role, was_up=True)


def _flaps(settings: AnalyzerSettings) -> Sequence[Told]:
    """Down and up again as often as it takes, the last time up."""
    found = []
    for number in range(settings.port_flap_count):
        ago = 10.0 * (settings.port_flap_count - number)
        found.append(Told(kind=EventKind.PORT_DOWN, on="port", seconds_ago=ago))
        found.append(Told(kind=EventKind.PORT_UP, on="port", seconds_ago=ago - 4.0))
    return found


def _goes_down(settings: AnalyzerSettings) -> Sequence[Told]:
    ago = settings.port_down_seconds + 2.0
    return (Told(kind=EventKind.PORT_DOWN, on="port", seconds_ago=ago),)


_CHECK = Told(kind=EventKind.MACHINE_CHECK, message="selftest: a corrected memory error")
_FULL_SPEED, _STUCK = 1_980_000_000, 1_000_000_000
_BUSY: Fields = {"up": 1, "utilization_percent": 95}

FAULTS: tuple[Fault, ...] = (
    Fault(
        rule="gpu_lost",
        fault="gpu_lost",
        gpus=({"up": 0, "unmeasured_reason": Unmeasured.LOST.value},),
        told=_events(Told(kind=EventKind.XID, on="gpu", xid=79, message="selftest: Xid 79")),
    ),
    Fault(
        rule="gpu_xid",
        fault="gpu_xid",
        gpus=({"up": 1},),
        told=_events(Told(kind=EventKind.XID, on="gpu", xid=64, message="selftest: Xid 64")),
    ),
    Fault(
        rule="gpu_xid",
        fault="gpu_program",
        gpus=({"up": 1},),
        told=_events(Told(kind=EventKind.XID, on="gpu", xid=31, message="selftest: Xid 31")),
    ),
    Fault(
        rule="nvswitch_error",
        fault="nvswitch_error",
        told=_events(Told(kind=EventKind.SXID, sxid=10003, message="selftest: SXid 10003")),
    ),
    Fault(
        rule="gpu_idle_held",
        fault="gpu_idle_held",
        gpus=(
            {
                "up": 1,
                "utilization_percent": 0,
                "memory_utilization_percent": 0,
                "memory_used_bytes": 8 * GIB,
                "compute_processes": 1,
            },
        ),
        held=Held(holder="pid 1", started_ago=7 * 86_400.0),
        ticks_slowly=True,
    ),
    Fault(
        rule="port_down",
        fault="port_down",
        port=_port("mlx5_1", "storage"),
        port_fields={"up": 0, "physical_state": 2},
        told=_goes_down,
    ),
    Fault(
        rule="port_down",
        fault="port_flapping",
        port=_port("mlx5_1", "storage"),
        port_fields={"up": 1, "physical_state": 5},
        told=_flaps,
    ),
    Fault(
        rule="driver_silent",
        fault="driver_silent",
        node_fields={"driver_answering": 0, "driver_silent_seconds": 60.0},
        told=_events(Told(kind=EventKind.DRIVER_SILENT, message="selftest: no call comes back")),
    ),
    Fault(
        rule="driver_not_loaded",
        fault="driver_not_loaded",
        node_fields={"gpus_answering": 0},
        driverless_seconds_ago=3600.0,
    ),
    Fault(
        rule="gpu_silent",
        fault="gpu_silent",
        gpus=(
            {
                "unmeasured_reason": Unmeasured.DRIVER_NOT_ANSWERING.value,
                "unmeasured_seconds": 60.0,
            },
        ),
        told=_events(Told(kind=EventKind.DRIVER_SILENT, on="gpu")),
    ),
    Fault(rule="node_silent", fault="node_silent", is_silent=True),
    Fault(rule="gpu_memory", fault="gpu_memory", gpus=({"up": 1, "remap_failure": 1},)),
    Fault(
        rule="gpu_pcie",
        fault="gpu_pcie",
        gpus=(
            {
                "up": 1,
                "pcie_width": 8,
                "pcie_width_max": 16,
                "pcie_generation": 5,
                "pcie_generation_max": 5,
            },
        ),
    ),
    Fault(
        rule="gpu_nvlink",
        fault="gpu_nvlink",
        gpus=({"up": 1, "nvlink_links_up": 17}, {"up": 1, "nvlink_links_up": 18}),
    ),
    Fault(rule="fabric_down", fault="fabric_down", gpus=({"up": 1, "fabric_state": 1},)),
    Fault(
        rule="gpu_hot",
        fault="gpu_hot",
        gpus=(
            {
                "up": 1,
                "temperature_celsius": 95,
                "hardware_thermal_slowdown_seconds": Grows(per_second=0.9),
            },
        ),
    ),
    Fault(
        rule="gpu_power",
        fault="gpu_power",
        gpus=({"up": 1, "power_brake_seconds": Grows(per_second=0.9)},),
    ),
    Fault(
        rule="gpu_clocks",
        fault="gpu_clocks",
        gpus=tuple(
            {**_BUSY, "sm_clock_hertz": hertz, "sm_clock_max_hertz": _FULL_SPEED}
            for hertz in (_STUCK, *[_FULL_SPEED] * 4)
        ),
    ),
    Fault(
        rule="gpu_slow",
        fault="gpu_slow",
        # Its job does less on all of them, and the first does not draw what waiting takes.
        gpus=tuple(
            {
                **_BUSY,
                "sm_clock_hertz": _FULL_SPEED,
                "sm_clock_max_hertz": _FULL_SPEED,
                "sm_activity_percent": Turns(before=80.0, after=64.0),
                "power_watts": Turns(before=600.0, after=watts),
            }
            for watts in (500.0, *[590.0] * 4)
        ),
        held=Held(holder="job 2", gpus=5, started_ago=86_400.0),
    ),
    Fault(
        rule="gpu_settings",
        fault="gpu_settings",
        # Their fabric is up, so that one which is not is a fault.
        gpus=tuple({"up": 1, "ecc_mode": mode, "fabric_state": 3} for mode in (0, 1, 1, 1, 1)),
    ),
    Fault(
        rule="gpu_hung",
        fault="gpu_hung",
        gpus=(
            {
                "up": 1,
                "utilization_percent": 100,
                "memory_utilization_percent": 0,
                "power_watts": 150.0,
                "power_limit_watts": 700.0,
            },
        ),
    ),
    Fault(
        rule="gpu_memory_held",
        fault="gpu_memory_held",
        gpus=({"up": 1, "memory_used_bytes": 8 * GIB},),
        held=Held(holder="job 1", started_ago=7200.0, ended_ago=3600.0),
    ),
    Fault(rule="gpus_missing", fault="gpus_missing", gpus_installed=4),
    Fault(
        rule="driver_drift",
        fault="driver_drift",
        driver="570.0",
        inventory_seconds_ago=1800.0,
    ),
    Fault(rule="host_memory", fault="host_memory", told=_events(*[_CHECK] * 3)),
    Fault(
        rule="host_disk",
        fault="host_disk",
        node_fields={"driver_answering": 1, "spool_writable": 0},
    ),
    Fault(
        rule="host_sensors",
        fault="host_power",
        node_fields={"driver_answering": 1, "power_supplies_failed": 1},
    ),
    Fault(
        rule="host_sensors",
        fault="host_fan",
        node_fields={"driver_answering": 1, "fans_failed": 1},
    ),
    Fault(
        rule="host_sensors",
        fault="host_mount",
        node_fields={"driver_answering": 1, "mounts_hung": 1},
    ),
    Fault(
        rule="host_sensors",
        fault="host_space",
        node_fields={"driver_answering": 1, "space_used_share": 0.97},
    ),
    Fault(rule="clock_wrong", fault="clock_wrong", clock_ahead_seconds=3600.0),
    Fault(
        rule="switch_down",
        fault="switch_down",
        nodes=3,
        rack="selftest-leaf",
        port=_port("mlx5_0", "fabric"),
        told=_goes_down,
    ),
    Fault(
        rule="port_errors",
        fault="port_errors",
        port=_port("mlx5_1", "storage"),
        port_fields={"up": 1, "receive_errors": Grows(per_second=40.0)},
    ),
    Fault(
        rule="port_errors",
        fault="port_congested",
        port=_port("mlx5_1", "storage"),
        port_fields={"up": 1, "transmit_discards": Grows(per_second=400.0)},
    ),
)
