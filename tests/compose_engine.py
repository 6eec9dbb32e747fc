"""compose.yaml in a container engine: podman-compose and podman, in namespaces of their own.

Nothing can be fetched from outside while an image is built. So the base image is Debian's, wheels come from a
volume, and Debian's programs replace other makers' images, with the arguments that compose.yaml has for them.
"""

import json
import re
import secrets
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.composed import COMPOSE, DOCKERFILE, PROGRAMS, ROOT, SERVICES
from tests.containers import IMAGE, Machines
from tests.polling import wait_until

VERSION = "0.1.0"
STORES = "localhost/stores:debian"
BUILD_SECONDS = 900.0
# Allows for a machine that is busy with other things.
UP_SECONDS = 120.0
TICK_SECONDS = 1.0
_MOUNTED = "/wheels"
# A process in other namespaces starts in another folder.
_OURS = {"PYTHONPATH": str(ROOT)}
_CONFIGURATION = """
[alerts]
update_seconds = 1
[[alerts.webhooks]]
name = "site"
url_file = "webhook-url"
allow_http = true
"""
# Prints each received message on a line.
_RECEIVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        print(body.decode().replace("\\n", " "), flush=True)
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.HTTPServer(("", 9000), Handler).serve_forever()
"""


def _wheels(cache: Path, checkout: Path) -> Path:
    """Download the packages that a checkout's image installs, by the constraints, and return their folder."""
    folder = cache / "wheels"
    folder.mkdir(exist_ok=True)
    (build,) = re.findall(r'"(setuptools==[^"]+)"', (ROOT / "pyproject.toml").read_text())
    (extras,) = re.findall(r"'\.(\[[^]]+\])'", DOCKERFILE)
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
    words = [*pip, "-c", "constraints.txt", "--find-links", str(folder), "-d", str(folder)]
    done = subprocess.run(
        [*words, f".{extras}", build], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


class Project:
    """A checkout with secrets and a configuration beside it, run by podman-compose."""

    def __init__(self, machines: Machines, folder: Path, cache: Path, node: Path) -> None:
        self._machines = machines
        self.folder = folder
        self.version = VERSION
        self._checkout(node)
        self._wheels = _wheels(cache, folder)

    def _checkout(self, node: Path) -> None:
        for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "compose.yaml"):
            shutil.copy(ROOT / name, self.folder)
        shutil.copy(ROOT / "Dockerfile", self.folder)
        for name in re.findall(r"^COPY (\w+) \1$", DOCKERFILE, re.MULTILINE):
            unwanted = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, self.folder / name, ignore=unwanted)
        for secret in COMPOSE["secrets"].values():
            file = self.folder / secret["file"]
            file.parent.mkdir(exist_ok=True)
            file.write_text(secrets.token_hex(32) + "\n")
        configuration = self.folder / "configuration"
        configuration.mkdir()
        (configuration / "gpuvigil.toml").write_text(_CONFIGURATION)
        (configuration / "webhook-url").write_text("http://receiver:9000/hook\n")
        (self.folder / "test.yaml").write_text(yaml.safe_dump(_beside(node)))

    def secret(self, name: str) -> str:
        file: str = COMPOSE["secrets"][name]["file"]
        return (self.folder / file).read_text().strip()

    def compose(self, *words: str, seconds: float = UP_SECONDS) -> str:
        """Run podman-compose, which must succeed, and return its output."""
        files = ["-f", "compose.yaml", "-f", "test.yaml"]
        build = f"--volume {self._wheels}:{_MOUNTED}:ro"
        command = [sys.executable, "-m", "podman_compose", "--podman-build-args", build, *files]
        done = self._machines.inside(
            *("env", "-C", str(self.folder), *command, *words),
            seconds=seconds,
            environment={
                "GPUVIGIL_BASE": IMAGE,
                "GPUVIGIL_PIP": f"--no-index --find-links {_MOUNTED}",
                "GPUVIGIL_VERSION": self.version,
                "GPUVIGIL_CONFIGURATION": str(self.folder / "configuration"),
            },
        )
        assert done.returncode == 0, f"{words}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    def of_page(self, begin: str) -> None:
        """Run the command of the page on installing that begins so, by podman, beside the compose file."""
        page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
        (line,) = {one for one in page.splitlines() if one.startswith(begin)}
        if line.startswith("docker compose "):
            self.compose(*line.split()[2:])
            return
        here = f"cd {self.folder} && {line.replace('docker', 'podman', 1)}"
        done = self._machines.inside("sh", "-c", here, seconds=UP_SECONDS)
        assert done.returncode == 0, f"{line}: {done.stderr[-2000:]}"

    def build(self) -> None:
        """Build our image."""
        self.compose("build", "hub", seconds=BUILD_SECONDS)

    def build_stores(self) -> None:
        folder = self.folder / "stores"
        folder.mkdir()
        names = [program for words in PROGRAMS.values() for program in words] + ["influxd"]
        for name in names:
            shutil.copy(shutil.which(name) or "", folder)
        lines = [f"FROM {IMAGE}", *(f"COPY {name} /usr/bin/{name}" for name in names)]
        (folder / "Dockerfile").write_text("\n".join(lines) + "\n")
        self.podman("build", "-q", "-t", STORES, str(folder), seconds=BUILD_SECONDS)

    def podman(self, *words: str, seconds: float = UP_SECONDS) -> str:
        done = self._machines.podman(*words, seconds=seconds)
        assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def write_version(self, version: str) -> None:
        """Change the checkout to another version; later containers are made from its image."""
        module = self.folder / "gpuvigil" / "__init__.py"
        module.write_text(module.read_text().replace(f'"{self.version}"', f'"{version}"'))
        self.version = version

    def up(self, profile: str, *more: str) -> None:
        self.compose("--profile", profile, "up", "-d", *more)

    def down(self, profile: str) -> None:
        """Remove the containers and their volumes."""
        self.compose("--profile", profile, "down", "-v", "-t", "5")

    def is_healthy(self, service: str) -> bool:
        """Return the engine's own health check, which a timer runs where the host has systemd."""
        return self._machines.podman("healthcheck", "run", name(service)).returncode == 0

    def state(self, service: str, what: str) -> str:
        """Return a field of what the engine reports about a container."""
        return self.podman("inspect", name(service), "--format", f"{{{{.{what}}}}}").strip()

    def kill(self, service: str) -> None:
        """Kill a service as a crash would, unknown to the engine, and wait until the engine has restarted it."""
        before = self.state(service, "State.Pid")
        assert self._machines.inside("kill", "-9", before).returncode == 0

        def is_back() -> bool:
            return self.state(service, "State.Pid") not in ("0", before)

        wait_until(f"{service} is started again", is_back, UP_SECONDS)

    def takes(self, service: str, amount: int) -> bool:
        """Return whether a process in the container can allocate this many bytes; where it cannot, it is killed."""
        words = ("python", "-c", f"bytearray({amount})")
        code = self._machines.podman("exec", name(service), *words).returncode
        assert code in {0, 137}
        return code == 0

    def cable(self, service: str, state: str) -> None:
        """Pull the container's network cable (`down`), or plug it in (`up`)."""
        link = self.podman("exec", name(service), "cat", "/sys/class/net/eth0/iflink").strip()
        listed = self._machines.inside("ip", "-o", "link", "show", "type", "veth").stdout
        (port,) = re.findall(rf"^{link}: (\w+)@", listed, re.MULTILINE)
        assert self._machines.inside("ip", "link", "set", port, state).returncode == 0

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages that the receiver got."""
        return [json.loads(line) for line in self.podman("logs", name("receiver")).splitlines()]

    def found(self, profile: str) -> Mapping[str, list[Any]]:
        """Return what `tests.compose_witness` finds stored; empty while nothing answers."""
        words = ["found", profile, self.secret("service-token")]
        done = self._machines.inside(
            *(sys.executable, "-m", "tests.compose_witness", *words), environment=_OURS
        )
        kept: dict[str, list[Any]] = json.loads(done.stdout or "{}")
        return kept

    def watch(self) -> "Witness":
        words = ["watch", self.secret("collector-token")]
        command = [sys.executable, "-m", "tests.compose_witness", *words]
        return Witness(self._machines.entered(*command), {**self._machines.environment(), **_OURS})


class Witness:
    """A process that collects the times of acknowledged data, in milliseconds, until it is stopped."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.seen: dict[str, list[int]] = {"tick": [], "kept": []}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=environment
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, at = line.split()
            self.seen[what].append(int(at))

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(30) == 0
        self._reader.join()
        self._process.stdout.close()


def name(service: str) -> str:
    """Return the name that podman-compose gives to the first container of a service."""
    return f"{COMPOSE['name']}_{service}_1"


def _beside(node: Path) -> Mapping[str, Any]:
    """Return what a test adds to compose.yaml: a driver on the node, a receiver, and other images for the stores."""
    given = {
        "LD_LIBRARY_PATH": "/var/driver/library",
        "NVML_FAKE_STATE": "/var/driver/nvml.state",
        "NVML_FAKE_DEVICES": "/var/driver/dev",
        "GPUVIGIL_COLLECTOR_TICK_SECONDS": str(TICK_SECONDS),
        "GPUVIGIL_COLLECTOR_CLUSTER": "main",
        "GPUVIGIL_COLLECTOR_NODE": "gpu-001",
    }
    services: dict[str, Any] = {
        "receiver": {
            "image": f"gpuvigil:{VERSION}",
            "command": ["python", "-c", _RECEIVER],
        }
    }
    for name, service in SERVICES.items():
        if name.startswith("collector"):
            services[name] = {"environment": given, "volumes": [f"{node}:/var/driver:ro"]}
        elif "build" not in service:
            program = PROGRAMS[service["image"].rpartition(":")[0]]
            services[name] = {"image": STORES, "command": [*program, *service["command"]]}
    return {"services": services}
