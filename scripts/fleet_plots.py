"""Draw the simulated fleet beside its calibration data: `python -m scripts.fleet_plots`.

Writes PNG files into `docs/images/fleet/` from fixed seeds, so that every run draws the same.
"""

import csv
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pyarrow as pa

from simulator.fleet import FaultOrder, Fleet, FleetSettings, build
from simulator.fleet.jobs import Job
from simulator.fleet.workloads import WORKLOADS

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs/reference"
OUT = ROOT / "docs/images/fleet"
HOUR = 3600.0
SCALE = 1.0


def main() -> None:
    """Draw everything."""
    OUT.mkdir(parents=True, exist_ok=True)
    alt.data_transformers.disable_max_rows()
    for name, draw in (
        ("distributions", distributions),
        ("workloads", workloads),
        ("job", job),
        ("racks", racks),
        ("faults", faults),
    ):
        draw().save(OUT / f"{name}.png", scale_factor=SCALE)
        print(f"wrote {OUT / name}.png")


def table(fleet: Fleet, start: float, end: float, tick_seconds: float) -> pa.Table:
    """Return the GPUs' rows between two moments, in seconds."""
    zero = fleet.settings.start
    blocks = fleet.blocks(
        zero + timedelta(seconds=start), zero + timedelta(seconds=end), tick_seconds
    )
    return pa.concat_tables([b.tables["gpu"] for b in blocks], promote_options="default")


def grid(fleet: Fleet, rows: pa.Table, field: str) -> Any:
    """Return a field as [ticks x GPUs]; only for fleets in which nothing is lost."""
    return rows[field].to_numpy().reshape(-1, fleet.plan.topology.gpus).astype(float)


# Title of the panel, field, and the reference curves of Seren and Kalos.
_CURVES = (
    ("GPU utilisation (%)", "utilization_percent", "util_gpu_{}_0"),
    ("Power (W)", "power_watts", "gpu_power_{}_0"),
    ("Core temperature (°C)", "temperature_celsius", "gpu_temp_{}_0"),
    ("Memory temperature (°C)", "memory_temperature_celsius", "gpu_temp_{}_1"),
)


def distributions() -> Any:
    """Draw a fleet of A100s beside two clusters of A100s."""
    settings = FleetSettings(seed=1, nodes=32, days=2.0, models=("A100",), demand=0.85, life=False)
    fleet = build(settings)
    rows = table(fleet, 0.0, settings.days * 86400.0, 60.0)
    panels = []
    for title, field, pattern in _CURVES:
        values = rows[field].to_numpy()
        shares = np.arange(0.0, 100.5, 0.5)
        data = [
            ("simulated", v, s) for s, v in zip(shares, np.percentile(values, shares), strict=True)
        ]
        for cluster in ("seren", "kalos"):
            data += [(f"Acme {cluster.title()}", v, s) for v, s in curve(pattern.format(cluster))]
        frame = pa.table(
            dict(zip(("of", "value", "share"), map(list, zip(*data, strict=True)), strict=True))
        )
        panels.append(
            alt.Chart(frame, title=title, width=300, height=220)
            .mark_line()
            .encode(
                x=alt.X("value:Q", title=None),
                y=alt.Y("share:Q", title="samples at or below (%)"),
                order="share:Q",
                color=alt.Color("of:N", title=None, scale=_COLOURS),
            )
        )
    return alt.vconcat(alt.hconcat(*panels[:2]), alt.hconcat(*panels[2:]))


_COLOURS = alt.Scale(
    domain=["simulated", "Acme Seren", "Acme Kalos"], range=["#d1495b", "#30638e", "#7a9e7e"]
)


def curve(name: str) -> Iterator[tuple[float, float]]:
    """Yield the points of a reference curve."""
    with (REFERENCE / f"acme/{name}.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield float(row["value"]), float(row["cdf_percent"])


def alone(workload: str) -> Fleet:
    """Return a fleet that runs only this workload."""
    return build(
        FleetSettings(seed=2, nodes=8, days=1.0, workloads=(workload,), demand=0.9, life=False)
    )


def longest(fleet: Fleet, start: float) -> Job:
    """Return the longest job that begins after a moment and works as hard as its workload can."""
    tick = 60.0
    active = grid(fleet, table(fleet, 0.0, 86400.0, tick), "sm_activity_percent")

    def usual(job: Job) -> bool:
        mine = active[int(max(job.start, 0.0) / tick) : int(job.end / tick) + 1, job.gpus[0]]
        busy = mine[mine > 0.0]
        return len(busy) > 0 and float(np.median(busy)) > _USUAL * 100.0 * job.workload.sm

    able = [job for job in fleet.plan.jobs if usual(job)]
    jobs = [job for job in able if start <= job.start < start + 6 * HOUR]
    return max(jobs or able, key=lambda job: min(job.end, 86400.0) - max(job.start, 0.0))


_USUAL = 0.85


# Drawn beside each other for every workload: title, field, colour.
_PAIR = (
    ("utilisation (%)", "utilization_percent", "#30638e"),
    ("power (W)", "power_watts", "#d1495b"),
)


def workloads() -> Any:
    """Draw one GPU of each workload, from the hour before its job for two and a half hours."""
    panels = []
    for name in WORKLOADS:
        fleet = alone(name)
        held = longest(fleet, HOUR)
        start = max(held.start - 300.0, 0.0) // HOUR * HOUR
        rows = table(fleet, start, min(start + 2.5 * HOUR, 86400.0), 10.0)
        pair = []
        for label, field, colour in _PAIR:
            values = grid(fleet, rows, field)[:, held.gpus[0]]
            frame = pa.table({"hours": np.arange(len(values)) * 10.0 / HOUR, "value": values})
            pair.append(_line(frame, f"{name}: {label}", colour))
        panels.append(alt.hconcat(*pair))
    return alt.vconcat(*panels)


def _line(frame: pa.Table, title: str, colour: str) -> Any:
    return (
        alt.Chart(frame, title=title, width=420, height=70)
        .mark_line(strokeWidth=0.7, color=colour)
        .encode(x=alt.X("hours:Q", title=None), y=alt.Y("value:Q", title=None))
    )


def job() -> Any:
    """Draw all GPUs of one large job, from its start on."""
    fleet = build(FleetSettings(seed=3, nodes=24, days=1.0, life=False))
    large = [
        j
        for j in fleet.plan.jobs
        if j.workload.key == "tensor parallel" and 0 < j.start < 16 * HOUR
    ]
    held = max(large, key=lambda j: min(j.end, 86400.0) - j.start)
    start = (held.start - 600.0) // 3600.0 * 3600.0
    rows = table(fleet, start, min(start + 6 * HOUR, 86400.0), 30.0)
    panels = []
    for label, field in (
        ("power (W)", "power_watts"),
        ("core temperature (°C)", "temperature_celsius"),
        ("SM clock (Hz)", "sm_clock_hertz"),
    ):
        values = grid(fleet, rows, field)[:, list(held.gpus)]
        panels.append(_many(values, label, held.gpus))
    return alt.vconcat(*panels).properties(
        title=f"one {held.workload.key} job on {len(held.gpus)} GPUs"
    )


def _many(values: Any, title: str, gpus: Sequence[int]) -> Any:
    hours = np.arange(len(values)) * 30.0 / HOUR
    frame = pa.concat_tables(
        pa.table({"hours": hours, "value": values[:, i], "gpu": [f"GPU {gpu % 8}"] * len(hours)})
        for i, gpu in enumerate(gpus[:8])
    )
    return (
        alt.Chart(frame, title=title, width=860, height=150)
        .mark_line(strokeWidth=0.7)
        .encode(
            x=alt.X("hours:Q", title="hours"),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False)),
            color=alt.Color("gpu:N", title=None),
        )
    )


_HOURS = alt.Axis(
    values=list(range(0, 720, 120)), labelExpr="datum.value / 60", labelAngle=0, ticks=True
)


def racks() -> Any:
    """Draw the core temperatures of a rack, for each workload."""
    panels = []
    for name in WORKLOADS:
        fleet = alone(name)
        rows = table(fleet, 0.0, 12 * HOUR, 60.0)
        values = grid(fleet, rows, "temperature_celsius")[::5, :32]
        tick, gpu = np.indices(values.shape)
        frame = pa.table(
            {
                "minutes": tick.ravel() * 5,
                "gpu": gpu.ravel(),
                "celsius": values.ravel(),
            }
        )
        panels.append(
            alt.Chart(frame, title=name, width=432, height=128)
            .mark_rect(strokeWidth=0)
            .encode(
                x=alt.X("minutes:O", title="hours", axis=_HOURS),
                y=alt.Y("gpu:O", title="GPU of the rack", axis=alt.Axis(values=[0, 8, 16, 24])),
                color=alt.Color(
                    "celsius:Q",
                    title="°C",
                    scale=alt.Scale(domain=[20, 90], scheme="inferno"),
                ),
            )
        )
    pairs = [alt.hconcat(*panels[i : i + 2]) for i in range(0, len(panels), 2)]
    return alt.vconcat(*pairs)


_SHOWN = (
    ("heatsink", "temperature_celsius", 0.5),
    ("HW thermal", "sm_clock_hertz", 5.0),
    ("slow GPU", "sm_activity_percent", 0.2),
    ("lowered power limit", "power_watts", 0.6),
    ("hung process", "power_watts", None),
    ("rack inlet", "temperature_celsius", 15.0),
    ("PSU", "sm_clock_hertz", None),
    ("SBE storm", "ecc_corrected_errors", 50.0),
    ("stuck clocks", "power_watts", 0.5),
    ("NVLink CRC", "nvlink_crc_errors", 2.0),
)


def faults() -> Any:
    """Draw one GPU with a fault, and the same GPU without it."""
    settings = FleetSettings(seed=6, nodes=8, days=0.5, life=False, demand=0.9)
    well = build(settings)
    held = next(j for j in well.plan.jobs if j.start <= 0 and j.end > 12 * HOUR and len(j.gpus) > 7)
    before = table(well, 0.0, 8 * HOUR, 30.0)
    node, slot = divmod(held.gpus[0], 8)
    panels = []
    for kind, field, size in _SHOWN:
        target = slot if kind not in {"rack inlet", "PSU"} else None
        order = FaultOrder(
            kind=kind,
            node=node,
            gpu=target,
            start_seconds=2 * HOUR,
            seconds=5 * HOUR,
            magnitude=size,
        )
        sick = build(
            FleetSettings(seed=6, nodes=8, days=0.5, life=False, demand=0.9, faults=(order,))
        )
        after = table(sick, 0.0, 8 * HOUR, 30.0)
        frame = pa.concat_tables(
            pa.table(
                {
                    "hours": np.arange(960) * 30.0 / HOUR,
                    "value": grid(well, rows, field)[:, held.gpus[0]],
                    "of": [of] * 960,
                }
            )
            for of, rows in (("healthy", before), ("with the fault", after))
        )
        panels.append(
            alt.Chart(frame, title=f"{kind}: {field}", width=420, height=110)
            .mark_line(strokeWidth=0.8)
            .encode(
                x=alt.X("hours:Q", title=None),
                y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False)),
                color=alt.Color("of:N", title=None),
            )
        )
    pairs = [alt.hconcat(*panels[i : i + 2]) for i in range(0, len(panels), 2)]
    return alt.vconcat(*pairs)


if __name__ == "__main__":
    main()
