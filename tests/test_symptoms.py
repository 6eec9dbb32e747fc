"""The node check and the detectors say the same of the same row, on both sides of each limit."""

import ast
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.detectors import (
    driver_not_loaded,
    fabric_down,
    gpu_hot,
    gpu_memory,
    gpu_nvlink,
    gpu_pcie,
    gpu_power,
    gpu_silent,
    gpu_xid,
    nvswitch_error,
    port_down,
)
from collector.check import driver_silence, gpu_rules, rules
from collector.check.facts import DriverFacts, Facts, GpuFacts, Known
from collector.check.kernel_log import KernelSeen
from collector.check.rules import findings
from collector.sensors.kernel_log_parser import parse
from collector.sensors.ports import PortReading
from gpuvigil.faults.symptoms import SLOWDOWNS, SYMPTOMS, Slowdown, Symptom
from gpuvigil.faults.xid_messages import read
from gpuvigil.model import BusGpu, EventKind, Finding, PortIdentity, Severity, Unmeasured
from tests.analyzer.scene import (
    GPU_FIELDS,
    NOON,
    SETTINGS,
    Scene,
    event,
    gpu,
    healthy,
    inventory,
    node,
    port,
    with_port_down,
)
from tests.collector.check.nodes import a_node, identity, on_bus

GPUS = 4
Fields = Mapping[str, Any]
Answer = dict[str, Severity]
# Of each symptom, rows that just do not have it, and rows that just have it.
ROWS: Mapping[str, tuple[list[Fields], list[Fields]]] = {
    "sram_threshold": (
        [{"sram_threshold_exceeded": 0}, {"sram_threshold_exceeded": None}],
        [{"sram_threshold_exceeded": 1}],
    ),
    "remap_failure": ([{"remap_failure": 0}, {"remap_failure": None}], [{"remap_failure": 1}]),
    "retired_pages": (
        [
            {"retired_pages_corrected": 47, "retired_pages_uncorrected": 15},
            {"retired_pages_corrected": 62, "retired_pages_uncorrected": None},
            {"retired_pages_corrected": None, "retired_pages_uncorrected": 15},
            {"retired_pages_corrected": None, "retired_pages_uncorrected": None},
        ],
        [
            {"retired_pages_corrected": 48, "retired_pages_uncorrected": 15},
            {"retired_pages_corrected": 63, "retired_pages_uncorrected": None},
            {"retired_pages_corrected": None, "retired_pages_uncorrected": 16},
            {"retired_pages_corrected": 0, "retired_pages_uncorrected": 16},
        ],
    ),
    "no_spare_rows": (
        [{"remap_banks_none": 0}, {"remap_banks_none": None}],
        [{"remap_banks_none": 1}],
    ),
    "uncorrected_growth": (
        [{"ecc_uncorrected_errors": 0}, {"ecc_uncorrected_errors": None}],
        [{"ecc_uncorrected_errors": 1}],
    ),
    "repair_pending": (
        [dict.fromkeys(SYMPTOMS["repair_pending"].reads, value) for value in (0, None)],
        [{name: 1} for name in SYMPTOMS["repair_pending"].reads],
    ),
    "fabric_down": (
        [
            {"fabric_state": 0},
            {"fabric_state": None, "fabric_status": 27},
            {"fabric_state": 3, "fabric_status": 0},
            {"fabric_state": 3, "fabric_status": None},
        ],
        [
            {"fabric_state": 1},
            {"fabric_state": 2, "fabric_status": 0},
            {"fabric_state": 3, "fabric_status": 1},
        ],
    ),
    "pcie_narrow": (
        [
            {"pcie_width": 16, "pcie_width_max": 16},
            {"pcie_width": 0, "pcie_width_max": 16},
            {"pcie_width": None, "pcie_width_max": 16},
            {"pcie_width": 8, "pcie_width_max": None},
        ],
        [{"pcie_width": 15, "pcie_width_max": 16}, {"pcie_width": 1, "pcie_width_max": 16}],
    ),
    "pcie_slow": (
        [
            {"pcie_generation": 4, "utilization_percent": 19},
            {"pcie_generation": 4, "utilization_percent": None},
            {"pcie_generation": 5, "utilization_percent": 20},
            {"pcie_generation": 0, "utilization_percent": 20},
        ],
        [{"pcie_generation": 4, "utilization_percent": 20}],
    ),
    "nvlink_down": (
        [{"nvlink_links_up": 18}, {"nvlink_links_up": None}],
        [{"nvlink_links_up": 17}],
    ),
    "port_down": (
        [{"up": 1}, {"up": None}, {"up": 0, "enabled": 0}],
        [{"up": 0}, {"up": 0, "enabled": 1}],
    ),
}
NONE_COUNTED = {"ecc_uncorrected_errors": 0}
OF_A_GPU = sorted({*SYMPTOMS} - {"port_down"})


def cases(keys: Iterable[str]) -> list[Any]:
    return [
        pytest.param(key, row, shows, id=f"{key} {shows} {row}")
        for key in keys
        for shows in (False, True)
        for row in ROWS[key][shows]
    ]


def told(found: Iterable[Finding], key: str) -> Answer:
    """What was said of a symptom, and how gravely."""
    named = ((one.condition or one.fault, one.severity) for one in found)
    return {name: severity for name, severity in named if name == key}


def checked(row: Fields, key: str) -> Answer:
    """What a look at a node says of which one GPU has this row."""
    rows: list[Fields] = [{**GPU_FIELDS, **NONE_COUNTED, "ecc_mode": 1} for _ in range(GPUS)]
    rows[0] = {**rows[0], **row}
    facts = a_node(
        GPUS,
        gpus={
            index: GpuFacts(
                index=index,
                identity=identity(index),
                values={name: value for name, value in them.items() if value is not None},
            )
            for index, them in enumerate(rows)
        },
    )
    return told(findings(facts), key)


def detected(scene: Scene, key: str) -> Answer:
    window = scene.window()
    modules = (fabric_down, gpu_hot, gpu_memory, gpu_nvlink, gpu_pcie, gpu_power, port_down)
    return told([one for it in modules for one in it.DETECTOR.find(window)], key)


@pytest.mark.medium
@pytest.mark.parametrize(("key", "row", "shows"), cases(OF_A_GPU))
def test_the_same_row_of_a_gpu_is_judged_alike(key: str, row: Fields, shows: bool) -> None:
    # Errors are counted from what was there at the first look, all else is as it is.
    since = 15.0 if key == "uncorrected_growth" else 1e9
    scene = healthy(gpus=GPUS).changed(gpu(), NONE_COUNTED).changed(gpu(), row, since)
    answer = {key: SYMPTOMS[key].described.severity} if shows else {}
    assert checked(row, key) == answer
    assert detected(scene, key) == answer


def looked_at(row: Fields) -> Facts:
    """A node with one port that was up once, and this row."""
    known = PortIdentity(device="mlx5_0", port="1", kind="infiniband", role="fabric", was_up=True)
    values = {name: value for name, value in row.items() if value is not None}
    reading = PortReading(identity=known, values=values)
    return a_node(known=Known(ports=(known,)), ports=(reading,))


@pytest.mark.parametrize(("key", "row", "shows"), cases(["port_down"]))
def test_the_same_row_of_a_port_is_judged_alike(key: str, row: Fields, shows: bool) -> None:
    answer = {key: SYMPTOMS[key].described.severity} if shows else {}
    assert told(findings(looked_at(row)), key) == answer
    scene = healthy() if row["up"] != 0 else with_port_down(healthy(), 1)
    assert detected(scene.changed(port(), row, 25), key) == answer


@pytest.mark.medium
@pytest.mark.parametrize("key", SLOWDOWNS)
def test_one_look_sees_what_a_span_counts_from_its_limit_on(key: str) -> None:
    row, span = SLOWDOWNS[key], SETTINGS.window_seconds
    least = row.least(span)

    def counted(seconds: float) -> Answer:
        scene = healthy(gpus=GPUS).changed(gpu(), {row.counter: seconds}, 15)
        return detected(scene, key)

    assert checked({"clock_event_reasons": 0x1}, key) == {}
    assert checked({"clock_event_reasons": row.bit | 0x1}, key) == {key: row.at_a_look}
    assert counted(least - 0.01) == {}
    lasting = row.share * span
    grave = row.described.severity
    assert counted(least) == {key: grave if least == lasting else row.at_a_look}
    assert counted(lasting - 0.01) == ({key: row.at_a_look} if least < lasting else {})
    assert counted(lasting) == {key: grave}


@pytest.mark.parametrize("number", [*range(9), 77])
def test_the_drivers_advice_is_as_grave_by_its_field_as_by_its_words(number: int) -> None:
    xid = read(154, f"GPU recovery action changed from 0x9 (x) to 0x{number:x} (y)")
    gpus = {0: GpuFacts(index=0, identity=identity(0), values={"recovery_action": number})}
    found = findings(a_node(1, gpus=gpus))
    if number == 0:
        assert (found, xid.severity) == ([], Severity.INFO)
        return
    (one,) = found
    assert (one.severity, one.action) == (xid.severity, xid.action)


@pytest.mark.parametrize("expected", [False, True])
@pytest.mark.parametrize("kernel", [None, "nouveau"])
def test_gpus_without_a_driver_are_judged_alike(expected: bool, kernel: str | None) -> None:
    none = DriverFacts(code=9, failure="none", reason=Unmeasured.DRIVER_NOT_LOADED)
    bus = (on_bus(0, kernel),)
    facts = a_node(1, driver=none, gpus={}, pci=bus, expects_gpus=expected)
    (seen,) = findings(facts)
    one = replace(
        inventory(node(), 0),
        driverless_since=NOON - timedelta(hours=1),
        on_bus=(BusGpu(address=bus[0].address, vendor="NVIDIA", driver=kernel),),
        expects_gpus=expected,
    )
    (found,) = driver_not_loaded.nodes_without_driver(
        replace(healthy(), inventories=(one,)).window()
    )
    assert (seen.fault, seen.severity, seen.action) == (found.fault, found.severity, found.action)


# Sticky ones only: what passes, and what a history knows of a program, is for the analyzer.
XIDS, SXIDS = (46, 64, 94, 95, 119), (10003, 12020, 22003, 22011, 23001)
WORDS = ("critical", "warning", "info", "ignore")


@pytest.mark.medium
@settings(max_examples=60)
@given(
    is_switch=st.booleans(),
    places=st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True),
    words=st.dictionaries(st.integers(0, 4), st.sampled_from(WORDS)),
)
def test_codes_are_judged_alike_with_what_the_site_makes_of_them(
    is_switch: bool, places: list[int], words: dict[int, str]
) -> None:
    codes = SXIDS if is_switch else XIDS
    entries = tuple(f"{codes[place]}={word}" for place, word in words.items())
    wanted = replace(SETTINGS, xid_overrides=() if is_switch else entries)
    wanted = replace(wanted, sxid_overrides=entries if is_switch else ())
    seen, events = [], []
    for ago, place in enumerate(places, 1):
        code, kind = codes[place], EventKind.SXID if is_switch else EventKind.XID
        at = NOON - timedelta(seconds=ago)
        subject = node() if is_switch else gpu()
        made = event(kind, subject, at, None if is_switch else code)
        events.append(replace(made, id=f"{code}", sxid=code if is_switch else None))
        text = (
            f"nvidia-nvswitch3: SXid (PCI:0000:05:00.0): {code}, Fatal, Link 32 x"
            if is_switch
            else f"NVRM: Xid (PCI:0000:10:00): {code}, pid=1, name=a, x"
        )
        logged = parse(text)
        assert logged is not None
        seen.append(KernelSeen(event=logged, seconds_ago=float(ago)))
    facts = a_node(kernel=tuple(seen), analyzer=wanted)
    at_a_look = [(it.title, it.severity) for it in findings(facts)]
    scene = replace(healthy(), settings=wanted).with_events(*events)
    found = (nvswitch_error if is_switch else gpu_xid).DETECTOR.find(scene.window())
    # A note is for the digest: a look has none.
    assert at_a_look == [
        (it.title, it.severity) for it in found if it.severity is not Severity.INFO
    ]


def test_every_symptom_is_held_against_both() -> None:
    assert set(ROWS) == set(SYMPTOMS)
    keys = [*SYMPTOMS, *SLOWDOWNS]
    assert len(set(keys)) == len(keys)
    rows: list[Symptom | Slowdown] = [*SYMPTOMS.values(), *SLOWDOWNS.values()]
    for row in rows:
        assert row.limit
        assert row.source
        assert row.described.key == row.key


JUDGES = (
    *(rules, gpu_rules, driver_silence),
    *(driver_not_loaded, fabric_down, gpu_memory, gpu_nvlink, gpu_pcie, gpu_power),
    *(gpu_silent, port_down),
)
# Of retired pages, of work, of a hang, of a start, and the bits of what slows a GPU. Half of a
# span is many things' limit.
LIMITS = frozenset({63, 15, 20, 30, 600, 0x20, 0x40, 0x80})


@pytest.mark.parametrize("module", JUDGES, ids=lambda it: str(it.__name__))
def test_no_limit_of_a_symptom_stands_where_it_is_judged(module: ModuleType) -> None:
    tree = ast.parse(inspect.getsource(module))
    numbers = [
        it
        for it in ast.walk(tree)
        if isinstance(it, ast.Constant) and type(it.value) in {int, float} and it.value in LIMITS
    ]
    # How long a first driver may take to be installed is patience, which one look has none of.
    allowed = {30} if module is driver_not_loaded else set()
    assert {it.value for it in numbers} <= allowed


_NUMBERS = st.one_of(st.none(), st.integers(0, 70))


@given(st.sampled_from(sorted(SYMPTOMS)), st.data())
def test_a_rule_says_the_same_of_one_number_and_of_a_column(key: str, data: st.DataObject) -> None:
    row = SYMPTOMS[key]
    count = 2 if key == "nvlink_down" else len(row.reads)
    table = data.draw(st.lists(st.tuples(*[_NUMBERS] * count), min_size=1, max_size=8))
    floats = np.array([[np.nan if it is None else it for it in line] for line in table], float)
    column = row.holds(*floats.T)
    assert column.dtype == bool
    single = [bool(row.holds(*map(float, line))) for line in floats]
    assert column.tolist() == single
    unmeasured = [all(it is None for it in line) for line in table]
    assert not any(shown and none for shown, none in zip(single, unmeasured, strict=True))
