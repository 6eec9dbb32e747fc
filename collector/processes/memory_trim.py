"""Returns memory that a process no longer needs to the system."""

import ctypes
import gc

# mallopt(3), of the GNU C library.
_M_TRIM_THRESHOLD = -1
_M_ARENA_MAX = -8
_TRIM_THRESHOLD_BYTES = 128 * 1024

# A tick makes some thousand objects, none of them in circles.
_GARBAGE_THRESHOLDS = (10_000, 20, 20)


def settle() -> None:
    """Call once, when everything is imported and before threads are started.

    What compiling the sources of `collector.pyz` takes for a moment the allocator would keep for
    ever, as it would keep a pool of its own for every thread. Only the GNU C library is told so;
    another does as it does.
    """
    _collect_rarely()
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return
    library.mallopt(_M_ARENA_MAX, 1)
    # Said once, the threshold no longer grows by itself.
    library.mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
    library.malloc_trim(0)


def _collect_rarely() -> None:
    """What is there at the start stays: it is not searched for garbage again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
