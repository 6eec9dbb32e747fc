"""`gpuvigil switches`: asks the site's Prometheus of switches, power and cooling, and ships the answers."""

import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from gpuvigil.clock import Clock, SystemClock
from gpuvigil.config import Config, SwitchesSettings, load, startup
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.log import Log
from gpuvigil.numbers_in_words import counted

from ..fabric.seen import NotReadError, Seen
from ..fabric.switches import Switches
from ..fabric.watch import Watch, repeat
from ..shipping import Outgoing, shipping
from . import mapping
from .answers import Answers, ReportedSwitch, missed, reported_switches, silent, together
from .equipment import EquipmentWatch, seen, summary
from .equipment_mapping import EquipmentMapping, is_of_equipment, parse
from .mapping import NAME, NEIGHBOUR, SPEED, SwitchMapping
from .prometheus import Prometheus

log = Log("switches")

_SOONEST_SECONDS = 5.0


class Reader:
    """What Prometheus says of switches by some mappings."""

    def __init__(
        self,
        prometheus: Prometheus,
        mappings: Sequence[SwitchMapping],
        lost_after: timedelta,
        clock: Clock,
    ) -> None:
        self._prometheus, self._mappings = prometheus, mappings
        self._lost_after, self._clock = lost_after, clock
        self._exporters: dict[str, str] = {}  # by switch
        self._told_by: dict[str, str] = {}  # by switch the file of its mapping

    def read(self, before: Switches) -> Seen:
        """The switches of which it has fresh series; NotReadError says why there are none.

        Where one mapping cannot be read, its switches are in doubt, and the others' are seen.
        """
        found: dict[str, dict[str, ReportedSwitch]] = {}
        why: list[str] = []
        for it in self._mappings:
            try:
                answers, more = self._prometheus.answers(it)
                found[it.file] = reported_switches(it, answers)
            except NotReadError as error:
                more = (str(error),)
            why += more
        if not found:
            raise NotReadError("; ".join(why))
        self._told_by |= {guid: file for file, them in found.items() for guid in them}
        return self._seen(before, list(found.values()), self._unasked(before, found), why)

    def _unasked(self, before: Switches, found: Mapping[str, object]) -> frozenset[str]:
        """Switches whose mapping was not read; one that has not been seen since the start may be of any."""
        if len(found) == len({it.file for it in self._mappings}):
            return frozenset()
        return frozenset(guid for guid in before if self._told_by.get(guid, "") not in found)

    def _seen(
        self,
        before: Switches,
        found: Sequence[Mapping[str, ReportedSwitch]],
        unasked: frozenset[str],
        why: Sequence[str],
    ) -> Seen:
        now = {guid: it.exporter for them in found for guid, it in them.items()}
        asked = {guid: it for guid, it in self._exporters.items() if guid not in unasked}
        without = silent(asked, now)
        self._exporters |= now
        late = missed(before, now, self._lost_after, self._clock.now())
        silence = (
            f"{exporter} tells of none of its {len(them)} switches any more"
            for exporter, them in sorted(without.items())
        )
        return Seen(
            switches=together(found, before),
            doubted=late.union(unasked, *without.values()),
            unasked=unasked.difference(now),
            why="; ".join((*why, *silence)),
        )


@dataclass(frozen=True, slots=True)
class _Mappings:
    """The files of the settings, by what they are about."""

    switches: tuple[SwitchMapping, ...]
    equipment: tuple[EquipmentMapping, ...]


def _mappings(settings: SwitchesSettings) -> _Mappings:
    if not settings.mappings:
        raise ConfigError("switches.mappings is not set: name a mapping file (docs/switches.md)")
    texts = {file: mapping.read(file) for file in settings.mappings}
    of_equipment = {file for file, text in texts.items() if is_of_equipment(text)}
    return _Mappings(
        tuple(
            mapping.parse(it, str(file)) for file, it in texts.items() if file not in of_equipment
        ),
        tuple(parse(it, str(file)) for file, it in texts.items() if file in of_equipment),
    )


def _run(config: Config, _: Namespace, stop: threading.Event) -> None:
    settings, clock = config.switches, SystemClock()
    if settings.interval_seconds < _SOONEST_SECONDS:
        raise ConfigError(
            f"switches.interval_seconds is {settings.interval_seconds:g}: at least {_SOONEST_SECONDS:g}"
        )
    prometheus, mappings = Prometheus(settings), _mappings(settings)
    directory = settings.spool_directory
    with shipping(config, "switches", directory, settings.spool_bytes, clock) as out:
        log.info(
            "asking Prometheus of switches",
            cluster=out.told_by.cluster,
            every_seconds=settings.interval_seconds,
        )
        rounds = _rounds(settings, prometheus, mappings, out, clock)
        repeat(rounds, stop, settings.interval_seconds, clock)
    log.info("stopped", spool_bytes=out.spool.bytes)


def _rounds(
    settings: SwitchesSettings,
    prometheus: Prometheus,
    mappings: _Mappings,
    out: Outgoing,
    clock: Clock,
) -> list[Callable[[], None]]:
    directory, cluster = settings.spool_directory, out.told_by.cluster
    rounds: list[Callable[[], None]] = []
    if mappings.switches:
        lost_after = timedelta(seconds=settings.lost_after_seconds)
        reader = Reader(prometheus, mappings.switches, lost_after, clock)
        watch = Watch(reader.read, cluster, directory / "switches.json", clock, log)
        rounds.append(partial(watch.round, out.put))
    if mappings.equipment:
        memory = directory / "equipment.json"
        equipment = EquipmentWatch(mappings.equipment, prometheus.part, cluster, memory, clock, log)
        rounds.append(partial(equipment.round, out.put))
    return rounds


def _check(config: Config) -> int:
    """Say what each mapping finds; 1 where one finds nothing, or has a query that fails."""
    prometheus, mappings = Prometheus(config.switches), _mappings(config.switches)
    code = 0
    for it in mappings.switches:
        try:
            answers, why = prometheus.answers(it)
            text = "\n".join(
                (*_found(it, answers, reported_switches(it, answers)), *(f"  {one}" for one in why))
            )
            code = 1 if why else code
        except NotReadError as error:
            text, code = str(error), 1
        sys.stdout.write(text + "\n")
    for one in mappings.equipment:
        try:
            text = "\n".join(summary(one, seen(one, prometheus.part)))
        except NotReadError as error:
            text, code = str(error), 1
        sys.stdout.write(text + "\n")
    return code


def _found(
    it: SwitchMapping, answers: Answers, switches: dict[str, ReportedSwitch]
) -> Iterator[str]:
    ports = [port for one in switches.values() for port in one.ports.values()]
    up = sum(port.up for port in ports)
    yield (
        f"{it.file}: {len(switches)} switch{'' if len(switches) == 1 else 'es'},"
        f" {counted(len(ports), 'port')}: {up} up, {len(ports) - up} down"
    )
    measured = {
        NAME: f"{sum(one.name not in {'', guid} for guid, one in switches.items())} of {len(switches)} switches",
        NEIGHBOUR: f"{sum(len(one.neighbours) for one in switches.values())} of {len(ports)} ports",
        SPEED: f"{sum(port.bits_per_second is not None for port in ports)} of {up} ports that are up",
    }
    for name in answers:
        if not answers[name]:
            yield f"  {name}: not measured: Prometheus has no series for {it.tables[name].query!r}"
        elif name in measured:
            yield f"  {name}: {measured[name]}"
        elif name in mapping.COUNTERS:
            count = sum(
                port.counters is not None and port.counters[name] is not None for port in ports
            )
            yield f"  {name}: {count} of {len(ports)} ports"


def main(arguments: Sequence[str]) -> int:
    """Ask until SIGTERM, or once with `--check`; returns the exit code."""
    parser = startup.parser(
        "switches", "Read switches, power and cooling from the site's Prometheus, and tell the hub."
    )
    parser.add_argument(
        "--check", action="store_true", help="ask once, say what was found, tell nobody"
    )
    chosen = parser.parse_args(arguments)
    if not chosen.check:
        return startup.run_service(parser, arguments, _run)
    try:
        return _check(load(chosen.config))
    except GpuvigilError as error:
        return startup.fail(parser.prog, error)
