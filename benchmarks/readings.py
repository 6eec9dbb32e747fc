"""What the GPUs of a made-up cluster read, step by step: numbers that vary as real ones do.

The fields and what stays as it is are the simulator's (`simulator.model.gpu_fields`, 73
of them; what a real H100 sends beside them hardly ever moves, and would flatter every figure by
sample); what moves is drawn here from one seed, the same for every way of writing it down:

- jobs hold slots of 1 to 8 nodes or a single GPU for 20 minutes to 12 hours, with gaps between;
- a training job is near its level and dips for its checkpoints, serving follows the hour of the day,
  a notebook works in bursts;
- power follows the load with noise in milliwatts, heat follows power with a lag, over an ambient of
  each node that walks at random and follows the hour; clocks fall in steps of 15 MHz;
- energy, NVLink and slowdown counters only grow, by what was drawn or moved meanwhile;
- errors, replays and remapped rows come rarely, on some boards more than on others;
- every node is read at its own moment of the step, a few milliseconds early or late.

Limits: NVIDIA, "H100 Tensor Core GPU datasheet" (700 W, 900 GB/s of NVLink).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpuvigil.clock import to_ns
from gpuvigil.lineprotocol import LineTemplate
from simulator.cluster import GPU_MEMORY_BYTES, build
from simulator.model import NO_WORK, gpu_fields

GPUS_PER_NODE = 8
CLUSTER = "made-up"
MODEL = "NVIDIA H100 80GB HBM3"

Numbers = npt.NDArray[Any]

_TRAINING, _SERVING, _NOTEBOOK = range(3)
_SLOT_GPUS = (1, 1, 8, 8, 16, 32, 64)
_LIMIT_WATTS = 700.0
_SM_CLOCK_HERTZ = 1_980_000_000
_IDLE_CLOCK_HERTZ = 345_000_000
_CLOCK_STEP_HERTZ = 15_000_000
_IDLE, _POWER_CAP, _THERMAL = 0x1, 0x4, 0x20  # nvml.h, nvmlClocksEventReason...
_DAY_SECONDS = 86_400.0
_HEAT_LAG_SECONDS = 45.0
_SLOWDOWN_CELSIUS = 83.0


@dataclass(frozen=True, slots=True)
class Block:
    """Some steps of all GPUs: times in nanoseconds and fields, each [steps, GPUs].

    A field that stays as it is holds one number.
    """

    at_ns: Numbers
    fields: dict[str, Numbers | float | int]

    @property
    def steps(self) -> int:
        return int(self.at_ns.shape[0])

    @property
    def rows(self) -> int:
        return int(self.at_ns.size)

    @property
    def samples(self) -> int:
        return self.rows * len(self.fields)


class Fleet:
    """All GPUs; every `block` goes on where the one before ended."""

    def __init__(self, gpus: int, *, seed: int, start: datetime, step_seconds: float) -> None:
        """`gpus` is a multiple of eight."""
        self.gpus, self.step_seconds = gpus, step_seconds
        self._chance = np.random.default_rng(seed)
        self._start_ns, self._step = to_ns(start), 0
        self.nodes = [f"gpu-{number // GPUS_PER_NODE:05d}" for number in range(gpus)]
        self.uuids = [
            f"GPU-{seed:08x}-{number:04x}-4000-8000-{number * 2654435761 % 2**48:012x}"
            for number in range(gpus)
        ]
        self._offset_ns = np.repeat(
            self._chance.integers(0, int(step_seconds * 1e9), gpus // GPUS_PER_NODE), GPUS_PER_NODE
        )
        self._constant = dict(gpu_fields(build(1, 8, seed).nodes[0], 0, NO_WORK, 0.0, 0))
        self._draw_boards()
        self._draw_slots()

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(self._constant)

    def block(self, steps: int) -> Block:
        """The next steps."""
        taken = [self._take() for _ in range(steps)]
        fields: dict[str, Any] = {
            name: np.stack([each[name] for each in taken]) if name in taken[0] else value
            for name, value in self._constant.items()
        }
        at_ns = np.stack([each["at_ns"] for each in taken])
        return Block(at_ns=at_ns, fields=fields)

    @lru_cache(maxsize=2)  # noqa: B019 - a fleet lives as long as the program
    def steady_columns(self, steps: int) -> dict[str, Any]:
        """Arrow columns of that many steps that are always the same: tags, and what never moves."""
        rows = steps * self.gpus
        columns = {
            "cluster": _repeated(CLUSTER, rows),
            "node": _tiled(self.nodes, steps),
            "uuid": _tiled(self.uuids, steps),
            "model": _repeated(MODEL, rows),
        }
        for name, value in self._constant.items():
            kind = np.int64 if isinstance(value, int) else np.float64
            columns[name] = pa.array(np.full(rows, value, dtype=kind))
        return columns

    def _draw_boards(self) -> None:
        """What differs between boards, and where their counters stand."""
        chance, count = self._chance, self.gpus
        self._index = np.arange(count) % GPUS_PER_NODE
        self._idle_watts = chance.normal(71.0, 3.0, count)
        self._efficiency = chance.normal(1.0, 0.02, count)
        self._kelvin_per_watt = chance.normal(0.052, 0.003, count)
        self._limit = np.where(chance.random(count) < 0.03, 500.0, _LIMIT_WATTS)
        self._error_rate = chance.exponential(1.0, count) ** 3 / 4e5  # most boards hardly ever
        self._ambient = np.repeat(chance.normal(27.0, 1.5, count // GPUS_PER_NODE), GPUS_PER_NODE)
        self._celsius = self._ambient + 5.0
        self._wobble = np.zeros(count)
        self._energy = chance.uniform(1e6, 5e8, count)
        self._sent = chance.integers(10**12, 10**16, count)
        self._received = self._sent + chance.integers(0, 10**12, count)
        self._counters = {
            name: chance.poisson(self._error_rate * 3e6 * share).astype(np.int64)
            for name, share in (
                ("ecc_corrected_errors", 1.0),
                ("pcie_correctable_errors", 0.3),
                ("pcie_replays", 0.3),
                ("nvlink_errors", 0.05),
                ("remapped_rows_corrected", 0.002),
            )
        }
        self._shares = dict(zip(self._counters, (1.0, 0.3, 0.3, 0.05, 0.002), strict=True))
        self._slowed = {
            name: np.round(chance.exponential(40.0, count), 3)
            for name in ("thermal_violation_seconds", "software_thermal_slowdown_seconds")
        }

    def _draw_slots(self) -> None:
        """Who shares a job: slots of whole nodes, or single GPUs of a node."""
        sizes: list[int] = []
        while (placed := sum(sizes)) < self.gpus:
            size = int(self._chance.choice(_SLOT_GPUS))
            some = [1] * GPUS_PER_NODE if size == 1 else [min(size, self.gpus - placed)]
            sizes += some
        self._slot = np.repeat(np.arange(len(sizes)), sizes)
        count = len(sizes)
        self._kind = np.zeros(count, dtype=np.int64)
        self._left = np.zeros(count)  # seconds of the job, or of the gap
        self._running = self._chance.random(count) < 0.5
        self._level = np.zeros(count)
        self._period = np.ones(count)
        self._memory = np.zeros(count)
        self._burst = np.zeros(count, dtype=bool)

    def _change_jobs(self) -> None:
        """Slots whose time is over: a job follows a gap, and mostly a job follows a job."""
        self._left -= self.step_seconds
        over = np.flatnonzero(self._left <= 0.0)
        if not over.size:
            return
        chance, count = self._chance, over.size
        runs = ~self._running[over] | (chance.random(count) < 0.8)
        self._running[over] = runs
        self._kind[over] = chance.choice(3, count, p=(0.6, 0.25, 0.15))
        self._left[over] = np.where(
            runs,
            np.exp(chance.uniform(math.log(1200.0), math.log(43_200.0), count)),
            chance.exponential(1800.0, count) + 60.0,
        )
        self._level[over] = chance.uniform(0.7, 0.99, count)
        self._period[over] = chance.uniform(600.0, 3600.0, count)
        self._memory[over] = chance.uniform(0.2, 0.95, count)

    def _load(self, elapsed: float) -> Numbers:
        """The load of every slot, 0 to 1."""
        chance, count = self._chance, len(self._kind)
        turns = self._burst
        self._burst = np.where(turns, chance.random(count) > 0.2, chance.random(count) < 0.08)
        dips = (elapsed % self._period) < 0.04 * self._period
        hour = 0.55 + 0.4 * math.sin(math.tau * elapsed / _DAY_SECONDS)
        by_kind = np.stack(
            [
                np.where(dips, 0.06, self._level),
                self._level * hour + chance.normal(0.0, 0.05, count),
                np.where(self._burst, self._level * 0.6, 0.0),
            ]
        )
        load = by_kind[self._kind, np.arange(count)] * self._running
        clipped: Numbers = np.clip(load, 0.0, 1.0)
        return clipped

    def _take(self) -> dict[str, Numbers]:
        """One step of every GPU."""
        chance, count, seconds = self._chance, self.gpus, self.step_seconds
        elapsed = self._step * seconds
        self._change_jobs()
        slot_load = self._load(elapsed)[self._slot]
        held = self._running[self._slot]
        self._wobble = 0.8 * self._wobble + chance.normal(0.0, 0.012, count)
        load = np.where(slot_load > 0.0, np.clip(slot_load + self._wobble, 0.01, 1.0), 0.0)
        busy = load > 0.0
        at_ns = self._start_ns + int(elapsed * 1e9) + self._offset_ns
        jitter = np.repeat(chance.normal(0.0, 2e6, count // GPUS_PER_NODE), GPUS_PER_NODE)
        at_ns = (at_ns + jitter.astype(np.int64)) // 1000 * 1000
        self._step += 1
        return {
            "at_ns": at_ns,
            "index": self._index,
            **self._work(load, busy, held),
            **self._power_and_heat(load, busy, held, elapsed),
            **self._traffic(load, held),
            **self._faults(load),
            "read_seconds": np.round(0.0021 + np.abs(chance.normal(0.0, 0.0003, count)), 6),
        }

    def _work(self, load: Numbers, busy: Numbers, held: Numbers) -> dict[str, Numbers]:
        chance, count = self._chance, self.gpus
        memory = self._memory[self._slot] * GPU_MEMORY_BYTES * held
        moved = chance.integers(-8, 9, count) * 2 * 1024**2 * busy  # allocated by 2 MiB pages
        share = load * (1.0 + chance.normal(0.0, 0.01, count))
        return {
            "utilization_percent": _percent(load + 0.06 * busy),
            "memory_utilization_percent": _percent(load * 0.62),
            "memory_used_bytes": np.maximum(memory.astype(np.int64) // 2**21 * 2**21 + moved, 0),
            "bar1_used_bytes": (2 + 4 * held.astype(np.int64)) * 1024**2,
            "compute_processes": held.astype(np.int64),
            "sm_activity_percent": np.round(share * 88.0, 1),
            "sm_occupancy_percent": np.round(share * 46.0, 1),
            "tensor_activity_percent": np.round(share * 52.0, 1),
            "dram_activity_percent": np.round(share * 58.0, 1),
        }

    def _power_and_heat(
        self, load: Numbers, busy: Numbers, held: Numbers, elapsed: float
    ) -> dict[str, Numbers]:
        chance, count, seconds = self._chance, self.gpus, self.step_seconds
        wanted = self._idle_watts + 47.0 * held + load * 560.0 * self._efficiency
        wanted += chance.normal(0.0, 1.0, count) * np.where(busy, 9.0, 0.6)
        watts = np.minimum(wanted, self._limit)
        walk = chance.normal(0.0, 0.05, count // GPUS_PER_NODE)
        self._ambient += np.repeat(walk, GPUS_PER_NODE) - 0.005 * (self._ambient - 27.0)
        hour = 2.0 * math.sin(math.tau * elapsed / _DAY_SECONDS)
        target = self._ambient + hour + watts * self._kelvin_per_watt + self._index % 4
        self._celsius += (target - self._celsius) * -math.expm1(-seconds / _HEAT_LAG_SECONDS)
        self._energy += watts * seconds
        capped, hot = wanted > self._limit, self._celsius > _SLOWDOWN_CELSIUS
        steps = (load * 12 + np.where(capped, 6, 0) + chance.integers(0, 3, count)).astype(np.int64)
        clock = np.where(held, _SM_CLOCK_HERTZ, _IDLE_CLOCK_HERTZ)
        reasons = np.where(busy, capped * _POWER_CAP + hot * _THERMAL, _IDLE)
        for name, counter in self._slowed.items():
            more = np.where(hot, chance.uniform(0.0, seconds, count), 0.0)
            self._slowed[name] = np.round(counter + more, 3)
        celsius = np.rint(self._celsius).astype(np.int64)
        return {
            "power_watts": np.round(watts, 3),
            "power_limit_watts": self._limit,
            "energy_joules": np.round(self._energy, 3),
            "temperature_celsius": celsius,
            "memory_temperature_celsius": np.rint(self._celsius + 6.0 + load * 5.0).astype(
                np.int64
            ),
            "temperature_margin_celsius": 87 - celsius,
            "sm_clock_hertz": clock - np.where(busy, steps, 0) * _CLOCK_STEP_HERTZ,
            "clock_event_reasons": reasons.astype(np.int64),
            **self._slowed,
        }

    def _traffic(self, load: Numbers, held: Numbers) -> dict[str, Numbers]:
        """NVLink counters, in the KiB that the driver counts."""
        chance, seconds = self._chance, self.step_seconds
        shared = np.bincount(self._slot)[self._slot] > 1
        per_second = load * held * shared * chance.uniform(2e10, 6e10, self.gpus)
        moved = (per_second * seconds).astype(np.int64) // 1024 * 1024
        self._sent = self._sent + moved
        self._received = self._received + (moved * 0.995).astype(np.int64) // 1024 * 1024
        return {"nvlink_receive_bytes": self._received, "nvlink_transmit_bytes": self._sent}

    def _faults(self, load: Numbers) -> dict[str, Numbers]:
        """Counters of errors: rare, and rarer on an idle board."""
        expected = self._error_rate * self.step_seconds * (0.2 + load)
        for name, counter in self._counters.items():
            more = self._chance.poisson(float(expected.sum()) * self._shares[name])
            if more:
                where = self._chance.choice(self.gpus, more, p=expected / expected.sum())
                self._counters[name] = counter + np.bincount(where, minlength=self.gpus)
        return dict(self._counters)


def _percent(share: Numbers) -> Numbers:
    return np.clip(np.rint(share * 100.0), 0, 100).astype(np.int64)


def arrow(fleet: Fleet, block: Block) -> pa.Table:
    """The rows as the store takes them: the oldest step first, in it node by node."""
    steady = fleet.steady_columns(block.steps)
    columns: dict[str, Any] = {
        **{tag: steady[tag] for tag in ("cluster", "node", "uuid", "model")},
        "at": pa.array(block.at_ns.reshape(-1)).cast(pa.timestamp("ns")),
    }
    for name, values in block.fields.items():
        if isinstance(values, np.ndarray):
            columns[name] = pa.array(values.reshape(-1))
        else:
            columns[name] = steady[name]
    return pa.table(columns)


def _repeated(text: str, rows: int) -> Any:
    return pa.DictionaryArray.from_arrays(np.zeros(rows, dtype=np.int32), [text]).cast(pa.string())


def _tiled(texts: Sequence[str], steps: int) -> Any:
    return pa.concat_arrays([pa.array(texts, pa.string())] * steps)


def lines(fleet: Fleet, block: Block) -> Iterator[tuple[str, str]]:
    """Node and line protocol of every node's body, the oldest step of all nodes first."""
    templates = [
        LineTemplate("gpu", {"cluster": CLUSTER, "node": node, "uuid": uuid, "model": MODEL})
        for node, uuid in zip(fleet.nodes, fleet.uuids, strict=True)
    ]
    names = list(block.fields)
    for step in range(block.steps):
        columns = [
            values[step].tolist() if isinstance(values, np.ndarray) else [values] * fleet.gpus
            for values in block.fields.values()
        ]
        times = block.at_ns[step].tolist()
        rows = [
            templates[gpu].line(dict(zip(names, row, strict=True)), times[gpu]) or ""
            for gpu, row in enumerate(zip(*columns, strict=True))
        ]
        for first in range(0, fleet.gpus, GPUS_PER_NODE):
            yield fleet.nodes[first], "\n".join(rows[first : first + GPUS_PER_NODE])


def series(fleet: Fleet, block: Block) -> Iterator[str]:
    """VictoriaMetrics' JSON lines (`/api/v1/import`), one series a line, times in milliseconds."""
    times = _joined(block.at_ns // 1_000_000)
    texts = {
        name: _joined(values)
        if isinstance(values, np.ndarray)
        else [",".join([repr(values)] * block.steps)] * fleet.gpus
        for name, values in block.fields.items()
    }
    for gpu, (node, uuid) in enumerate(zip(fleet.nodes, fleet.uuids, strict=True)):
        tags = f'"cluster":"{CLUSTER}","node":"{node}","uuid":"{uuid}","model":"{MODEL}"'
        for name, values in texts.items():
            yield (
                f'{{"metric":{{"__name__":"gpu_{name}",{tags}}},'
                f'"values":[{values[gpu]}],"timestamps":[{times[gpu]}]}}\n'
            )


def _joined(values: Numbers) -> list[str]:
    """Every GPU's numbers as text, separated by commas."""
    cells = pa.array(values.T.reshape(-1)).cast(pa.string())
    steps, gpus = values.shape
    offsets = np.arange(0, steps * gpus + 1, steps, dtype=np.int32)
    listed = pa.ListArray.from_arrays(offsets, cells)
    joined: list[str] = pa.compute.binary_join(listed, ",").to_pylist()
    return joined
