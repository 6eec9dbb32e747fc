"""The example that `gpuvigil replay --template DIR` writes: half an hour of two nodes, with one fault."""

import csv
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from .layout import names
from .problems import BadRecording, reason

_START = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
_LOST = _START + timedelta(minutes=15)
_TICK, _MINUTES = timedelta(seconds=15), 30
_NODES, _GPUS = ("node-1", "node-2"), 2
_ADDRESSES = ("0000:1b:00.0", "0000:43:00.0")
_GPU_COLUMNS = (
    *("at", "node", "uuid", "index", "model", "pci_address", "utilization_percent"),
    *("memory_used_bytes", "memory_total_bytes", "power_watts", "power_limit_watts"),
    *("temperature_celsius", "sm_clock_hertz", "ecc_uncorrected_errors"),
)
_README = """An example of a recording: docs/recordings.md explains it.

GPU 1 of node-1 falls off the bus at 12:15. Play it: gpuvigil replay DIRECTORY
Every file but one of gpu.csv, port.csv and node.csv may be left out.
"""


def write(directory: Path) -> None:
    """Write the example; BadRecording where the directory has files already."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise BadRecording(f"{directory} is not empty: name a new directory")
        (directory / "README.md").write_text(_README, encoding="utf-8")
        for kind, (columns, rows) in _files().items():
            with (directory / f"{kind}.csv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(columns)
                writer.writerows(rows)
    except OSError as error:
        raise BadRecording(f"{directory}: {reason(error)}") from None


def _files() -> dict[str, tuple[Sequence[str], Sequence[Sequence[object]]]]:
    start, end = _text(_START), _text(_START + timedelta(minutes=_MINUTES))
    xid = f"NVRM: Xid (PCI:{_ADDRESSES[1][:-2]}): 79, GPU has fallen off the bus."
    return {
        "gpu": (_GPU_COLUMNS, list(_gpus())),
        "port": (
            ["at", "node", "device", "port", "up", "speed_bits_per_second", "link_downed"],
            [
                (_text(at), node, "mlx5_0", 1, 1, 400 * 10**9, 0)
                for at in _times()
                for node in _NODES
            ],
        ),
        "node": (
            ["at", "node", "load_average", "memory_available_bytes"],
            [(_text(at), node, 12.5, 900 * 2**30) for at in _times() for node in _NODES],
        ),
        "jobs": (
            ["node", "gpu", "holder", "user", "started_at", "ended_at"],
            [(node, gpu, 4711, "ada", start, "") for node in _NODES for gpu in range(_GPUS)],
        ),
        "kernel": (["at", "node", "line"], [(_text(_LOST), _NODES[0], xid)]),
        "truth": (
            [it for it in names("truth") if it in {"node", "gpu", "from", "to", "what", "cause"}],
            [(_NODES[0], 1, _text(_LOST), end, "fell off the bus", "xid 79")],
        ),
    }


def _gpus() -> Iterator[Sequence[object]]:
    for number, at in enumerate(_times()):
        for node in _NODES:
            for gpu in range(_GPUS):
                if (node, gpu) == (_NODES[0], 1) and at >= _LOST:
                    continue
                wave = (number + gpu) % 7
                used = 60 * 2**30 + wave * 2**20
                yield (
                    *(_text(at), node, f"GPU-{node}-{gpu}", gpu, "NVIDIA H100 80GB HBM3"),
                    *(_ADDRESSES[gpu], 93 + wave, used, 80 * 2**30),
                    *(640 + 3 * wave, 700, 58 + wave % 3, 1_905_000_000, 0),
                )


def _times() -> Iterator[datetime]:
    at = _START
    while at < _START + timedelta(minutes=_MINUTES):
        yield at
        at += _TICK


def _text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
