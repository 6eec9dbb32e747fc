"""A server with what snmp_exporter, gnmic and UFM Telemetry say about switches.

The text is shaped as snmp_exporter 0.21 writes the module if_mib, as gnmic's Prometheus output does with
`strings-as-labels`, and as the example in UFM Telemetry's manual ("Prometheus Endpoint Support") is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.text_pages import TextPages


@dataclass
class Port:
    """A port's present state; `peer` names the device at the other end and its port."""

    up: bool = True
    enabled: bool = True
    gigabits: int = 400
    errors: int = 0
    discards: int = 0
    peer: tuple[str, str] | None = None


Ports = dict[str, Port]


@dataclass
class SwitchPages(TextPages):
    """A server with `/snmp/SWITCH` for each, `/gnmic` and `/ufm`; a context manager. Switches in `gone`
    are not reported.
    """

    snmp: dict[str, Ports] = field(default_factory=dict)
    gnmic: dict[str, Ports] = field(default_factory=dict)
    ufm: dict[str, Ports] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.start()

    @property
    def targets(self) -> Mapping[str, Mapping[str, str]]:
        """Paths for Prometheus, and the labels that relabelling gives them."""
        return {
            **{f"/snmp/{name}": {"instance": name} for name in self.snmp},
            "/gnmic": {"instance": "gnmic"},
            "/ufm": {"instance": "ufm"},
        }

    def text(self, path: str) -> str | None:
        """Return a page; None for a switch that does not answer its exporter."""
        _, exporter, *name = path.split("/")
        if name:
            there = name[0] not in self.gone
            return "\n".join(_snmp(name[0], self.snmp[name[0]])) + "\n" if there else None
        lines = _gnmic if exporter == "gnmic" else _ufm
        told: dict[str, Ports] = getattr(self, exporter)
        every = (lines(one, ports) for one, ports in told.items() if one not in self.gone)
        return "\n".join(line for them in every for line in them) + "\n"


def _snmp(switch: str, ports: Ports) -> Iterator[str]:
    yield f'sysName{{sysName="{switch}.example.org"}} 1'
    # An interface without a cable, and the switch's own management port.
    vlan = 'ifAlias="",ifDescr="Vlan10",ifIndex="900",ifName="Vlan10"'
    yield f"ifOperStatus{{{vlan}}} 2"
    yield f'ifType_info{{{vlan},ifType="l3ipvlan"}} 1'
    own = 'ifAlias="",ifDescr="mgmt0",ifIndex="901",ifName="mgmt0"'
    yield f"ifOperStatus{{{own}}} 1"
    yield f'ifType_info{{{own},ifType="ethernetCsmacd"}} 1'
    for index, (name, port) in enumerate(ports.items(), 1):
        labels = f'ifAlias="",ifDescr="{name}",ifIndex="{index}",ifName="{name}"'
        yield f"ifOperStatus{{{labels}}} {1 if port.up else 2}"
        yield f"ifAdminStatus{{{labels}}} {1 if port.enabled else 2}"
        yield f'ifType_info{{{labels},ifType="ethernetCsmacd"}} 1'
        yield f"ifHighSpeed{{{labels}}} {1000 * port.gigabits if port.up else 0}"
        yield f"ifInErrors{{{labels}}} {port.errors}"
        yield f"ifOutDiscards{{{labels}}} {port.discards}"
        if port.peer is not None and port.up:
            system, far = port.peer
            yield (
                f'lldpRemSysName{{lldpRemIndex="1",lldpRemLocalPortNum="{index}",lldpRemPortId="{far}",'
                f'lldpRemSysName="{system}",lldpRemTimeMark="0"}} 1'
            )


def _gnmic(switch: str, ports: Ports) -> Iterator[str]:
    state, counters = "interfaces_interface_state", "interfaces_interface_state_counters"
    ethernet, lldp = "interfaces_interface_ethernet_state", "lldp_interfaces_interface_neighbors"
    own = f'interface_name="Management0/1",source="{switch}:57400",subscription_name="fabric"'
    yield f'{state}_oper_status{{{own},oper_status="UP"}} 1'
    for name, port in ports.items():
        at = f'interface_name="{name}",source="{switch}:57400",subscription_name="fabric"'
        yield f'{state}_oper_status{{{at},oper_status="{"UP" if port.up else "DOWN"}"}} 1'
        yield f'{state}_admin_status{{{at},admin_status="{"UP" if port.enabled else "DOWN"}"}} 1'
        speed = f"openconfig-if-ethernet:SPEED_{port.gigabits}GB"
        yield f'{ethernet}_port_speed{{{at},port_speed="{speed if port.up else "SPEED_UNKNOWN"}"}} 1'
        yield f"{counters}_in_errors{{{at}}} {port.errors}"
        yield f"{counters}_out_discards{{{at}}} {port.discards}"
        yield f"{ethernet}_counters_in_mac_pause_frames{{{at}}} 0"
        if port.peer is not None and port.up:
            heard = (
                f'{lldp}_neighbor_state_{{what}}{{{{{at},neighbor_id="1",{{what}}="{{text}}"}}}} 1'
            )
            for what, text in zip(("system_name", "port_id"), port.peer, strict=True):
                yield heard.format(what=what, text=text)


def _ufm(guid: str, ports: Ports) -> Iterator[str]:
    for number, port in ports.items():
        labels = f'source="0x{guid}",node_guid="{guid}",port_guid="{guid[:-2]}a{number}",port_num="{number}"'
        yield f"phy_state{{{labels}}} {(5 if port.up else 2) if port.enabled else 3}"
        yield f"SymbolErrorCounterExtended{{{labels}}} {port.errors}"
        yield f"PortRcvErrorsExtended{{{labels}}} 0"
        yield f"PortXmitDiscardsExtended{{{labels}}} {port.discards}"
