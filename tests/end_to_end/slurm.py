"""A real Slurm of one node or more on the loopback: munge, controller and daemon as processes of the tests.

Everything lies in one directory, and the daemons run as whoever runs the tests.
"""

import getpass
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.polling import wait_until

NODE = "n1"
_START_SECONDS = 60.0
PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "sbatch", "squeue")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Slurm:
    """A cluster whose node runs `health`, `prolog` and `epilog`; a context manager.

    `gpus` are the minor numbers of its GPUs in the order of gres.conf; Slurm's own numbers are the places in it.
    """

    def __init__(
        self,
        directory: Path,
        *,
        prolog: Path,
        epilog: Path,
        health: Path | None = None,
        gpus: Sequence[int] = (),
        nodes: Sequence[str] = (NODE,),
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.directory = directory
        self.gpus = gpus
        self.nodes = nodes
        self._settings = settings or {}
        for name in ("state", "spool", "log", "munge"):
            (directory / name).mkdir(parents=True)
        self._config = self.config(directory)
        self._config.write_text(self._text(health, prolog, epilog))
        if gpus:
            self._add_gpus()
        self.environment = {**os.environ, "SLURM_CONF": str(self._config)}
        self._started: list[subprocess.Popen[bytes]] = []
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @staticmethod
    def config(directory: Path) -> Path:
        """The cluster's slurm.conf."""
        return directory / "slurm.conf"

    def _add_gpus(self) -> None:
        """Their device files, which Slurm only looks at, and gres.conf."""
        devices = self.directory / "dev"
        devices.mkdir()
        for minor in self.gpus:
            (devices / f"nvidia{minor}").symlink_to("/dev/null")
        lines = [
            f"NodeName={','.join(self.nodes)} Name=gpu File={devices}/nvidia{it}"
            for it in self.gpus
        ]
        (self.directory / "gres.conf").write_text("\n".join(lines) + "\n")

    def _text(self, health: Path | None, prolog: Path, epilog: Path) -> str:
        host, user, here = socket.gethostname().partition(".")[0], getpass.getuser(), self.directory
        settings = {
            "ClusterName": "test",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={here}/munge/socket",
            "CredType": "cred/munge",
            "SlurmUser": user,
            "SlurmdUser": user,
            "SlurmctldPort": free_port(),
            "SlurmctldPidFile": f"{here}/slurmctld.pid",
            "SlurmdPidFile": f"{here}/slurmd-%n.pid",
            "StateSaveLocation": f"{here}/state",
            "SlurmdSpoolDir": f"{here}/spool/%n",
            "SlurmctldLogFile": f"{here}/log/slurmctld",
            "SlurmdLogFile": f"{here}/log/slurmd-%n",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "SwitchType": "switch/none",
            "MpiDefault": "none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "SchedulerParameters": "sched_interval=1,bf_interval=1,batch_sched_delay=0",
            "ReturnToService": 2,
            "KillWait": 1,
            "SlurmdParameters": "config_overrides",
            "Prolog": prolog,
            "Epilog": epilog,
            "PrologFlags": "Alloc",
        }
        if health is not None:
            settings |= {
                "HealthCheckProgram": health,
                "HealthCheckInterval": 1,
                "HealthCheckNodeState": "ANY",
            }
        settings |= self._settings
        if self.gpus:
            settings["GresTypes"] = "gpu"
        gres = f" Gres=gpu:{len(self.gpus)}" if self.gpus else ""
        lines = [f"{key}={value}" for key, value in settings.items()]
        lines += [
            *(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=16{gres}"
                for node in self.nodes
            ),
            f"PartitionName=gpu Nodes={','.join(self.nodes)} Default=YES MaxTime=INFINITE State=UP",
        ]
        return "\n".join(lines) + "\n"

    def __enter__(self) -> "Slurm":
        try:
            self._start_all()
        except BaseException:
            self._end_all()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end_all()

    def _start_all(self) -> None:
        munge = self.directory / "munge"
        (munge / "key").write_bytes(os.urandom(1024))
        (munge / "key").chmod(0o400)
        munge.chmod(0o711)
        files = [f"--{name}-file={munge}/{name}" for name in ("key", "log", "seed", "pid")]
        self._start("munged", "--foreground", "--force", f"--socket={munge}/socket", *files)
        wait_until("munge", (munge / "socket").exists, _START_SECONDS)
        self._start("slurmctld", "-D")
        for node in self.nodes:
            (self.directory / "spool" / node).mkdir(exist_ok=True)
            self.start_node(node)
        wait_until(
            "idle nodes",
            lambda: all(self.state(node) == {"IDLE"} for node in self.nodes),
            _START_SECONDS,
        )

    def start_node(self, node: str) -> subprocess.Popen[bytes]:
        """The daemon of one node."""
        self._daemons[node] = self._start("slurmd", "-D", "-N", node)
        return self._daemons[node]

    def daemon(self, node: str) -> subprocess.Popen[bytes]:
        """The one that was started last."""
        return self._daemons[node]

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        path = shutil.which(program)
        assert path is not None
        with (self.directory / "log" / f"{program}.out").open("ab") as log:
            self._started.append(
                subprocess.Popen(
                    [path, *arguments],
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )
        return self._started[-1]

    def _end_all(self) -> None:
        for process in reversed(self._started):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def ask(self, *command: str) -> str:
        """The output of one of Slurm's commands; empty while the controller does not answer."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )
        return done.stdout if done.returncode == 0 else ""

    def shown(self, node: str = NODE) -> Mapping[str, str]:
        """A node's state and reason, as `scontrol` shows them."""
        text = self.ask("scontrol", "-o", "show", "node", node)
        return {
            key: found[1] if (found := re.search(rf"\b{key}=(.*?)(?= \w+=|$)", text)) else ""
            for key in ("State", "Reason")
        }

    def state(self, node: str = NODE) -> set[str]:
        """The words of its state: {"IDLE", "DRAIN"}."""
        return set(filter(None, re.split(r"[^A-Z_]+", self.shown(node)["State"])))

    @property
    def reason(self) -> str:
        return self.shown()["Reason"].strip()

    def update(self, **changes: str) -> None:
        """Change the node, as its administrator does."""
        done = [f"{key}={value}" for key, value in changes.items()]
        subprocess.run(
            ["scontrol", "update", f"nodename={NODE}", *done], env=self.environment, check=True
        )

    def submit(self, command: str, *options: str) -> str:
        """Queue a batch job; its number."""
        usual = ["--parsable", "-o", "/dev/null", "--no-requeue"]
        said = subprocess.run(
            ["sbatch", *usual, *options, "--wrap", command],
            env=self.environment,
            cwd=self.directory,
            check=True,
            capture_output=True,
            text=True,
        )
        return said.stdout.strip()

    def job_state(self, job: str) -> str:
        found = re.search(r"JobState=(\S+)", self.ask("scontrol", "-o", "show", "job", job))
        return found[1] if found else ""

    def finish(self, job: str, seconds: float = 60.0) -> str:
        """The state in which the job has ended, once the node is done with it, too."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL")
        state = wait_until(
            "the job's end", lambda: (s := self.job_state(job)) in over and s, seconds
        )
        wait_until("the epilog's end", lambda: "COMPLETING" not in self.state(), seconds)
        return str(state)

    def said(self) -> str:
        """The logs, for who wants to know why a test failed."""
        return "\n".join(
            f"== {file.name}\n{file.read_text(errors='replace')[-3000:]}"
            for file in sorted((self.directory / "log").iterdir())
        )
