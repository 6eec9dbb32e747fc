"""What could be read here of a stalled job's NCCL and PyTorch, and whether Inspector writes.

NCCL reads `KEY=VALUE` lines of /etc/nccl.conf (NVIDIA/nccl v2.30.7, src/misc/param.cc:27-67); jobs
may say otherwise in their environment. The README of Inspector is wrong about its interval: by
default nothing is written (plugins/profiler/inspector/inspector.cc:736-741, :1715).
"""

from collections.abc import Mapping
from pathlib import Path

from gpuvigil.config import CollectorSettings

from ..nccl import versions
from ..sensors import files
from .diagnosis import Diagnosis, limited, ok

_PLUGIN, _ENABLE = "NCCL_PROFILER_PLUGIN", "NCCL_INSPECTOR_ENABLE"
_DIRECTORY = "NCCL_INSPECTOR_DUMP_DIR"
_INTERVAL = "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS"
_PROMETHEUS = "NCCL_INSPECTOR_PROM_DUMP"
_SECOND = 1_000_000


def nccl(settings: CollectorSettings, conf: Path = Path("/etc/nccl.conf")) -> list[Diagnosis]:
    """Return a line for RAS, one for Inspector, and one for each directory that does not exist."""
    said = _parsed(files.read(str(conf)) or "")
    named = (*settings.flight_recorder_directories, *settings.nccl_inspector_directories)
    lost = [str(directory) for directory in named if not directory.is_dir()]
    todo = "make it, or let the collector see it (docs/nccl.md)"
    away = [limited("NCCL directory", f"{name} cannot be seen", todo) for name in lost]
    return [_ras(settings), *_inspector(settings, said, conf), *away]


def _ras(settings: CollectorSettings) -> Diagnosis:
    if not settings.nccl_ras:
        return ok("NCCL RAS", "not asked: collector.nccl_ras is empty")
    if not settings.nccl_ras_versions:
        todo = "name versions that this site has tried (docs/nccl.md)"
        return limited("NCCL RAS", "not asked: collector.nccl_ras_versions is empty", todo)
    refused = [
        versions.refusal(it, settings.nccl_ras_versions) for it in settings.nccl_ras_versions
    ]
    if any(refused):
        todo = "take it out of collector.nccl_ras_versions"
        return limited("NCCL RAS", "; ".join(filter(None, refused)), todo)
    which = ", ".join(settings.nccl_ras)
    return ok(
        "NCCL RAS",
        f"asked of stalled jobs of {which}, versions {', '.join(settings.nccl_ras_versions)}",
    )


def _inspector(
    settings: CollectorSettings, values: Mapping[str, str], conf: Path
) -> list[Diagnosis]:
    if values.get(_ENABLE, "0") == "0":
        if not settings.nccl_inspector_directories:
            return [ok("NCCL Inspector", "not read: collector.nccl_inspector_directories is empty")]
        text = f"{conf} does not set {_ENABLE}=1: only jobs that do it themselves are read"
        return [ok("NCCL Inspector", text)]
    wrong = _writes_nothing(values)
    if wrong:
        return [limited("NCCL Inspector", f"{conf}: {wrong[0]}", wrong[1])]
    directory = Path(values.get(_DIRECTORY, ""))
    if directory not in settings.nccl_inspector_directories:
        text = f"{conf}: jobs write to {values.get(_DIRECTORY) or 'their own working directory'}, which is not read"
        todo = f"set {_DIRECTORY} and collector.nccl_inspector_directories to one directory"
        return [limited("NCCL Inspector", text, todo)]
    return [ok("NCCL Inspector", f"{conf}: jobs write to {directory}, which is read")]


def _writes_nothing(settings: Mapping[str, str]) -> tuple[str, str] | None:
    """Return why an enabled Inspector writes no lines, and what helps; None if it writes."""
    if not settings.get(_PLUGIN):
        return f"{_PLUGIN} is not set, so it is not loaded", f"set {_PLUGIN} to its library"
    if wrong := _wrong_interval(settings.get(_INTERVAL, "")):
        return wrong, f"set {_INTERVAL}=1000000"
    if settings.get(_PROMETHEUS, "0") != "0":
        return f"{_PROMETHEUS} writes averages without ranks instead of lines", "take it out"
    return None


def _wrong_interval(microseconds: str) -> str:
    if not microseconds:
        return f"without {_INTERVAL} it writes nothing"
    if not microseconds.isdigit():
        return f"{_INTERVAL}={microseconds} writes nothing"
    if int(microseconds) == 0:
        return f"{_INTERVAL}=0 writes nothing until NCCL 2.29 and keeps a core busy since 2.30"
    if int(microseconds) < _SECOND:
        return f"{_INTERVAL} under a second keeps a core busy until NCCL 2.29"
    return ""


def _parsed(text: str) -> dict[str, str]:
    """Return names and values as NCCL reads them: spaces before the sign make another name."""
    lines = (line.partition("#")[0].rstrip("\n") for line in text.splitlines())
    pairs = (line.partition("=") for line in lines)
    return {name: value for name, sign, value in pairs if sign and not name.endswith(" ")}
