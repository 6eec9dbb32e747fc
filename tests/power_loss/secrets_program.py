"""Secrets as `up` and the dashboard make them; run by the tests, recorded.

`python -m tests.power_loss.secrets_program ROOT LOG`
"""

import sys
from datetime import datetime, timezone
from pathlib import Path

from dashboard.auth.keys import Keys
from gpuvigil.private_files import write_private
from tests.power_loss.recording import acknowledge

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)
TOKENS = ("one", "two")


def main(root: Path, log: Path) -> None:
    for token in TOKENS:
        write_private(root / "token", f"{token}\n")
        acknowledge(log, f"token {token}")
    keys = Keys(root)
    acknowledge(log, f"cookie {keys.new_cookie(NOW)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
