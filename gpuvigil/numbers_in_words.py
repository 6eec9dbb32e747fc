"""Formatting of numbers for people."""

import re
from collections.abc import Iterable
from datetime import timedelta

from .clock import duration
from .metrics import Kind, Metric
from .state_words import state_words

NOT_MEASURED = "not measured"


def holders_unknown(of: str = "the GPUs") -> str:
    """Return the text shown in place of numbers about holders, with what would provide them."""
    return (
        f"Who holds {of} is not known: a collector reports it, or dcgm-exporter through its labels"
        " hpc_job or pod."
    )


HOLDERS_UNKNOWN = holders_unknown()
SOME_UNKNOWN = holders_unknown("some of the GPUs")


def natural(text: str) -> list[tuple[int, str]]:
    """Return a sort key that puts `rack 2` before `rack 10`."""
    parts = re.split(r"(\d+)", text)
    return [(int(part) if part.isdecimal() else -1, part) for part in parts]


def ranges(numbers: Iterable[int]) -> str:
    """Format ascending numbers as ranges: `0-3, 6` for 0, 1, 2, 3, 6."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def counted(number: int, thing: str) -> str:
    """Format a count with its noun: `1 node`, `16 nodes`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


_ONE_OF = {
    "times": "time",
    "batches": "batch",
    "times down": "time down",
    "times over the integrity threshold": "time over the integrity threshold",
    "recoveries": "recovery",
    "timeouts on a path": "timeout on a path",
    "recoveries that succeeded": "recovery that succeeded",
    "recoveries that failed": "recovery that failed",
    "packets marked bad upstream": "packet marked bad upstream",
    "errors of the far end": "error of the far end",
    "errors past correction": "error past correction",
    "symbol errors before correction": "symbol error before correction",
}


# Short units only: a line may break before a word.
_UNIT = re.compile(r"(?<=\d) (?=(?:%|×|[kMG]?W|h|min|s|d|°C)(?![\w/]))")


def unbroken(text: str) -> str:
    """Keep each number on one line with its unit, however narrow the place is."""
    return _UNIT.sub("\u00a0", text)


def of_many(number: float, things: str) -> str:
    """Format a count with a noun given in the plural: `1 discard`, `16 discards`."""
    one = _ONE_OF.get(things, things.removesuffix("s")) if number == 1 else things
    return f"{number:,.0f} {one}"


def percent(value: float | None) -> str:
    """Format a share as a percentage; None as a dash, never as 0."""
    return "–" if value is None else f"{value:.0f} %"


def watts(value: float) -> str:
    """Format a power in watts below 1 kW, in kilowatts above."""
    if value < 1000:
        return f"{value:.0f} W"
    return f"{value / 1000:,.1f} kW" if value < 100_000 else f"{value / 1000:,.0f} kW"


def speed(bits_per_second: float | None) -> str:
    """Format a link's speed in Gb/s or Mb/s, as printed on its box; None as a dash."""
    if bits_per_second is None:
        return "–"
    if bits_per_second >= 1e9:
        return f"{bits_per_second / 1e9:g} Gb/s"
    return f"{bits_per_second / 1e6:g} Mb/s"


# The suffix of a metric's name gives its unit; factor, unit and format are for people.
_UNITS: dict[str, tuple[float, str, str]] = {
    "_percent": (1, "%", ".0f"),
    "_bytes": (1 / 2**30, "GiB", ",.2f"),
    "_watts": (1, "W", ",.0f"),
    "_joules": (1e-6, "MJ", ",.2f"),
    "_celsius": (1, "°C", ".0f"),
    "_hertz": (1e-6, "MHz", ",.0f"),
    "_seconds": (1e3, "ms", ",.1f"),
    "_bytes_per_second": (1e-9, "GB/s", ",.2f"),
}


# Abbreviations as the field writes them; those in plain capitals are in `_CAPITALS`.
_CAPITALS = (
    *("ecc", "sm", "gpu", "cpu", "dram", "sram", "mig", "tpc", "crc", "lcrc", "mcu", "cbu", "kv"),
    *("l1", "l2", "fp64", "fp32", "fp16", "bar1", "jpeg", "ecn", "cnp"),
)
_WRITTEN = {
    **{word: word.upper() for word in _CAPITALS},
    "gpus": "GPUs",
    "pcie": "PCIe",
    "nvlink": "NVLink",
    "tlps": "TLPs",
    "dllps": "DLLPs",
    "naks": "NAKs",
    "secded": "SEC-DED",
    "tlimit": "T.limit",
    "utilization": "utilisation",
}


# Without their unit two metrics would have one name.
_NAMED = {
    "speed_bits_per_second": "Speed",
    "step": "Steps done",
    "step_seconds": "Step time",
    "step_phase_seconds": "Time in step phase",
}


def title(metric: Metric) -> str:
    """Return the metric's name in words, without its unit."""
    name = metric.name
    if name in _NAMED:
        return _NAMED[name]
    for ending in _UNITS:
        name = name.removesuffix(ending)
    name += "_rate" if metric.name.endswith("_per_second") else ""
    words = " ".join(_WRITTEN.get(word, word) for word in name.split("_"))
    return capitalized(words)


_PLAIN_WORD = re.compile(r"(?!gpuvigil\b)[a-z]+(?:'[a-z]+)?(?![\w/.-]*\w)")


def capitalized(text: str) -> str:
    """Begin a sentence with a capital, unless it begins with a name, such as `mlx5_0` or `sim-003`."""
    return text[:1].upper() + text[1:] if _PLAIN_WORD.match(text) else text


_LONG = 120.0  # seconds; longer spans are given in minutes or hours


def measured(metric: Metric, value: float | None) -> str:
    """Format a value with its unit, a state in words; or say that it was not measured."""
    if value is None:
        return NOT_MEASURED
    if metric.kind is Kind.STATE and (words := state_words(metric.name, int(value))) is not None:
        return words
    if metric.name.endswith("_seconds") and (metric.kind is Kind.COUNTER or value >= 1):
        return f"{value:,.1f} s" if value < _LONG else duration(timedelta(seconds=value))
    for ending, (factor, unit, form) in _UNITS.items():
        if metric.name.endswith(ending):
            return f"{value * factor:{form}} {unit}"
    return f"{value:,.0f}" if metric.integer or metric.kind is Kind.COUNTER else f"{value:,.2f}"


def of_clock(told: tuple[float, str] | None) -> str | None:
    """Describe a node's clock offset from the hub's; None when it is unknown.

    `told` is the offset in seconds (positive: ahead) and what the hub does about it.
    """
    if told is None:
        return None
    seconds, state = told
    off = f"{abs(seconds):,.1f} s {'ahead of' if seconds > 0 else 'behind'} the hub's"
    if state == "wrong":
        return f"wrong: {off}"
    return f"{off}; times are put right" if state == "corrected" else "right"
