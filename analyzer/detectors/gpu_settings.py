"""A GPU whose ECC or MIG mode is not that of its neighbours."""

from collections.abc import Iterator

import numpy as np

from gpuvigil.model import Evidence, Finding

from ..claims import Claim, findings
from ..columns import models, nodes, per_group, together
from ..window import Need, Span, Window

NEEDS = (Need(measurement="gpu", span=Span.NOW, fields=("ecc_mode", "mig_mode")),)

# Fewer than this many GPUs in a node have no majority worth the name.
_LEAST = 4
_MODES = (("ecc_mode", 0, "ecc_off", "ECC"), ("mig_mode", 1, "mig_on", "MIG"))


def odd_settings(window: Window) -> list[Finding]:
    """One finding per GPU that alone in its node has ECC off or MIG on."""
    return findings("gpu_settings", _odd(window))


def _odd(window: Window) -> Iterator[Claim]:
    rows = window.get("gpu", Span.NOW)
    kin = together(nodes(rows), models(window, rows))
    for field, value, condition, name in _MODES:
        modes = rows.values(field)
        usual, count = per_group(kin, modes)
        _, alike = per_group(together(kin, np.nan_to_num(modes, nan=2.0).astype(np.int64)), modes)
        alone = (modes == value) & (alike == 1) & (usual == 1 - value) & (count >= _LEAST)
        for subject, row in rows.where(alone):
            words = {0: "off", 1: "on"}
            yield Claim(
                condition=condition,
                subject=subject,
                since=row["at"],
                evidence=(Evidence(name=name, value=words[value], peers=words[1 - value]),),
            )
