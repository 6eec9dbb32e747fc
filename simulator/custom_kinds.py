"""Kinds of fault from a file outside the project, for `gpuvigil play --kinds FILE.py`.

One decorated function is one kind. It is called once for each fault of its kind, with the place and
the time drawn already, and says what the sensors read, what the machine reports, and what it costs:

    from simulator.custom_kinds import Fault, kind

    @kind("pump stops", of="gpu", cause="the pump of the GPU's cold plate stops", severity="critical",
          right=("cooling", "heatsink", "hardware_thermal"), sizes=(2.0, 5.0), unit="times thermal resistance")
    def pump_stops(fault: Fault) -> None:
        fault.physics("resistance", times=fault.size)

`docs/play.md` has every name that can be changed.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from gpuvigil.faults import FAULTS, xid
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.model import EventKind, Severity

from .fleet.changes import FOREVER, Operation, Quantity
from .fleet.kinds import KINDS
from .fleet.links import NEWS
from .fleet.physics import PhysicsEffects
from .fleet.site import FaultKind, Site
from .fleet.topology import LINKS

TARGETS = ("gpu", "port", "node")
# How a number may be changed: the keyword, and what happens to the number while the fault lasts.
CHANGES: Mapping[str, tuple[Operation, str]] = {
    "set": (Operation.SET, "is the value"),
    "add": (Operation.ADD, "is the value more"),
    "times": (Operation.TIMES, "is multiplied by the value"),
    "at_most": (Operation.MOST, "is no more than the value"),
    "ramp": (Operation.RAMP, "grows in a straight line, to the value more at the end"),
    "per_second": (
        Operation.COUNT,
        "counts the value per second, unevenly, and keeps what it counted",
    ),
    "jump": (Operation.STEP, "is the value more at the start, and keeps it"),
}
PHYSICS = tuple(it.name for it in fields(PhysicsEffects))
WORK = {
    "spin": "kernels run and get nothing done, as in a collective that waits",
    "stall": "nothing runs, and the GPUs stay held",
    "wait": "share of the time in which jobs over several nodes wait for the network",
}
DELIVERY = {
    "silent": "1: the node sends nothing",
    "lost": "share of samples that never arrive",
    "late": "1: samples and events wait, and come all at once after the end",
    "step": "seconds by which the node's clock is ahead",
}
# The link fields that collectors sum up for a GPU, and the changes that make a counter grow.
_COUNTED, _GROWS = NEWS[1:], frozenset({"add", "jump", "per_second"})
_OF_ALL_LINKS = ("nvlink_{}", "nvlink_errors", "nvlink_worst_link_errors")
_LINKS_UP, _WORST = "nvlink_links_up", "nvlink_worst_link"
# States of a GPU that the driver does not see: they are fields of no measurement.
_GPU_STATES = ("lost", "mute", "absent", "pcie_present", "unmeasured_reason")


class KindsError(ValueError):
    """An unplayable file of kinds: what is wrong, where, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault at its place; `start` and `end` of its methods are seconds after its beginning."""

    site: Site

    @property
    def size(self) -> float:
        """The magnitude, drawn from the kind's `sizes`; KindsError without any."""
        if self.site.magnitude is None:
            raise KindsError("a kind that asks for fault.size needs sizes=(lowest, highest)")
        return self.site.magnitude

    @property
    def seconds(self) -> float:
        """The duration of the fault."""
        return self.site.order.seconds

    @property
    def gpu_count(self) -> int:
        """How many GPUs its node has."""
        return self.site.topology.per_node

    def random(self, low: float = 0.0, high: float = 1.0) -> float:
        """Return a number between the two, the same for the same seed."""
        return self.site.dice.between(low, high)

    def gpu(self, field: str, **how: Any) -> None:
        """Change a field of measurement `gpu`, on the fault's GPU or on all GPUs of its node."""
        self._change(Quantity.GPU, field, (*_fields("gpu"), *_GPU_STATES), self._gpus(how), how)

    def node(self, field: str, **how: Any) -> None:
        """Change a field of measurement `node`."""
        self._change(Quantity.NODE, field, _fields("node"), (self.site.node,), how)

    def port(self, field: str, **how: Any) -> None:
        """Change a field of measurement `port`; `throughput` is a share of what the port carries."""
        place = self.site.topology.ports_per_node
        first = self.site.node * place
        mine = self.site.order.port
        ports = range(first, first + place) if mine is None else (first + mine,)
        self._change(Quantity.PORT, field, (*_fields("port"), "throughput"), tuple(ports), how)

    def nvlink(self, field: str, *, link: int = 0, **how: Any) -> None:
        """Change `up`, `crc_errors`, `replay_errors` or `recovery_errors` of a link of the GPUs.

        The GPU has a link less while one is down, and its errors, since collectors sum them up.
        """
        gpus = self._gpus(how)
        places = tuple(gpu * LINKS + link for gpu in gpus)
        self._change(Quantity.LINK, field, NEWS, places, dict(how))
        span = {name: value for name, value in how.items() if name in {"start", "end"}}
        if how.get("set") == 0 and field == "up":
            self._change(Quantity.GPU, _LINKS_UP, (_LINKS_UP,), gpus, {"add": -1.0, **span})
        if field not in _COUNTED or _GROWS.isdisjoint(how):
            return
        for of_gpu in _OF_ALL_LINKS:
            self._change(Quantity.GPU, of_gpu.format(field), _fields("gpu"), gpus, dict(how))
        self._change(Quantity.GPU, _WORST, (_WORST,), gpus, {"set": float(link), **span})

    def physics(self, name: str, **how: Any) -> None:
        """Change the inputs of the GPUs' power, clocks and heat."""
        self._change(Quantity.PHYSICS, name, PHYSICS, self._gpus(how), how)

    def work(self, name: str, **how: Any) -> None:
        """Change what the GPUs' jobs do; `peers=True` applies to all GPUs of the jobs that hold them."""
        gpus = self.site.peers if how.pop("peers", False) else ()
        self._change(Quantity.WORK, name, tuple(WORK), gpus or self._gpus(how), how)

    def delivery(self, name: str, **how: Any) -> None:
        """Change how the node's samples reach the hub."""
        self._change(Quantity.DELIVERY, name, tuple(DELIVERY), (self.site.node,), how)

    def event(
        self, kind: str, *, of: str | None = None, at: float = 0.0, message: str = ""
    ) -> None:
        """Let the collector report an event: a value of `gpuvigil.model.EventKind`, such as `boot`."""
        if kind in {EventKind.XID.value, EventKind.SXID.value}:
            raise KindsError(f"event {kind!r} needs a code: say fault.{kind}(code)")
        known = _known(kind, [it.value for it in EventKind], "event")
        if known == EventKind.BOOT.value:
            self.site.boots.append(self.site.start + at)
        self.site.report_event(
            EventKind(known), self._subject(of), at=self.site.start + at, message=message
        )

    def xid(self, code: int, at: float = 0.0, message: str = "") -> None:
        """Let the driver log an Xid of the fault's GPU, with its usual text where `message` has no other."""
        moment, gpu = self.site.start + at, self.site.gpu
        if not message:
            with suppress(KeyError):  # the fleet has the texts of few codes
                self.site.xid(code, at=moment)
                return
        line = (
            f"Xid {code}: {message or xid(code).mnemonic} [{self.site.topology.pci_address(gpu)}]"
        )
        self.site.report_event(EventKind.XID, ("gpu", gpu), at=moment, xid=code, message=line)

    def sxid(self, code: int, at: float = 0.0, message: str = "fatal: Link 12") -> None:
        """Let the driver log an SXid of an NVSwitch of the fault's node."""
        line = f"SXid {code}: {message} [nvswitch0, 0000:05:00.0]"
        node = ("node", self.site.node)
        self.site.report_event(
            EventKind.SXID, node, at=self.site.start + at, sxid=code, message=line
        )

    def seen_after(self, seconds: float) -> None:
        """Set from when on the fault can be detected, in seconds after its start; detection delay counts from there."""
        self.site.delay = seconds

    def ends_jobs(self, after: float = 30.0, *, keeps_others_off: bool = True) -> None:
        """Let the jobs on its GPUs fail so many seconds after the start: all of their GPU time is lost."""
        self.site.stop(self._gpus({}), linger=after, shut=keeps_others_off)

    def costs(self, share: float) -> None:
        """Let the jobs that hold its GPUs lose this share of their pace while the fault lasts."""
        if not 0.0 <= share <= 1.0:
            raise KindsError(f"fault.costs takes a share from 0 to 1, not {share:g}")
        self.site.pace_lost = share

    def affects(self, *, gpus: bool = False, jobs: bool = False) -> None:
        """Add others that show the fault and may be named for it: the node's GPUs, the jobs' GPUs."""
        found = [*(self.site.gpus() if gpus else ()), *(self.site.peers if jobs else ())]
        self.site.affected += [("gpu", gpu) for gpu in found]

    def _gpus(self, how: dict[str, Any]) -> tuple[int, ...]:
        """Return the fault's own GPU, those named by `gpus=` (0 is the node's first), or all of the node."""
        chosen: Iterable[int] | None = how.pop("gpus", None)
        if chosen is not None:
            numbers, places = tuple(chosen), range(self.gpu_count)
            if not set(numbers) <= set(places):
                last = self.gpu_count - 1
                raise KindsError(
                    f"gpus={list(numbers)}: the GPUs of this fleet's nodes are 0 to {last}"
                )
            return tuple(self.site.gpus()[number] for number in numbers)
        if self.site.order.gpu is not None:
            return (self.site.gpu,)
        return (self.site.gpu_of_port,) if self.site.order.port is not None else self.site.gpus()

    def _subject(self, of: str | None) -> tuple[str, int]:
        order = self.site.order
        own = "gpu" if order.gpu is not None else "node" if order.port is None else "port"
        what = _known(of or own, TARGETS, "of")
        numbers = {"gpu": self.site.gpu, "port": self.site.port, "node": self.site.node}
        return what, numbers[what]

    def _change(
        self,
        on: Quantity,
        name: str,
        known: Sequence[str],
        targets: tuple[int, ...],
        how: dict[str, Any],
    ) -> None:
        _known(name, known, f"{on.value}: name")
        start, end = how.pop("start", 0.0), how.pop("end", self.seconds)
        if len(how) != 1:
            raise KindsError(f"{name}: give one of {', '.join(CHANGES)}, not {len(how)}")
        [(verb, value)] = how.items()
        verb = _known(verb, tuple(CHANGES), f"{name}: change")
        span = (self.site.start + start, self.site.start + min(end, FOREVER))
        self.site.add_change(on, name, targets, CHANGES[verb][0], float(value), span=span)


# A function in a file of kinds.
Make = Callable[[Fault], None]
_LISTED = "_gpuvigil_kind"


def kind(  # noqa: PLR0913 - a row of a table
    key: str,
    *,
    of: str,
    cause: str,
    severity: str = "",
    right: Sequence[str] = (),
    no_fault: bool = False,
    action: str = "",
    sizes: tuple[float, ...] = (),
    unit: str = "",
    hours: tuple[float, float, float] = (0.3, 3.0, 30.0),
    names_itself: bool = False,
    needs_work: bool = False,
) -> Callable[[Make], Make]:
    """Declare a kind of fault; the decorated function says what happens.

    `of` is what it is filed under: gpu, port or node. `right` names the faults of gpuvigil (`docs/faults.md`)
    and conditions that count as the right cause; nothing else does. `severity` is critical, warning or info.
    `no_fault` is a look-alike instead: all that is said about it is wrong, and it has no severity and no right name.
    `sizes` are the lowest and highest magnitude, `hours` the shortest, median and longest duration.
    `names_itself`: an event or a counter identifies it, so that nothing has to be inferred. `needs_work`: it
    shows only while a job works. It then begins where a job works on the fault's GPU (on a node, its first
    GPU); where none does, nobody has to find it.
    """
    where = f"kind {key!r}"
    _known(of, TARGETS, f"{where}: of")
    level = _level(where, severity, right, no_fault)
    _check_ranges(where, sizes, hours)

    def listed(function: Make) -> Make:
        def make(site: Site) -> None:
            try:
                function(Fault(site))
            except KindsError as error:
                raise KindsError(f"kind {key!r}: {error}") from None
            except Exception as error:
                raise KindsError(f"kind {key!r}: {type(error).__name__}: {error}") from error

        made = FaultKind(
            key=key,
            target=of,
            make=make,
            severity=level,
            action=action,
            cause=cause,
            sizes=sizes,
            unit=unit,
            hours=hours,
            nvidia=False,
            named_by=tuple(right),
            names_itself=names_itself,
            needs_work=needs_work,
        )
        setattr(function, _LISTED, made)
        return function

    return listed


def is_look_alike(made: FaultKind) -> bool:
    """Return whether a kind of a file is no fault: one that is has a name that is right."""
    return not made.named_by


def load(path: Path) -> tuple[FaultKind, ...]:
    """Load the kinds of a file, in its order; KindsError says what is wrong with it, and where."""
    found: dict[str, FaultKind] = {}
    for value in vars(_module(path)).values():
        made = getattr(value, _LISTED, None)
        if made is None:
            continue
        if made.key in KINDS or made.key in found:
            raise KindsError(f"{path}: there is a kind {made.key!r} already; give it another name")
        found[made.key] = made
    if not found:
        raise KindsError(f"{path}: no kinds; put @kind(...) above a function")
    return tuple(found.values())


def _module(path: Path) -> ModuleType:
    if not path.is_file():
        raise KindsError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location(f"kinds_of_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise KindsError(f"{path}: not a Python file; its name ends in .py")
    module = importlib.util.module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except KindsError as error:
        raise KindsError(f"{path}: {error}") from None
    except SyntaxError as error:
        raise KindsError(f"{path}:{error.lineno}: {error.msg}") from None
    except Exception as error:
        raise KindsError(f"{path}: {type(error).__name__}: {error}") from error
    finally:
        sys.dont_write_bytecode = before
    return module


def _level(where: str, severity: str, right: Sequence[str], no_fault: bool) -> Severity:
    """Return the severity of a kind, that of a note for a look-alike."""
    if no_fault:
        if severity or right:
            raise KindsError(f"{where}: what is no fault has neither severity nor right")
        return Severity.INFO
    level = _known(severity, [it.value for it in Severity], f"{where}: severity")
    if not right:
        raise KindsError(
            f"{where}: right=() would let no cause be right; name one at least, or say no_fault=True"
        )
    for name in right:
        _known(name, [*FAULTS, *CONDITIONS], f"{where}: right")
    return Severity(level)


def _check_ranges(where: str, sizes: Sequence[float], hours: Sequence[float]) -> None:
    if not 0.0 < hours[0] <= hours[1] <= hours[2]:
        raise KindsError(f"{where}: hours are the shortest, the median, the longest")
    if sizes and not (len(sizes) == 2 and 0.0 < sizes[0] <= sizes[1]):
        raise KindsError(f"{where}: sizes are the lowest and the highest, above 0")


def _fields(measurement: str) -> tuple[str, ...]:
    return tuple(metric.name for metric in MEASUREMENTS[measurement].metrics)


def _known(name: str, known: Sequence[str], what: str) -> str:
    if name in known:
        return name
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(sorted(known))}"
    raise KindsError(f"{what} {name!r} is not known; {hint}")
