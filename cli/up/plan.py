"""The plan of what `up` starts: settings, ports, services."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuvigil.private_files import write_private
from gpuvigil.state_directory import CONFIG_NAME

from . import machine
from .directory import StateDirectory
from .settings import Given, Ports, address, choices, effective, given, to_toml

_NODES_WITHOUT_DRIVER = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `up` starts: settings, addresses, services in the order of their start."""

    state: StateDirectory
    config: Path
    hub_url: str
    dashboard_url: str
    service_token: Path
    secrets: Path
    nodes: int
    fleet: bool  # whether the simulated nodes have faults of their own
    gpus_per_node: int
    driver: machine.Driver | None
    notes: tuple[str, ...]
    listening: Mapping[str, tuple[str, int]]  # address and port, by service
    store: str  # the kind of store that keeps the telemetry
    reports: bool  # whether scheduled reports are configured

    def has_lost_port(self, name: str) -> bool:
        """Return whether another program listens on the port of that service, which has ended."""
        host, port = self.listening.get(name, ("", -1))
        return port > 0 and not machine.is_free(host, port)

    @property
    def services(self) -> tuple[str, ...]:
        """The services after the hub, the slowest to start first; no collector if the store is Prometheus."""
        simulate = ("simulate",) if self.nodes else ()
        collect = () if self.store == "prometheus" else ("collect",)
        reports = ("report schedule",) if self.reports else ()
        return ("dashboard", *collect, *simulate, "analyze", "alert", *reports)

    @property
    def example(self) -> tuple[int, int] | None:
        """A simulated node and GPU to try a fault on; None without one, or if the fleet has its own faults."""
        if self.fleet:
            return None
        return (min(3, self.nodes - 1), min(5, self.gpus_per_node - 1)) if self.nodes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line asks to simulate; None is not given."""

    nodes: int | None = None
    fleet_nodes: int | None = None  # nodes of the fleet with faults of its own


def prepare(config: Path | None, asked: Asked, state: StateDirectory) -> Plan:
    """Choose ports, nodes and settings, and write the configuration that the children read."""
    user = given(config)
    driver = machine.driver(Path("/"), os.environ)
    nodes = _nodes(asked, user, driver)
    fleet = asked.fleet_nodes is not None or (asked.nodes is None and user.config.simulator.fleet)
    wanted = user.config
    hub_listen, dashboard_listen = wanted.hub.listen, wanted.dashboard.listen
    hub = _port(wanted.hub.port, hub_listen, ())
    dashboard = _port(wanted.dashboard.port, dashboard_listen, (hub,))
    metrics = wanted.collector.metrics_port
    if metrics >= 0:
        metrics = _port(metrics, wanted.collector.metrics_listen, (hub, dashboard))
    ports = Ports(hub=hub, dashboard=dashboard, metrics=metrics)
    tree = effective(
        user, choices(state.path, ports, nodes, (hub_listen, dashboard_listen)), ports, nodes
    )
    tree["simulator"]["fleet"] = fleet
    written = state.path / CONFIG_NAME
    write_private(written, to_toml(tree))
    return Plan(
        state=state,
        config=written,
        hub_url=tree["hub"]["url"],
        dashboard_url=address(dashboard_listen, dashboard),
        service_token=Path(tree["hub"]["service_token_file"]),
        secrets=Path(tree["dashboard"]["secrets_directory"]),
        nodes=nodes,
        fleet=fleet,
        gpus_per_node=wanted.simulator.gpus_per_node,
        driver=driver,
        notes=tuple(_moved(wanted.dashboard.port, dashboard) + _moved(wanted.hub.port, hub)),
        listening={
            "hub": (hub_listen, hub),
            "dashboard": (dashboard_listen, dashboard),
            "collect": (wanted.collector.metrics_listen, metrics),
        },
        store=wanted.store.kind,
        reports=bool(wanted.reports),
    )


def _nodes(asked: Asked, user: Given, driver: machine.Driver | None) -> int:
    wanted = asked.nodes if asked.fleet_nodes is None else asked.fleet_nodes
    if wanted is not None:
        return wanted
    if user.has("simulator", "nodes"):
        return user.config.simulator.nodes
    return 0 if driver or user.config.store.kind == "prometheus" else _NODES_WITHOUT_DRIVER


def _port(wanted: int, listen: str, taken: tuple[int, ...]) -> int:
    return machine.choose_port(
        wanted, taken, lambda port: machine.is_free(listen, port), lambda: machine.any_free(listen)
    )


def _moved(wanted: int, used: int) -> list[str]:
    return [f"Port {wanted} is taken: using {used}."] if wanted not in {0, used} else []
