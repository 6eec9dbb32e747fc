"""The recovery that the driver asks for after a fault, from NVML's field or the words of Xid 154.

Numbers: nvml.h, `NVML_GPU_RECOVERY_ACTION_*`, and NV2080_CTRL_GPU_RECOVERY_ACTION. DCGM's health fails
at each of the first four but the third, of which it warns: the driver then still has to say what it
asks for. Repairing an IMEX domain leaves the GPU itself usable.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..model import Severity
from ..recovery_actions import recovery_words
from .model import with_release


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about a recovery action, its severity, and its words after "asks to"."""

    severity: Severity
    action: str
    words: str = ""


NOTHING = 0
_RESET = with_release("Drain the node, then reset the GPU.")
_REBOOT = "Drain the node and reboot it."
_ADVICE: Mapping[int, Advice] = {
    1: Advice(Severity.CRITICAL, _RESET),
    2: Advice(Severity.CRITICAL, _REBOOT),
    3: Advice(
        Severity.WARNING,
        "Let the programs that use this GPU's peer-to-peer traffic end; then the driver says what it needs.",
    ),
    4: Advice(Severity.CRITICAL, _RESET),
    5: Advice(
        Severity.WARNING,
        "Restart nvidia-imex on the nodes of this NVLink domain when no job runs there.",
    ),
    6: Advice(
        Severity.CRITICAL,
        with_release("Drain the node, then reset the GPU's PCIe bus or reboot."),
    ),
    7: Advice(Severity.CRITICAL, _REBOOT),
}


def advice(number: int) -> Advice | None:
    """Return what a recovery action asks for; None for nothing. An unknown number is worth a look."""
    if number == NOTHING:
        return None
    known = _ADVICE.get(number, Advice(Severity.WARNING, _RESET))
    return replace(known, words=recovery_words(number))
