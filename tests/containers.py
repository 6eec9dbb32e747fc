"""Machines of their own for tests: containers with systemd, in a network that nobody else is in.

podman runs in namespaces of mounts, processes and network: what it mounts, starts and sets up ends with them, whatever
becomes of the test. The base image is Debian's own, by debootstrap from where this machine's apt gets its packages.
"""

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
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
    # What the image of compose.yaml draws a PDF with.
    "libpango-1.0-0",
    "libpangoft2-1.0-0",
    "libharfbuzz-subset0",
    "fonts-dejavu-core",
)
IMAGE = "localhost/debian:12"
KEPT_DAYS = 7
START_SECONDS = 120.0
# Nobody else's: the network is in a namespace.
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
# systemd hands a unit its credentials by a mount that has to get out of the namespace in which it was made.
_INIT = ["sh", "-c", "mount --make-rshared / && exec /lib/systemd/systemd"]


def base_image(cache: Path, scratch: Path) -> Path:
    """Debian 12 as a tar, from the cache of earlier runs if it is not old."""
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
    """Where apt gets this machine's packages from, whether it has looked there yet or not."""
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
        """A command as root; its output, and its exit code whatever it is."""
        return self._podman("exec", "-i", self.name, *words, given=given, seconds=seconds)

    def ok(self, *words: str, given: str | None = None, seconds: float = 300.0) -> str:
        """What a command says that must do."""
        done = self.run(*words, given=given, seconds=seconds)
        assert done.returncode == 0, (
            f"{' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
        return done.stdout

    def sh(self, line: str) -> str:
        """The same with a line for the shell."""
        return self.ok("sh", "-c", line)

    def files(self) -> set[str]:
        """Every path there is, but what programs of Debian's write for themselves wherever they run."""
        kept = ("/proc", "/sys", "/dev", "/run", "/tmp", "/var/cache", "/var/lib/apt", "/var/log")
        pruned = " -o ".join(f"-path {one}" for one in (*kept, "/var/lib/dpkg", "/packages"))
        return set(self.sh(rf"find / \( {pruned} \) -prune -o -print").splitlines())


class Machines:
    """A context in which containers can be started; all of it ends with it."""

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
            self.podman("rm", "-f", "-a", "-t", "0")
        self._holder.kill()
        self._holder.communicate()
        # What is mounted in there goes with the namespace, a moment later.
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
        """A new machine, once its systemd has come up; volumes are read-only."""
        words = ["run", "-d", "--name", name, "--hostname", name, "--network", "site"]
        words += ["--systemd=always", "--privileged"]
        for path, place in (volumes or {}).items():
            words += ["-v", f"{path}:{place}:ro"]
        for key, value in (environment or {}).items():
            words += ["-e", f"{key}={value}"]
        self._must(*words, IMAGE, *_INIT)
        machine = Machine(name, self.podman)

        def is_up() -> bool:
            said = machine.run("systemctl", "is-system-running").stdout.strip()
            return said in {"running", "degraded"}

        wait_until(f"{name} has started", is_up, START_SECONDS)
        # What a container's files are worth at a loss of power is nothing, and waiting for its disk takes minutes.
        machine.sh("echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/unsafe-io")
        return machine

    def podman(
        self, *words: str, given: str | None = None, seconds: float = 300.0
    ) -> "subprocess.CompletedProcess[str]":
        """One command of podman's, in the namespaces."""
        return self.inside("podman", *words, given=given, seconds=seconds)

    def entered(self, *words: str) -> list[str]:
        """The command line that runs these words in the namespaces."""
        return ["nsenter", "-t", self._inside, "-m", "-n", "-p", *words]

    def environment(self) -> dict[str, str]:
        """What podman, and who starts it, has to be told."""
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
        """Any command of this machine's, in the namespaces."""
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
