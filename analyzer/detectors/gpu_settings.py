"""A GPU whose ECC or MIG mode differs from its neighbours', or whose ECC is off unlike others of its model."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from gpuvigil.faults import found_by
from gpuvigil.model import Evidence, Finding, GpuIdentity, Inventory, Subject

from ..evidence.claims import Claim, findings
from ..evidence.grouping import by_node
from ..window.columns import (
    Floats,
    Mask,
    clusters,
    combined_codes,
    group_count,
    models,
    nodes,
    per_group,
)
from ..window.index import Remembered
from ..window.rows import Rows
from ..window.window import Need, Span, Window
from . import Detector

NEEDS = (Need(measurement="gpu", span=Span.NOW, fields=("ecc_mode", "mig_mode")),)

# A part number has several versions for a while when its GPUs are updated one by one.
_KIN, _KIN_SHARE = 10, 0.9
# Fewer GPUs than this in a node have no meaningful majority.
_LEAST = 4
_MODES = (("ecc_mode", 0, "ecc_off", "ECC"), ("mig_mode", 1, "mig_on", "MIG"))


def odd_settings(window: Window) -> list[Finding]:
    """Return one finding per GPU with an odd setting, or per node with ECC off on several GPUs.

    A setting is odd where the GPU alone in its node has ECC off or MIG on, or another VBIOS than its peers.
    """
    modes = list(_odd(window))
    off = by_node(window, (it for it in modes if it.condition == "ecc_off"), 0.0, "ecc_off_node")
    others = (it for it in modes if it.condition != "ecc_off")
    firmware = _odd_firmware(window.inventories.values())
    return findings("gpu_settings", [*off, *others, *firmware])


_Known = Sequence[tuple[Inventory, GpuIdentity]]


def _firmware(inventories: Sequence[Inventory]) -> list[Claim]:
    """Return claims about GPUs with another VBIOS than others of their part number.

    The usual version is the one that nine of ten GPUs of the part number have, of ten at least; else each node
    is judged by itself. Racks are delivered with the version of their day, so across them there may be no usual
    one.
    """
    kin: dict[tuple[str, str, str | None], list[tuple[Inventory, GpuIdentity]]] = defaultdict(list)
    for inventory in inventories:
        for gpu in inventory.gpus:
            if gpu.vbios:
                kin[inventory.subject.cluster, gpu.model, gpu.part_number].append((inventory, gpu))
    found: list[Claim] = []
    for _, them in sorted(kin.items(), key=lambda known: str(known[0])):
        usual, times = _usual(them)
        agree = len(them) >= _KIN and times >= _KIN_SHARE * len(them)
        found += _unlike(them, usual) if agree else _alone_in_its_node(them)
    return found


def _alone_in_its_node(them: _Known) -> list[Claim]:
    """Return claims about the one GPU of a node whose others, three at least, all agree.

    None where more than a tenth of the nodes have such a GPU: they are built so.
    """
    nodes: dict[Subject, list[tuple[Inventory, GpuIdentity]]] = defaultdict(list)
    for inventory, gpu in them:
        nodes[inventory.subject].append((inventory, gpu))
    found: list[Claim] = []
    for _, own in sorted(nodes.items()):
        usual, times = _usual(own)
        if len(own) >= _LEAST and times == len(own) - 1:
            found += _unlike(own, usual)
    are_few = len(found) == 1 or len(nodes) - len(found) >= _KIN_SHARE * len(nodes)
    return found if are_few else []


def _usual(them: _Known) -> tuple[str | None, int]:
    """Return the most common VBIOS version, and how many GPUs have it."""
    ((usual, times),) = Counter(gpu.vbios for _, gpu in them).most_common(1)
    return usual, times


def _unlike(them: _Known, usual: str | None) -> Iterator[Claim]:
    for inventory, gpu in them:
        if gpu.vbios != usual:
            yield Claim(
                condition="vbios_odd",
                subject=replace(inventory.subject, gpu=gpu.uuid),
                since=inventory.at,
                evidence=(Evidence(name="VBIOS", value=str(gpu.vbios), peers=str(usual)),),
            )


_odd_firmware = Remembered(_firmware)


def _odd(window: Window) -> Iterator[Claim]:
    rows = window.get("gpu", Span.NOW)
    kin = combined_codes(nodes(rows), models(window, rows))
    for field, value, condition, name in _MODES:
        modes = rows.values(field)
        if not (modes == value).any():
            continue
        usual, count = per_group(kin, modes)
        _, alike = per_group(
            combined_codes(kin, np.nan_to_num(modes, nan=2.0).astype(np.int64)), modes
        )
        alone = (modes == value) & (alike == 1) & (usual == 1 - value) & (count >= _LEAST)
        if condition == "ecc_off":
            alone |= (modes == value) & _is_on_elsewhere(window, rows, modes)
        for subject, row in rows.where(alone):
            words = {0: "off", 1: "on"}
            yield Claim(
                condition=condition,
                subject=subject,
                since=row["at"],
                evidence=(Evidence(name=name, value=words[value], peers=words[1 - value]),),
            )


def _is_on_elsewhere(window: Window, rows: Rows, modes: Floats) -> Mask:
    """Return for each row whether nine of ten GPUs of the model in the cluster have ECC on.

    In a node that comes back from maintenance with ECC off, no neighbour shows it. MIG is not compared like
    this: that it is on may be intended.
    """
    model = models(window, rows)
    kin = combined_codes(clusters(rows), model)
    told = group_count(kin, ~np.isnan(modes))
    found: Mask = (model != 0) & (group_count(kin, modes == 1) >= _KIN_SHARE * told)
    return found


DETECTOR = Detector(
    name="gpu_settings",
    find=odd_settings,
    faults=found_by("gpu_settings"),
    needs=NEEDS,
    sentence="A GPU that alone in its node has ECC off or MIG on, or one with ECC off where nearly all of the cluster have it on.",
    source="nvmlDeviceGetEccMode, nvmlDeviceGetMigMode",
)
