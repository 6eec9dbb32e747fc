"""The tables of faults and Xids are whole, and say what they mean."""

import re
from collections.abc import Mapping

import pytest

from gpuvigil.faults import FAULTS, XID_FAULTS, Described, Scope, xid, xids
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.faults.node_check_faults import NODE_FAULTS
from gpuvigil.faults.sxids import sxids
from gpuvigil.model import Severity


@pytest.mark.parametrize("table", [CONDITIONS, FAULTS], ids=["conditions", "faults"])
def test_every_row_says_what_it_is_what_to_do_and_where_that_comes_from(
    table: Mapping[str, Described],
) -> None:
    for key, row in table.items():
        assert row.key == key
        assert row.title[0].isupper()
        assert row.action.endswith(".")
        assert row.source, key


def test_the_titles_of_conditions_are_their_own() -> None:
    titles = [row.title for row in (*CONDITIONS.values(), *FAULTS.values())]
    assert len(set(titles)) == len(titles)


def test_every_xid_has_a_meaning_an_action_and_a_source() -> None:
    for row in xids().values():
        assert row.mnemonic
        assert row.summary
        assert row.action.endswith(".")
        assert row.source.startswith("Xid table, "), row.code


def test_the_title_of_an_xid_fits_into_one_line() -> None:
    for row in xids().values():
        code, words = row.title.split(": ", 1)
        assert code == f"Xid {row.code}"
        assert 10 < len(words) <= 70, code
        assert not set(words) & set(";()"), code


@pytest.mark.parametrize(
    ("code", "title"),
    [
        (13, "Xid 13: compute/graphics engine exception"),
        (31, "Xid 31: GPU MMU fault on an illegal virtual address"),
        (93, "Xid 93: write budget configured for the InfoROM was exceeded"),
        (95, "Xid 95: uncorrectable memory error that may touch several processes"),
        (100_000, "Xid 100000: this Xid is not in the table"),
    ],
)
def test_an_xid_is_called_by_its_code_and_what_it_means(code: int, title: str) -> None:
    assert xid(code).title == title


def test_codes_are_one_row_each() -> None:
    assert all(code == row.code for code, row in xids().items())
    assert len(xids()) == 176


@pytest.mark.parametrize(
    ("code", "severity", "scope"),
    [
        (79, Severity.CRITICAL, Scope.STICKY),
        (48, Severity.CRITICAL, Scope.STICKY),
        (95, Severity.CRITICAL, Scope.STICKY),
        (119, Severity.CRITICAL, Scope.STICKY),
        (13, Severity.INFO, Scope.PASSING),
        (31, Severity.INFO, Scope.PASSING),
        (43, Severity.INFO, Scope.PASSING),
        (63, Severity.INFO, Scope.STICKY),
        (94, Severity.WARNING, Scope.STICKY),
    ],
)
def test_well_known_codes_have_their_weight(code: int, severity: Severity, scope: Scope) -> None:
    assert (xid(code).severity, xid(code).scope) == (severity, scope)


def test_nobody_is_told_to_reset_a_gpu_under_a_job() -> None:
    tables = (FAULTS, CONDITIONS, NODE_FAULTS, xids(), sxids())
    rows = [row for table in tables for row in table.values()]
    for action in (row.action for row in rows):
        before, reset, after = action.lower().partition("reset the gpu")
        if reset:
            assert "drain the node" in before or "when no job runs" in before + after, action


def test_the_action_says_all_that_the_table_asks_for() -> None:
    release = "(right after gpuvigil collect --release 10m on the node)"
    assert xid(94).action == (
        f"Restart the program; when no job runs on the node, reset the GPU {release}."
    )
    assert xid(46).action == (
        f"Drain the node, then reset the GPU {release}; if it comes back, ask support."
    )
    assert xid(31).action.startswith("Restart the program")


def test_errors_of_a_program_are_confined_to_it() -> None:
    assert [code for code in (13, 31, 43, 48, 79, 94, 95) if xid(code).confined] == [13, 31, 43, 94]


def test_an_unknown_code_is_worth_a_look() -> None:
    row = xid(100_000)
    assert (row.severity, row.scope) == (Severity.WARNING, Scope.STICKY)
    assert row.source == "not in the Xid table"


def test_codes_with_a_fault_of_their_own_name_one_that_exists() -> None:
    assert set(XID_FAULTS.values()) <= set(FAULTS)
    assert XID_FAULTS[79] == "gpu_lost"


def test_whoever_shall_reset_a_gpu_is_told_first_how_the_collector_lets_go() -> None:
    rows = (*FAULTS.values(), *NODE_FAULTS.values(), *CONDITIONS.values())
    actions = [row.action for row in rows]
    actions += [row.action for row in xids().values()]
    actions += [row.action for row in sxids().values()]
    resetting = [action for action in actions if "reset" in action.lower() and "GPU" in action]
    assert len(resetting) > 20
    for action in resetting:
        reset = action.lower().index("reset")
        release = action.index("(right after gpuvigil collect --release 10m on the node)")
        # Nothing that is to be done before stands between the two.
        assert 0 < release - reset <= len("reset all its GPUs and switches "), action


def test_a_source_that_calls_a_limit_ours_says_so_as_a_value() -> None:
    for row in (*FAULTS.values(), *CONDITIONS.values(), *NODE_FAULTS.values()):
        assert row.own_limit == ("ours" in re.findall(r"\w+", row.source)), row.key
