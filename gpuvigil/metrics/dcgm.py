"""In which units DCGM tells what the catalogue has, by its own name for it.

Units: the help texts of dcgm-exporter's etc/default-counters.csv and the field list of DCGM's API
reference, both read 2026-11.
"""

_MIB, _MEGA = 1024 * 1024, 1_000_000


def times(name: str) -> float | None:
    """What turns DCGM's value into the catalogue's; None where it is another in other versions of DCGM."""
    if name.endswith("_VIOLATION"):
        return None
    if name.startswith(("DCGM_FI_DEV_FB_", "DCGM_FI_DEV_BAR1_")):
        return _MIB
    if name.endswith("_CLOCK"):
        return _MEGA
    if name.endswith(("_ACTIVE", "_OCCUPANCY")):
        return 100.0
    return 1e-3 if name == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" else 1.0
