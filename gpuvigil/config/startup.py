"""The start of every command: its arguments, configuration, log and exit code."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from .. import lifeline, log
from ..errors import GpuvigilError, HubUnavailable
from ..private_files import UMASK
from ..state_directory import config_of_up
from . import Config, load


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the argument that every command takes: `--config FILE`."""
    arguments = argparse.ArgumentParser(prog=f"gpuvigil {name}", description=description)
    arguments.add_argument("--config", type=Path, metavar="FILE", help="configuration (TOML)")
    return arguments


def configured_anywhere(verbs: Iterable[argparse.ArgumentParser]) -> None:
    """Accept `--config FILE` after a verb, too."""
    for verb in verbs:
        verb.add_argument(
            "--config", type=Path, metavar="FILE", default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )


def run_service(
    arguments: argparse.ArgumentParser,
    given: Sequence[str],
    run: Callable[[Config, argparse.Namespace, threading.Event], None],
) -> int:
    """Run a service until SIGTERM or SIGINT sets its stop event; return the exit code.

    Files that it and its children write are private to its user unless they say otherwise.

    The exit code is 0 after a clean stop, 2 for a wrong configuration, 1 otherwise; an error is one line
    on standard error.
    """
    lifeline.hold()
    chosen = arguments.parse_args(given)
    stop = threading.Event()
    os.umask(UMASK)
    try:
        config = load(chosen.config)
        log.configure(config.log.level)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        run(config, chosen, stop)
    except GpuvigilError as error:
        return fail(arguments.prog, error)
    return 0


def run_command(
    arguments: argparse.ArgumentParser,
    given: Sequence[str],
    act: Callable[[Config, argparse.Namespace], int | None],
) -> int:
    """Run `act` with the named configuration, or else the one that `gpuvigil up` wrote.

    Returns the exit code of `act`, 0 for None; an error is one line on standard error.
    """
    chosen = arguments.parse_args(given)
    try:
        return act(load(config_of_up(chosen.config)), chosen) or 0
    except GpuvigilError as error:
        return fail(arguments.prog, error)


def fail(program: str, error: GpuvigilError) -> int:
    """Print the error in one line, with what to do, and return its exit code."""
    todo = f"; {error.todo}" if isinstance(error, HubUnavailable) and error.todo else ""
    print(f"{program}: {error}{todo}", file=sys.stderr)
    return error.exit_code
