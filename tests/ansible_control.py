"""A machine with Ansible on it, and others that it reaches by SSH, each with its own key."""

import importlib.util
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.containers import Machine, Machines

PROJECT = "/project"
_ROLE = Path(__file__).parent.parent / "packaging" / "ansible"
# Ansible's own environment has this as a program; here it runs from the mounted packages of the tests' environment.
_PLAYBOOK = """#!/bin/sh
LC_ALL=C.UTF-8 PYTHONPATH=/mounted exec python3 -m ansible playbook "$@"
"""
_SETUP = f"""
set -e
mkdir -p {PROJECT}/packaging
cp -r /ansible {PROJECT}/packaging/ansible
ln -s /packages {PROJECT}/dist
cat >/usr/local/bin/ansible-playbook
chmod 755 /usr/local/bin/ansible-playbook
mkdir -p -m 700 /root/.ssh
ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
cat /root/.ssh/id_ed25519.pub
"""
# The key from the image would be the same on all machines.
_ADMIT = """
set -e
rm -f /etc/ssh/ssh_host_*
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
mkdir -p -m 700 /root/.ssh
cat >/root/.ssh/authorized_keys
systemctl restart ssh
cut -d ' ' -f 1,2 /etc/ssh/ssh_host_ed25519_key.pub
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The result of running a playbook, with its counts by host."""

    code: int
    said: str
    changed: Mapping[str, int]
    failed: Mapping[str, int]


class Control:
    """The machine from which nodes are set up."""

    def __init__(self, machines: Machines, packages: Path, others: Iterable[Machine]) -> None:
        volumes = {packages: "/packages", _ROLE: "/ansible", _ansible(): "/mounted"}
        self._machine = machines.start("control", volumes)
        key = self._machine.ok("sh", "-c", _SETUP, given=_PLAYBOOK)
        hosts = [f"{one.name} {one.ok('sh', '-c', _ADMIT, given=key)}" for one in others]
        self._machine.ok("sh", "-c", "cat >/root/.ssh/known_hosts", given="".join(hosts))

    def sh(self, line: str) -> str:
        """Run a shell line in the playbook's folder and return its output."""
        return self._machine.sh(f"cd {PROJECT}/packaging/ansible && {line}")

    def play(self, line: str) -> Played:
        """Run a line that starts a playbook, and return the result."""
        done = self._machine.run("sh", "-c", f"cd {PROJECT}/packaging/ansible && {line}")
        said = done.stdout + done.stderr
        rows = re.findall(r"^(\S+)\s+: .*\bchanged=(\d+) .*\bfailed=(\d+)", said, re.MULTILINE)
        return Played(
            code=done.returncode,
            said=said,
            changed={host: int(changed) for host, changed, _ in rows},
            failed={host: int(failed) for host, _, failed in rows},
        )


def _ansible() -> Path:
    """Return the folder of Python packages that holds Ansible; skip the test where it is missing."""
    found = importlib.util.find_spec("ansible")
    if found is None or found.origin is None:
        if os.environ.get("CI") == "true":
            pytest.fail("ansible-core is missing: make test-sites installs it")
        pytest.skip("ansible-core is missing: make test-sites installs it")
    return Path(found.origin).parent.parent
