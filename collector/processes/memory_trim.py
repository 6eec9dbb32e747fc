"""Returns memory that a process no longer needs to the system."""

import ctypes
import gc

# mallopt(3), of the GNU C library.
_M_TRIM_THRESHOLD = -1
_M_ARENA_MAX = -8
_TRIM_THRESHOLD_BYTES = 128 * 1024

# A tick makes some thousand objects, none of them in reference cycles.
_GARBAGE_THRESHOLDS = (10_000, 20, 20)


def settle() -> None:
    """Limit the process's memory; call once, after all imports and before threads start.

    Otherwise the allocator would keep for ever what compiling the sources of `collector.pyz` takes
    for a moment, and a pool for every thread. Only the GNU C library has these settings; another
    one is left as it is.
    """
    _collect_rarely()
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return
    library.mallopt(_M_ARENA_MAX, 1)
    # Once set, the threshold no longer grows by itself.
    library.mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
    library.malloc_trim(0)


def _collect_rarely() -> None:
    """Exclude objects that exist at the start from garbage collection, and collect rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
