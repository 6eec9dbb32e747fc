"""Opens the store that the configuration names."""

from collections.abc import Callable

from ..clock import SystemClock
from ..config import Config, StoreSettings, secret_source
from ..hub_client import Hub, service_hubs
from ..hub_client.tls import trust
from . import Store
from .external import HubWithExternalStore, NodesHeardByStore


def open_store(settings: StoreSettings) -> Store:
    """Return the configured store outside the hub; ConfigError for a secret's file that cannot be read.

    The libraries of a kind of store are loaded only when it is used.
    """
    clock = SystemClock()
    if settings.kind == "victoriametrics":
        from .victoriametrics import VictoriaMetricsStore  # noqa: PLC0415

        return VictoriaMetricsStore(settings, clock)
    if settings.kind == "influxdb":
        from .influxdb import InfluxStore  # noqa: PLC0415

        return InfluxStore(settings, clock)
    if settings.kind == "prometheus":
        from .prometheus import PrometheusStore  # noqa: PLC0415

        return PrometheusStore(settings, clock)
    raise ValueError(f"a store of the kind {settings.kind!r} is not opened here")


def hubs(config: Config) -> Callable[[], Hub]:
    """Return a factory of clients for services that read telemetry from any store (`external.store_of`).

    ConfigError at once for a missing token.
    """
    connect = service_hubs(config.hub)
    if config.store.kind == "hub":
        return connect
    token = secret_source(config.hub.service_token_file, "hub.service_token_file", "service token")
    believed, store = trust(config.hub), open_store(config.store)
    heard = NodesHeardByStore(store)
    return lambda: HubWithExternalStore(config.hub.url, token, believed, store, heard)
