"""Power, clocks and heat of every GPU, tick by tick.

Power is the load at full clocks, times the square of the clock (voltage follows clock). The clock falls
until the power is within its limit and the core no hotter than allowed. The core's temperature approaches
its inlet air plus power times resistance with one time constant (implicit Euler, stable at any tick); air
that a GPU in front has warmed is the inlet of the one behind. A job runs at the pace of its slowest GPU,
and GPUs that wait for it draw less. Only + - * / and square roots: they are the same on every machine.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .chance import Floats
from .holding import RequestedLoad
from .topology import Topology

# Leakage: idle and busy power grow with heat, per kelvin over 50 degrees [U].
_LEAKAGE = 0.0016
# Kelvin by which a GPU warms the air behind it, per watt [chosen: 68 against 61 degrees at 693 W].
_PREHEAT = 0.008
# The reduction of a GPU's power if it waits all the time: collectives spin [chosen].
_WAITING = 0.5
# Software keeps the core at its operating limit down to this clock; below it the hardware halves
# the clocks [chosen]. Both act within milliseconds, so no tick is long enough to overshoot.
_SOFTLY = 0.55
_LOWEST_CLOCK = 0.15
_HALF = 0.5
# The regulator stays slightly under the limit [R: 693 W in the middle, 698 W at most, of 700].
_HELD_BELOW = 0.99


@dataclass(slots=True, kw_only=True)
class PhysicsEffects:
    """The effects of faults on physics: [ticks x GPUs], or per GPU where nothing differs over time."""

    limit_watts: Floats
    ceiling: Floats  # highest clock, as a share
    speed: Floats  # work per clock, as a share
    resistance: Floats  # factor on the heatsink's own
    inlet: Floats  # degrees above the rack's inlet
    brake: Floats  # 1 while the board is made to slow down


@dataclass(slots=True, kw_only=True)
class PhysicsResult:
    """The result of playing: [ticks x GPUs]."""

    watts: Floats
    clock: Floats  # share of the highest clock
    rate: Floats  # share of the requested work: that of the job's slowest GPU
    celsius: Floats
    capped: NDArray[np.bool_]
    soft_hot: NDArray[np.bool_]
    hot: NDArray[np.bool_]


@dataclass(slots=True, kw_only=True)
class Work:
    """The load of one tick, per GPU."""

    job: NDArray[np.int64]
    demand: Floats  # watts at full clocks
    idle: Floats


class Physics:
    """The state that outlives a block: every GPU's temperature and pace."""

    def __init__(self, topology: Topology, jobs: int) -> None:
        self._topology = topology
        values = topology.model_values
        self.limit = values("limit_watts")
        self._free = values("free_watts")
        self._held = values("held_watts")
        self._soft = values("operating_celsius")
        self._most = values("shutdown_celsius") - 1.0  # a hotter GPU would be off
        self._settle = values("settle_seconds")
        self._watts = [values(name) for name in ("sm_watts", "tensor_watts", "dram_watts")]
        self._character = topology.character
        self._resistance = values("kelvin_per_watt") * topology.heatsink
        self._inlet = topology.inlet()
        self._behind = topology.upstream != np.arange(topology.gpus)
        self._least = np.ones(jobs + 1)
        self.celsius = self._inlet + self._resistance * self._free
        self._drawn = self._free.copy()

    def usual(self) -> PhysicsEffects:
        """Return the values without any fault."""
        ones = np.ones(self._topology.gpus)
        return PhysicsEffects(
            limit_watts=self.limit,
            ceiling=ones,
            speed=ones,
            resistance=ones,
            inlet=np.zeros_like(ones),
            brake=np.zeros_like(ones),
        )

    def play(
        self, asked: RequestedLoad, bends: PhysicsEffects, tick_seconds: float
    ) -> PhysicsResult:
        """Play the ticks of a block."""
        shape = asked.sm.shape
        demand = asked.sm * self._watts[0]
        demand += asked.tensor * self._watts[1]
        demand += asked.dram * self._watts[2]
        demand *= 1.0 + 0.02 * self._character
        idle = np.where(asked.held, self._held, self._free)
        out = PhysicsResult(
            watts=np.empty(shape),
            clock=np.empty(shape),
            rate=np.empty(shape),
            celsius=np.empty(shape),
            capped=np.empty(shape, dtype=bool),
            soft_hot=np.empty(shape, dtype=bool),
            hot=np.empty(shape, dtype=bool),
        )
        alpha = tick_seconds / (self._settle + tick_seconds)
        for tick in range(shape[0]):
            work = Work(job=asked.job[tick], demand=demand[tick], idle=idle[tick])
            self._step(tick, work, bends, alpha, out)
        return out

    def _step(
        self, tick: int, work: Work, bends: PhysicsEffects, alpha: Floats, out: PhysicsResult
    ) -> None:
        job = work.job
        leak = 1.0 + _LEAKAGE * (self.celsius - 50.0)
        idle = work.idle * leak
        speed = _row(bends.speed, tick)
        braked = _row(bends.brake, tick) > 0.0
        ceiling = _row(bends.ceiling, tick) * np.where(braked, _HALF, 1.0)
        # A GPU faster than the slowest of its job, as of the tick before, waits.
        behind = np.minimum(self._least[job] / (ceiling * speed), 1.0)
        waits = 1.0 - _WAITING * (1.0 - behind)
        wanted = np.maximum(work.demand * leak * speed * waits, 1e-6)
        room = np.maximum(_row(bends.limit_watts, tick) * _HELD_BELOW - idle, 1.0)
        fits = np.sqrt(np.minimum(room / wanted, 1.0))
        air, resistance = self._air(tick, bends)
        bearable = ((self._soft - self.celsius * (1.0 - alpha)) / alpha - air) / resistance - idle
        cool = np.sqrt(np.minimum(np.maximum(bearable, 0.0) / wanted, 1.0))
        hot = cool < _SOFTLY
        clock = np.minimum(np.minimum(fits, ceiling), np.maximum(cool, _SOFTLY))
        clock = np.maximum(np.where(hot, np.minimum(clock, _HALF), clock), _LOWEST_CLOCK)
        watts = idle + wanted * clock * clock
        rate = clock * speed
        self._pace(job, rate)
        celsius = self.celsius + (air + resistance * watts - self.celsius) * alpha
        self.celsius = np.minimum(celsius, self._most)
        self._drawn = watts
        out.watts[tick], out.clock[tick], out.celsius[tick] = watts, clock, self.celsius
        out.rate[tick] = np.minimum(self._least[job], rate)
        out.capped[tick] = fits < np.minimum(ceiling, cool)
        out.soft_hot[tick] = cool < np.minimum(fits, ceiling)
        out.hot[tick] = hot

    def _pace(self, job: NDArray[np.int64], rate: Floats) -> None:
        """Set every job's pace to that of its slowest GPU."""
        self._least[:] = 1.0
        np.minimum.at(self._least, job, rate)
        self._least[-1] = 1.0

    def _air(self, tick: int, bends: PhysicsEffects) -> tuple[Floats, Floats]:
        """Return the inlet temperature of every GPU, and its heatsink's thermal resistance."""
        inlet = self._inlet + _row(bends.inlet, tick)
        inlet = inlet + np.where(self._behind, _PREHEAT * self._drawn[self._topology.upstream], 0.0)
        return inlet, self._resistance * _row(bends.resistance, tick)


def _row(values: Any, tick: int) -> Floats:
    row: Floats = values if values.ndim == 1 else values[tick]
    return row
