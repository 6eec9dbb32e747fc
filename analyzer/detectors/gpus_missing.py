"""A node with fewer GPUs than its peers: it was installed, or has booted, without one."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Inventory

from ..window.index import Remembered
from ..window.window import Window
from . import Detector

_FAULT = FAULTS["gpus_missing"]
# An expectation takes this many nodes of a kind, and this share of them with the same count.
_NODES, _SHARE = 4, 0.75


def nodes_with_too_few(window: Window) -> list[Finding]:
    """Return nodes whose inventory lists fewer GPUs than most nodes of the same GPU model.

    A GPU that was lost stays in its node's inventory, marked as missing, and makes no finding here.
    """
    return list(_too_few(window.inventories.values()))


def _with_too_few(inventories: Sequence[Inventory]) -> Sequence[Finding]:
    kinds: dict[tuple[str, str], list[Inventory]] = defaultdict(list)
    for inventory in inventories:
        models = {gpu.model for gpu in inventory.gpus}
        if len(models) == 1:
            kinds[inventory.subject.cluster, models.pop()].append(inventory)
    found: list[Finding] = []
    for (_, model), kin in sorted(kinds.items()):
        ((usual, times),) = Counter(len(i.gpus) for i in kin).most_common(1)
        if len(kin) < _NODES or times < _SHARE * len(kin):
            continue
        fewer = sorted((i for i in kin if len(i.gpus) < usual), key=lambda i: i.subject)
        found += [_finding(inventory, model, usual, times) for inventory in fewer]
    return found


_too_few = Remembered(_with_too_few)


def _finding(inventory: Inventory, model: str, usual: int, times: int) -> Finding:
    return Finding(
        fault="gpus_missing",
        subject=inventory.subject,
        severity=_FAULT.severity,
        since=inventory.at,
        evidence=(
            Evidence(
                name="GPUs",
                value=str(len(inventory.gpus)),
                limit=str(usual),
                peers=f"{usual} on {times} nodes with {model}",
            ),
        ),
        detector="gpus_missing",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
    )


DETECTOR = Detector(
    name="gpus_missing",
    find=nodes_with_too_few,
    faults=found_by("gpus_missing"),
    needs=(),
    sentence="A node with fewer GPUs than most nodes with the same model.",
    source="the majority of the cluster's inventories",
)
