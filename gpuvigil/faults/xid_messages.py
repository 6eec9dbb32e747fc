"""Decodes an Xid's message beyond its code: NVLink's registers, NVLink 5's units, driver advice.

Sources: the bits of Xid 74's registers on Hopper and the driver's recovery actions, NVIDIA's Xid
catalogue; `gpuvigil/data/xid_nvlink5.csv`, its table for Xid 144 to 150, with a bit layout for
drivers before R575 and one from then on.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from ..model import Severity
from ..tables import table
from . import Scope, Xid, with_release, xid
from .recovery import advice

NVLINK_5 = range(144, 151)
_ADVICE, _NVLINK = 154, 74

# Meanings of bits in the registers of a message, by register number; the first meaning with a bit set
# applies. For bits in no row the code's own row applies.
_OWN, _MARGINAL, _PARITY, _ECHO, _NOTHING = "own", "marginal", "parity", "echo", "nothing"
_BITS: tuple[tuple[str, Mapping[int, tuple[int, ...]]], ...] = (
    (_OWN, {1: (8, 9, 12, 16, 17, 24, 28), 3: (13,)}),
    (_MARGINAL, {1: (21, 22)}),
    (_PARITY, {1: (4, 5), 3: (0, 1, 2, 6), 5: (18, 19, 21, 22, 24, 25, 27, 28)}),
    (_ECHO, {1: (1, 20), 4: (16, 17, 18)}),
    (_NOTHING, {1: (0, 23, 27, 29, 30), 3: (16, 17, 18, 19), 5: (20, 23, 26, 29)}),
)
_REGISTERS = re.compile(r"link (-?\d+) ?\(((?:0x[0-9a-f]+(?:, ?)?)+)\)", re.IGNORECASE)
_UNIT = re.compile(
    r"\b([A-Z][A-Z0-9_/]+) (Fatal|Non-?fatal)\b(?:.*?\((0x[0-9a-f]+ 0x[0-9a-f]+))?",
    re.IGNORECASE,
)
_LINK_NUMBER = re.compile(r"\blink (-?\d+)", re.IGNORECASE)
_TARGET = re.compile(r"changed from .*? to 0x([0-9a-f]+)", re.IGNORECASE)

_RESET = with_release("Drain the node, then reset the GPU.")
_LINK = with_release("Drain the node, check the link's seating, then reset the GPU.")
# The actions in `xid_nvlink5.csv`, the most severe last.
_GRAVITY = ("ignore", "xid_154_eval", "reset_gpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The features that tell reports of one code apart: severity, meaning, NVLink 5 unit and link."""

    severity: Severity
    summary: str
    unit: str = ""
    fatal: bool | None = None  # the message's own word, None when it has none
    link: int | None = None  # an NVLink, None when no message names one

    @property
    def place(self) -> str:
        """The unit and the link in a few words; empty when no message names them."""
        word = "" if self.fatal is None else "fatal" if self.fatal else "nonfatal"
        link = "" if self.link is None else f"link {self.link}"
        return " ".join(filter(None, (self.unit, word, link)))


@lru_cache(maxsize=1024)
def signature(code: int, message: str) -> Signature:
    """Return the signature of one report; if the message is not decoded, that of its code's row."""
    row = read(code, message)
    plain = Signature(severity=row.severity, summary=row.summary)
    if code != _NVLINK and code not in NVLINK_5:
        return plain
    unit = _UNIT.search(message) if code in NVLINK_5 else None
    link = _LINK_NUMBER.search(message)
    return replace(
        plain,
        unit="" if unit is None else unit[1],
        fatal=None if unit is None else unit[2].lower() == "fatal",
        link=int(link[1]) if link is not None and int(link[1]) >= 0 else None,
    )


@lru_cache(maxsize=1024)
def read(code: int, message: str) -> Xid:
    """Return the row of a code, made more exact by the message where that is decoded."""
    row = xid(code)
    if code == _NVLINK:
        return _nvlink(row, message)
    if code in NVLINK_5:
        return _nvlink_5(row, message)
    if code == _ADVICE:
        return _advice(row, message)
    return row


def _nvlink(row: Xid, message: str) -> Xid:
    found = _REGISTERS.search(message)
    if found is None:
        return row
    registers = [int(word, 16) for word in re.findall(r"0x[0-9a-f]+", found[2], re.IGNORECASE)]
    meaning = next(iter(_meanings(registers)), None)
    link = f"NVLink {found[1]}"
    if meaning == _MARGINAL:
        return _reworded(row, f"the signal of {link} is marginal", Severity.WARNING, _LINK)
    if meaning == _PARITY:
        return _reworded(row, f"parity or ECC errors on {link}", Severity.WARNING, _RESET)
    if meaning == _ECHO:
        action = "Look for the fault at the link's far end: an NVSwitch's SXid, another GPU's Xid."
        return _reworded(row, f"{link} echoes a fault at its far end", Severity.WARNING, action)
    if meaning == _NOTHING:
        action = "Nothing to do the first time; if it keeps coming back, check the link's seating."
        changed = _reworded(row, f"{link} reports what alone is no fault", Severity.INFO, action)
        return replace(changed, scope=Scope.PASSING)
    return row


def _meanings(registers: list[int]) -> Iterator[str]:
    for meaning, by_register in _BITS:
        for number, bits in by_register.items():
            if number < len(registers) and any(registers[number] >> bit & 1 for bit in bits):
                yield meaning


@cache
def _units() -> tuple[Mapping[str, str], ...]:
    return tuple(table("xid_nvlink5.csv"))


def _nvlink_5(row: Xid, message: str) -> Xid:
    found = _UNIT.search(message)
    if found is None:
        return row
    unit, fatal = found[1], found[2].lower() == "fatal"
    asked = None
    if found[3] is not None:
        information, status = (int(word, 16) for word in found[3].split(" "))
        asked = _asked_for(row.code, unit, information, status)
    if fatal or asked == "reset_gpu":
        action = _RESET.rstrip(".") + "; if it comes back, ask support."
        return _reworded(
            row, f"NVLink unit {unit} reports a fatal error", Severity.CRITICAL, action
        )
    if asked == "ignore":
        action = "Nothing to do for it alone; look at the Xids around it."
        changed = _reworded(row, f"NVLink unit {unit} reports an error", Severity.INFO, action)
        return replace(changed, scope=Scope.PASSING)
    return row


def _asked_for(code: int, unit: str, information: int, status: int) -> str | None:
    """Return the action that the table asks for, given a unit's two words; None if there is none.

    A row with the whole status goes before rows with some of its bits, of which the most severe
    counts, and these before a row for any status.
    """
    rows = [
        rule
        for rule in _units()
        if int(rule["xid"]) == code
        and unit in rule["unit"].split("/")
        and (
            _fits(rule["intrinfo_pattern_lt_r575"], information)
            or _fits(rule["intrinfo_pattern_ge_r575"], information)
        )
    ]
    said = [(it, rule["action"]) for rule in rows for it in _statuses(rule["error_status"])]
    whole = [action for it, action in said if it == status]
    bits = [action for it, action in said if it and it & status == it]
    whatever = [action for it, action in said if it is None]
    return max(whole or bits or whatever, key=_GRAVITY.index, default=None)


def _statuses(said: str) -> list[int | None]:
    """Parse `0x00000001` or `0x00000000/0xFFFFFFFF` into numbers; None means any status."""
    return [None if word == "any" else int(word, 16) for word in said.split("/")]


def _fits(pattern: str, word: int) -> bool:
    """Return whether the 32 bits of a word, highest first, match a pattern with `-` for any bit."""
    bits = f"{word:032b}"
    return len(pattern) == len(bits) and all(
        want in {"-", bit} for want, bit in zip(pattern, bits, strict=True)
    )


def _advice(row: Xid, message: str) -> Xid:
    found = _TARGET.search(message)
    asked = None if found is None else advice(int(found[1], 16))
    if asked is None:
        return row
    changed = _reworded(row, f"the driver asks to {asked.words}", asked.severity, asked.action)
    return replace(changed, scope=Scope.STICKY)


def _reworded(row: Xid, summary: str, severity: Severity, action: str) -> Xid:
    return replace(row, summary=summary, severity=severity, action=action)
