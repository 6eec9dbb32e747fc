"""Who runs a command, according to the operating system and not to the environment."""

import os
import pwd
from datetime import datetime

from gpuvigil.model import Audit, AuditedAction


def os_account() -> str:
    """Return the account that this process runs as."""
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # an account that the machine has no name for, as in a container
        return f"uid {number}"


def audit_of_command(deed: AuditedAction, about: str, detail: str, at: datetime) -> Audit:
    """Return the entry of the audit log; the user that sudo names is added as a claim."""
    behind = os.environ.get("SUDO_USER", "")
    claim = f"sudo by {behind[:100]}" if behind.isprintable() and behind else ""
    told = ", ".join(filter(None, (detail, "typed as a command", claim)))
    return Audit(deed=deed, person=os_account(), about=about, detail=told, at=at)
