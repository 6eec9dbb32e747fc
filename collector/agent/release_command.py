"""Tells this node's running agent to release the driver for a while, take it back or forget a GPU.

Exit codes: 0 done, 1 not done, 2 wrong usage or configuration, 3 no agent runs, 4 no permission.
"""

import argparse
import re
import sys
from collections.abc import Mapping
from typing import Any

from gpuvigil.clock import from_text, moment
from gpuvigil.config import load, startup
from gpuvigil.errors import GpuvigilError

from ..samples.messages import NO_DRIVER
from .control_socket import NoAgentError, ask
from .maintenance import LONGEST_SECONDS
from .node_config import config_file, file_of_up

_FORM = re.compile(r"(\d{1,6})(s|min|m|h)", re.ASCII)
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600}
_REATTACH = "gpuvigil collect --reattach"


def seconds_of(text: str) -> float:
    """Return `30s`, `10m` or `1h` in seconds, from 1 s to 24 h; else raise ArgumentTypeError."""
    match = _FORM.fullmatch(text)
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 1 <= seconds <= LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time like 30s, 10m or 1h, at most 24h")
    return float(seconds)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that speak to a running agent instead of starting one."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--release",
        type=seconds_of,
        metavar="TIME",
        help="let the running collector close the driver for 30s, 10m or 1h, for a GPU reset, a driver"
        " reload or a MIG switch; it takes the driver back by itself",
    )
    group.add_argument(
        "--reattach",
        action="store_true",
        help="let the running collector read the driver again now",
    )
    group.add_argument(
        "--forget", metavar="UUID", help="tell the running collector that this GPU was removed"
    )
    group.add_argument("--status", action="store_true", help="show what the running collector does")


def is_asked(chosen: argparse.Namespace) -> bool:
    """Return whether the command line speaks to a running agent."""
    return bool(chosen.release or chosen.reattach or chosen.forget or chosen.status)


def run(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    """Send the request and print one line; return the exit code."""
    try:
        file = config_file(chosen.config)
        directory = load(file).collector.spool_directory
        line = _line(chosen, ask(directory, _request(chosen)))
    except NoAgentError as error:
        of_up = file_of_up(file)
        named = f"; that of 'gpuvigil up' has --config {of_up}" if of_up else ""
        return startup.fail(parser.prog, NoAgentError(f"{error}{named}"))
    except GpuvigilError as error:
        return startup.fail(parser.prog, error)
    sys.stdout.write(line + "\n")
    return 0


def _request(chosen: argparse.Namespace) -> dict[str, Any]:
    if chosen.release:
        return {"do": "release", "seconds": chosen.release}
    if chosen.forget:
        return {"do": "forget", "gpu": chosen.forget}
    return {"do": "reattach" if chosen.reattach else "status"}


def _line(chosen: argparse.Namespace, answer: Mapping[str, Any]) -> str:
    """Return the agent's answer as one line for people."""
    until = answer.get("released_until")
    end = moment(from_text(until)) if until else ""
    if chosen.release:
        return (
            f"released after {answer['took_seconds']:.2f} s: NVML is shut down, gpuvigil holds no"
            f" /dev/nvidia*; it is read again at {end}, or earlier by `{_REATTACH}`"
        )
    if chosen.forget:
        return f"{chosen.forget} is forgotten; this node has {answer['gpus']} GPUs"
    if chosen.reattach:
        return "the driver is read again" if answer["was_released"] else "nothing was released"
    return "; ".join([*_status(answer), *([f"released until {end}"] if end else [])])


def _status(answer: Mapping[str, Any]) -> list[str]:
    """Return what the agent does, and its report on driver, disk and bus, as parts of a line."""
    missing = answer.get("missing") or []
    driver = answer["driver"]
    parts = [
        f"{answer['cluster']}/{answer['node']}: "
        + (driver if driver == NO_DRIVER else f"driver {driver}"),
        f"{answer['gpus']} GPUs known",
        f"missing: {', '.join(missing)}" if missing else "none missing",
    ]
    silent = answer.get("driver_silent_since")
    if silent:
        parts.insert(1, f"driver not answering since {moment(from_text(silent))}")
    refused = answer.get("spool_refused_since")
    if refused:
        parts.append(
            f"the spool's disk takes nothing since {moment(from_text(refused))}"
            f" ({answer.get('spool_refused_why')}), {answer.get('dropped_bodies')} bodies dropped"
        )
    if lack := answer.get("driverless"):
        parts.insert(1, f"on the PCI bus, without a driver: {', '.join(lack)}")
    if others := answer.get("unsupported"):
        parts.append(f"not supported, and not read: {', '.join(others)}")
    return parts
