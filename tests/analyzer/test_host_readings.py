"""A node that is hardly read shows neither that its disk is full nor that it has room again."""

from datetime import timedelta

import pytest

from analyzer.correlation.visibility import is_visible
from analyzer.detectors.host_disk import DETECTOR as DISK
from analyzer.detectors.host_sensors import DETECTOR as SENSORS
from analyzer.detectors.host_sensors import failing_parts

from .scene import NOON, Scene, healthy, incident, node

DETECTORS = (SENSORS, DISK)


def read_for(seconds: float, share: float = 0.5) -> Scene:
    """A node whose last lines are of so many seconds, with that share of its disk in use."""
    since = NOON - timedelta(seconds=seconds)
    scene = healthy().changed(node(), {"space_used_share": share, "spool_writable": 1})
    return scene.without(lambda s: s.subject == node() and s.at < since)


@pytest.mark.parametrize("fault", ["host_space", "host_disk", "host_fan"])
@pytest.mark.parametrize(("seconds", "visible"), [(10.0, False), (40.0, True)])
def test_an_incident_of_a_machine_stands_until_it_is_read_for_long_enough(
    fault: str, seconds: float, visible: bool
) -> None:
    window = read_for(seconds).window()
    assert is_visible(window, incident(fault, node())) is visible


@pytest.mark.parametrize(("seconds", "found"), [(10.0, []), (40.0, ["host_space"])])
def test_a_full_disk_is_found_once_it_is_read_for_as_long(seconds: float, found: list[str]) -> None:
    window = read_for(seconds, share=1.0).window(DETECTORS)
    assert [one.fault for one in failing_parts(window)] == found
