"""`gpuvigil try` on a node: what is wrong, slow or idle now, from a few looks of `gpuvigil check`."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from gpuvigil.config import Config, load
from gpuvigil.config.startup import fail
from gpuvigil.errors import GpuvigilError
from gpuvigil.model import Finding
from gpuvigil.numbers_in_words import counted

from ..agent.node_config import config_file
from ..owners.processes import ProcessTable
from . import findings_text
from .callers import PERSON
from .facts import Facts
from .look import initial_facts, read_facts
from .over_time import Holder, Idle, free, idle, merged_findings, slow
from .rules import expected_gpus, findings

_SECONDS, _LOOKS = 30.0, 3
_LEAST_SECONDS = 1.0
_LOOK_SECONDS = 8.0  # a driver that is not kept loaded wakes up at the first one
_MIB = 1024 * 1024


def main(arguments: Sequence[str]) -> int:
    """Look at this node for a while and print what is found.

    Exit codes are those of `gpuvigil check`: 0, 3 warning, 4 critical, 1 could not look, 2 wrong
    arguments.
    """
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.seconds < _LEAST_SECONDS:
        parser.error(f"--seconds must be {_LEAST_SECONDS:g} or more")
    try:
        config = load(config_file(chosen.config))
    except GpuvigilError as error:
        return fail(parser.prog, error)
    if sys.stderr.isatty():
        sys.stderr.write(f"looking for {chosen.seconds:g} s ...\n")
    looks = _samples(config, chosen.seconds)
    found = merged_findings([findings(facts) for facts in looks])
    held = idle(looks, _holders(config))
    form = _json if chosen.form == "json" else _text
    sys.stdout.write("".join(f"{line}\n" for line in form(looks, found, held)))
    return PERSON.present(looks[-1], found).code


def _samples(config: Config, seconds: float) -> list[Facts]:
    """Look a few times, evenly over the given seconds."""
    began, found = time.monotonic(), []
    for number in range(_LOOKS):
        due = began + number * seconds / (_LOOKS - 1)
        if (left := due - time.monotonic()) > 0:
            time.sleep(left)
        found.append(
            read_facts(initial_facts(config), config.collector, _LOOK_SECONDS, counters=True)
        )
    return found


def _holders(config: Config) -> Callable[[int], Holder]:
    table = ProcessTable(config.collector.proc_root)

    def who(pid: int) -> Holder:
        found = table.find(pid)
        return Holder(
            pid=pid,
            user=found.user,
            command=found.command,
            job=table.place(pid).job,
            place=found.place,
            seconds=table.ran_seconds(pid),
        )

    return who


def _text(
    samples: Sequence[Facts], found: Sequence[Finding], held: Sequence[Idle]
) -> Iterator[str]:
    facts = samples[-1]
    yield from (findings_text.line(facts, one) for one in found)
    for one in slow(samples):
        yield f"slow     {one.place}: {one.what}"
    for gpu in held:
        who = "; ".join(holder.words for holder in gpu.holders)
        yield f"idle     {gpu.gpu} ({gpu.uuid}): held{_memory(gpu)} and at 0 %, by {who}"
    yield from findings_text.unread(facts)
    if facts.driver is not None and facts.driver.failure and not expected_gpus(facts):
        yield f"not looked at: NVIDIA GPUs: none in sight, and {facts.driver.failure}"
    if facts.gpus:
        yield f"{counted(len(facts.gpus), 'GPU')}: {len(held)} held and idle, {free(samples)} free"
    span = (facts.at - samples[0].at).total_seconds()
    yield f"{findings_text.summary(facts, found)}; {len(samples)} looks in {span:.0f} s"


def _memory(gpu: Idle) -> str:
    if gpu.memory_bytes is None:
        return ""
    return f" with {gpu.memory_bytes / _MIB:,.0f} MiB"


def _json(
    samples: Sequence[Facts], found: Sequence[Finding], held: Sequence[Idle]
) -> Iterator[str]:
    value = json.loads(findings_text.as_json(samples[-1], found))
    more = {
        "looks": len(samples),
        "idle": [asdict(one) for one in held],
        "free": free(samples),
        "slow": [asdict(one) for one in slow(samples)],
    }
    yield json.dumps({**value, **more}, indent=2)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuvigil try",
        allow_abbrev=False,
        description="Look at this machine for half a minute: what is wrong, slow or idle now, without"
        " a hub. With --prometheus URL: what a site's Prometheus says of the last month.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration (TOML)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=_SECONDS,
        metavar="N",
        help="time from the first look to the last",
    )
    parser.add_argument("-o", dest="form", choices=("text", "json"), default="text")
    return parser
