"""Run a command on a machine that looks as if nothing had ever been installed or stored on it.

`python -m scripts.isolated COMMAND [ARGUMENT...]` gives the command a mount namespace of its own, in which
`/var/lib`, the homes, `/etc/gpuvigil` and gpuvigil's files in `/run` are empty, `/tmp`, `/var/tmp` and `/dev/shm`
are new and disappear when it ends, and everything else is read-only. The checkout, the environment and the
interpreter stay visible where they are; pytest's and Hypothesis' caches in the checkout and pip's cache stay writable.

Needs root or a kernel that lets users make namespaces (Linux 5.12 or newer). Where it is refused, the command runs
without one, after one line about it; with `CI=true` it does not run, and the exit code is 1.
"""

import ctypes
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATE = ("/var/lib", "/etc/gpuvigil", "/opt/gpuvigil", "/run/gpuvigil")
STATE_OF_JOBS = ("/run/gpuvigil-jobs", "/run/gpuvigil-steps")
HOMES = ("/root", "/home")
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
PIP_CACHE, PIP_CONFIG = "/tmp/pip-cache", "/tmp/pip.conf"
CACHES = (".pytest_cache", ".hypothesis")
# The kernel's own file systems, with which namespaces and terminals are made.
KERNEL = ("/proc", "/dev")

# linux/mount.h: MOUNT_ATTR_RDONLY, struct mount_attr; fcntl.h: AT_FDCWD, AT_RECURSIVE.
# The call has the number 442 on every architecture.
_MOUNT_SETATTR, _READ_ONLY, _HERE, _RECURSIVE = 442, 1, -100, 0x8000

_TELL_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The paths that the namespace hides, shows and makes writable, all absolute."""

    empty: Sequence[str]
    """Folders of the machine that become empty and read-only."""
    kept: Sequence[str]
    """Folders below the empty ones that stay visible."""
    writable: Sequence[str]
    """Folders of the machine that stay writable."""
    pip_cache: str
    """The cache that appears at `PIP_CACHE` inside, and is writable."""


def outermost(paths: Iterable[Path]) -> list[Path]:
    """Return the paths that are not below another one, sorted, each once."""
    found: list[Path] = []
    for path in sorted(set(paths)):
        if not any(path.is_relative_to(one) for one in found):
            found.append(path)
    return found


def plan(root: Path, home: Path, needed: Iterable[Path], pip_cache: Path) -> Plan:
    """Return the plan for a checkout at `root` that also needs the folders `needed`."""
    hidden = [Path(one) for one in (*STATE, *STATE_OF_JOBS, *HOMES)]
    temporary = [Path(one) for one in TEMPORARY]
    empty = [
        it
        for it in outermost(it for it in (*hidden, home) if it.is_dir())
        if not any(it.is_relative_to(one) for one in temporary)
    ]
    below = [*empty, *temporary]
    kept = outermost(
        it for it in (root, *needed) if it.exists() and any(it.is_relative_to(one) for one in below)
    )
    return Plan(
        empty=[str(path) for path in empty],
        kept=[str(path) for path in kept],
        writable=[str(root / name) for name in CACHES],
        pip_cache=str(pip_cache),
    )


def pip_of_user(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return variables with which pip finds its user's cache and configuration under another home."""
    cache = Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "pip"
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf"
    found = {"PIP_CACHE_DIR": environment.get("PIP_CACHE_DIR") or str(cache)}
    if file := environment.get("PIP_CONFIG_FILE") or (str(config) if config.is_file() else ""):
        found["PIP_CONFIG_FILE"] = file
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code, or 1 when it may not run."""
    if not arguments:
        sys.stderr.write("usage: python -m scripts.isolated COMMAND [ARGUMENT...]\n")
        return 2
    refused = _refused()
    if refused and os.environ.get("CI") == "true":
        sys.stderr.write(f"isolated: {refused}; with CI=true nothing runs without a namespace\n")
        return 1
    if refused:
        sys.stderr.write(f"isolated: {refused}; it runs on this machine as it is\n")
        return _finished(arguments, dict(os.environ))
    scratch = Path(tempfile.mkdtemp(prefix="gpuvigil-isolated-"))
    try:
        return _run(arguments, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _namespace() -> list[str]:
    """Return the command prefix for a program that may mount: as root, or as the same user in a user namespace."""
    own = ["--user", "--map-current-user", "--keep-caps"] if os.geteuid() != 0 else []
    return ["unshare", *own, "--mount", "--propagation", "private"]


def _refused() -> str:
    """Return why no namespace can be made; empty when it can."""
    try:
        tried = subprocess.run(
            [*_namespace(), sys.executable, __file__, "--try"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        return f"no mount namespace can be made ({error})"
    if tried.returncode == 0:
        return ""
    why = (tried.stderr.strip() or "no reason given").splitlines()[-1]
    return f"no mount namespace can be made ({why})"


def _run(arguments: Sequence[str], scratch: Path) -> int:
    environment = dict(os.environ)
    environment.pop("TMPDIR", None)
    pip = pip_of_user(environment, Path.home())
    needed = [Path(sys.prefix), Path(sys.base_prefix), *_git_folders()]
    made = plan(ROOT, Path.home(), needed, Path(pip["PIP_CACHE_DIR"]))
    for folder in (*made.writable, made.pip_cache):
        Path(folder).mkdir(parents=True, exist_ok=True)
    (scratch / PIP_CACHE.strip("/")).mkdir(parents=True)
    pip["PIP_CACHE_DIR"] = PIP_CACHE
    if "PIP_CONFIG_FILE" in pip:
        # It may be in the home, which is empty inside.
        shutil.copy2(pip["PIP_CONFIG_FILE"], scratch / PIP_CONFIG.strip("/"))
        pip["PIP_CONFIG_FILE"] = PIP_CONFIG
    if sys.base_prefix in made.kept:
        environment["PATH"] = f"{sys.base_prefix}/bin:{environment.get('PATH', os.defpath)}"
    inside = [sys.executable, __file__, "--inside", json.dumps(asdict(made)), str(scratch)]
    return _finished([*_namespace(), *inside, *arguments], {**environment, **pip})


def _git_folders() -> list[Path]:
    """Return where git keeps the commits of this checkout, which may be a worktree of another one."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--path-format=absolute", "--git-common-dir"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return []
    return [Path(done.stdout.strip())] if done.returncode == 0 else []


def _finished(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command and return its exit code; it ends when this process is told to end.

    A terminal's Ctrl-C reaches it directly.
    """
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        sys.stderr.write(f"isolated: {command[0]} cannot be run: {error.strerror}\n")
        return 127

    def pass_on(number: int, _: object) -> None:
        if number != signal.SIGINT:
            child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _TELL_TO_END}
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _inside(made: Plan, scratch: Path, arguments: Sequence[str]) -> None:
    """Mount what the plan says, and become the command."""
    here = Path.cwd()
    _mount("--bind", made.pip_cache, scratch / PIP_CACHE.strip("/"))
    fresh = [folder for folder in TEMPORARY if Path(folder).is_dir()]
    # The folder that hides the sources of the others comes last.
    for folder in sorted([*made.empty, *fresh], key=scratch.is_relative_to):
        source = scratch / folder.strip("/").replace("/", "-")
        _prepare(source, folder, made, folder in fresh)
        _mount("--rbind", source, folder)
    try:
        os.chdir(here)
    except OSError:  # it is hidden
        os.chdir(ROOT)
    for folder in made.writable:
        _mount("--bind", folder, folder)
    _seal([*fresh, *made.writable, PIP_CACHE])
    mine = [] if os.geteuid() == 0 else ["setpriv", "--ambient-caps=-all", "--inh-caps=-all"]
    command = [*mine, *arguments]
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"isolated: {command[0]} cannot be run: {error.strerror}\n")
        sys.exit(127)


def _prepare(source: Path, folder: str, made: Plan, fresh: bool) -> None:
    """Prepare what will be seen at `folder`: only what is kept below it."""
    mode = 0o1777 if fresh else 0o755
    source.mkdir(exist_ok=True)
    source.chmod(mode)
    if not fresh or folder == "/dev/shm":
        _mount("-t", "tmpfs", "-o", f"mode={mode:o}", "tmpfs", source)
    for kept in (it for it in made.kept if Path(it).is_relative_to(folder)):
        place = source / Path(kept).relative_to(folder)
        place.mkdir(parents=True, exist_ok=True)
        _mount("--rbind", kept, place)


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _seal(writable: Iterable[str]) -> None:
    """Make every mount read-only except the kernel's own and these; OSError when that is refused."""
    _read_only("/", on=True, below=True)
    for folder in KERNEL:
        _read_only(folder, on=False, below=True)
    for folder in writable:
        _read_only(folder, on=False, below=False)


def _read_only(folder: str, *, on: bool, below: bool) -> None:
    attributes = struct.pack("=4Q", _READ_ONLY if on else 0, 0 if on else _READ_ONLY, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _RECURSIVE if below else 0
    given = (_HERE, folder.encode(), flags, attributes, ctypes.c_size_t(len(attributes)))
    if libc.syscall(_MOUNT_SETATTR, *given) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)}: mount_setattr", folder)


if __name__ == "__main__":
    words = sys.argv[1:]
    if words == ["--try"]:
        _seal([])
    elif words[:1] == ["--inside"]:
        _inside(Plan(**json.loads(words[1])), Path(words[2]), words[3:])
    else:
        sys.exit(main(words))
