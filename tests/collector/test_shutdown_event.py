"""What a collector says of its end, by what systemd is about to do."""

from pathlib import Path

import pytest

from collector.agent.shutdown_event import last_word
from gpuvigil.model import EventKind

# systemctl(1), list-jobs: job, unit, type, state.
REBOOT = """\
 412 reboot.target start waiting
 398 gpuvigil-collector.service stop running
 413 systemd-reboot.service start waiting
"""


@pytest.mark.parametrize(
    ("jobs", "kind", "words"),
    [
        (REBOOT, EventKind.SHUTDOWN, "reboot"),
        (REBOOT.replace("reboot", "soft-reboot"), EventKind.SHUTDOWN, "reboot of user space"),
        (REBOOT.replace("reboot", "poweroff"), EventKind.SHUTDOWN, "power off"),
        ("12 shutdown.target start waiting", EventKind.SHUTDOWN, "shut down"),
        ("398 gpuvigil-collector.service stop running", EventKind.STOPPED, "stopped"),
        ("", EventKind.STOPPED, "stopped"),
    ],
)
def test_the_machine_goes_down_when_systemd_says_so(
    tmp_path: Path, jobs: str, kind: EventKind, words: str
) -> None:
    program = tmp_path / "systemctl"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{jobs}\nEND\n")
    program.chmod(0o755)
    said = last_word(str(program))
    assert said[0] is kind
    assert words in said[1]


def test_without_systemd_it_is_only_the_collector() -> None:
    assert last_word("/nowhere/systemctl")[0] is EventKind.STOPPED
