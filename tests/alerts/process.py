"""The alerts service as a process of its own."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.polling import wait_until
from tests.servers import ROOT, HubProcess


class AlertsProcess:
    """`gpuvigil alert` towards `hub`, with a channel per receiver; a context manager.

    A channel is a webhook unless its settings name another `list`. `url` names several hubs.
    """

    def __init__(
        self, hub: HubProcess, directory: Path, url: str = "", /, **channels: Mapping[str, Any]
    ) -> None:
        self.config = directory / "alerts.toml"
        self.log = directory / "alerts.log"
        rows = [
            "[hub]",
            f'url = "{url or hub.url}"',
            f'service_token_file = "{hub.service_token_file}"',
            "[alerts]",
            "update_seconds = 0.3",
        ]
        for name, settings in channels.items():
            rows += [f"[[alerts.{settings.get('list', 'webhooks')}]]", f'name = "{name}"']
            rows += [f"{key} = {value!r}" for key, value in settings.items() if key != "list"]
        self.config.write_text("\n".join(rows) + "\n", encoding="utf-8")
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "AlertsProcess":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self.log.write_bytes(b"")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gpuvigil", "alert", "--config", str(self.config)],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )
        wait_until("alerts has started", lambda: " started " in self.said or self.ended)
        assert not self.ended, self.said

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    @property
    def ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(10)
        self.process = None
        return code

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()
            self.process = None
