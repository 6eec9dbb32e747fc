"""The words of an Xid make its row more exact."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gpuvigil.faults import Scope, Xid, xid
from gpuvigil.faults.xid_messages import Signature, read, signature
from gpuvigil.model import Severity

NVLINK = "Xid 74: NVLink: fatal error detected on link {}({})"
UNITS = Path(__file__).parents[2] / "gpuvigil/data/xid_nvlink5.csv"


def registers(*words: int, link: int = 5) -> str:
    return NVLINK.format(link, ", ".join(f"0x{word:x}" for word in words))


def one_bit(number: int, bit: int) -> str:
    return registers(*(1 << bit if at == number else 0 for at in range(7)))


# What each bit of Xid 74's registers stands for, register by register, as NVIDIA's catalogue has it
# for Hopper: o is the link's own fault, m a marginal signal, p parity or ECC, e an echo, n nothing.
BITS = {
    1: {
        **dict.fromkeys((8, 9, 12, 16, 17, 24, 28), "o"),
        **dict.fromkeys((21, 22), "m"),
        **dict.fromkeys((4, 5), "p"),
        **dict.fromkeys((1, 20), "e"),
        **dict.fromkeys((0, 23, 27, 29, 30), "n"),
    },
    3: {
        13: "o",
        **dict.fromkeys((0, 1, 2, 6), "p"),
        **dict.fromkeys((16, 17, 18, 19), "n"),
    },
    4: dict.fromkeys((16, 17, 18), "e"),
    5: {
        **dict.fromkeys((18, 19, 21, 22, 24, 25, 27, 28), "p"),
        **dict.fromkeys((20, 23, 26, 29), "n"),
    },
}
SAID = {
    "m": (Severity.WARNING, Scope.STICKY, "the signal of NVLink 5 is marginal", "seating"),
    "p": (Severity.WARNING, Scope.STICKY, "parity or ECC errors on NVLink 5", "reset the GPU"),
    "e": (Severity.WARNING, Scope.STICKY, "NVLink 5 echoes a fault at its far end", "far end"),
    "n": (Severity.INFO, Scope.PASSING, "NVLink 5 reports what alone is no fault", "Nothing"),
}


def is_said(row: Xid, meaning: str) -> bool:
    if meaning not in SAID:
        return row == xid(74)
    severity, scope, summary, action = SAID[meaning]
    return (row.severity, row.scope, row.summary) == (severity, scope, summary) and (
        action in row.action
    )


def test_each_bit_of_nvlinks_registers_says_what_the_catalogue_says() -> None:
    for number in range(7):
        for bit in range(32):
            meaning = BITS.get(number, {}).get(bit, "")
            assert is_said(read(74, one_bit(number, bit)), meaning), (number, bit)


def test_of_several_bits_a_fault_of_the_link_itself_speaks_first() -> None:
    found = [(meaning, number, bit) for number in BITS for bit, meaning in BITS[number].items()]
    for first, number, bit in found:
        for second, other, beside in found:
            words = [0] * 7
            words[number] |= 1 << bit
            words[other] |= 1 << beside
            assert is_said(read(74, registers(*words)), min(first, second, key="ompen".index))


@pytest.mark.parametrize("count", range(1, 8))
def test_a_message_may_have_fewer_registers(count: int) -> None:
    words = [0x10 if number == 1 else 1 << 18 for number in range(count)]
    assert is_said(read(74, registers(*words)), "p" if count > 1 else "")


@pytest.mark.parametrize(
    "message",
    [
        "Xid 74: no registers",
        "Xid 74: on link 5 without any",
        registers(0, 0, 0, 0, 0, 0, 0),
        registers(),
    ],
)
def test_without_a_bit_that_is_known_the_row_of_the_code_stands(message: str) -> None:
    assert read(74, message) == xid(74)


def test_registers_are_read_in_the_spellings_of_old_and_new_drivers() -> None:
    row = read(74, registers(0, 0x10))
    for words in ("(0x0, 0x10)", "(0x0,0x10)", "(0x00000000 , 0x00000010)", " (0X0, 0X10)"):
        text = f"nvlink: fatal error on LINK 5{words.replace(' ,', ',')}"
        assert read(74, text) == row
    assert read(74, registers(0, 0x10, link=-1)).summary == "parity or ECC errors on NVLink -1"


# NVLink 5


RULES = list(csv.DictReader(UNITS.read_text().splitlines()))


def report(
    code: int, unit: str, word: str, information: int, status: int, link: str = "Link 08"
) -> str:
    return f"Xid {code}: {unit} {word} XC0 i0 {link} (0x{information:08x} 0x{status:x} 0x0 0x0)"


def expected_action(code: int, unit: str, information: int, status: int) -> str:
    """By the table, the slow and obvious way; empty where it says nothing."""
    bits = f"{information:032b}"
    found: dict[str, list[str]] = {"whole": [""], "bits": [""], "any": [""], "": []}
    for rule in RULES:
        if rule["xid"] != str(code) or unit not in rule["unit"].split("/"):
            continue
        patterns = [rule["intrinfo_pattern_lt_r575"], rule["intrinfo_pattern_ge_r575"]]
        if any(all(p in f"-{b}" for p, b in zip(it, bits, strict=True)) for it in patterns):
            found[closeness(rule["error_status"], status)].append(rule["action"])
    gravity = ["", "ignore", "xid_154_eval", "reset_gpu"]
    gravest = [max(found[it], key=gravity.index) for it in ("whole", "bits", "any")]
    return next(filter(None, gravest), "")


def closeness(said: str, status: int) -> str:
    if said == "any" or f"0x{status:08X}" in said.split("/"):
        return "any" if said == "any" else "whole"
    number = int(said.split("/", maxsplit=1)[0], 16)
    return "bits" if number and status | number == status else ""


def cases() -> Iterator[tuple[int, str, int, int]]:
    """Each row in both layouts: as it is written, with each of its bits wrong, with other statuses."""
    for at, rule in enumerate(RULES):
        code, units = int(rule["xid"]), rule["unit"].split("/")
        said = rule["error_status"].split("/")[0]
        own = 0 if said == "any" else int(said, 16)
        for pattern in (rule["intrinfo_pattern_lt_r575"], rule["intrinfo_pattern_ge_r575"]):
            empty, full = (int(pattern.replace("-", bit), 2) for bit in "01")
            for unit in units:
                if " " in unit:
                    continue  # no driver's line names it so
                for information in (empty, full):
                    yield from ((code, unit, information, it) for it in (own, 0, own | 2, own | 64))
            unit = units[0].replace(" ", "_")
            yield from ((other, unit, empty, own) for other in (144, 145, 149, 150))
            yield code, unit, 0xFFFFFFFF, 0xFFFFFFFF
            place = at % 32
            yield code, unit, empty ^ (1 << place), own
            yield code, unit, full ^ (1 << (place + 7) % 32), own


@pytest.mark.medium
def test_what_a_unit_reports_is_read_by_nvidias_table() -> None:
    actions = set()
    for code, unit, information, status in cases():
        action = expected_action(code, unit, information, status)
        actions.add(action)
        row = read(code, report(code, unit, "Nonfatal", information, status))
        if action == "reset_gpu":
            assert row.summary == f"NVLink unit {unit} reports a fatal error"
            assert (row.severity, row.scope) == (Severity.CRITICAL, xid(code).scope)
            assert row.action.startswith("Drain the node, then reset the GPU (")
            assert row.action.endswith("; if it comes back, ask support.")
        elif action == "ignore":
            assert row.summary == f"NVLink unit {unit} reports an error"
            assert (row.severity, row.scope) == (Severity.INFO, Scope.PASSING)
            assert row.action.startswith("Nothing to do ")
        else:
            assert row == xid(code)
    assert actions == {"reset_gpu", "ignore", "xid_154_eval", ""}


MFDE, BER, REMAP = 0x14, 0x13, 0x4


@pytest.mark.parametrize(
    ("unit", "code", "information", "status", "severity"),
    [
        # The table has rows for 1 (reset) and for 3 (ignore): 3 is no mixture of others.
        ("NETIR_MFDE_EVENT", 149, MFDE, 3, Severity.INFO),
        ("NETIR_MFDE_EVENT", 149, MFDE, 1, Severity.CRITICAL),
        ("NETIR_BER_EVENT", 149, BER, 0, Severity.INFO),
        # Two bits: one to ignore, one that asks for a reset.
        ("RLW_REMAP", 145, REMAP, 0x100, Severity.INFO),
        ("RLW_REMAP", 145, REMAP, 0x140, Severity.CRITICAL),
        ("RLW_REMAP", 145, REMAP, 0x101, Severity.WARNING),
    ],
)
def test_a_whole_status_is_meant_before_its_bits_and_the_gravest_bit_speaks(
    unit: str, code: int, information: int, status: int, severity: Severity
) -> None:
    assert read(code, report(code, unit, "Nonfatal", information, status)).severity is severity


@pytest.mark.parametrize("word", ["Fatal", "fatal", "FATAL"])
@pytest.mark.parametrize("words", ["(0x00000021 0x00000001 0x0)", "", "(0x21)"])
def test_what_the_driver_calls_fatal_is_fatal_whatever_the_table_says(
    word: str, words: str
) -> None:
    row = read(144, f"Xid 144: SAW_MVB {word} XC0 i0 Link 08 {words}")
    assert row.severity is Severity.CRITICAL
    assert row.summary == "NVLink unit SAW_MVB reports a fatal error"


@pytest.mark.parametrize(
    "message",
    [
        "something else",
        "SAW_MVB Nonfatal XC0 i0 Link 08",
        "SAW_MVB Nonfatal XC0 i0 Link 08 (0x100000021 0x1 0x0)",  # 33 bits
        "SAW_MVB Nonfatal XC0 i0 Link 08 (0x21 0x4000 0x0)",
    ],
)
def test_what_the_table_does_not_know_is_the_row_of_the_code(message: str) -> None:
    assert read(144, f"Xid 144: {message}") == xid(144)


# What the driver asks for

_RESET = "Drain the node, then reset the GPU ("
ASKED: Mapping[int, tuple[Severity, str, str]] = {
    1: (Severity.CRITICAL, "reset the GPU", _RESET),
    2: (Severity.CRITICAL, "reboot the node", "Drain the node and reboot it."),
    3: (Severity.WARNING, "drain peer-to-peer traffic", "Let the programs that use this GPU's"),
    4: (Severity.CRITICAL, "drain and reset", _RESET),
    5: (Severity.WARNING, "recover the IMEX domain", "Restart nvidia-imex on the nodes"),
    6: (Severity.CRITICAL, "reset the bus", "Drain the node, then reset the GPU's PCIe bus ("),
    7: (Severity.CRITICAL, "reboot the system", "Drain the node and reboot it."),
    8: (Severity.WARNING, "take action 8", _RESET),
    16: (Severity.WARNING, "take action 16", _RESET),
}


@pytest.mark.parametrize("number", [0, *ASKED])
def test_what_the_driver_asks_for_is_read(number: int) -> None:
    row = read(154, f"Xid 154: GPU recovery action changed from 0x4 (x) to 0x{number:x} (a word)")
    if number == 0:
        assert row == xid(154)
        return
    severity, words, action = ASKED[number]
    summary = f"the driver asks to {words}"
    assert (row.severity, row.scope, row.summary) == (severity, Scope.STICKY, summary)
    assert row.action.startswith(action)


def test_advice_without_a_number_is_the_row_of_the_code() -> None:
    assert read(154, "Xid 154: GPU recovery action changed") == xid(154)


def test_other_codes_are_what_the_table_says() -> None:
    for message in (
        "An uncorrectable double bit error",
        one_bit(1, 21),
        report(144, "X", "Fatal", 0, 0),
    ):
        for code in (48, 143, 151):
            assert read(code, message) == xid(code)
            row = xid(code)
            assert signature(code, message) == Signature(severity=row.severity, summary=row.summary)


# Signatures


@pytest.mark.parametrize(
    ("code", "message", "unit", "fatal", "link", "place"),
    [
        (74, registers(0, 0x10), "", None, 5, "link 5"),
        (74, registers(0, 0x10, link=0), "", None, 0, "link 0"),
        (74, registers(0, 0x10, link=-1), "", None, None, ""),
        (74, "Xid 74: LINK_X Fatal", "", None, None, ""),
        (144, report(144, "SAW_MVB", "Fatal", 0x21, 1), "SAW_MVB", True, 8, "SAW_MVB fatal link 8"),
        (
            150,
            report(150, "MSE_WATCHDOG", "Non-fatal", 0, 1, "Link -1"),
            "MSE_WATCHDOG",
            False,
            None,
            "MSE_WATCHDOG nonfatal",
        ),
        (145, "Xid 145: RLW_REMAP NONFATAL", "RLW_REMAP", False, None, "RLW_REMAP nonfatal"),
        (145, "Xid 145: something on Link 12", "", None, 12, "link 12"),
        (145, "", "", None, None, ""),
    ],
)
def test_a_signature_names_the_unit_and_the_link(
    code: int, message: str, unit: str, fatal: bool | None, link: int | None, place: str
) -> None:
    row, found = read(code, message), signature(code, message)
    assert found == Signature(
        severity=row.severity, summary=row.summary, unit=unit, fatal=fatal, link=link
    )
    assert found.place == place
