"""How slow this processor is just now, for tests that limit the processor time of a piece of work.

Limits in seconds were written on one machine; another, or the same one with busy neighbours, may take twice as
long for everything. `allowed` compares with a fixed piece of reading and arithmetic done at the same time.
"""

import os
import tempfile
import time
from pathlib import Path

_TRIES = 5
_ROUNDS = 400
USUAL_SECONDS = 0.0019
"""Seconds that `_piece` took alone on the machine with two processors that the limits were written on."""


def allowed(seconds: float) -> float:
    """Return the processor time here that corresponds to `seconds` on the usual machine; never less than those."""
    return seconds * max(1.0, min(_piece() for _ in range(_TRIES)) / USUAL_SECONDS)


def _piece() -> float:
    """Return the processor time in seconds of the fixed piece, which reads small files and adds up their numbers."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "counter"
        file.write_bytes(b"12345\n")
        began = time.process_time()
        total: dict[str, int] = {}
        for number in range(_ROUNDS):
            opened = os.open(file, os.O_RDONLY)
            try:
                value = int(os.read(opened, 4096).strip())
            finally:
                os.close(opened)
            for name in ("receive", "transmit", "discards", "errors"):
                key = f"{name}_{number % 7}"
                total[key] = total.get(key, 0) + value
        return time.process_time() - began
