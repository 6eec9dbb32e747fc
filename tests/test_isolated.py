"""Where the suite runs: what a command sees and may write in a namespace of its own."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from scripts.isolated import ROOT, STATE, TEMPORARY, outermost, pip_of_user, plan

ISOLATED = [sys.executable, "-m", "scripts.isolated"]
IN_CI = os.environ.get("CI") == "true"
pytestmark = pytest.mark.server
# No mount namespace may be made in here: user_namespaces(7), /proc/sys/user.
REFUSED = ["unshare", "-r", "sh", "-c", 'echo 0 >/proc/sys/user/max_mnt_namespaces && exec "$@"']


def run(*command: str, folder: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def inside(script: str) -> str:
    """What a shell says in a namespace, whose exit code is 0."""
    done = run(*ISOLATED, "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not IN_CI, reason="a developer's machine may be used as it is")
def test_in_ci_the_suite_itself_sees_nothing_of_the_machine_and_may_write_nothing() -> None:
    for sealed in ("/", "/etc", "/usr", "/var", "/var/lib", ROOT):
        assert os.statvfs(sealed).f_flag & os.ST_RDONLY, sealed
    home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    needed = [ROOT, Path(sys.prefix), Path(sys.base_prefix)]
    for folder in (home, *map(Path, STATE)):
        found = list(folder.iterdir()) if folder.exists() else []
        assert [it for it in found if not any(one.is_relative_to(it) for one in needed)] == []


def test_the_tests_have_a_home_and_a_temporary_folder_of_their_own(tmp_path: Path) -> None:
    assert Path.home().parent == tmp_path.parent
    assert str(Path.home()) != pwd.getpwuid(os.geteuid()).pw_dir
    assert Path(tempfile.gettempdir()) not in map(Path, TEMPORARY)
    assert [name for name in os.environ if name.startswith(("GPUVIGIL_", "XDG_"))] == []


def test_everything_is_read_only_but_temporary_folders_and_the_caches_of_tests() -> None:
    places = ["/etc", "/usr", "/var", "/var/lib", str(ROOT), str(ROOT / "tests"), *TEMPORARY]
    places += [str(ROOT / ".pytest_cache"), str(ROOT / ".hypothesis"), "$PIP_CACHE_DIR"]
    tries = "; ".join(f'touch "{it}/a" 2>/dev/null && rm "{it}/a" && echo "{it}"' for it in places)
    written = inside(f"{tries}; true").split()
    cache = inside("echo $PIP_CACHE_DIR").strip()
    assert written == [*TEMPORARY, *places[-3:-1], cache]


def test_state_and_homes_are_empty_and_what_is_needed_is_there(tmp_path: Path) -> None:
    seen = inside("ls /var/lib; ls -d /etc/gpuvigil/* /run/gpuvigil/* 2>/dev/null; echo end")
    kept = ROOT.is_relative_to("/var/lib") or Path(sys.base_prefix).is_relative_to("/var/lib")
    assert seen == "end\n" or kept
    assert inside(f"ls {tmp_path} 2>/dev/null || echo hidden") == "hidden\n"
    assert inside(f"{sys.executable} -c 'import pytest, gpuvigil.command_line; print(1)'") == "1\n"
    assert inside("git rev-parse --is-inside-work-tree && pwd").split() == ["true", str(ROOT)]


def test_nothing_is_left_of_it_and_its_exit_code_is_the_commands() -> None:
    before = set(Path(tempfile.gettempdir()).iterdir())
    done = run(*ISOLATED, "sh", "-c", "mkdir -p /tmp/a/b; echo >/tmp/a/b/c; exit 7")
    assert done.returncode == 7
    assert set(Path(tempfile.gettempdir()).iterdir()) == before
    assert not Path("/tmp/a/b").exists()
    assert run(*ISOLATED, "sh", "-c", "kill -TERM $$").returncode == 128 + 15
    unknown = run(*ISOLATED, "no-such-program")
    assert (unknown.returncode, len(unknown.stderr.splitlines())) == (127, 1)
    assert run(*ISOLATED).returncode == 2


def test_where_namespaces_are_refused_it_says_so_and_in_ci_nothing_runs() -> None:
    refused = [*REFUSED, "sh", *ISOLATED, "echo", "ran"]
    done = run(*refused, CI="")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    (line,) = done.stderr.splitlines()
    assert "isolated: no mount namespace can be made (" in line
    assert "it runs on this machine as it is" in line
    done = run(*refused, CI="true")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "with CI=true nothing runs without a namespace" in line


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_without_root_it_works_in_a_user_namespace_and_gives_no_rights() -> None:
    folder = Path(tempfile.mkdtemp())  # which another user may read
    folder.chmod(0o755)
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/isolated.py", folder / "scripts")
    for name in (".pytest_cache", ".hypothesis", "home"):
        (folder / name).mkdir()
        shutil.chown(folder / name, 65534, 65534)
    script = "id -u; grep CapEff /proc/self/status; touch /etc/a 2>&1; touch /tmp/a && echo ok"
    somebody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    variables = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "home")}
    variables |= {"PIP_CACHE_DIR": "", "PIP_CONFIG_FILE": ""}
    python = ["/usr/bin/python3", str(folder / "scripts/isolated.py")]
    done = run(*somebody, *python, "sh", "-c", script, folder=folder, **variables, CI="true")
    assert done.returncode == 0, done.stderr
    user, rights, refused, written = done.stdout.splitlines()
    assert (user, rights.split()[1].strip("0"), written) == ("65534", "", "ok")
    assert "Read-only file system" in refused


def test_of_folders_below_each_other_the_outermost_counts() -> None:
    paths = [Path(one) for one in ("/a/b", "/a", "/ab", "/a/c/d", "/a")]
    assert outermost(paths) == [Path("/a"), Path("/ab")]


def test_a_checkout_and_an_interpreter_below_a_hidden_folder_stay_visible(tmp_path: Path) -> None:
    root, python, elsewhere = tmp_path / "src", tmp_path / ".pyenv/3.11", Path("/usr")
    for folder in (root, python):
        folder.mkdir(parents=True)
    made = plan(root, Path("/opt"), [root / ".venv", python, elsewhere], tmp_path / "cache")
    assert {"/var/lib", "/opt"} <= set(made.empty)
    assert made.kept == sorted([str(python), str(root)])
    assert made.writable == [str(root / ".pytest_cache"), str(root / ".hypothesis")]


def test_pip_finds_its_users_cache_and_configuration_under_another_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    cache = str(home / ".cache/pip")
    assert pip_of_user({}, home) == {"PIP_CACHE_DIR": cache}
    file = home / ".config/pip/pip.conf"
    file.parent.mkdir(parents=True)
    file.touch()
    assert pip_of_user({}, home) == {"PIP_CACHE_DIR": cache, "PIP_CONFIG_FILE": str(file)}
    given = {"PIP_CACHE_DIR": "/x", "PIP_CONFIG_FILE": "/y"}
    assert pip_of_user(given, home) == given
    moved = {"XDG_CACHE_HOME": "/c", "XDG_CONFIG_HOME": "/d"}
    assert pip_of_user(moved, home) == {"PIP_CACHE_DIR": "/c/pip"}


def test_who_ends_it_ends_the_command_and_leaves_no_folder(tmp_path: Path) -> None:
    isolated = subprocess.Popen(
        [*ISOLATED, "sh", "-c", "echo $$; exec sleep 60"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert isolated.stdout is not None
    with isolated.stdout:
        pid = int(isolated.stdout.readline())
    isolated.terminate()
    assert isolated.wait() == 128 + signal.SIGTERM
    assert not Path(f"/proc/{pid}").exists()
    assert list(tmp_path.iterdir()) == []
