"""Power and cooling as Prometheus knows them: what a mapping file may say, and what is told of the answers."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from gpuvigil.clock import ManualClock
from gpuvigil.errors import ConfigError
from gpuvigil.log import Log
from gpuvigil.model import Record, RecordKind
from gpuvigil.model.equipment import Equipment, PartKind
from integrations.fabric.seen import NotReadError
from integrations.switches.answers import Sample
from integrations.switches.equipment import EquipmentWatch, seen, summary
from integrations.switches.equipment_mapping import (
    EquipmentMapping,
    PartTable,
    is_of_equipment,
    parse,
)
from integrations.switches.mapping import read
from tests.sources import ROOT

NOON = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
EXAMPLES = sorted((ROOT / "packaging/equipment").glob("*.toml"))
LEAST = 'node = "n"\n[[parts]]\nkind = "fan"\nquery = "q"\nname = "p"\nfailed = [3]\n'
FANS = parse(LEAST, "fans.toml")
SUPPLIES = parse(LEAST.replace('"fan"', '"power supply"').replace('"q"', '"s"'), "supplies.toml")
COOLANT = parse(
    'rack = "n"\n[[parts]]\nkind = "coolant"\nquery = "t"\nname = "p"\nunit = "°C"\nabove = 45\n'
    '[[parts]]\nkind = "coolant"\nquery = "f"\nname = "p"\nbelow = 20\n',
    "coolant.toml",
)


def sample(of: str, part: str, value: float | str) -> Sample:
    return Sample(labels={"n": of, "p": part}, value=str(value))


class Site:
    """A Prometheus with these answers by query, and who asks it; a query without one fails."""

    def __init__(self, folder: Path, *mappings: EquipmentMapping) -> None:
        self.answers: dict[str, Sequence[Sample]] = {}
        self.clock, self.told = ManualClock(NOON), list[Equipment]()
        self._mappings, self._file = mappings, folder / "equipment.json"
        self.start()

    def start(self) -> None:
        self._watch = EquipmentWatch(
            self._mappings, self.ask, "c", self._file, self.clock, Log("test")
        )

    def ask(self, mapping: EquipmentMapping, table: PartTable, number: int) -> Sequence[Sample]:
        if table.query not in self.answers:
            raise NotReadError(f"{mapping.where(number)}: no answer")
        return self.answers[table.query]

    def look(self, after: float = 60.0) -> list[Equipment]:
        """What is told by one look."""
        self.clock.advance(after)
        told: list[Record] = []
        self._watch.round(told.extend)
        assert all(it.kind is RecordKind.EQUIPMENT and it.id == it.subject for it in told)
        return [Equipment.from_record(Record.from_json(it.to_json())) for it in told]


def failed(told: Sequence[Equipment]) -> Mapping[str, list[str]]:
    return {
        it.subject.node: [f"{p.kind.value} {p.name}: {p.said}" for p in it.failed] for it in told
    }


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda it: it.stem)
def test_every_example_can_be_read(file: Path) -> None:
    text = read(file)
    assert is_of_equipment(text)
    assert parse(text, str(file)).parts


def test_there_are_examples_of_service_processors_pdus_and_coolant() -> None:
    kinds = {table.kind for file in EXAMPLES for table in parse(read(file), str(file)).parts}
    assert kinds == set(PartKind)
    switches = (ROOT / "packaging/switches/ufm.toml").read_text()
    assert not is_of_equipment(switches)
    assert not is_of_equipment("parts = ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LEAST.replace('node = "n"\n', ""), "f: name the label of either node or rack"),
        ('rack = "r"\n' + LEAST, "f: name the label of either node or rack"),
        ('switch = "s"\n' + LEAST, "f: switch is unknown; known are node, parts, rack"),
        (LEAST.replace('"n"', "3"), "f: node must be a text"),
        ('node = "n"\nparts = 3\n', "f: parts must be tables"),
        ('node = "n"\nparts = [3]\n', r"f: \[\[parts\]\] 1 must be a table"),
        (LEAST.replace('"fan"', '"pump"'), r"f: \[\[parts\]\] 1: kind must be one of coolant, fan"),
        (LEAST.replace('name = "p"\n', ""), r"f: \[\[parts\]\] 1: name is missing"),
        (LEAST + "times = 3\n", r"f: \[\[parts\]\] 1: times is unknown; known are above, below"),
        (LEAST + "above = 3\n", r"f: \[\[parts\]\] 1: say when it has failed by one of failed"),
        (LEAST.replace("failed = [3]", ""), r"f: \[\[parts\]\] 1: say when it has failed"),
        (LEAST.replace("[3]", "3"), "failed must be a list of numbers"),
        (LEAST.replace("[3]", '["3"]'), "failed must be a number"),
        (LEAST.replace("failed = [3]", "above = inf"), "above must be a number"),
        (LEAST.replace('"q"', '""'), "query must be a text"),
    ],
)
def test_what_is_wrong_is_one_line_that_says_where(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        parse(text, "f")
    assert "\n" not in str(error.value)


def test_what_has_failed_is_told_with_its_value_and_limit(tmp_path: Path) -> None:
    site = Site(tmp_path, FANS, COOLANT)
    site.answers = {
        "q": [sample("n1.lan:9610", "FAN1", 1), sample("n1.lan:9610", "FAN2", 3)],
        "t": [sample("r1", "supply", 47.5), sample("r2", "supply", 45)],
        "f": [sample("r2", "pump", 12), sample("r1", "pump", "NaN")],
    }
    told = site.look()
    assert failed(told) == {
        "n1.lan": ["fan FAN2: state 3"],
        "r1": ["coolant supply: 47.5 °C (limit 45 °C)"],
        "r2": ["coolant pump: 12 (at least 20)"],
    }
    assert {it.subject.node: it.is_rack for it in told} == {"n1.lan": False, "r1": True, "r2": True}


def test_what_is_as_it_was_is_told_every_five_minutes_and_what_just_failed_each_time(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, FANS)
    site.answers = {"q": [sample("n1", "FAN1", 1)]}
    assert [len(site.look()) for _ in range(11)] == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    site.answers = {"q": [sample("n1", "FAN1", 3)]}
    spans = [it.at - it.failed[0].since for _ in range(12) for it in site.look()]
    assert spans == [n * timedelta(minutes=1) for n in range(11)]
    site.answers = {"q": [sample("n1", "FAN1", 1)]}
    assert failed(site.look()) == {"n1": []}


def test_a_restart_does_not_begin_a_failure_anew(tmp_path: Path) -> None:
    site = Site(tmp_path, FANS)
    site.answers = {"q": [sample("n1", "FAN1", 3)]}
    (first,) = site.look()
    site.start()
    (second,) = site.look()
    assert second.failed == first.failed
    (tmp_path / "equipment.json").write_text("[{")
    site.start()
    (third,) = site.look()
    assert third.failed[0].since == third.at


def test_what_cannot_be_read_is_neither_well_nor_told(tmp_path: Path) -> None:
    site = Site(tmp_path, FANS, SUPPLIES)
    site.answers = {"q": [sample("n1", "FAN1", 3)], "s": [sample("n1", "PSU1", 3)]}
    both = {"n1": ["fan FAN1: state 3", "power supply PSU1: state 3"]}
    assert failed(site.look()) == both
    site.answers = {"s": [sample("n1", "PSU1", 3), sample("n2", "PSU1", 1)]}
    told = site.look()
    assert {name: sorted(them) for name, them in failed(told).items()} == both | {"n2": []}
    site.answers = {}
    assert site.look(600.0) == []
    site.answers = {"q": [sample("n1", "FAN1", 1)], "s": [sample("n1", "PSU1", 1)]}
    assert failed(site.look()) == {"n1": []}


def test_a_failed_part_without_a_value_is_not_well(tmp_path: Path) -> None:
    site = Site(tmp_path, FANS)
    site.answers = {"q": [sample("n1", "FAN1", 3), sample("n1", "FAN2", 1)]}
    assert failed(site.look()) == {"n1": ["fan FAN1: state 3"]}
    site.answers = {"q": [sample("n1", "FAN1", "NaN"), sample("n1", "FAN2", "NaN")]}
    assert site.look() == []
    site.answers = {"q": [sample("n1", "FAN1", "NaN"), sample("n1", "FAN2", 1)]}
    assert failed(site.look()) == {"n1": ["fan FAN1: state 3"]}
    again = [sample("n1", "FAN1", value) for value in ("NaN", 1, "NaN")]
    site.answers = {"q": [*again, sample("n1", "FAN2", "NaN")]}
    assert failed(site.look()) == {"n1": []}


def test_an_answer_that_says_nothing_is_one_line(tmp_path: Path) -> None:
    site = Site(tmp_path, FANS)
    site.answers = {"q": []}
    with pytest.raises(NotReadError, match=r"fans\.toml: Prometheus has no series for any"):
        seen(FANS, site.ask)
    site.answers = {"q": [Sample(labels={"p": "FAN1", "instance": "n1"}, value="1")]}
    with pytest.raises(NotReadError, match=r"1: the answer has no label 'n'; its labels are inst"):
        seen(FANS, site.ask)


def test_a_check_names_what_was_found(tmp_path: Path) -> None:
    site = Site(tmp_path, FANS)
    site.answers = {"q": [sample("n1", "FAN1", 1), sample("n2", "FAN1", 3)]}
    assert summary(FANS, seen(FANS, site.ask)) == [
        "fans.toml: 2 nodes",
        "  fan: 2 measured, 1 failed: n2 FAN1 (state 3)",
    ]
