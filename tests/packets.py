"""A job over real packets: a network namespace per node, each with a cable to a leaf and one to the hub."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

from gpuvigil.model import Incident, RecordKind
from gpuvigil.store.hub import HubStore
from tests.fabric import end
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess

PORT = "ens1"
JOB = "job 77"
# An hour of a cluster's life in two minutes; delays are measured every ten seconds all the same.
_SETTINGS = """
[hub]
url = "{url}"
collector_token_file = "{collector}"
service_token_file = "{service}"
[collector]
cluster = "lab"
node = "{node}"
tick_seconds = 1
sysfs_root = "{folder}/sys"
kernel_log = "{folder}/kmsg"
journalctl = ""
spool_directory = "{folder}/spool"
runtime_directory = "{folder}/run"
jobs_directory = "{folder}/jobs"
metrics_port = 0
[analyzer]
tick_seconds = 1
window_seconds = 12
steady_seconds = 30
trend_seconds = 90
clear_seconds = 2
"""
# The span of a job's past that is looked at, and the part of it that must be free of what happened before.
_PAST_SECONDS, _BETWEEN_SECONDS = 95.0, 45.0
_MEASURED_SECONDS = 4.0
_JOB = "job=77\ngpus=0\nstarted={started}\nuser=alice\n"
# Files that the kernel shows about an interface; the rest of its tree is made by the test.
_SHOWN = (
    "address",
    "carrier",
    "carrier_down_count",
    "flags",
    "ifindex",
    "operstate",
    "statistics",
    "type",
)


def is_possible() -> bool:
    """Return whether this user may create namespaces, interfaces and traffic shapers."""
    tried = "ip link add gvtry type veth && tc qdisc add dev gvtry root tbf rate 1mbit burst 9k latency 9ms"
    words = ["unshare", "--net", "sh", "-c", tried]
    return (
        os.geteuid() == 0 and not subprocess.run(words, capture_output=True, check=False).returncode
    )


class Job:
    """Nodes n1, n2, ... whose ranks sum over a ring."""

    def __init__(self, folder: Path, library: Path, nodes: int) -> None:
        self._folder, self._library = folder, library
        self._tag = f"gv{os.getpid()}"
        self.nodes = [f"n{n}" for n in range(1, nodes + 1)]
        # One of 4,096 nets of 16 nodes, so that tests running side by side have different ones.
        first = 2 * (os.getpid() % 32_000)
        self._ours = f"10.{96 + first // 1024}.{first // 4 % 256}.{first % 4 * 64}"
        self.gateway = self._address(1)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._sleepers: dict[
            str, subprocess.Popen[bytes]
        ] = {}  # by namespace, which each of them keeps alive
        self._stack = ExitStack()

    def _address(self, place: int) -> str:
        head, _, last = self._ours.rpartition(".")
        return f"{head}.{int(last) + place}"

    def _within(self, space: str) -> list[str]:
        """Return the command that runs another one in a network namespace."""
        return ["nsenter", "--target", str(self._sleepers[space].pid), "--net"]

    def _do(self, text: str) -> None:
        """Run `ip` and `tc` commands, one per line; `-n NAME` and `netns NAME` are namespaces of this job."""
        for line in text.strip().splitlines():
            words = line.split()
            if words[1] == "-n":
                words = [*self._within(words[2]), words[0], *words[3:]]
            if "netns" in words:
                place = words.index("netns") + 1
                words[place] = str(self._sleepers[words[place]].pid)
            subprocess.run(words, check=True, capture_output=True)

    def __enter__(self) -> "Job":
        tag = self._tag
        try:
            self._add_space("leaf")
            self._stack.callback(subprocess.run, ["ip", "link", "del", tag], check=False)
            self._do(f"""ip link add {tag} type bridge
                ip addr add {self.gateway}/26 dev {tag}
                ip link set {tag} up
                ip -n leaf link add br0 type bridge
                ip -n leaf link set br0 up""")
            for place, node in enumerate(self.nodes, 2):
                self._cable(node, place)
        except BaseException:
            self._stack.close()
            raise
        return self

    def _add_space(self, name: str) -> None:
        sleeper = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self._sleepers[name] = sleeper
        self._stack.callback(end, [sleeper])
        own = Path("/proc/self/ns/net").readlink()
        there = Path(f"/proc/{sleeper.pid}/ns/net")
        wait_until("a network namespace", lambda: there.readlink() != own)

    def _cable(self, node: str, place: int) -> None:
        ours = f"{self._tag}{place}"
        self._add_space(node)
        self._do(f"""ip link add {ours} type veth peer name eno1 netns {node}
            ip link set {ours} master {self._tag} up
            ip -n {node} addr add {self._address(place)}/26 dev eno1
            ip -n {node} link set lo up
            ip -n {node} link set eno1 up
            ip -n {node} route add default via {self.gateway}
            ip -n {node} link add {PORT} type veth peer name swp{place} netns leaf
            ip -n {node} addr add 10.0.0.{place}/24 dev {PORT}
            ip -n {node} link set {PORT} up
            ip -n leaf link set swp{place} master br0 up""")

    def __exit__(self, *_: object) -> None:
        end(self.processes)
        self._stack.close()

    def _at(self, node: str, at_leaf: bool) -> tuple[str, str]:
        """Return the namespace and interface of one end of a node's cable."""
        return ("leaf", f"swp{2 + self.nodes.index(node)}") if at_leaf else (node, PORT)

    def carried(self, node: str) -> float:
        """Return the bytes per second that a node's port sends, over some seconds."""

        def sent() -> int:
            words = [*self._within(node), "ip", "-json", "-stats", "link", "show", PORT]
            (told,) = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
            return int(told["stats64"]["tx"]["bytes"])

        before, begun = sent(), time.monotonic()
        time.sleep(_MEASURED_SECONDS)
        return (sent() - before) / (time.monotonic() - begun)

    def limit(self, node: str, share: float, at_leaf: bool = False) -> None:
        """Limit a node's port, or the leaf's port to it, to a share of what the node's port sends now.

        How much that is depends on the machine.
        """
        space, device = self._at(node, at_leaf)
        kilobits = 8 * share * self.carried(node) / 1e3
        words = f"rate {kilobits:.0f}kbit burst 128kb latency 100ms"
        self._do(f"tc -n {space} qdisc add dev {device} root tbf {words}")

    def free(self, node: str, at_leaf: bool = False) -> None:
        space, device = self._at(node, at_leaf)
        self._do(f"tc -n {space} qdisc del dev {device} root")

    def _start(
        self,
        words: Sequence[str],
        log: Path,
        node: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # sysfs shows the interfaces of the namespace that mounted it.
        own = ["unshare", "--mount", "sh", "-c", 'mount -t sysfs none /sys && exec "$@"', "sh"]
        within = [*self._within(node), *own] if node else []
        command = [*within, sys.executable, "-m", *words]
        env = {**os.environ, **(environment or {})}
        with log.open("wb") as out:
            self.processes.append(
                subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=out)
            )

    def start(self, hub: HubProcess) -> None:
        """Start the ranks, a collector beside each, and the analyzer."""
        addresses = [f"10.0.0.{place}" for place, _ in enumerate(self.nodes, 2)]
        for rank, node in enumerate(self.nodes):
            folder = self._folder / node
            words = ["tests.allreduce", str(rank), *addresses]
            (folder / "jobs").mkdir(parents=True)
            self._start(words, folder / "rank.log", node)
            driver = FakeDriver(folder, self._library, gpus=1, node=rank + 1)
            driver.set(0, utilization_gpu_percent=97, power_milliwatts=600_000)
            self._describe(node, hub)
            words = ["gpuvigil", "collect", "--config", str(folder / "node.toml")]
            self._start(words, folder / "collect.log", node, driver.environment())
        words = ["gpuvigil", "analyze", "--config", str(self._folder / "n1/node.toml")]
        self._start(words, self._folder / "analyze.log")

    def _describe(self, node: str, hub: HubProcess) -> None:
        folder = self._folder / node
        (folder / "kmsg").touch()
        for name in (PORT, "eno1"):
            there = folder / "sys/class/net" / name
            there.mkdir(parents=True)
            (folder / "sys/devices" / name).mkdir(parents=True)
            (there / "device").symlink_to(folder / "sys/devices" / name)
            for file in _SHOWN:
                (there / file).symlink_to(f"/sys/class/net/{name}/{file}")
        # A job cannot be older than its node.
        since_boot = float(Path("/proc/uptime").read_text().split()[0])
        started = int(time.time() - min(3600.0, since_boot - 5.0))
        (folder / "jobs/77-1").write_text(_JOB.format(started=started))
        files = {"collector": hub.collector_token_file, "service": hub.service_token_file}
        text = _SETTINGS.format(url=hub.url, node=node, folder=folder, **files)
        (folder / "node.toml").write_text(text)


class Watched:
    """What the hub knows about the job."""

    def __init__(self, hub: HubProcess) -> None:
        self._hub = hub.hub()
        self._store = HubStore(self._hub)

    def incidents(self) -> list[Incident]:
        return [Incident.from_record(it) for it in self._hub.records(RecordKind.INCIDENT)]

    def open(self) -> list[Incident]:
        return [it for it in self.incidents() if it.resolved_at is None]

    def nodes(self) -> int:
        """Return on how many nodes the job's port was measured in the last seconds."""
        since = datetime.now(timezone.utc) - timedelta(seconds=5)
        rows = self._store.latest("port", ["transmit_queue_bytes"], since).to_pylist()
        return sum(row["device"] == PORT for row in rows)


def _wait_until_over(watched: Watched) -> None:
    """Wait until no incident is open; AssertionError names those that are."""
    try:
        wait_until("all is over", lambda: not watched.open(), 90.0)
    except AssertionError as error:
        stand = [(it.fault, it.subject.key, it.evidence) for it in watched.open()]
        raise AssertionError(stand) from error


def told_of(
    job: Job, watched: Watched, node: str, share: float, at_leaf: bool = False
) -> list[Incident]:
    """Return the incidents that are open once a node's cable carries no more than a share of its traffic.

    The cable is free again, and all incidents over, at the end.
    """
    job.limit(node, share, at_leaf)
    try:
        wait_until(f"{node} is told", watched.open, 60.0)
        time.sleep(5.0)  # for any further incident
        return watched.open()
    finally:
        job.free(node, at_leaf)
        _wait_until_over(watched)


def rest() -> None:
    """Wait before the next port is limited, until enough of the past is free of the previous one."""
    time.sleep(_BETWEEN_SECONDS)


def is_named(told: Sequence[Incident], node: str) -> bool:
    """Return whether that port is reported with its job, and nothing else is."""
    places = [(it.fault, it.subject.node, it.subject.device) for it in told]
    said = [(it.name, it.value) for one in told for it in one.evidence]
    return places == [("port_congested", node, PORT)] and ("its job", JOB) in said


@contextmanager
def running(folder: Path, library: Path, nodes: int) -> Iterator[tuple[Job, Watched]]:
    """Run a summing job, and yield it once it has been watched for as long as its past is looked at."""
    with Job(folder, library, nodes) as job:
        settings = {"listen": job.gateway}
        with HubProcess(folder / "hub", settings) as hub:
            job.start(hub)
            watched = Watched(hub)
            wait_until("every port is measured", lambda: watched.nodes() == nodes, 90.0)
            time.sleep(_PAST_SECONDS)
            assert watched.incidents() == []
            yield job, watched
