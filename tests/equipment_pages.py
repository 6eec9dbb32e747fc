"""A server with what exporters say about power and cooling: redfish_exporter, snmp_exporter of PDUs, a CDU's.

Shaped as collector/chassis_collector.go of jenningsloy318/redfish_exporter describes it, and as snmp_exporter's
module servertech_sentry3 writes Sentry3-MIB. The CDU's is invented, as in the example.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.text_pages import TextPages


@dataclass
class EquipmentPages(TextPages):
    """A server with `/bmc/NODE`, `/pdu/NAME` and `/cdu/NAME`; a context manager.

    Values are by part: 1 OK and 3 Critical of supplies and fans, 1 on and 0 off of infeeds, litres of a CDU.
    """

    supplies: dict[str, dict[str, int]] = field(default_factory=dict)
    fans: dict[str, dict[str, int]] = field(default_factory=dict)
    infeeds: dict[str, dict[int, int]] = field(default_factory=dict)
    flows: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start()

    @property
    def targets(self) -> Mapping[str, Mapping[str, str]]:
        """Paths for Prometheus, and the labels that relabelling gives them."""
        return {
            **{f"/bmc/{node}": {"instance": f"{node}-bmc.example.org"} for node in self.supplies},
            **{f"/pdu/{name}": {"instance": f"{name}:161"} for name in self.infeeds},
            **{f"/cdu/{rack}": {"rack": rack} for rack in self.flows},
        }

    def text(self, path: str) -> str | None:
        """Return a page."""
        _, what, name = path.split("/")
        lines = {"bmc": self._bmc, "pdu": self._pdu, "cdu": self._cdu}[what](name)
        return "\n".join(lines) + "\n"

    def _bmc(self, node: str) -> Iterator[str]:
        for part, health in self.supplies[node].items():
            labels = (
                f'resource="power_supply",chassis_id="1",power_supply="{part}",power_supply_id="0"'
            )
            yield f"redfish_chassis_power_powersupply_health{{{labels}}} {health}"
        for part, health in self.fans[node].items():
            labels = f'resource="fan",chassis_id="1",fan="{part}",fan_id="0",fan_unit="rpm"'
            yield f"redfish_chassis_fan_health{{{labels}}} {health}"

    def _pdu(self, name: str) -> Iterator[str]:
        for index, status in self.infeeds[name].items():
            yield f'infeedStatus{{towerIndex="1",infeedIndex="{index}"}} {status}'
            yield f'infeedLoadStatus{{towerIndex="1",infeedIndex="{index}"}} {0 if status else 1}'

    def _cdu(self, rack: str) -> Iterator[str]:
        labels = f'cdu="cdu-{rack}"'
        yield f"cdu_supply_temperature_celsius{{{labels}}} 32.5"
        yield f"cdu_flow_litres_per_minute{{{labels}}} {self.flows[rack]}"
        yield f"cdu_leak_detected{{{labels}}} 0"
