"""The one table of which fleets are for what. It is committed before a detector is tuned.

Who tunes looks at the tuning fleets only. The report's fleets have other seeds; and the kinds of
fault, the small magnitudes, the workloads and the GPU model in `KEPT_OUT_...` are in no tuning
fleet at all: what is found of them was found unseen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from simulator.fleet import FaultOrder, FleetSettings
from simulator.fleet.kinds import KINDS

KEPT_OUT_KINDS = (
    "SRAM threshold",
    "InfoROM",
    "PCIe generation",
    "NVLink replay",
    "congestion",
    "fan",
    "PSU",
    "zombie memory",
    "stale mount",
    "missing since boot",
)
KEPT_OUT_WORKLOADS = ("pipeline parallel", "bursty inference")
KEPT_OUT_MODEL = "B200"
MODEL = "H100"
# The lower part of each kind's range of magnitudes, on a logarithmic scale.
KEPT_OUT_MAGNITUDES = (0.0, 1.0 / 3.0)
_MAGNITUDES = (1.0 / 3.0, 1.0)

TUNING_KINDS = tuple(kind for kind in KINDS if kind not in KEPT_OUT_KINDS)
_WORKLOADS = (
    "data parallel",
    "tensor parallel",
    "cpu offload",
    "fine-tuning",
    "steady inference",
    "sweep",
    "notebook",
    "data starved",
)
# A fault of each kind on a node of its own, after a while without one.
_HOURS, _BEGIN_HOURS, _FAULT_HOURS = 3.0, 0.75, 2.0
_NODES_PER_RACK = 4
# It has no beginning: the node was installed that way.
_FROM_THE_START = frozenset({"missing since installation"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A sort of fleet; its seeds are `first_seed` and those after it, fewer than 1,000."""

    name: str
    sentence: str
    first_seed: int
    fleet: Callable[[int], FleetSettings]


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """Fleets with one fault of each kind, on a node of its own."""

    kinds: tuple[str, ...] = TUNING_KINDS
    model: str = MODEL
    workloads: tuple[str, ...] = _WORKLOADS
    magnitudes: tuple[float, float] = _MAGNITUDES
    noise: float = 1.0
    missing: float = 0.0
    hours: tuple[float, float, float] = (_HOURS, _BEGIN_HOURS, _FAULT_HOURS)

    def __call__(self, seed: int) -> FleetSettings:
        chance = Random(seed)
        nodes = list(range(-(-len(self.kinds) // _NODES_PER_RACK) * _NODES_PER_RACK))
        places = chance.sample(nodes, len(self.kinds))
        orders = [
            _order(kind, node, chance, self.magnitudes, self.hours)
            for kind, node in zip(self.kinds, places, strict=True)
        ]
        return FleetSettings(
            seed=seed,
            nodes=len(nodes),
            days=self.hours[0] / 24.0,
            models=(self.model,),
            workloads=self.workloads,
            noise=self.noise,
            missing=self.missing,
            faults=tuple(orders),
        )


def _order(
    kind: str,
    node: int,
    chance: Random,
    magnitudes: tuple[float, float],
    hours: tuple[float, float, float],
) -> FaultOrder:
    known = KINDS[kind]
    where, share = chance.randrange(8), chance.uniform(*magnitudes)
    magnitude = None
    if known.discrete:
        magnitude = known.sizes[chance.randrange(len(known.sizes))]
    elif known.sizes:
        low, high = known.sizes[0], known.sizes[-1]
        magnitude = low * (high / low) ** share
    begin = 0.0 if kind in _FROM_THE_START else hours[1]
    return FaultOrder(
        kind=kind,
        node=node,
        start_seconds=begin * 3600.0,
        seconds=hours[2] * 3600.0,
        gpu=where if known.target == "gpu" else None,
        port=where if known.target == "port" else None,
        magnitude=magnitude,
    )


def _quiet(seed: int) -> FleetSettings:
    return FleetSettings(seed=seed, nodes=128, days=1.0, models=(MODEL,))


def _lengths(seed: int) -> FleetSettings:
    return FleetSettings(
        seed=seed, nodes=24, days=3.0, models=(MODEL,), fault_rate=400.0, kinds=TUNING_KINDS
    )


# The slice that the tests play: kinds that show themselves within the hour.
_SLICE_KINDS = (
    "off the bus",
    "GSP hang",
    "ECC contained",
    "SBE storm",
    "remap failure",
    "power brake",
    "PCIe replays",
    "NVLink CRC",
    "NVSwitch",
    "port down",
    "driver hang",
    "dead collector",
)

_PARTS = (
    Part(name="tuning", sentence="for who tunes", first_seed=1000, fleet=Every()),
    Part(name="report", sentence="other seeds", first_seed=2000, fleet=Every()),
    Part(
        name="kept-out kinds",
        sentence="kinds of fault that no tuning fleet has",
        first_seed=3000,
        fleet=Every(kinds=KEPT_OUT_KINDS),
    ),
    Part(
        name="kept-out magnitudes",
        sentence="the lower third of each range",
        first_seed=4000,
        fleet=Every(
            kinds=tuple(k for k in TUNING_KINDS if KINDS[k].sizes and not KINDS[k].discrete),
            magnitudes=KEPT_OUT_MAGNITUDES,
        ),
    ),
    Part(
        name="kept-out workloads",
        sentence=f"only {' and '.join(KEPT_OUT_WORKLOADS)}",
        first_seed=5000,
        fleet=Every(workloads=KEPT_OUT_WORKLOADS),
    ),
    Part(
        name="kept-out model",
        sentence=f"only {KEPT_OUT_MODEL}",
        first_seed=6000,
        fleet=Every(model=KEPT_OUT_MODEL),
    ),
    *(
        Part(
            name=f"noise x{noise:g}",
            sentence=f"{noise:g} times the natural noise",
            first_seed=first,
            fleet=Every(noise=noise),
        )
        for noise, first in ((0.5, 7000), (2.0, 8000), (4.0, 9000))
    ),
    *(
        Part(
            name=f"missing {missing:.0%}",
            sentence=f"{missing:.0%} of the samples lost",
            first_seed=first,
            fleet=Every(missing=missing),
        )
        for missing, first in ((0.1, 10000), (0.2, 11000), (0.3, 12000))
    ),
    Part(
        name="quiet",
        sentence="no fault at all: what is said there is false",
        first_seed=13000,
        fleet=_quiet,
    ),
    Part(
        name="lengths",
        sentence="faults at random times, as long as each kind lasts, and lemons",
        first_seed=15000,
        fleet=_lengths,
    ),
    Part(
        name="slice",
        sentence="what the tests play again",
        first_seed=14000,
        fleet=Every(kinds=_SLICE_KINDS, hours=(1.0, 0.4, 0.5)),
    ),
)
PARTS: Mapping[str, Part] = {part.name: part for part in _PARTS}
