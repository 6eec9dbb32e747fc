"""Conversion of DCGM's units to the catalogue's, by DCGM's field names.

Units: the help texts of dcgm-exporter's etc/default-counters.csv and the field list of DCGM's API
reference, both read 2026-11.
"""

_MIB, _MEGA = 1024 * 1024, 1_000_000


def times(name: str) -> float | None:
    """Return the factor from DCGM's value to the catalogue's; None where the unit depends on DCGM's version."""
    if name.endswith("_VIOLATION"):
        return None
    if name.startswith(("DCGM_FI_DEV_FB_", "DCGM_FI_DEV_BAR1_")):
        return _MIB
    if name.endswith("_CLOCK"):
        return _MEGA
    if name.endswith(("_ACTIVE", "_OCCUPANCY")):
        return 100.0
    return 1e-3 if name == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" else 1.0
