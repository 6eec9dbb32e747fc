"""How numbers are written for people."""

import pytest

from gpuvigil.metrics import GPU, NODE, PORT
from gpuvigil.numbers_in_words import capitalized, measured, title, unbroken

BY_NAME = {metric.name: metric for metric in GPU.metrics}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("yesterday: 98 %", "yesterday: 98~%"),
        ("46 % of 83.3 kW, 9 not measured", "46~% of 83.3~kW, 9 not measured"),
        ("for 4 min", "for 4~min"),
        ("67 °C, 15 h 21 min", "67~°C, 15~h 21~min"),
        ("8 GPUs on 1 node", "8 GPUs on 1 node"),
        ("rack 2 was dark, 3 ms", "rack 2 was dark, 3 ms"),
    ],
)
def test_a_number_keeps_its_unit_on_its_line(text: str, kept: str) -> None:
    assert unbroken(text) == kept.replace("~", "\u00a0")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "not measured"),
        (0.9994, "999.4 ms"),
        (1.0, "1.0 s"),
        (119.9, "119.9 s"),
        (120.0, "2 min"),
        (1718.562, "28 min"),
    ],
)
def test_a_long_time_is_not_said_in_milliseconds(seconds: float | None, said: str) -> None:
    assert measured(BY_NAME["checkpoint_age_seconds"], seconds) == said


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("fabric_state", 3, "completed"),
        ("fabric_state", 7, "7"),  # a state of a newer driver
        ("fabric_health", 3, "limited capacity"),
        ("fabric_status", 0, "success"),
        ("fabric_status", 999, "999"),
        ("fabric_health_mask", 0b0001_10_10_10_10, "none"),
        ("fabric_health_mask", 0b0101_10_10_10_01, "degraded bandwidth, too few NVLinks"),
        ("fabric_health_mask", 0b1111_00_01_00_00, "route unhealthy, configuration 15"),
        ("recovery_action", 0, "none"),
        ("recovery_action", 2, "reboot the node"),
        ("recovery_action", 42, "take action 42"),
        ("clock_event_reasons", 0, "none"),
        ("clock_event_reasons", 0x48, "hardware slowdown, hardware thermal slowdown"),
        ("clock_event_reasons", 0x2001, "idle, 0x2000"),
        ("performance_state", 0, "P0"),
        ("compute_mode", 3, "exclusive process"),
        ("mig_mode", 1, "on"),
        ("remap_pending", 0, "no"),
        ("step_phase", 2, "with the other ranks"),
        ("pcie_width", 16, "16"),
    ],
)
def test_a_state_is_said_in_words(name: str, value: int, said: str) -> None:
    assert measured(BY_NAME[name], value) == said


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gpus_answering", "GPUs answering"),
        ("cpu_throttles", "CPU throttles"),
        ("fp64_activity_percent", "FP64 activity"),
        ("pcie_width", "PCIe width"),
        ("speed_bits_per_second", "Speed"),
        ("load_average", "Load average"),
    ],
)
def test_a_title_writes_abbreviations_as_the_field_does(name: str, told: str) -> None:
    metrics = {one.name: one for one in (*GPU.metrics, *NODE.metrics, *PORT.metrics)}
    assert title(metrics[name]) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nodes of rack r1: 3", "Nodes of rack r1: 3"),
        ("it's over", "It's over"),
        ("sim-003 fell silent", "sim-003 fell silent"),
        ("mlx5_0 is down", "mlx5_0 is down"),
        ("n.lab is down", "n.lab is down"),
        ("gpuvigil 1.2 made it", "gpuvigil 1.2 made it"),
        ("", ""),
    ],
)
def test_a_sentence_begins_with_a_capital_unless_it_begins_with_a_name(
    text: str, told: str
) -> None:
    assert capitalized(text) == told


def test_utilisation_is_spelled_in_one_way() -> None:
    assert title(BY_NAME["utilization_percent"]) == "Utilisation"
    assert title(BY_NAME["memory_utilization_percent"]) == "Memory utilisation"
    assert title(BY_NAME["step"]) == "Steps done"
    assert title(BY_NAME["step_seconds"]) == "Step time"
    names = [title(metric) for metric in BY_NAME.values()]
    assert len(names) == len(set(names))
