"""What a mapping file may say, and what is said of one that is wrong."""

import re
from pathlib import Path

import pytest

from gpuvigil.errors import ConfigError
from integrations.switches.mapping import COUNTERS, load, meant, parse
from tests.sources import ROOT

EXAMPLES = sorted((ROOT / "packaging/switches").glob("*.toml"))
MANAGEMENT = """mgmt0 mgmt1/1/1 Mgmt0 MgmtEth0/RP0/CPU0/0 Mg0/RP0/CPU0/0 Management0/1 Management1 Ma1
eth0 eth1 fxp0 em0 em1 me0 vme"""
CABLES = """Ethernet0 Ethernet1/1 Ethernet1/1/1 Et1 Eth1 Eth1/1 eth1/1 ethernet-1/1 eth-0-1 swp1 et-0/0/0
xe-0/0/1 e1/49 Mi1/1 1 HundredGigE0/0/0/1"""
LEAST = 'switch = "instance"\nport = "ifName"\n[state]\nquery = "q"\nup = [1]\ndown = [2]\n'


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda it: it.stem)
def test_every_example_can_be_read_and_says_states(file: Path) -> None:
    found = load(file)
    assert found.tables["state"].up
    assert set(found.tables) & set(COUNTERS)


@pytest.mark.parametrize("name", ["snmp_exporter", "gnmic"])
def test_the_examples_leave_out_management_ports_and_no_other(name: str) -> None:
    found = load(ROOT / f"packaging/switches/{name}.toml")
    matcher = re.search(found.port + r'!~"([^"]+)"', found.tables["state"].query)
    assert matcher
    for port in MANAGEMENT.split():
        assert re.fullmatch(matcher[1], port), port
    for port in CABLES.split():
        assert not re.fullmatch(matcher[1], port), port


def test_there_are_examples_of_each_exporter() -> None:
    assert [it.stem for it in EXAMPLES] == ["gnmic", "snmp_exporter", "ufm"]


def test_values_are_compared_without_case_and_without_the_module_of_yang() -> None:
    assert meant("openconfig-if-ethernet:SPEED_400GB") == meant("speed_400gb")
    found = parse(f"{LEAST}[speed]\nquery = 's'\ntimes = 1000000\nvalues = {{ A = 4e8 }}\n", "f")
    assert found.tables["state"].up == ("1",)
    assert (found.tables["speed"].times, found.tables["speed"].values) == (1e6, {"a": 4e8})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f: switch is missing"),
        ("switch = ", "f: Invalid value"),
        (LEAST.replace("switch", "device"), "f: device is unknown; known are admin, "),
        (LEAST.replace("down = [2]", ""), r"f: \[state\]: down is missing"),
        (LEAST.replace("[2]", "2"), r"f: \[state\]: down must be a list of values"),
        (LEAST.replace('"q"', '""'), r"f: \[state\]: query must be a text"),
        (LEAST.replace('"ifName"', "3"), "f: port must be a text"),
        (LEAST.replace("[state]", "state = 3\n[admin]"), r"f: \[state\] must be a table"),
        (
            LEAST + "[speed]\nquery = 's'\ntimes = 0\n",
            r"f: \[speed\]: times must be a number above 0",
        ),
        (LEAST + "[speed]\nquery = 's'\ntimes = true\n", r"\[speed\]: times must be a number"),
        (LEAST + "[speed]\nquery = 's'\nvalues = 3\n", r"\[speed\]: values must be a table"),
        (
            LEAST + "[speed]\nquery = 's'\n[speed.values]\nA = inf\n",
            r"\[speed\]: A must be a number",
        ),
        (
            LEAST + "[receive_errors]\nquery = 'e'\nunit = 1\n",
            r"f: \[receive_errors\]: unit is unknown; known are query, times",
        ),
    ],
)
def test_what_is_wrong_is_one_line_that_says_where(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        parse(text, "f")
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.toml: No such file .* switches\.mappings names it"):
        load(tmp_path / "no.toml")
    odd = tmp_path / "odd.toml"
    odd.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load(odd)
