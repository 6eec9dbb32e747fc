"""The blocks for nginx and Caddy in docs/sign-in.md, run by the real servers before a real dashboard."""

import base64
import http.client
import os
import re
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from accounting.people.roles import Role
from dashboard.auth.accounts import Accounts, new_person
from gpuvigil.model import Audit, AuditedAction, RecordKind
from tests.dashboard.servers import DashboardProcess
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess

pytestmark = [pytest.mark.server, pytest.mark.site]

NAME, PASSWORD = "gpuvigil.example.org", "correct horse battery"
UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": base64.b64encode(b"k" * 16).decode(),
}


def block(language: str) -> str:
    """As it stands in the documentation."""
    page = (ROOT / "docs" / "sign-in.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    return str(found)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


class Site:
    """A dashboard behind a proxy: asked by name over TLS, as a browser asks."""

    def __init__(self, port: int, trust: ssl.SSLContext) -> None:
        self.port = port
        self.trust = trust

    @property
    def origin(self) -> str:
        return f"https://{NAME}:{self.port}"

    def ask(
        self, path: str, body: str | None = None, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, str]:
        raw = socket.create_connection(("127.0.0.1", self.port), 10)
        connection = http.client.HTTPSConnection(NAME, self.port, context=self.trust)
        connection.sock = self.trust.wrap_socket(raw, server_hostname=NAME)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            given["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request("POST" if body is not None else "GET", path, body, given)
        answer = connection.getresponse()
        said = "" if answer.status == 101 else answer.read().decode()
        connection.close()
        return answer.status, answer.headers, said

    def sign_in(self, rest: str = "/incidents?incident=7") -> str:
        """The cookie."""
        form = f"name=mira&password={PASSWORD.replace(' ', '+')}&next={rest.replace('?', '%3F')}"
        status, headers, _ = self.ask("/sign-in", form, Origin=self.origin)
        assert (status, headers["location"]) == (303, rest)
        assert "; Secure" in headers["set-cookie"]
        return str(headers["set-cookie"]).partition(";")[0]


ANYBODY = ssl.create_default_context()
ANYBODY.check_hostname, ANYBODY.verify_mode = False, ssl.CERT_NONE
Proxy = Callable[[Path, int, int, trustme.LeafCert], list[str]]


def nginx(directory: Path, port: int, dashboard: int, leaf: trustme.LeafCert) -> list[str]:
    certificate, key = directory / "cert.pem", directory / "key.pem"
    certificate.write_bytes(b"".join(one.bytes() for one in leaf.cert_chain_pems))
    key.write_bytes(leaf.private_key_pem.bytes())
    (directory / "users").write_text("mira:{PLAIN}of nginx\n")
    server = block("nginx")
    for old, new in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/ssl/certs/gpuvigil.pem", str(certificate)),
        ("/etc/ssl/private/gpuvigil.key", str(key)),
        ("127.0.0.1:8501", f"127.0.0.1:{dashboard}"),
    ):
        assert old in server
        server = server.replace(old, new)
    with_basic = server.replace(f"127.0.0.1:{port} ssl", f"127.0.0.1:{port + 1} ssl").replace(
        "location / {",
        f'location / {{\n auth_basic "gpuvigil"; auth_basic_user_file {directory / "users"};',
    )
    temporary = "".join(
        f"{kind}_temp_path {directory / kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (directory / "nginx.conf").write_text(
        # Its workers read our temporary files.
        f"{'user root;' if os.geteuid() == 0 else ''}\n"
        f"daemon off; pid {directory / 'pid'}; error_log {directory / 'error.log'};\n"
        f"events {{}}\nhttp {{ access_log off; {temporary} {server} {with_basic} }}\n"
    )
    return ["nginx", "-p", str(directory), "-c", str(directory / "nginx.conf")]


def caddy(directory: Path, port: int, dashboard: int, leaf: trustme.LeafCert) -> list[str]:
    certificate, key = directory / "cert.pem", directory / "key.pem"
    certificate.write_bytes(b"".join(one.bytes() for one in leaf.cert_chain_pems))
    key.write_bytes(leaf.private_key_pem.bytes())
    site = block("caddy").replace("127.0.0.1:8501", f"127.0.0.1:{dashboard}")
    site = site.replace(
        "gpuvigil.example.org {", f"{NAME}:{port} {{\n tls {certificate} {key}\n bind 127.0.0.1"
    )
    file = directory / "Caddyfile"
    file.write_text("{\n admin off\n auto_https disable_redirects\n}\n" + site)
    return ["caddy", "run", "--config", str(file), "--adapter", "caddyfile"]


@contextmanager
def running(command: list[str], directory: Path, port: int) -> Iterator[None]:
    environment = {"HOME": str(directory), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    with (directory / "proxy.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:

        def answers() -> bool:
            assert process.poll() is None, (directory / "proxy.log").read_text()
            try:
                raw = socket.create_connection(("127.0.0.1", port), 1)
                # Its port is there before the workers that answer on it are.
                ANYBODY.wrap_socket(raw, server_hostname=NAME).close()
            except OSError:
                return False
            return True

        wait_until("the proxy listens", answers, 20)
        yield
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub")) as process:
        yield process


@pytest.fixture(params=[nginx, caddy], ids=["nginx", "caddy"])
def site(
    request: pytest.FixtureRequest, tmp_path: Path, hub: HubProcess, authority: trustme.CA
) -> Iterator[Site]:
    """With a person by name, and a proxy that may name others."""
    port, trust = free_port(), ssl.create_default_context()
    authority.configure_trust(trust)
    more = (
        'trusted_proxies = ["127.0.0.1"]\n'
        '[people]\nproxy_user_header = "Remote-User"\nproxy_groups_header = "Remote-Groups"\n'
        'default_role = "own"\ngroup_roles = ["gpu-admins=operator"]\n'
        f'[alerts]\nexternal_url = "https://{NAME}:{port}"'
    )
    with DashboardProcess(tmp_path, hub, more) as dashboard:
        Accounts(dashboard.secrets).add(new_person("mira", Role.OWN, [], []), PASSWORD)
        behind = int(dashboard.url.rpartition(":")[2])
        proxy: Proxy = request.param
        command = proxy(tmp_path, port, behind, authority.issue_cert(NAME))
        with running(command, tmp_path, port):
            yield Site(port, trust)


def test_behind_the_block_people_sign_in_and_pages_open(site: Site, hub: HubProcess) -> None:
    status, headers, page = site.ask("/incidents?incident=7")
    assert (status, 'autocomplete="username"' in page) == (401, True)
    cookie = site.sign_in()
    status, headers, page = site.ask("/incidents?incident=7", Cookie=cookie)
    assert (status, '<div id="root">' in page) == (200, True)
    assert headers["x-frame-options"] == "DENY"
    status, _, _ = site.ask("/_stcore/stream", Cookie=cookie, Origin=site.origin, **UPGRADE)
    assert status == 101
    status, _, _ = site.ask(
        "/_stcore/stream", Cookie=cookie, Origin="https://evil.example", **UPGRADE
    )
    assert status == 403
    status, _, _ = site.ask("/sign-out", "", Cookie=cookie, Origin="https://evil.example")
    assert status == 403
    client = hub.hub()

    def signed_in() -> list[Audit]:
        found = [Audit.from_record(one) for one in client.records(RecordKind.AUDIT)]
        return [one for one in found if (one.deed, one.person) == (AuditedAction.SIGN_IN, "mira")]

    assert wait_until("the entry", signed_in)[0].address == "127.0.0.1"


def test_no_browser_names_itself_through_the_block(site: Site) -> None:
    for headers in (
        {"Remote_User": "root", "Remote_Groups": "gpu-admins"},
        {"remote_user": "root"},
        {"REMOTE_USER": "root", "remote_groups": "gpu-admins"},
    ):
        status, _, _ = site.ask("/", **headers)
        assert status == 401, headers


@pytest.mark.parametrize("site", [nginx], ids=["nginx"], indirect=True)
def test_whom_nginx_has_signed_in_is_in(site: Site) -> None:
    """Its own sign-in, by `auth_basic`, names them in the header of the block."""
    named = base64.b64encode(b"mira:of nginx").decode()
    beside = Site(site.port + 1, site.trust)
    assert beside.ask("/")[0] == 401
    status, _, page = beside.ask("/", Authorization=f"Basic {named}", Remote_User="root")
    assert (status, '<div id="root">' in page) == (200, True)
    status, _, page = beside.ask("/sign-out", Authorization=f"Basic {named}")
    assert (status, "Signed in as mira: sees only their own jobs" in page) == (200, True)
