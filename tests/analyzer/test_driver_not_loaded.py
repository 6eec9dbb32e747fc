"""A node whose GPUs have no driver: when that is a fault, and how grave."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.detectors.driver_not_loaded import nodes_without_driver
from gpuvigil.model import BusGpu, Evidence, Finding, Inventory, Severity
from tests.analyzer.scene import NOON, Scene, inventory, node

MINUTE = timedelta(minutes=1)


def lacking(since: timedelta, *drivers: str | None, gpus: int = 0) -> Inventory:
    on_bus = tuple(BusGpu(address=f"0000:{n:02x}:00.0", driver=it) for n, it in enumerate(drivers))
    return replace(inventory(node(), gpus), driverless_since=NOON - since, on_bus=on_bus)


def found(one: Inventory) -> list[Finding]:
    return nodes_without_driver(Scene(inventories=(one,)).window())


def said(finding: Finding) -> list[str]:
    return [item.value for item in finding.evidence if isinstance(item, Evidence)]


@pytest.mark.parametrize(("minutes", "count"), [(4.9, 0), (5.0, 1)])
def test_where_gpus_were_it_is_critical_after_a_boots_time(minutes: float, count: int) -> None:
    it = found(lacking(minutes * MINUTE, None, None, gpus=2))
    assert [one.severity for one in it] == [Severity.CRITICAL] * count


@pytest.mark.parametrize(("minutes", "count"), [(4.9, 0), (5.0, 1)])
def test_where_slurm_names_gpus_it_is_critical_too(minutes: float, count: int) -> None:
    it = found(replace(lacking(minutes * MINUTE, None), expects_gpus=True))
    assert [one.severity for one in it] == [Severity.CRITICAL] * count


@pytest.mark.parametrize(("minutes", "count"), [(29.9, 0), (30.0, 1)])
def test_where_none_ever_was_it_is_a_warning_after_an_installations_time(
    minutes: float, count: int
) -> None:
    it = found(lacking(minutes * MINUTE, None))
    assert [one.severity for one in it] == [Severity.WARNING] * count


def test_what_holds_the_gpus_is_said_with_what_to_do() -> None:
    (finding,) = found(lacking(60 * MINUTE, "nouveau", None, gpus=2))
    assert said(finding) == ["2", "no driver, nouveau", "2"]
    assert "blacklist nouveau" in finding.action
    (other,) = found(lacking(60 * MINUTE, None))
    assert "modprobe nvidia" in other.action
    assert other.since == NOON - 60 * MINUTE


def test_a_driver_that_is_there_or_released_is_no_fault() -> None:
    assert found(inventory(node())) == []
