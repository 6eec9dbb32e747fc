"""The node around the GPUs: ports, privileges, another exporter, the clock, the spool, the agent."""

import ctypes
import http.client
import os
import shutil
import socket
import struct
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from gpuvigil.clock import from_text, moment
from gpuvigil.config import (
    CollectorSettings,
    InfinibandSettings,
    SwitchesSettings,
    without_secret,
)
from gpuvigil.errors import GpuvigilError

from ..agent import privileges
from ..agent.control_socket import NoAgentError, ask
from ..inference.binding import listening
from ..sensors.ports import PortSensor
from .diagnosis import Diagnosis, limited, missing, ok

_GIB = 1024**3
_DCGM_PORT = 9400
_DCGM_PROGRAMS = ("dcgm-exporter", "nv-hostengine")
_PAGE_SECONDS, _PAGE_BYTES = 2.0, 65_536
_LISTENS = "0A"  # TCP_LISTEN, proc(5)

# adjtimex(2): modes, offset, freq, maxerror, esterror, status.
_TIMEX = struct.Struct("@Illlli")
_TIMEX_BYTES = 512  # more than the structure has on any machine
_STA_UNSYNC = 0x0040


def ports(settings: CollectorSettings) -> list[Diagnosis]:
    """Return what sysfs shows of the network."""
    if not (settings.sysfs_root / "class/net").exists():
        todo = "mount sysfs, or set collector.sysfs_root"
        return [limited("network ports", f"no class/net under {settings.sysfs_root}", todo)]
    sensor = PortSensor(settings.sysfs_root, settings.proc_root)
    read = sensor.read()
    kinds: dict[str, int] = {}
    for port in read:
        kinds[port.identity.kind] = kinds.get(port.identity.kind, 0) + 1
    text = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    found = ok("network ports", text or "none: no InfiniBand, RoCE, EFA or Ethernet hardware")
    unread = [f"{name} ({why})" for name, why in sorted(sensor.unread_statistics().items())]
    if not unread:
        return [found]
    text = f"pauses, discards and symbol errors are not measured of {', '.join(unread)}"
    todo = "give it the host's network namespace; ethtool -S shows what a driver counts"
    return [found, limited("link statistics", text, todo)]


def fabric(
    settings: InfinibandSettings, devices: Path = Path("/dev/infiniband")
) -> list[Diagnosis]:
    """Return whether `gpuvigil infiniband` could read the fabric from here; empty without a device.

    The device to speak to switches is `umadN` (Linux, Documentation/infiniband/user_mad.rst).
    """
    ways = sorted(devices.glob("umad*"))
    if not ways:
        return []
    if shutil.which("iblinkinfo", path=settings.directory or None) is None:
        return [ok("InfiniBand fabric", "not read from here: infiniband-diags is not installed")]
    closed = [way.name for way in ways if not os.access(way, os.R_OK | os.W_OK)]
    if closed:
        text = f"this user may not open {', '.join(closed)}: gpuvigil infiniband cannot run here"
        return [limited("InfiniBand fabric", text, f"run it as root, or as the group of {ways[0]}")]
    return [ok("InfiniBand fabric", "gpuvigil infiniband can read it from here")]


def switches(settings: SwitchesSettings) -> list[Diagnosis]:
    """Return whether `gpuvigil switches` could ask the site's Prometheus; nothing if none is named."""
    if not settings.url:
        return []
    unread = [str(file) for file in settings.mappings if not os.access(file, os.R_OK)]
    if unread or not settings.mappings:
        text = f"cannot read {', '.join(unread)}" if unread else "no mapping file is named"
        return [limited("switches", text, "set switches.mappings (docs/switches.md)")]
    shown = without_secret(settings.url)
    try:
        place = urlsplit(settings.url)
        port = place.port or (443 if place.scheme == "https" else 80)
        socket.create_connection((place.hostname or "", port), _PAGE_SECONDS).close()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        text = f"nobody answers at {shown}: {why}"
        return [
            limited("switches", text, "is switches.url right, and does a firewall stand between?")
        ]
    todo = "gpuvigil switches --check says what it knows"
    return [ok("switches", f"Prometheus answers at {shown}; {todo}")]


def access(settings: CollectorSettings) -> list[Diagnosis]:
    """Return what this user may not do."""
    found = privileges.read_access(settings)
    if found.kernel_log or found.journal:
        way = str(settings.kernel_log) if found.kernel_log else "the journal"
        log = [ok("kernel log", f"readable: {way}")]
    else:
        log = []
    told = [ok("user", f"looked at as user id {os.geteuid()}; one with fewer rights sees less")]
    lacks = privileges.lacks(found)
    return [*told, *log, *(limited("privilege", f"not measured: {k.what}", k.gives) for k in lacks)]


def dcgm(settings: CollectorSettings) -> list[Diagnosis]:
    """Return whether another program publishes the same numbers."""
    running = _running(settings.proc_root, _DCGM_PROGRAMS)
    is_listened_on = any(listening(str(settings.proc_root), _DCGM_PORT))
    if not running and not is_listened_on:
        text = "none here; /metrics has our own names, docs/metrics.md says which DCGM name each is"
        return [ok("dcgm-exporter", text)]
    who = [f"{name} (process {pid})" for name, pid in running]
    who += [f"port {_DCGM_PORT} is listened on"] if is_listened_on else []
    text = (
        f"{', '.join(who)}: both may run; our names are not DCGM's, so do not relabel them to"
        " DCGM's here: sums on dashboards would double"
    )
    return [ok("dcgm-exporter", text)]


def _running(proc_root: Path, programs: tuple[str, ...]) -> list[tuple[str, int]]:
    found = []
    for file in proc_root.glob("[0-9]*/comm"):
        with suppress(OSError):
            name = file.read_text(errors="replace").strip()
            if name in programs:
                found.append((name, int(file.parent.name)))
    return sorted(found)


def clock() -> list[Diagnosis]:
    """Return whether the kernel says that its clock is synchronised."""
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
    if ctypes.CDLL(None, use_errno=True).adjtimex(buffer) < 0:
        why = os.strerror(ctypes.get_errno())
        return [
            limited(
                "time synchronisation", f"not known: adjtimex: {why}", "look at chronyc tracking"
            )
        ]
    status = _TIMEX.unpack_from(buffer)[5]
    if status & _STA_UNSYNC:
        todo = "start chrony, systemd-timesyncd or ptp4l; where a host keeps the time, look there"
        return [limited("time synchronisation", "the kernel's clock is not synchronised", todo)]
    return [ok("time synchronisation", "the kernel's clock is synchronised")]


def spool(settings: CollectorSettings) -> list[Diagnosis]:
    """Return whether the spool can be written, and whether the space it may grow to is free."""
    directory = settings.spool_directory
    place = directory
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        todo = "give the collector's user the directory, or set collector.spool_directory"
        return [missing("spool", f"{place} cannot be written: {error.strerror}", todo)]
    space = os.statvfs(place)
    free = space.f_bavail * space.f_frsize
    where = f"{directory}" + ("" if place == directory else " (not made yet)")
    text = f"{where} can be written, {free / _GIB:.1f} GiB free"
    if free < settings.spool_bytes:
        most = f"collector.spool_bytes is {settings.spool_bytes / _GIB:.2f} GiB"
        return [
            limited("spool", f"{text}, {most}", "free some, or set collector.spool_bytes lower")
        ]
    return [ok("spool", text)]


def agent(settings: CollectorSettings) -> list[Diagnosis]:
    """Return whether a collector runs here, and its status."""
    try:
        said = ask(settings.spool_directory, {"do": "status"})
    except NoAgentError:
        todo = "systemctl start gpuvigil-collector, or gpuvigil collect"
        text = f"none runs with the spool {settings.spool_directory}"
        return [limited("collector", text, todo), *_metrics_port(settings)]
    except GpuvigilError as error:
        return [limited("collector", str(error), "look at its log")]
    lost = len(said.get("missing") or ())
    if said.get("spool_refused_since"):
        since = moment(from_text(str(said["spool_refused_since"])))
        text = f"runs; its spool's disk takes nothing since {since}: {said['spool_refused_why']}"
        return [missing("collector", text, f"free space in {settings.spool_directory}")]
    text = f"runs, version {said.get('version')}; driver: {said.get('driver')}, {said.get('gpus')} GPUs known"
    return [ok("collector", text + (f", {lost} missing" if lost else ""))]


def _metrics_port(settings: CollectorSettings) -> list[Diagnosis]:
    """Return whether a new collector could serve its /metrics; without that it does not start."""
    address = (settings.metrics_listen, settings.metrics_port)
    if settings.metrics_port < 0:
        return []
    family = socket.AF_INET6 if ":" in settings.metrics_listen else socket.AF_INET
    try:
        with socket.create_server(address, family=family):
            return []
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        text = f"{address[0]}:{address[1]} is not to be had for /metrics: {why}"
        todo = "set collector.metrics_port, -1 serves none"
        if _is_ours(*address):
            text += "; another collector of gpuvigil serves its own there"
            todo = f"name the configuration of that with --config; for one more {todo}"
        return [missing("metrics port", text, todo)]


def _is_ours(host: str, port: int) -> bool:
    """Return whether the listener there answers as a collector of gpuvigil does."""
    listens = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    connection = http.client.HTTPConnection(listens, port, timeout=_PAGE_SECONDS)
    try:
        connection.request("GET", "/metrics")
        return b"gpuvigil_" in connection.getresponse().read(_PAGE_BYTES)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
