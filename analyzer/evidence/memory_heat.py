"""A GPU whose memory is hot although its core is not: the memory's own contact or chip, not the air.

If only the memory sheds its heat badly, a comparison of cores shows nothing. So the memory's excess
over its own core is compared with that of the cluster's other working GPUs of the model: at rest
both are near the air, and the difference says nothing.
"""

from collections.abc import Iterator

import numpy as np

from gpuvigil.model import Evidence
from gpuvigil.store import Aggregate, Function

from ..window.columns import clusters, combined_codes, models, per_group, seconds
from ..window.window import Need, Span, Window
from .claims import Claim
from .heat import CELSIUS, works

_MEMORY = Aggregate(function=Function.MEAN, field="memory_temperature_celsius")
NEEDS = (Need(measurement="gpu", span=Span.STEADY, aggregates=(_MEMORY, CELSIUS)),)

# DRAM must refresh twice as often above 85 °C (JEDEC JESD79-4, extended temperature range): cooler
# memory is harmless. The least excess beyond peers is ours.
_HARMS_CELSIUS, _KELVIN = 85.0, 12.0
_PEERS, _COVERAGE = 3, 0.8


def hot_memory(window: Window) -> Iterator[Claim]:
    """Yield a claim on each working GPU whose memory is far hotter over its core than its peers' is."""
    rows = window.get("gpu", Span.STEADY)
    if not len(rows):
        return
    memory, core = rows.values(_MEMORY.column), rows.values(CELSIUS.column)
    hot = works(rows) & (memory >= _HARMS_CELSIUS)
    hot &= seconds(rows) >= _COVERAGE * window.settings.steady_seconds
    if not hot.any():
        return
    beyond = memory - core
    kin = combined_codes(clusters(rows), models(window, rows))
    usual, count = per_group(kin, np.where(works(rows), beyond, np.nan))
    told = hot & (beyond >= usual + _KELVIN) & (count > _PEERS)
    for (subject, row), peers in zip(rows.where(told), usual[told], strict=True):
        yield Claim(
            condition="memory_hot",
            subject=subject,
            since=row["last_at"],
            evidence=(
                Evidence(
                    name="memory",
                    value=f"{row[_MEMORY.column]:.0f} °C over {window.settings.steady_seconds / 60.0:g} min",
                    limit=f"{_HARMS_CELSIUS:g} °C",
                    peers=f"{row[CELSIUS.column] + peers:.0f} °C beside a core of {row[CELSIUS.column]:.0f} °C",
                ),
            ),
        )
