"""Log tails: of `gpuvigil up` from its files, of systemd units from the journal, else how to get them."""

import subprocess
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from shutil import which

from gpuvigil.numbers_in_words import counted

from .reading import Site
from .redaction import Redactor

_TAIL_LINES = 2_000
_JOURNAL_SECONDS = 30.0
_UNITS = ("gpuvigil@*", "gpuvigil-*")
_KUBECTL = (
    "kubectl -n gpuvigil logs --prefix --all-containers"
    f" -l app.kubernetes.io/part-of=gpuvigil --tail={_TAIL_LINES}"
)


def logs(site: Site, redactor: Redactor, state: Path | None) -> Iterator[tuple[str, list[str]]]:
    """Yield each log's name and its lines of our own form; `unread` says how to get logs that are not here."""
    if not site.knows_names():
        site.unread["logs"] = "left out: names are not known"
        return
    files = sorted((state / "log").glob("*.log")) if state is not None else []
    for file in files:
        with suppress(OSError), file.open(encoding="utf-8", errors="replace") as lines:
            yield file.name, _tail(lines, redactor)
    if files:
        return
    if "KUBERNETES_SERVICE_HOST" in site.environment:
        site.unread["logs"] = f"no files here; {_KUBECTL}"
        return
    told = _journal(site)
    if told:
        yield "journal.log", _tail(told, redactor)
    else:
        command = ["journalctl", *(f"-u '{one}'" for one in _UNITS), f"-n {_TAIL_LINES}"]
        site.unread["logs"] = (
            f"no files and nothing in a journal that may be read here; {' '.join(command)}"
        )


def _tail(lines: Iterable[str], redactor: Redactor) -> list[str]:
    """Return the redacted lines of our own form, and a last line with the number of the others."""
    tail = deque(lines, _TAIL_LINES)
    kept = [line for one in tail if (line := redactor.log_line(one)) is not None]
    return [*kept, f"left out: {counted(len(tail) - len(kept), 'line')} of another form"]


def _journal(site: Site) -> list[str]:
    """Return our units' journal lines; none without a journal that this user may read."""
    program = which("journalctl", path=site.environment.get("PATH"))
    if program is None:
        return []
    command = [program, *(part for one in _UNITS for part in ("-u", one))]
    command += ["-n", str(_TAIL_LINES), "-o", "cat", "--no-pager", "--quiet"]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_JOURNAL_SECONDS, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []
