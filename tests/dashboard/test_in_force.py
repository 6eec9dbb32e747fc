"""What the page of monitoring says of limits, channels and tokens; pure."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dashboard.pipeline.in_force import (
    SOON,
    channels_drawn,
    limits,
    limits_drawn,
    tokens,
    tokens_drawn,
)
from gpuvigil.clock import to_text
from gpuvigil.config import AlertsSettings, AnalyzerSettings
from gpuvigil.config.channels import SlackSettings

from .scene import NOON
from .test_incidents_page import texts

SECOND = timedelta(seconds=1)


def test_a_limit_that_the_site_has_set_comes_first_with_its_default() -> None:
    usual = AnalyzerSettings()
    found = limits(replace(usual, port_down_seconds=90.0))
    assert (found[0].key, found[0].value, found[0].is_own) == ("port_down_seconds", "90", True)
    assert "Network port is down" in found[0].rules
    assert not any(one.is_own for one in found[1:])
    said = texts(limits_drawn(found))
    assert f"1 of {len(found)} set by your configuration" in said
    assert "your configuration; default 30" in said
    assert "0 of" in texts(limits_drawn(limits(usual)))


def test_a_channel_is_told_without_its_address() -> None:
    slack = SlackSettings(name="ops", url="https://hooks.example.org/secret")
    said = texts(channels_drawn(AlertsSettings(slack=(slack,))))
    assert "ops" in said
    assert "slack" in said
    assert "secret" not in said
    assert "nobody is notified" in texts(channels_drawn(AlertsSettings()))


def told(id_: str, **values: Any) -> dict[str, Any]:
    given = {"scope": "service", "name": "", "cluster": "", "node": "", "ends_at": None}
    return {"id": id_, "created_at": to_text(NOON), **given, **values}


@pytest.mark.parametrize(("left", "soon"), [(SOON - SECOND, True), (SOON, False), (-SECOND, False)])
def test_a_token_that_ends_soon_is_counted(left: timedelta, soon: bool) -> None:
    found = tokens([told("a", ends_at=to_text(NOON + left))])
    assert ("1 of them ends" in texts(tokens_drawn(found, NOON))) is soon


def test_tokens_that_end_first_come_first_and_what_is_broken_is_left_out() -> None:
    ends = to_text(NOON + SOON)
    listed = [told("never"), {"id": "broken"}, told("ends", ends_at=ends, cluster="c", node="n")]
    found = tokens(listed)
    assert [(one.id, one.place) for one in found] == [("ends", "c/n"), ("never", "")]
    assert "did not say" in texts(tokens_drawn(None, NOON))
