"""The command `gpuvigil config check`: list the mistakes in the settings of every service."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from gpuvigil.config.mistakes import Limit, limits, mistakes
from gpuvigil.config.startup import fail
from gpuvigil.errors import GpuvigilError
from gpuvigil.numbers_in_words import counted
from gpuvigil.state_directory import config_of_up


def main(arguments: Sequence[str]) -> int:
    """Check the settings; return 0 for good ones, 1 for mistakes, 2 for wrong arguments."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    try:
        file = config_of_up(chosen.file or chosen.config)
        found = mistakes(file)
        if found:
            _write("\n".join(found))
            return 1
        if chosen.limits:
            _write(_json(limits(file)) if chosen.form == "json" else _text(limits(file)))
        else:
            _write(f"{file or 'the variables'}: nothing wrong")
    except GpuvigilError as error:
        return fail(parser.prog, error)
    return 0


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _text(found: Sequence[Limit]) -> str:
    width = max(len(one.key) for one in found)
    own = sum(one.origin != "default" for one in found)
    lines = [f"{one.key:<{width}}  {_value(one):>12}  {one.origin}" for one in found]
    return "\n".join([*lines, f"{counted(len(found), 'limit')}, {own} of them set here"])


def _value(one: Limit) -> str:
    return str(one.value).lower() if isinstance(one.value, bool) else f"{one.value:.15g}"


def _json(found: Sequence[Limit]) -> str:
    return json.dumps([asdict(one) for one in found], indent=1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuvigil config", description="Check the settings of every service."
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    check = verbs.add_parser("check", help="print each mistake in one line, with file and key")
    check.add_argument("file", nargs="?", type=Path, metavar="FILE", help="default: what `up` uses")
    check.add_argument(
        "--config", type=Path, metavar="FILE", default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    check.add_argument(
        "--limits", action="store_true", help="print each limit in force and where it comes from"
    )
    check.add_argument("-o", dest="form", choices=("text", "json"), default="text")
    return parser
