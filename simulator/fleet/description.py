"""A fleet described in a TOML file: a few keys with units and ranges, all of them optional.

    [fleet]
    models = ["H100", "A100"]
    [telemetry]
    presence = [0.5, 1.0]
    [faults.weights]
    "slow GPU" = 3

`KEYS` is the full list, and the table in `docs/fleet.md` is generated from it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import tomllib

from .hardware import MODELS
from .kinds import KINDS, OF_SWITCHES
from .model import FleetSettings, Range, Shares, WorldSettings
from .site import FaultKind
from .workloads import WORKLOADS
from .world import MIX, NATURAL_RATE, weights_of, world


class DescriptionError(ValueError):
    """An error in one line: the file, the key, and the allowed values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of the file.

    `shape` is a number, a whole number, a flag, a range of two numbers, names out of a list, or shares
    by such names; `field` is the parameter of `world.world`, or of `WorldSettings`, that the key sets.
    """

    name: str
    field: str
    sentence: str
    shape: str = "number"
    low: float = 0.0
    high: float = math.inf
    unit: str = "share"
    source: str = "chosen"
    default: Any = None  # None: the default of `WorldSettings`

    @property
    def usual(self) -> Any:
        """The value when the file does not set the key."""
        return getattr(WorldSettings(), self.field) if self.default is None else self.default


_REPORTED = "chosen, from what sites report"
_NODES = "share of nodes"
KEYS: tuple[Key, ...] = (
    Key(name="fleet.nodes", field="nodes", sentence="nodes", shape="whole", low=1, high=20_000,
        unit="nodes", default=64),
    Key(name="fleet.days", field="days", sentence="how long it is played", low=0.01, high=60.0,
        unit="days", default=1.0),
    Key(name="fleet.gpus_per_node", field="gpus_per_node", sentence="GPUs of a node",
        shape="whole", low=1, high=8, unit="GPUs", default=8),
    Key(name="fleet.nodes_per_rack", field="nodes_per_rack", sentence="nodes of a rack",
        shape="whole", low=1, high=64, unit="nodes", default=4),
    Key(name="fleet.models", field="models", sentence="racks take them in turn", shape="names",
        unit="GPU models", default=("H100",)),
    Key(name="nodes.slot_spread", field="slot_spread", high=0.3, source="seen on 8 x H100",
        sentence="how far °C/W of a slot is at most from its model's, for ever"),
    Key(name="nodes.inlet_celsius", field="inlet_celsius", shape="range", low=10.0, high=40.0,
        unit="°C", source="ASHRAE TC 9.9, recommended range",
        sentence="inlet air of the coldest and of the warmest rack"),
    Key(name="nodes.locked_clocks", field="locked_clocks", high=1.0, unit=_NODES,
        sentence="idle GPUs keep their highest clock"),
    Key(name="nodes.older_firmware", field="older_firmware", high=1.0, unit="share of racks",
        sentence="delivered with an older VBIOS"),
    Key(name="telemetry.presence", field="presence", shape="range", low=0.05, high=1.0,
        unit="share of ticks", source=_REPORTED,
        sentence="samples that are there, of the worst and of the best node"),
    Key(name="telemetry.bursty", field="bursty", high=1.0, unit=_NODES, source=_REPORTED,
        sentence="the collector sends minutes at once"),
    Key(name="telemetry.busy_hub", field="busy_hub", high=48.0, unit="per day", source=_REPORTED,
        sentence="most nodes are late at once, for up to ten minutes"),
    Key(name="telemetry.no_memory_utilization", field="no_memory_utilization", high=1.0,
        unit=_NODES, source=_REPORTED, sentence="no memory utilisation is read"),
    Key(name="telemetry.no_clocks", field="no_clocks", high=1.0, unit=_NODES, source=_REPORTED,
        sentence="no clocks are read, nor why they are low"),
    Key(name="telemetry.no_profiling", field="no_profiling", high=1.0, unit=_NODES,
        source=_REPORTED, sentence="no SM, tensor and DRAM activity is read"),
    Key(name="telemetry.no_error_counters", field="no_error_counters", high=1.0, unit=_NODES,
        source=_REPORTED, sentence="events without error counters"),
    Key(name="telemetry.no_events", field="no_events", high=1.0, unit=_NODES, source=_REPORTED,
        sentence="counters without events"),
    Key(name="telemetry.host_sensors", field="host_sensors", high=1.0, unit=_NODES,
        sentence="host memory errors, power supplies, fans, mounts and disk space are read"),
    Key(name="telemetry.scheduler_read", field="scheduler_read", high=1.0, unit="share of fleets",
        sentence="the scheduler is read, which does not hear dead nodes; 0 and 1 decide it for this one"),
    Key(name="telemetry.switches", field="switches", shape="flag", unit="", default=False,
        sentence="somebody reads the switches: what they tell, and faults between them"),
    Key(name="work.demand", field="demand", low=0.01, high=3.0, default=0.9,
        unit="share of GPU time", sentence="what jobs ask for, of what there is"),
    Key(name="work.mix", field="mix", shape="shares", unit="parts of GPU time", default=MIX,
        source="chosen, near Philly in AcmeTrace",
        sentence="by workload; those left out do not run"),
    Key(name="nodes.roce_fleets", field="roce_fleets", high=1.0, unit="share of fleets",
        sentence="the fabric is RoCE, not InfiniBand; 0 and 1 decide it for this one"),
    Key(name="life.look_alikes", field="look_alikes", high=20.0, unit="times the usual rate",
        sentence="what only looks like a fault"),
    Key(name="life.maintenance", field="maintenance", high=100.0, unit="per rack in 1,000 days",
        sentence="planned work, for which a rack is down for one to four hours"),
    Key(name="life.driver_rollouts", field="driver_rollouts", high=30.0, unit="in 30 days",
        sentence="a new driver: one rack first, a day later all, node after node"),
    Key(name="faults.per_1000_node_days", field="faults_per_1000_node_days", high=10_000.0,
        unit="faults", default=NATURAL_RATE, source="Meta, HPCA 2025",
        sentence="faults in 1,000 node-days"),
    Key(name="faults.share_of_windows", field="faulty_share", high=1.0,
        unit="share of quarter hours", sentence="most of all nodes' time that faults may touch"),
    Key(name="faults.quiet_end_hours", field="quiet_end_hours", high=24.0, unit="hours",
        sentence="no fault reaches the end, so that what comes to light once it is over is played, too"),
    Key(name="faults.kinds", field="kinds", shape="names", unit="kinds of fault", default=(),
        sentence="those that happen; all of them when it is left out"),
    Key(name="faults.weights", field="weights", shape="shares", unit="parts of all faults",
        default=(), source="Meta, Llama 3, table 5; slow ones chosen",
        sentence="how often by kind, beside the usual weights of the others"),
)  # fmt: skip


def read(path: Path, seed: int, more_kinds: Sequence[FaultKind] = ()) -> FleetSettings:
    """Read the fleet that a file describes, for one seed; DescriptionError says what is wrong with the file.

    The file may name `more_kinds` beside those of the table.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DescriptionError(f"{path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DescriptionError(f"{path}: not TOML: {error}") from None
    try:
        return settings_of(tables, seed, more_kinds)
    except DescriptionError as error:
        raise DescriptionError(f"{path}: {error}") from None


def settings_of(
    tables: Mapping[str, Any], seed: int, more_kinds: Sequence[FaultKind] = ()
) -> FleetSettings:
    """Return the same as `read`, from the file's content."""
    given = {key.field: key.usual for key in KEYS if key.default is not None}
    of_world: dict[str, Any] = {}
    for name, value in _flat(tables):
        key = _known(name, {key.name: key for key in KEYS}, "is no key")
        place = of_world if key.default is None else given
        place[key.field] = _checked(key, value, _names(key, more_kinds))
    if given["kinds"] == ():
        given["kinds"] = None
    known = dict(weights_of(given["switches"]))
    given["weights"] = tuple({**known, **dict(given["weights"])}.items())
    settings = WorldSettings(**of_world)
    return world(seed, **given, settings=settings, more_kinds=tuple(more_kinds))


def _flat(tables: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Yield keys with their section's name, and their values."""
    sections = dict.fromkeys(key.name.partition(".")[0] for key in KEYS)
    for section, table in tables.items():
        _known(section, sections, "is no section")
        if not isinstance(table, Mapping):
            raise DescriptionError(f"{section} is a section: write [{section}] and its keys below")
        yield from ((f"{section}.{word}", value) for word, value in table.items())


def _names(key: Key, more_kinds: Sequence[FaultKind]) -> Mapping[str, Any]:
    """Return the names that may stand in the key's list, or before its shares."""
    if key.field in {"kinds", "weights"}:
        return KINDS | OF_SWITCHES | {kind.key: kind for kind in more_kinds}
    known: Mapping[str, Mapping[str, Any]] = {"models": MODELS, "mix": WORKLOADS}
    return known.get(key.field, {})


def _checked(key: Key, value: Any, names: Mapping[str, Any]) -> Any:
    """Return the value in the form that the fleet takes."""
    if key.shape in {"names", "shares"}:
        return _SHAPES[key.shape](key, value, names)
    if key.shape == "range":
        return _range(key, value)
    if key.shape == "flag":
        return _flag(key, value)
    number = _number(key, value)
    return int(number) if key.shape == "whole" else number


def _list(key: Key, value: Any, names: Mapping[str, Any]) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise DescriptionError(f"{key.name} is a list of {key.unit}: {', '.join(names)}")
    for name in value:
        _known(name, names, f"is none of the {key.unit} of {key.name}")
    return tuple(value)


def _shares(key: Key, value: Any, names: Mapping[str, Any]) -> Shares:
    if not isinstance(value, Mapping):
        raise DescriptionError(f"{key.name} is a table of {key.unit} by name")
    for name in value:
        _known(name, names, f"is no name in {key.name}")
    shares = tuple((name, _number(key, share, name)) for name, share in value.items())
    if not any(share for _, share in shares):
        raise DescriptionError(f"{key.name}: one share at least is above 0")
    return shares


_SHAPES: Mapping[str, Callable[[Key, Any, Mapping[str, Any]], Any]] = {
    "names": _list,
    "shares": _shares,
}


def _range(key: Key, value: Any) -> Range:
    if not isinstance(value, list) or len(value) != 2:
        raise DescriptionError(f"{key.name} is [lowest, highest] of {_limits(key)}")
    low, high = (_number(key, it) for it in value)
    if low > high:
        raise DescriptionError(f"{key.name}: {low:g} is above {high:g}; write the lower one first")
    return low, high


def _flag(key: Key, value: Any) -> bool:
    if not isinstance(value, bool):
        raise DescriptionError(f"{key.name} = {value!r}: takes true or false")
    return value


def _number(key: Key, value: Any, part: str = "") -> float:
    name = f"{key.name}, {part}" if part else key.name
    right = isinstance(value, int | float) and not isinstance(value, bool)
    whole = key.shape != "whole" or isinstance(value, int)
    if not right or not whole or not key.low <= value <= key.high or math.isinf(value):
        raise DescriptionError(f"{name} = {value!r}: takes {_limits(key)}")
    return float(value)


def _limits(key: Key) -> str:
    """Return which numbers the key takes, as text."""
    what = "a whole number" if key.shape == "whole" else "a number"
    if math.isinf(key.high):
        return f"{what} from {key.low:g} on ({key.unit})"
    return f"{what} from {key.low:g} to {key.high:g} ({key.unit})"


def _known(name: Any, known: Mapping[str, Any], words: str) -> Any:
    """Return the value of the name; the error suggests a similar name, or lists all."""
    if isinstance(name, str) and name in known:
        return known[name]
    near = get_close_matches(str(name), known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    raise DescriptionError(f"{name!r} {words}; {hint}")


_TAKES = {"names": "list of names", "shares": "table of shares", "flag": "true or false"}


def rows() -> Iterable[str]:
    """Yield the table of keys, for the documentation."""
    yield "| key | takes | unit | default | meaning | where the default is from |"
    yield "|---|---|---|---|---|---|"
    for key in KEYS:
        takes = _TAKES.get(key.shape)
        if takes is None:
            most = "" if math.isinf(key.high) else f" to {key.high:,g}"
            takes = f"{key.low:g}{most}" + (", two" if key.shape == "range" else "")
        usual = key.usual
        if key.shape in {"range", "names"}:
            usual = list(usual)
        if key.shape == "flag":
            usual = str(usual).lower()
        shown = "" if usual in ([], ()) else "the mix below" if key.field == "mix" else f"`{usual}`"
        shown = shown.replace("'", '"')
        yield f"| `{key.name}` | {takes} | {key.unit} | {shown} | {key.sentence} | {key.source} |"
    yield ""
    yield f"The mix: {', '.join(f'{name} {share:g}' for name, share in MIX)}."
