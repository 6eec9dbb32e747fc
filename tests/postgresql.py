"""A real PostgreSQL for tests: a cluster of its own, on a free port of the loopback."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import psycopg

from tests.polling import wait_until

_USER = "gpuvigil"


def programs() -> Path | None:
    """Return the folder of the newest server's programs, as Debian installs them; None without a server."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)
    return found[0].parent if found else None


class Postgresql:
    """A cluster with its databases, whose URLs hold the password; a context manager."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        # The server refuses to run as root, and its account must be able to reach its folder.
        self._folder = Path(tempfile.mkdtemp(prefix="gpuvigil-postgresql-"))
        self._folder.chmod(0o711)
        self._data = self._folder / "data"
        self.log = self._folder / "log"
        self.password = secrets.token_urlsafe(16)
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._databases = 0

    def __enter__(self) -> "Postgresql":
        try:
            self._make()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def url(self, database: str, host: str = "127.0.0.1") -> str:
        """Return a database's URL, as `hub.records_url` takes it."""
        return f"postgresql://{_USER}:{self.password}@{host}:{self.port}/{database}"

    def database(self) -> str:
        """Create a database and return its URL."""
        self._databases += 1
        name = f"records_{self._databases}"
        with self.connect("postgres") as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def connect(self, database: str) -> psycopg.Connection:
        """Open a connection, by database name or URL, that commits each statement."""
        url = database if "://" in database else self.url(database)
        return psycopg.connect(url, autocommit=True, connect_timeout=10)

    def start(self) -> None:
        """Start, on the same port as before, and wait until it answers."""
        self.port = self.port or _free_port()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            # These tests stop the server, never the machine.
            "fsync": "off",
            "shared_buffers": "32MB",
            "max_connections": 60,
        }
        given = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._as_its_account("postgres", "-D", str(self._data), *given),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        wait_until("PostgreSQL answers", self._answers, 60.0)

    def stop(self, number: int = signal.SIGINT) -> None:
        """Stop the server: SIGINT breaks off connections, SIGQUIT is a crash."""
        if self.process is None:
            return
        with contextlib.suppress(OSError, ValueError):
            pid = int((self._data / "postmaster.pid").read_text().split()[0])
            os.kill(pid, number)
        self.process.wait(timeout=60)
        self.process = None

    def _make(self) -> None:
        secret = self._folder / "password"
        secret.write_text(self.password + "\n", encoding="utf-8")
        secret.chmod(0o644)
        self._data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(self._data, "postgres", "postgres")
        made = subprocess.run(
            self._as_its_account(
                *("initdb", "-D", str(self._data), "-U", _USER, f"--pwfile={secret}"),
                *("--auth=scram-sha-256", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"),
            ),
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stdout + made.stderr

    def _as_its_account(self, program: str, *arguments: str) -> list[str]:
        command = [str(self._programs / program), *arguments]
        return ["runuser", "-u", "postgres", "--", *command] if os.geteuid() == 0 else command

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text(encoding="utf-8")
        with contextlib.suppress(psycopg.OperationalError), self.connect("postgres"):
            return True
        return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
