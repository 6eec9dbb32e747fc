"""A small disk for tests that fill it; without privileges where the system allows it."""

import shutil
import subprocess
from pathlib import Path


class Disk:
    """A small file system in a mount namespace, which lasts as long as its holder."""

    def __init__(self, place: Path, kib: int) -> None:
        place.mkdir()
        mount = f"mount -t tmpfs -o size={kib}k tmpfs {place} && echo ok && exec sleep 600"
        self._holder = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", mount],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._holder.stdout is not None
        self.is_there = self._holder.stdout.readline() == "ok\n"
        self.pid = self._holder.pid
        self._place = place

    @property
    def within(self) -> list[str]:
        """The command that runs a program where the file system is mounted."""
        return ["nsenter", "-t", str(self.pid), "-U", "-m", "--preserve-credentials"]

    @property
    def seen(self) -> Path:
        """The path at which all other processes can reach the disk."""
        return Path(f"/proc/{self.pid}/root{self._place}")

    def free_kib(self) -> int:
        return shutil.disk_usage(self.seen).free // 1024

    def end(self) -> None:
        self._holder.kill()
        self._holder.communicate()
