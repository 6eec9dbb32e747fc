"""How every command starts: its arguments, its configuration, its log, its end."""

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
    """The arguments that every command takes: `--config FILE`."""
    arguments = argparse.ArgumentParser(prog=f"gpuvigil {name}", description=description)
    arguments.add_argument("--config", type=Path, metavar="FILE", help="configuration (TOML)")
    return arguments


def configured_anywhere(verbs: Iterable[argparse.ArgumentParser]) -> None:
    """Let `--config FILE` also stand after a verb."""
    for verb in verbs:
        verb.add_argument(
            "--config", type=Path, metavar="FILE", default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )


def run_service(
    arguments: argparse.ArgumentParser,
    given: Sequence[str],
    run: Callable[[Config, argparse.Namespace, threading.Event], None],
) -> int:
    """Run a service until SIGTERM or SIGINT sets its stop event.

    What it writes, and its children, is its user's alone but where it says otherwise.

    Returns the exit code: 0 after a clean stop, 2 for a wrong configuration, 1 otherwise; an error
    is one line on standard error.
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
    """Run `act` with the configuration that was named, or else the one that `gpuvigil up` wrote.

    Returns its exit code, 0 for None; an error is one line on standard error.
    """
    chosen = arguments.parse_args(given)
    try:
        return act(load(config_of_up(chosen.config)), chosen) or 0
    except GpuvigilError as error:
        return fail(arguments.prog, error)


def fail(program: str, error: GpuvigilError) -> int:
    """Say one line, with what to do, and give the exit code."""
    todo = f"; {error.todo}" if isinstance(error, HubUnavailable) and error.todo else ""
    print(f"{program}: {error}{todo}", file=sys.stderr)
    return error.exit_code
