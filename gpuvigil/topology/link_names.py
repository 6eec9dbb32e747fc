"""One name for one port and one link, wherever people read it: `n1 mlx5_0 → leaf1 port 12`.

The host's end comes first; of a cable between switches, the switch whose name sorts first.
"""

from ..model import SWITCH_DEVICE, Subject
from ..numbers_in_words import natural

# The port number that stands for the switch itself in InfiniBand.
ITSELF = "0"


def port_name(port: Subject) -> str:
    """Return `n1 mlx5_0`, `n1 mlx4_0/2` for a device with several ports, `leaf1 port 12`, or `leaf1`."""
    if port.device == SWITCH_DEVICE:
        return switch_port_name(port.node, None if port.port == ITSELF else port.port)
    return f"{port.node} {device_name(port.device, port.port)}"


def device_name(device: str | None, port: str | None) -> str:
    """Return `mlx5_0`, or `mlx4_0/2` for a port that is not the device's first."""
    return device or "" if port in {None, "", "1"} else f"{device}/{port}"


def switch_port_name(switch: str, port: str | None) -> str:
    """Return `leaf1 port 12`, or `leaf1` if the port is not known."""
    return f"{switch} port {port}" if port else switch


def link_name(near: str, far: str | None = None) -> str:
    """Return `n1 mlx5_0 → leaf1 port 12` from both ends, or the near end if the other is not known."""
    return f"{near} → {far}" if far else near


def switch_link_name(one: str, other: str) -> str:
    """Return `leaf1 port 40 → spine2 port 3`, the same from either end."""
    return link_name(*sorted((one, other), key=natural))
