"""`gpuvigil check`: look at this node once and report what is wrong, in the caller's own form."""

import argparse
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpuvigil.config import load
from gpuvigil.errors import ConfigError, GpuvigilError

from ..agent.node_config import config_file
from ..processes.driver_lock import process_seconds
from .callers import CALLERS, PERSON, PROGRAM, Caller, Outcome, drains, stops_jobs
from .look import initial_facts, read_facts
from .rules import findings

_OUTPUT, _ERRORS = 1, 2  # written without buffers: nothing is left to fail at the end
_SECONDS = 5.0
# Seconds of the given time that are kept for printing.
_LAST_WORDS_SECONDS = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """The options of the command line."""

    config: Path | None
    seconds: float
    drain: bool
    node: str | None
    gpus: int | None
    caller: Caller


def main(arguments: Sequence[str]) -> int:
    """Check this node; the exit codes are the caller's (`docs/check.md`)."""
    # The caller must be known before anything can fail: for Slurm, our own failure is no failure.
    caller = _caller_of(arguments)
    _fill_standard_streams()
    # A caller with a time limit counts from the start of the process; for others, time begins now.
    limited = caller.longest_seconds is not None
    begun = time.monotonic() - (process_seconds() if limited else 0.0)
    try:
        given = _parse(arguments, caller)
        _end_by(begun + given.seconds, caller)
        outcome = _check(given, begun)
    except (GpuvigilError, _WrongArguments) as error:
        wrong = isinstance(error, ConfigError | _WrongArguments) and caller in {PERSON, PROGRAM}
        outcome = caller.broken_outcome(str(error))
        return _end(2 if wrong else outcome.code, outcome.lines, _ERRORS)
    except Exception as error:  # noqa: BLE001 - whatever fails here must not drain a node
        outcome = caller.broken_outcome(f"failed itself: {type(error).__name__}: {error}")
        return _end(outcome.code, outcome.lines, _ERRORS)
    return _end(outcome.code, outcome.lines, _OUTPUT)


def _check(given: _Given, begun: float) -> Outcome:
    config = load(config_file(given.config))
    left = begun + given.seconds - _LAST_WORDS_SECONDS - time.monotonic()
    facts = read_facts(initial_facts(config, given.gpus), config.collector, max(left, 0.1))
    found = findings(facts)
    outcome = given.caller.present(facts, found)
    worst = [one for one in found if (stops_jobs if given.caller.gate else drains)(one)]
    if not (given.drain or (given.caller.gate and worst)):
        return outcome
    from .slurm_drain import LONGEST_SECONDS, drain  # noqa: PLC0415 - starts programs, which nobody else needs

    _end_by(time.monotonic() + LONGEST_SECONDS + _LAST_WORDS_SECONDS, given.caller)
    done = drain(facts, worst, given.node, config.actions.most_percent)
    code = int(done.out) if given.caller.gate else outcome.code
    return Outcome(lines=(*outcome.lines, done.line), code=code)


class _WrongArguments(Exception):
    """The command line is not understood."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise _WrongArguments(f"{message}; see gpuvigil check --help")


def _parse(arguments: Sequence[str], caller: Caller) -> _Given:
    parser = _Parser(
        prog="gpuvigil check",
        allow_abbrev=False,
        description="Check this node once, without a hub, and show what is wrong.",
        epilog="Exit codes: 0 nothing worse than info, 3 warning, 4 critical; 1 could not look,"
        " 2 wrong arguments. With --as: what the caller expects (docs/check.md).",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration (TOML)")
    parser.add_argument("-o", dest="form", choices=("text", "json"), default="text")
    parser.add_argument(
        "--as", dest="who", choices=sorted(CALLERS), help="the caller to format for"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=_SECONDS,
        metavar="SECONDS",
        help="time limit of the check; a driver without persistence mode may need 30",
    )
    parser.add_argument(
        "--drain",
        action="store_true",
        help="with --as slurm-health: drain the node on a critical finding",
    )
    parser.add_argument(
        "--node", metavar="NAME", help="the node's name in Slurm, if not the host name"
    )
    parser.add_argument(
        "--gpus", type=_whole, metavar="N", help="number of GPUs that the node must have"
    )
    chosen = parser.parse_args(arguments)
    if chosen.drain and chosen.who != "slurm-health":
        parser.error("--drain goes with --as slurm-health only")
    if chosen.who and chosen.form == "json":
        parser.error("-o json goes without --as")
    if not chosen.timeout > 0:
        parser.error("--timeout must be more than 0")
    return _Given(
        config=chosen.config,
        seconds=min(chosen.timeout, caller.longest_seconds or chosen.timeout),
        drain=chosen.drain,
        node=chosen.node,
        gpus=chosen.gpus,
        caller=caller,
    )


def _caller_of(arguments: Sequence[str]) -> Caller:
    """Return the caller, even when the rest of the command line makes no sense."""
    words = [word for argument in arguments for word in argument.split("=")]
    who = words[words.index("--as") + 1 :][:1] if "--as" in words else []
    if who and who[0] in CALLERS:
        return CALLERS[who[0]]
    return PROGRAM if "json" in words or "-ojson" in words else PERSON


def _fill_standard_streams() -> None:
    """Open any closed standard stream, so that no file or pipe of ours takes its number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= _ERRORS:
        pass
    os.close(number)


def _end_by(moment: float, caller: Caller) -> None:
    """End the process by that moment, however busy or slow this machine is."""

    def give_up(*_: object) -> None:
        with suppress(OSError):
            os.write(_ERRORS, b"gpuvigil check: out of time\n")
        os._exit(caller.broken)

    signal.signal(signal.SIGALRM, give_up)
    # Ending itself takes a moment.
    left = moment - 0.1 - time.monotonic()
    if left <= 0:
        give_up()
    signal.setitimer(signal.ITIMER_REAL, left)


def _end(code: int, lines: Sequence[str], output: int) -> int:
    """Print the lines and return the code, whether or not anybody reads them."""
    text = "".join(f"{line}\n" for line in lines).encode()
    with suppress(OSError):
        while text:
            text = text[os.write(output, text) :]
    signal.setitimer(signal.ITIMER_REAL, 0)
    return code


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
