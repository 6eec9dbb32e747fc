"""Serve the pages: Streamlit on uvicorn, behind the door."""

import argparse
import asyncio
import contextlib
import gc
import socket
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import streamlit as st
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from streamlit import config as streamlit_config
from streamlit.runtime.pages_manager import PagesManager
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from accounting.people.configured import pseudonyms
from accounting.people.roles import Person
from gpuvigil.clock import Clock, SystemClock
from gpuvigil.config import AlertsSettings, Config, DashboardSettings
from gpuvigil.config.startup import parser, run_service
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.hub_client import Hub
from gpuvigil.log import Log
from gpuvigil.store.configured import hubs
from gpuvigil.web.connections import Limits, Places, most_connections, raise_open_files
from gpuvigil.web.http_server import limited
from gpuvigil.web.signed_links import seal

from .auth.accounts import Accounts
from .auth.audit_trail import AuditTrail
from .auth.auth_middleware import AuthMiddleware
from .auth.keys import Keys
from .auth.live_socket import LiveSocket
from .auth.oidc import Oidc
from .auth.proxy_header import KeepPeerAddress, ProxyHeader, is_within
from .auth.replies import App
from .auth.sessions import SESSION_HEADER, Sessions
from .auth.sign_in import PATHS, SignInWays
from .auth.sign_in_page import source_hash
from .data import live
from .data.questions import QueryCache
from .data.snapshot import Snapshot
from .incidents.message_links import MessageLinkRoutes
from .layout.frame import PAGES
from .layout.not_found import NotFoundMiddleware
from .layout.page_shell import inline_scripts, page_routes, page_shell
from .overview import page as _overview  # noqa: F401 - loaded now, so that the first visitor does not wait for it

SCRIPT = Path(__file__).parent / "app.py"
DRAIN_SECONDS = 3
# The collector's threshold in objects: a refresh makes thousands, nearly all freed without it.
COLLECTED_AFTER = 10_000
KEEP_ALIVE_SECONDS = 5
# Pages only send a few form fields, and none takes files.
LIMITS = Limits(body_bytes=64 * 1024, body_seconds=30.0, drain_seconds=60.0)
MESSAGE_BYTES = 1024 * 1024

OPTIONS: dict[str, object] = {
    "browser.gatherUsageStats": False,
    "client.showErrorDetails": "none",
    "client.showErrorLinks": False,
    "client.showSidebarNavigation": False,
    "client.toolbarMode": "minimal",
    "global.developmentMode": False,
    "logger.level": "error",
    "runner.magicEnabled": False,
    # A full garbage collection after every refresh of every page took four fifths of the server's time.
    "runner.postScriptGC": False,
    "server.enableCORS": True,
    "server.enableXsrfProtection": True,
    "server.fileWatcherType": "none",
    "server.headless": True,
    "server.maxUploadSize": 1,
    "ui.hideTopBar": True,
    # Without a base theme the browser's preference chooses between the two.
    "theme.dark.backgroundColor": "#0d1117",
    "theme.dark.secondaryBackgroundColor": "#161b22",
    "theme.dark.textColor": "#e6edf3",
    "theme.dark.primaryColor": "#3fb8a8",
    "theme.dark.borderColor": "#2b3440",
    "theme.light.backgroundColor": "#ffffff",
    "theme.light.secondaryBackgroundColor": "#f6f8fa",
    "theme.light.textColor": "#1c2733",
    "theme.light.primaryColor": "#0b6e63",
    "theme.light.borderColor": "#d0d7de",
    "theme.baseFontSize": 15,
}


def main(arguments: Sequence[str]) -> int:
    """Serve the pages until asked to stop."""
    return run_service(parser("dashboard", "Run the dashboard."), arguments, serve)


def serve(config: Config, _chosen: argparse.Namespace, stop: threading.Event) -> None:
    """Start everything, log the port, and wait for `stop`."""
    log = Log("dashboard")
    raise_open_files()
    connect = hubs(config)
    clock = SystemClock()
    snapshot = Snapshot(connect, clock, config.analyzer, config.dashboard.refresh_seconds)
    keys = Keys(config.dashboard.secrets_directory, timedelta(hours=config.dashboard.session_hours))
    questions = QueryCache(connect, clock)
    trail = AuditTrail(connect, clock)
    ways = _ways(config, trail)
    sessions = Sessions(keys, ways.accounts, ways.groups)
    people = live.People(
        asker=partial(_asker, sessions, clock),
        pseudonyms=pseudonyms(config),
        key=keys.derived("pods"),
    )
    live.install(live.Shared(snapshot=snapshot, questions=questions, config=config, people=people))
    server = _server(config, keys, _answering(config, connect, sessions, clock), ways)
    _collect_rarely()
    with contextlib.closing(_listening(config)) as listener:
        snapshot.start()
        trail.start()
        runner = threading.Thread(target=server.run, args=([listener],), name="server")
        runner.start()
        _wait_for_start(server, runner)
        _log_address(config, listener, log)
        while runner.is_alive() and not stop.wait(0.5):
            pass
        server.should_exit = True
        runner.join(DRAIN_SECONDS + 2)
        snapshot.stop()
        trail.stop()
        questions.close()
    log.info("stopped")


def _collect_rarely() -> None:
    """Exclude the objects of the start from garbage collection, as they stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTED_AFTER, 10, 5)


def _log_address(config: Config, listener: socket.socket, log: Log) -> None:
    port, hosts = listener.getsockname()[1], " ".join(_allowed_hosts(config))
    log.info("listening", address=config.dashboard.listen, port=port, hosts=hosts)


def _answering(
    config: Config, connect: Callable[[], Hub], sessions: Sessions, clock: Clock
) -> list[Route]:
    """Return the routes of messages' links, if a key to sign them is set."""
    signed = seal(config.alerts)
    who = partial(_who, sessions, clock)
    return MessageLinkRoutes(signed, connect, clock, who).routes() if signed else []


def _ways(config: Config, trail: AuditTrail) -> SignInWays:
    proxies = [ip_network(entry) for entry in config.dashboard.trusted_proxies]
    return SignInWays(
        accounts=Accounts(config.dashboard.secrets_directory),
        proxy=ProxyHeader.of(config.people, proxies),
        oidc=Oidc(config) if config.people.oidc_issuer else None,
        audit=trail.add,
    )


def _asker(sessions: Sessions, clock: Clock) -> Person | None:
    """Return who the page is drawn for, by the session that the door added to its WebSocket."""
    return sessions.person(st.context.headers.get(SESSION_HEADER, ""), clock.now())


def _who(sessions: Sessions, clock: Clock, request: Request) -> Person | None:
    """Return who sends a form outside of Streamlit's pages; None if the link needs no session."""
    session = request.scope.get(SESSION_HEADER)
    return sessions.person(session, clock.now()) if session else None


def _wait_for_start(server: uvicorn.Server, runner: threading.Thread) -> None:
    while not server.started:
        runner.join(0.01)
        if not runner.is_alive() and not server.started:
            raise GpuvigilError("the web server did not start; its log lines say why")


def _listening(config: Config) -> socket.socket:
    settings = config.dashboard
    family = socket.AF_INET6 if ":" in settings.listen else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.listen, settings.port))
        # Listen at once: two sockets may be bound to one port until one of them listens.
        listener.listen()
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"dashboard.port: cannot listen on {settings.listen} port {settings.port}:"
            f" {error.strerror}; choose another port, or 0 for a free one"
        ) from None
    return listener


def _server(config: Config, keys: Keys, more: Sequence[Route], ways: SignInWays) -> uvicorn.Server:
    for option, value in OPTIONS.items():
        streamlit_config.set_option(option, value)
    streamlit_config.set_option("server.allowedHosts", _allowed_hosts(config))
    if public := urlsplit(_public_url(config)).hostname:
        # Otherwise Streamlit asks an outside service for this machine's address behind some proxies.
        streamlit_config.set_option("browser.serverAddress", public)
    # Otherwise the first page requested after a start would run without the frame of all pages, as
    # files in a folder called `pages` once did in Streamlit.
    PagesManager.uses_pages_directory = False
    pages = [page.path for page in PAGES]
    routes = [Route("/healthz", _alive), *more, *page_routes(pages)]
    paths = {*pages, "/healthz", *PATHS}
    app = NotFoundMiddleware(st.App(SCRIPT, routes=routes), paths)
    door = AuthMiddleware(
        app,
        keys=keys,
        clock=SystemClock(),
        policy=_policy(),
        signed=bool(more),
        public_url=_public_url(config),
        ways=ways,
    )
    return uvicorn.Server(_web(config.dashboard, door))


def _web(settings: DashboardSettings, door: AuthMiddleware) -> uvicorn.Config:
    proxies = [ip_network(entry) for entry in settings.trusted_proxies]
    believing = ProxyHeadersMiddleware(door, list(map(str, proxies)))  # type: ignore[arg-type]
    most = most_connections(settings.connections_count)
    places = Places(most, exempt=partial(is_within, proxies), log=Log("dashboard"))
    return uvicorn.Config(
        # Keep a connection's own address before a proxy's headers replace it.
        KeepPeerAddress(cast(App, believing if proxies else door)),
        http=limited(places, LIMITS, _crowded(most)),
        ws=cast(type[asyncio.Protocol], LiveSocket),
        ws_max_size=MESSAGE_BYTES,
        # By default uvicorn trusts everybody on this machine, or whom a variable names.
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )


def _crowded(most: int) -> PlainTextResponse:
    return PlainTextResponse(
        f"The dashboard has {most} connections, or your address has its share of them, and takes no"
        " more (dashboard.connections_count, or what the system grants as open files). Try again later.\n",
        503,
        {"Retry-After": "5", "Connection": "close"},
    )


async def _alive(_request: Request) -> JSONResponse:
    return JSONResponse({"status": "alive"})


def _allowed_hosts(config: Config) -> list[str]:
    """Return the host names that the pages answer to; any other may be DNS rebinding."""
    public = urlsplit(config.alerts.external_url).hostname
    own = {"127.0.0.1", "localhost", "::1", socket.gethostname().lower(), socket.getfqdn().lower()}
    if config.dashboard.listen not in {"", "0.0.0.0", "::"}:
        own.add(config.dashboard.listen)
    return sorted(own | ({public} if public else set()))


def _public_url(config: Config) -> str:
    """Return the address that browsers use; empty if it is not set."""
    url = config.alerts.external_url
    return "" if url == AlertsSettings().external_url else url


def _policy() -> str:
    """Return the content security policy, which allows the pages' inline scripts by their hashes."""
    hashes = " ".join(source_hash(script) for script in inline_scripts(page_shell()))
    return (
        f"default-src 'self'; script-src 'self' blob: {hashes}; style-src 'self' 'unsafe-inline';"
        " img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self';"
        " worker-src 'self' blob:; object-src 'none'; base-uri 'self'; form-action 'self';"
        " frame-ancestors 'none'"
    )
