"""The words of an Xid make its row more exact."""

import pytest

from gpuvigil.faults import Scope, xid
from gpuvigil.faults.xid_messages import read
from gpuvigil.model import Severity

NVLINK = "Xid 74: NVLink: fatal error detected on link 5({})"


def registers(number: int, bit: int) -> str:
    words = ["0x0"] * 7
    words[number] = f"0x{1 << bit:x}"
    return NVLINK.format(", ".join(words))


@pytest.mark.parametrize(
    ("message", "severity", "words"),
    [
        (registers(1, 8), Severity.CRITICAL, "problem on an NVLink"),
        (registers(1, 22), Severity.WARNING, "the signal of NVLink 5 is marginal"),
        (registers(5, 18), Severity.WARNING, "parity or ECC errors on NVLink 5"),
        (registers(4, 18), Severity.WARNING, "NVLink 5 echoes a fault at its far end"),
        (registers(5, 20), Severity.INFO, "reports what alone is no fault"),
        (NVLINK.format("0x100, 0x100, 0x0, 0x0, 0x40000, 0x0, 0x0"), Severity.CRITICAL, "NVLink"),
        ("Xid 74: no registers", Severity.CRITICAL, "problem on an NVLink"),
        (registers(2, 3), Severity.CRITICAL, "problem on an NVLink"),
    ],
)
def test_nvlink_registers_tell_an_echo_from_a_fault(
    message: str, severity: Severity, words: str
) -> None:
    row = read(74, message)
    assert row.severity is severity
    assert words.lower() in row.title.lower()
    assert row.action.endswith(".")


@pytest.mark.parametrize(
    ("message", "severity", "scope"),
    [
        # The form of the driver's own example; unit and words as in NVIDIA's table.
        (
            "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x0 0x0 0x0 0x0 0x0)",
            Severity.CRITICAL,
            Scope.STICKY,
        ),
        (
            "SAW_MVB Non-fatal XC0 i0 Link -1 (0x00000021 0x00000001 0x0 0x0 0x0 0x0)",
            Severity.INFO,
            Scope.PASSING,
        ),
        (
            "SAW_MVB Non-fatal XC0 i0 Link -1 (0x00000021 0x00000002 0x0 0x0 0x0 0x0)",
            Severity.CRITICAL,
            Scope.STICKY,
        ),
        ("something else", xid(144).severity, xid(144).scope),
    ],
)
def test_nvlink_5_is_decoded_by_unit_and_words(
    message: str, severity: Severity, scope: Scope
) -> None:
    code = 149 if "NETIR" in message else 144
    row = read(code, f"Xid {code}: {message}")
    assert (row.severity, row.scope) == (severity, scope)


@pytest.mark.parametrize(
    ("target", "severity", "scope", "action"),
    [
        ("0x0 (None)", Severity.INFO, Scope.PASSING, "message"),
        ("0x1 (GPU Reset Required)", Severity.WARNING, Scope.STICKY, "reset the GPU"),
        ("0x2 (Node Reboot Required)", Severity.CRITICAL, Scope.STICKY, "reboot"),
        ("0x4 (Drain and Reset)", Severity.WARNING, Scope.STICKY, "reset the GPU"),
    ],
)
def test_what_the_driver_asks_for_is_read(
    target: str, severity: Severity, scope: Scope, action: str
) -> None:
    row = read(154, f"Xid 154: GPU recovery action changed from 0x4 (Drain and Reset) to {target}")
    assert (row.severity, row.scope) == (severity, scope)
    assert action in row.action


def test_other_codes_are_what_the_table_says() -> None:
    assert read(48, "An uncorrectable double bit error") == xid(48)
