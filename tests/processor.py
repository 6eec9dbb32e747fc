"""How slow this processor is just now, for tests that say how much of one a piece of work may take.

Limits in seconds were written on one machine; another, or the same one with busy neighbours, may take twice as long
for everything. `allowed` holds the work against a fixed piece of reading and reckoning done beside it.
"""

import os
import tempfile
import time
from pathlib import Path

_TRIES = 5
_ROUNDS = 400
USUAL_SECONDS = 0.0019
"""What `_piece` took on the machine with two processors that the limits were written on, by itself."""


def allowed(seconds: float) -> float:
    """So much of this processor's time as `seconds` of the usual one; never less than those."""
    return seconds * max(1.0, min(_piece() for _ in range(_TRIES)) / USUAL_SECONDS)


def _piece() -> float:
    """The seconds of processor time that the fixed piece takes: small files read and their numbers added up."""
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
