"""The SXid table as data."""

import pytest

from gpuvigil.faults import Scope
from gpuvigil.faults.sxids import sxid, sxids
from gpuvigil.model import Severity


def test_every_row_has_a_source_an_action_and_words() -> None:
    assert len(sxids()) == 420
    for row in sxids().values():
        assert row.source.startswith("SXid table, ")
        assert row.action.endswith(".")
        assert row.summary
        assert row.mnemonic


@pytest.mark.parametrize(
    ("code", "severity", "scope"),
    [
        (10003, Severity.CRITICAL, Scope.STICKY),
        (11001, Severity.WARNING, Scope.PASSING),
        (11004, Severity.INFO, Scope.PASSING),
        (999_999, Severity.WARNING, Scope.PASSING),
    ],
)
def test_the_class_decides_who_is_told(code: int, severity: Severity, scope: Scope) -> None:
    assert (sxid(code).severity, sxid(code).scope) == (severity, scope)


def test_a_title_names_code_and_place() -> None:
    assert sxid(11004).title == "SXid 11004: port ingress error"


def test_fatal_codes_are_those_of_the_guide() -> None:
    fatal = [row for row in sxids().values() if row.severity is Severity.CRITICAL]
    assert len(fatal) == 21
    assert {row.source for row in fatal} == {"SXid table, fabric-manager guide via gpud"}
