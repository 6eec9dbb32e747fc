"""The switch that each port of a node is plugged into, as its interfaces have learnt by LLDP."""

from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path

from gpuvigil.model import PortIdentity

from . import files

_Key = tuple[str, str]
Far = tuple[str, str | None]
"""A switch and its port."""


def connect(
    known: MutableMapping[_Key, PortIdentity], sysfs_root: Path, heard: Mapping[str, Far]
) -> bool:
    """Note in `known` the neighbours by interface; return whether any port's has changed.

    A port without news keeps its last neighbour: a link that is down is silent, and that is when
    people want to know where its cable goes.
    """
    changed = False
    for key, port in known.items() if heard else ():
        found = [heard[name] for name in _interfaces(port, sysfs_root) if name in heard]
        if found and found[0] != (port.switch, port.switch_port):
            switch, switch_port = found[0]
            known[key] = replace(port, switch=switch, switch_port=switch_port)
            changed = True
    return changed


def _interfaces(port: PortIdentity, sysfs_root: Path) -> list[str]:
    """Return the network interfaces on a port's own hardware; `dev_port` counts a device's from 0.

    Linux, Documentation/ABI/testing/sysfs-class-net. The slaves of a bond are interfaces
    themselves.
    """
    if port.kind == "ethernet":
        return [port.device]
    names = files.names(f"{sysfs_root}/class/infiniband/{port.device}/device/net")
    at = {name: files.stripped(f"{sysfs_root}/class/net/{name}/dev_port") for name in names}
    if len({number for number in at.values() if number}) < 2:
        return names
    return [name for name in names if at[name].isdigit() and int(at[name]) + 1 == int(port.port)]
