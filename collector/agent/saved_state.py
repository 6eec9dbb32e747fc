"""State that outlives the collector: GPUs, ports, allocations, counters.

One small JSON file beside the spool keeps a GPU visible after it is lost. When the file is gone,
the hub is asked for the node's last inventory. `gpuvigil collect --forget` removes from both what
was taken out on purpose.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from gpuvigil.clock import from_text, to_text
from gpuvigil.log import Log
from gpuvigil.metrics import GPU, PORT, Kind
from gpuvigil.model import Allocation, GpuIdentity, PortIdentity, Record
from gpuvigil.plain import known, plain

from ..rows.monotone_counters import MonotoneCounters

log = Log("collector")

PUBLIC = "node.json"  # in the runtime directory, for everybody to read

# Counters in hardware registers, which a boot sets to 0; not those of a GPU's InfoROM.
_VOLATILE = frozenset(
    metric.name
    for metric in (*PORT.metrics, *GPU.metrics)
    if metric.kind is Kind.COUNTER
    and (metric in PORT.metrics or metric.name.startswith(("energy_", "nvlink_", "pcie_")))
)


@dataclass(slots=True, kw_only=True)
class Remembered:
    """What a node's agent remembers across restarts.

    GPUs are by UUID, ports by device and port; `held` are open allocations; counters belong to
    `boot_id`.
    `missing`: since when GPUs are lost, by UUID. `released_until`: the driver is left alone until then.
    `driverless_since`: since when, in this boot, GPUs are on the bus and no driver is loaded.
    `rebooted`: whether `enter` was told of another boot; it is not saved.
    `complete`: whether everything that the hub knows of this node is known here, too.
    """

    gpus: dict[str, GpuIdentity] = field(default_factory=dict)
    ports: dict[tuple[str, str], PortIdentity] = field(default_factory=dict)
    held: list[Allocation] = field(default_factory=list)
    counters: MonotoneCounters = field(default_factory=MonotoneCounters)
    boot_id: str | None = None
    missing: dict[str, datetime] = field(default_factory=dict)
    released_until: datetime | None = None
    driverless_since: datetime | None = None
    complete: bool = False
    rebooted: bool = False

    def enter(self, boot_id: str | None) -> None:
        """Continue in this boot of the machine; after a reboot, hardware registers restart at 0.

        Nothing is concluded when either boot is unknown.
        """
        self.rebooted = None not in {boot_id, self.boot_id} and boot_id != self.boot_id
        if self.rebooted:
            self.counters.restart(lambda name: name.rpartition(" ")[2] in _VOLATILE)
            self.driverless_since = None
        self.boot_id = boot_id or self.boot_id


def load(path: Path) -> Remembered:
    """Return the saved state; an empty one, logged, when the file is not what `save` wrote."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        gpus = [GpuIdentity(**known(GpuIdentity, gpu)) for gpu in value["gpus"]]
        ports = [PortIdentity.from_json(port) for port in value["ports"]]
        return Remembered(
            gpus={gpu.uuid: gpu for gpu in gpus},
            ports={(port.device, port.port): port for port in ports},
            held=[Allocation.from_record(Record.from_json(held)) for held in value["held"]],
            counters=MonotoneCounters.from_json(value["counters"]),
            boot_id=value.get("boot_id"),
            missing={uuid: from_text(at) for uuid, at in value.get("missing", {}).items()},
            released_until=_time(value.get("released_until")),
            driverless_since=_time(value.get("driverless_since")),
            complete=bool(value.get("complete", True)),
        )
    except FileNotFoundError:
        return Remembered()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("what this node knew is lost", file=str(path), why=str(error))
        return Remembered()


def _hardware(remembered: Remembered) -> dict[str, Any]:
    until = remembered.released_until
    return {
        "gpus": [plain(gpu) for gpu in remembered.gpus.values()],
        "ports": [plain(port) for port in remembered.ports.values()],
        "missing": {uuid: to_text(since) for uuid, since in remembered.missing.items()},
        "released_until": until and to_text(until),
    }


def save(path: Path, remembered: Remembered) -> OSError | None:
    """Replace the file in one step; return the error when that fails."""
    value = {
        **_hardware(remembered),
        "held": [allocation.to_record().to_json() for allocation in remembered.held],
        "counters": remembered.counters.to_json(),
        "boot_id": remembered.boot_id,
        "driverless_since": remembered.driverless_since and to_text(remembered.driverless_since),
        "complete": remembered.complete,
    }
    try:
        _write(path, value, 0o600)
    except OSError as error:
        return error
    return None


def publish(directory: Path, remembered: Remembered) -> None:
    """Write what everybody on this node may know: its hardware, and any release of the driver.

    Only where the directory exists, as it does for the service.
    """
    value = {**_hardware(remembered), "held": [], "counters": {}, "complete": True}
    try:
        _write(directory / PUBLIC, value, 0o644)
    except FileNotFoundError:
        return
    except OSError as error:
        file = str(directory / PUBLIC)
        log.warning("users of this node cannot be told of a release", file=file, why=str(error))


def _write(path: Path, value: Mapping[str, Any], mode: int) -> None:
    draft = path.with_suffix(".draft")
    with draft.open("w", encoding="utf-8") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(json.dumps(value))  # `json.dump` would write it word by word
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path)


def _time(text: str | None) -> datetime | None:
    return None if text is None else from_text(text)
