"""A profile of compose.yaml without a container engine: every command and health check as written.

`python -m tests.composed PROFILE DIRECTORY` runs in network, process and mount namespaces of its own. Each
service sees what its container would: its volumes, its secrets, an empty /tmp, a read-only root, its own
environment without ours, and no capabilities; services of our image do not run as root. All share one loopback,
to which the services' names resolve. Debian's programs replace other makers' images, with the same arguments.
"""

import fcntl
import json
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
COMPOSE: Mapping[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")

# The command that replaces an image's entry point: Debian's package of the same program.
PROGRAMS = {
    "docker.io/victoriametrics/victoria-metrics": ["victoria-metrics"],
    "docker.io/library/influxdb": [],
}

_LONGEST_SECONDS = 90.0


def of_profile(profile: str) -> list[str]:
    """Return the services that start, each after those that it depends on."""
    wanted = {name for name, it in SERVICES.items() if profile in it.get("profiles", [profile])}
    ordered: list[str] = []
    while len(ordered) < len(wanted):
        ready = [
            name
            for name in sorted(wanted - set(ordered))
            if set(SERVICES[name].get("depends_on", ())) <= set(ordered)
        ]
        assert ready, f"no order for {wanted - set(ordered)}"
        ordered += ready
    return ordered


def image_environment() -> dict[str, str]:
    """Return the environment of the Dockerfile's last stage, with our programs' folder in place of the image's."""
    stage = DOCKERFILE.rpartition("FROM ")[2]
    (line,) = re.findall(r"^ENV (.+)$", stage, re.MULTILINE)
    found = dict(pair.split("=", 1) for pair in shlex.split(line))
    rest = os.environ.get("PATH", os.defpath)
    found["PATH"] = found["PATH"].replace("/opt/gpuvigil", sys.prefix).replace("$PATH", rest)
    if "PYTHONPATH" in os.environ:
        found["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return found


class Containers:
    """Running services, with their logs and volumes in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._hosts = directory / "hosts"
        self._hosts.write_text(f"127.0.0.1 localhost {' '.join(SERVICES)}\n", encoding="utf-8")
        self._hosts.chmod(0o644)

    def start(self, name: str) -> None:
        """Wait for the service's dependencies in their required condition, and start it."""
        for other, how in SERVICES[name].get("depends_on", {}).items():
            self._await(other, how["condition"])
        self._running[name] = self._run(name, command(name))
        if SERVICES[name]["restart"] == "on-failure":
            self._complete(name)

    def _complete(self, name: str) -> None:
        """Restart the service until it ends successfully."""
        deadline = time.monotonic() + _LONGEST_SECONDS
        while self._running[name].wait(30) != 0 and time.monotonic() < deadline:
            time.sleep(0.5)
            self._running[name] = self._run(name, command(name))

    def healthy(self, name: str) -> bool:
        """Return whether the health check succeeds in time or, without one, whether the service runs."""
        test = SERVICES[name].get("healthcheck", {}).get("test")
        if test is None:
            return self.exit_code(name) in {None, 0}
        assert test[0] == "CMD"
        deadline = time.monotonic() + _LONGEST_SECONDS
        while time.monotonic() < deadline and self.exit_code(name) is None:
            if self._run(name, test[1:], "check").wait() == 0:
                return True
            time.sleep(0.5)
        return False

    def exit_code(self, name: str) -> int | None:
        return self._running[name].poll()

    def call(self, name: str, words: Sequence[str]) -> str:
        """Run a command in the service, as `docker compose exec` does, and return its output."""
        self._run(name, words, "exec").wait(60)
        return self.log(name, "exec")

    def log(self, name: str, what: str = "log") -> str:
        return (self._directory / f"{name}.{what}").read_text(encoding="utf-8", errors="replace")

    def stop(self) -> dict[str, int]:
        """Ask all services to end, the last started first, and return their exit codes."""
        codes: dict[str, int] = {}
        for name, process in reversed(self._running.items()):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            codes[name] = process.wait(30)
        return codes

    def _place(self, source: str, who: int) -> Path:
        """Return the path of a volume, or of a folder of the machine, that is mounted."""
        if source not in COMPOSE["volumes"]:
            return ROOT / substituted(source)
        place = self._directory / "volumes" / source
        place.mkdir(parents=True, exist_ok=True)
        os.chown(place, who, who)
        return place

    def _await(self, name: str, condition: str) -> None:
        if condition == "service_healthy":
            assert self.healthy(name), f"{name} is not healthy: {self.log(name)}"
        else:
            assert condition == "service_started"

    def _run(self, name: str, words: Sequence[str], what: str = "log") -> subprocess.Popen[bytes]:
        service = SERVICES[name]
        ours = "build" in service
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            **(image_environment() if ours else {}),
            **service.get("environment", {}),
        }
        given = [f"{key}={value}" for key, value in environment.items()]
        who = _account() if ours else 0
        rights = ["setpriv", f"--reuid={who}", f"--regid={who}", "--clear-groups"]
        rights += ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
        script = "\n".join(["set -e", *self._mounts(name, who), 'exec "$@"'])
        with (self._directory / f"{name}.{what}").open("ab") as log:
            return subprocess.Popen(
                [
                    *("unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh"),
                    *rights,
                    *("env", "-i", *given, *words),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _mounts(self, name: str, who: int) -> Iterator[str]:
        """Yield shell lines that build the container's file system from the machine's."""
        service = SERVICES[name]
        # Files of ours below a place that is mounted over must be saved first.
        yield "mount -t tmpfs tmpfs /run"
        # A folder created in /etc is the container's own.
        yield "mkdir /run/etc && cp -a /etc/. /run/etc && mount --bind /run/etc /etc"
        yield f"mount --bind {self._hosts} /etc/hosts"
        kept = {ROOT, Path(sys.prefix), Path(sys.base_prefix), self._directory}
        hidden = sorted(
            it for it in kept if it.is_relative_to("/tmp") or it.is_relative_to("/var/lib")
        )
        for number, path in enumerate(hidden):
            yield f"mkdir /run/{number} && mount --bind {path} /run/{number}"
        yield "mount -t tmpfs -o mode=1777 tmpfs /tmp"
        yield "mount -t tmpfs tmpfs /var/lib"
        for number, path in enumerate(hidden):
            yield f"mkdir -p {path} && mount --bind /run/{number} {path}"
        for volume in service.get("volumes", ()):
            source, target = volume.rsplit(":", 2 if volume.endswith(":ro") else 1)[:2]
            place = self._place(source, who)
            yield f"mkdir -p {target} && mount --bind {place} {target}"
            if volume.endswith(":ro"):
                yield f"mount -o remount,bind,ro {target}"
        yield "mkdir -p /run/secrets /var/lib/gpuvigil"
        for secret in service.get("secrets", ()):
            file = self._directory / COMPOSE["secrets"][secret]["file"]
            yield f"touch /run/secrets/{secret} && mount --bind {file} /run/secrets/{secret}"
        for sealed in ("/", "/etc", "/var/lib", "/run", *hidden):
            yield f"mount -o remount,bind,ro {sealed}"
        yield "cd /var/lib/gpuvigil"


def substituted(text: str) -> str:
    """Return the text with `${NAME:-default}` replaced as the engine does it."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: os.environ.get(found[1]) or found[2], text)


def command(name: str) -> list[str]:
    """Return the command of a service: the image's program, and the arguments as written."""
    image = SERVICES[name]["image"].rpartition(":")[0]
    return [*PROGRAMS.get(image, []), *SERVICES[name]["command"]]


def _account() -> int:
    """Return the image's user id, or the files' owner where that user may not read them."""
    (text,) = re.findall(r"--uid (\d+)", DOCKERFILE)
    for path in (ROOT, Path(sys.prefix), Path(sys.base_prefix)):
        if any(not it.stat().st_mode & 0o001 for it in (path, *path.parents)):
            return os.stat(ROOT).st_uid
    return int(text)


def _loopback_up() -> None:
    # ioctl SIOCGIFFLAGS and SIOCSIFFLAGS, IFF_UP: netdevice(7)
    with socket.socket() as it:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(it, 0x8913, request))[1]
        fcntl.ioctl(it, 0x8914, struct.pack("16sh14x", b"lo", flags | 1))


def kept(profile: str, directory: Path) -> list[str]:
    """Return the names of the measurements that a collector has delivered to the profile's store."""
    token = (directory / COMPOSE["secrets"]["service-token"]["file"]).read_text().strip()
    place = {
        "embedded": "http://127.0.0.1:8428/api/v1/status",
        "victoriametrics": "http://127.0.0.1:8429/api/v1/label/__name__/values",
        "influxdb": "http://127.0.0.1:8086/query?db=gpuvigil&q=SHOW+MEASUREMENTS",
    }[profile]
    headers = {"Authorization": f"Token {token}"} if profile == "embedded" else {}
    with urllib.request.urlopen(urllib.request.Request(place, headers=headers), timeout=10) as it:
        answer = json.load(it)
    if profile == "embedded":
        return [name for name, rows in answer["store"]["tables"].items() if rows]
    if profile == "victoriametrics":
        return [str(name) for name in answer["data"]]
    series = answer["results"][0].get("series", [{"values": []}])
    return [str(name) for (name,) in series[0]["values"]]


def _wait_for_telemetry(profile: str, directory: Path) -> list[str]:
    deadline = time.monotonic() + _LONGEST_SECONDS
    while True:
        found = kept(profile, directory)
        if any(name.startswith("node") for name in found) or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def main(profile: str, directory: Path) -> None:
    """Run a profile until each service is healthy, look, and end it; write the results as JSON."""
    _loopback_up()
    containers = Containers(directory)
    names = of_profile(profile)
    result: dict[str, Any] = {"services": names, "said": {}}
    try:
        for name in names:
            containers.start(name)
        result["healthy"] = [name for name in names if containers.healthy(name)]
        (dashboard,) = (name for name in names if name.startswith("dashboard"))
        result["kept"] = _wait_for_telemetry(profile, directory)
        result["url"] = containers.call(dashboard, ["gpuvigil", "url"])
    finally:
        result["codes"] = containers.stop()
        result["said"] = {name: containers.log(name)[-3000:] for name in result["codes"]}
        (directory / "result.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
