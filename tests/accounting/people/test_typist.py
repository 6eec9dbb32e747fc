"""Who types a command, as the audit log has it."""

import os
import subprocess
import sys

PROGRAM = """
from datetime import datetime, timezone
from gpuvigil.model import AuditedAction
from accounting.people.typist import audit_of_command
entry = audit_of_command(AuditedAction.PERSON, "mira", "removed", datetime.now(timezone.utc))
print(entry.person, entry.detail, sep="|")
"""


def test_the_environment_is_a_claim_and_no_name() -> None:
    told = {"LOGNAME": "mallory", "USER": "mallory", "SUDO_USER": "olga"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        check=True,
    )
    person, detail = done.stdout.strip().split("|")
    assert person != "mallory"
    assert detail == "removed, typed as a command, sudo by olga"
