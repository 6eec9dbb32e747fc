"""What opens the hub's port where this machine's own firewall is on."""

import shutil
from collections.abc import Callable

from gpuvigil.systemd import Run, run

Which = Callable[[str], str | None]


def opening(port: int, call: Run = run, which: Which = shutil.which) -> str:
    """Return the command that lets nodes reach the port; empty if no known firewall closes it.

    firewalld and ufw are asked. Rules that were written with nft or iptables are not read.
    """
    if which("firewall-cmd") and call(["firewall-cmd", "--state"])[0] == 0:
        if call(["firewall-cmd", f"--query-port={port}/tcp"])[0] == 0:
            return ""
        return f"firewall-cmd --permanent --add-port={port}/tcp && firewall-cmd --reload"
    if which("ufw"):
        code, said = call(["ufw", "status"])
        words = said.split()
        if code == 0 and words[:2] == ["Status:", "active"] and f"{port}/tcp" not in words:
            return f"ufw allow {port}/tcp"
    return ""
