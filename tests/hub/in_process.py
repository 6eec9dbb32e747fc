"""A hub in a thread of the tests' own process: it starts at once, and what of it the tests reach can be seen."""

import argparse
import gc
import sys
import threading

from gpuvigil.config import load
from hub.app import run
from tests.servers import HubProcess


class HubThread(HubProcess):
    """As `HubProcess`, but it cannot be killed, and its log is this process'."""

    def spawn(self) -> None:
        """Start, and wait for nothing."""
        self.write_config()
        (self.data / "hub.url").unlink(missing_ok=True)
        config, chosen = load(self.config), argparse.Namespace(move_records=False)
        self._before = gc.get_threshold(), sys.getswitchinterval()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=run, args=(config, chosen, self._stop))
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> int:
        """Ask it to end as an operator does; returns the exit code."""
        self._stop.set()
        self._thread.join(20)
        assert not self.running
        # What a hub sets for the whole of its process.
        threshold, interval = self._before
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)
        gc.unfreeze()
        return 0

    def kill(self) -> None:
        self.stop()
