"""Separate machines for tests: containers with systemd, in a private network.

podman runs in namespaces of mounts, processes and network, so whatever it mounts, starts and sets up ends with
them, whatever becomes of the test. The base image is Debian's own, by debootstrap from this machine's apt
source.
"""

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from tests.polling import wait_until

PROGRAMS = ("podman", "runc", "debootstrap", "nsenter", "unshare")
RELEASE = "bookworm"
INCLUDED = (
    "python3",
    "python3-venv",
    "systemd",
    "systemd-sysv",
    "dbus",
    "openssl",
    "openssh-server",
    "iproute2",
    "procps",
    # The libraries with which the image of compose.yaml draws a PDF.
    "libpango-1.0-0",
    "libpangoft2-1.0-0",
    "libharfbuzz-subset0",
    "fonts-dejavu-core",
)
IMAGE = "localhost/debian:12"
KEPT_DAYS = 7
START_SECONDS = 120.0
# Free for use: the network is in a namespace.
_SUBNET = "10.99.7.0/24"
_HOLD = """
set -e
mount -t tmpfs tmpfs /run
mkdir /run/netns /run/lock
for place in /var/lib /var/cache; do mount -t tmpfs tmpfs "$place"; done
# Where everything but temporary folders was made read-only.
awk '$2 ~ "^/sys" {print $2}' /proc/self/mounts | sort -r | while read -r place; do
    mount -o remount,bind,rw "$place" || true
done
ip link set lo up
echo ready
exec sleep 3600
"""
_CONTAINERS = """
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
tmp_dir = "{0}/libpod"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[network]
network_backend = "netavark"
network_config_dir = "{0}/networks"
"""
_STORAGE = '[storage]\ndriver = "overlay"\ngraphroot = "{0}/root"\nrunroot = "{0}/run"\n'
# systemd passes credentials to a unit by a mount that has to leave the namespace in which it was made.
_INIT = ["sh", "-c", "mount --make-rshared / && exec /lib/systemd/systemd"]


def base_image(cache: Path, scratch: Path) -> Path:
    """Return a tar of Debian 12, from the cache of earlier runs if that is recent enough."""
    mark = hashlib.sha256(" ".join(INCLUDED).encode()).hexdigest()[:12]
    file = cache / f"{RELEASE}-{mark}.tar"
    if file.is_file() and time.time() - file.stat().st_mtime < KEPT_DAYS * 86_400:
        return file
    root = scratch / "debian"
    include = f"--include={','.join(INCLUDED)}"
    made = ["debootstrap", "--variant=minbase", include, RELEASE, str(root), mirror()]
    done = subprocess.run(made, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout[-2000:].decode(errors="replace")
    draft = file.with_suffix(f".{os.getpid()}")
    subprocess.run(["tar", "-C", str(root), "-cf", str(draft), "."], check=True)
    draft.replace(file)
    shutil.rmtree(root)
    return file


def mirror() -> str:
    """Return the URL from which apt gets this machine's packages, even before its first update."""
    said = subprocess.run(
        ["apt-get", "--print-uris", "update"], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(rf"'(\S+)/dists/{RELEASE}/InRelease'", said)
    assert found, f"apt has no source of {RELEASE}"
    return found[1]


class Machine:
    """A running container, by its name, which is also its host name."""

    def __init__(
        self, name: str, podman: Callable[..., "subprocess.CompletedProcess[str]"]
    ) -> None:
        self.name = name
        self._podman = podman

    def run(
        self, *words: str, given: str | None = None, seconds: float = 300.0
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command as root, and return its output and exit code."""
        return self._podman("exec", "-i", self.name, *words, given=given, seconds=seconds)

    def ok(self, *words: str, given: str | None = None, seconds: float = 300.0) -> str:
        """Run a command as root, which must succeed, and return its output."""
        done = self.run(*words, given=given, seconds=seconds)
        assert done.returncode == 0, (
            f"{' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
        return done.stdout

    def sh(self, line: str) -> str:
        """Run a shell line as root, which must succeed, and return its output."""
        return self.ok("sh", "-c", line)

    def files(self) -> set[str]:
        """Return every existing path, except those that Debian's programs write wherever they run."""
        # dpkg keeps a copy of its status in /var/backups each midnight.
        kept = (
            "/proc",
            "/sys",
            "/dev",
            "/run",
            "/tmp",
            "/var/backups",
            "/var/cache",
            "/var/lib/apt",
            "/var/log",
        )
        pruned = " -o ".join(f"-path {one}" for one in (*kept, "/var/lib/dpkg", "/packages"))
        return set(self.sh(rf"find / \( {pruned} \) -prune -o -print").splitlines())


class Machines:
    """A context in which containers can be started; all of them end with it."""

    def __init__(self, folder: Path, image: Path) -> None:
        self._folder = folder
        self._image = image
        self._holder: subprocess.Popen[str] | None = None
        self._inside = ""

    def __enter__(self) -> "Machines":
        for name in ("networks", "root", "run"):
            (self._folder / name).mkdir()
        (self._folder / "containers.conf").write_text(_CONTAINERS.format(self._folder))
        (self._folder / "storage.conf").write_text(_STORAGE.format(self._folder))
        own = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._holder = subprocess.Popen(
            ["unshare", *own, "--propagation", "private", "sh", "-c", _HOLD],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        try:
            assert self._holder.stdout.readline() == "ready\n"
            task = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
            self._inside = task.read_text().split()[0]
            self._must("import", "-q", str(self._image), IMAGE)
            self._must("network", "create", "--subnet", _SUBNET, "site")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._holder is not None
        if self._inside:
            # On a very busy machine it takes minutes; whatever is left ends with the namespace.
            with suppress(subprocess.TimeoutExpired):
                self.podman("rm", "-f", "-a", "-t", "0")
        self._holder.kill()
        self._holder.communicate()
        # Its mounts disappear with the namespace, a moment later.
        wait_until("the folder can be removed", self._removed)

    def _removed(self) -> bool:
        shutil.rmtree(self._folder, ignore_errors=True)
        return not self._folder.exists()

    def start(
        self,
        name: str,
        volumes: Mapping[Path, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Machine:
        """Start a machine and return it once its systemd is up; volumes are read-only."""
        words = ["run", "-d", "--name", name, "--hostname", name, "--network", "site"]
        words += ["--systemd=always", "--privileged"]
        for path, place in (volumes or {}).items():
            words += ["-v", f"{path}:{place}:ro"]
        for key, value in (environment or {}).items():
            words += ["-e", f"{key}={value}"]
        self._must(*words, IMAGE, *_INIT)
        machine = Machine(name, self.podman)

        def is_up() -> bool:
            said = machine.run("systemctl", "is-system-running", "--wait").stdout.strip()
            return said in {"running", "degraded"}

        wait_until(f"{name} has started", is_up, START_SECONDS)
        # A container's files need not survive a loss of power, and waiting for its disk takes minutes.
        machine.sh("echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/unsafe-io")
        return machine

    def podman(
        self, *words: str, given: str | None = None, seconds: float = 300.0
    ) -> "subprocess.CompletedProcess[str]":
        """Run a podman command in the namespaces."""
        return self.inside("podman", *words, given=given, seconds=seconds)

    def entered(self, *words: str) -> list[str]:
        """Return the command line that runs these words in the namespaces."""
        return ["nsenter", "-t", self._inside, "-m", "-n", "-p", *words]

    def environment(self) -> dict[str, str]:
        """Return the environment that podman and its callers need."""
        return {
            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
            "HOME": str(self._folder),
            "CONTAINERS_CONF": str(self._folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self._folder / "storage.conf"),
            **{key: it for key, it in os.environ.items() if key == "PYTHONPATH"},
        }

    def inside(
        self,
        *words: str,
        given: str | None = None,
        seconds: float = 300.0,
        environment: Mapping[str, str] | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command of this machine in the namespaces."""
        return subprocess.run(
            self.entered(*words),
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            env={**self.environment(), **(environment or {})},
        )

    def _must(self, *words: str) -> None:
        done = self.podman(*words)
        assert done.returncode == 0, f"podman {' '.join(words)}: {done.stderr[-2000:]}"
