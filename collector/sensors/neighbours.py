"""The switch that each port of a node is plugged into, as its interfaces have heard."""

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
    """Note in `known` what was heard by interface; whether a port has another neighbour than before.

    One that is not heard now keeps its last: a link that is down is silent, and that is when people
    want to know where its cable goes.
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
    """The network interfaces on a port's own hardware; `dev_port` counts those of one device from 0.

    Linux, Documentation/ABI/testing/sysfs-class-net. The slaves of a bond are interfaces themselves.
    """
    if port.kind == "ethernet":
        return [port.device]
    names = files.names(f"{sysfs_root}/class/infiniband/{port.device}/device/net")
    at = {name: files.stripped(f"{sysfs_root}/class/net/{name}/dev_port") for name in names}
    if len({number for number in at.values() if number}) < 2:
        return names
    return [name for name in names if at[name].isdigit() and int(at[name]) + 1 == int(port.port)]
