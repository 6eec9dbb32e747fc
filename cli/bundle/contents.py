"""The contents of a bundle, for support and for a pilot's evidence."""

import json
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from datetime import timedelta
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, get_args, get_type_hints

from accounting.usage.query import clusters, usage
from gpuvigil import __version__
from gpuvigil.clock import to_text
from gpuvigil.config import Config
from gpuvigil.config.mistakes import limits, mistakes
from gpuvigil.errors import GpuvigilError
from gpuvigil.model import Incident, Inventory, Opinion, RecordKind, readable

from .logs import logs
from .reading import Site
from .redaction import Redactor

_DOCTOR_SECONDS = 60.0
# These diagnoses quote another program, which names the models as people called them.
_QUOTES = frozenset({"inference server"})
_NAME = re.compile(r"[\w.-]+")
_WORD = re.compile(r"[^.,\s]+")
_HASHED = re.compile(r"name-[0-9a-f]{10}|\d+")
_KERNEL = re.compile(r"\d+(?:[.-]\d+)*")  # a suffix that a site adds may be its name
Contents = Mapping[str, Any]


def support(site: Site, redactor: Redactor, state: Path | None) -> Contents:
    """Return the files of a support bundle: settings without texts, status, log tails, doctor, versions."""
    found = {
        "about.json": about(site),
        "settings.json": _settings(site, redactor),
        "status.json": redactor.value(site.status()),
        "doctor.json": _doctor(site, redactor),
    }
    if not site.knows_names():
        site.unread["doctor's texts"] = "left out: names are not known"
    for name, lines in logs(site, redactor, state):
        found[f"log/{name}"] = lines
    return {**found, "unread.json": dict(site.unread)}


def evidence(site: Site, redactor: Redactor, length: timedelta) -> Contents:
    """Return the files of an evidence bundle: fleet, versions, coverage, verdicts, feedback."""
    return {
        "about.json": about(site),
        "fleet.json": _fleet(site, redactor),
        "coverage.json": _coverage(site, redactor, length),
        "verdicts.json": _verdicts(site, redactor, length),
        "feedback.json": _feedback(site, redactor, length),
        "unread.json": dict(site.unread),
    }


def about(site: Site) -> Contents:
    """Return the versions of gpuvigil, of Python, of the kernel and of the packages that gpuvigil needs."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "release": kernel(platform.release()),
        "machine": platform.machine(),
        "made_at": to_text(site.now),
        "packages": dict(sorted(_packages())),
    }


def _packages() -> Iterator[tuple[str, str]]:
    """Yield gpuvigil and its installed dependencies; other packages may be named after the site."""
    installed = {_plain(str(one.metadata["Name"])): one for one in distributions()}
    wanted = ["gpuvigil"]
    while wanted:
        name = wanted.pop()
        found = installed.pop(name, None)
        if found is not None:
            yield name, str(found.version)
            wanted += [_plain(it[0]) for one in found.requires or () if (it := _NAME.match(one))]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _settings(site: Site, redactor: Redactor) -> Contents:
    """Return the limits that are set here and their values; if settings are wrong, only where."""
    wrong = mistakes(site.file, site.environment)
    places = [_place(redactor, one.partition(": ")[0]) for one in wrong]
    if wrong:
        return {"mistakes_at": places}
    found = limits(site.file, site.environment)
    own = [one for one in found if one.origin != "default"]
    return {"mistakes_at": [], "set_here": [[one.key, one.value] for one in own]}


def _place(redactor: Redactor, text: str) -> str:
    """Return a mistake's place with our own words kept; all others are hashed, as they may be anything."""
    ours = {*_keys(Config), "line", "cannot", "read"}

    def shown(found: re.Match[str]) -> str:
        word = found[0]
        is_ours = word in ours or _HASHED.fullmatch(word) is not None
        return word if is_ours else redactor.name(word)

    return _WORD.sub(shown, redactor.words(text))


def _keys(settings: Any, section: str = "") -> Iterator[str]:
    """Yield every key of the configuration and the environment variables that set a key."""
    for name, kind in get_type_hints(settings).items():
        yield name
        yield f"GPUVIGIL_{section}_{name}".upper()
        for inner in (kind, *get_args(kind)):
            if is_dataclass(inner):
                yield from _keys(inner, name)


def _doctor(site: Site, redactor: Redactor) -> Contents:
    command = [sys.executable, "-m", "gpuvigil", "doctor", "-o", "json"]
    command += ["--config", str(site.file)] if site.file else []
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_DOCTOR_SECONDS, check=False, text=True
        )
        said = json.loads(done.stdout)["diagnoses"]
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        site.unread["doctor"] = type(error).__name__
        return {}
    return {
        "diagnoses": [
            {
                "what": redactor.words(one["what"]),
                "state": one["state"],
                "text": redactor.words(one["text"])
                if site.knows_names() and one["what"] not in _QUOTES
                else "",
            }
            for one in said
        ]
    }


def _fleet(site: Site, redactor: Redactor) -> list[Contents]:
    nodes = list(readable(site.records(RecordKind.INVENTORY), Inventory.from_record))
    real = [one for one in nodes if not one.subject.marked]
    found: list[Contents] = []
    for cluster in sorted({one.subject.cluster for one in real}):
        own = [one for one in real if one.subject.cluster == cluster]
        found.append(
            {
                "cluster": redactor.name(cluster),
                "simulated": not own[0].subject.real,
                "nodes": len(own),
                "models": dict(Counter(gpu.model for one in own for gpu in one.gpus)),
                "ports": dict(Counter(port.kind for one in own for port in one.ports)),
                "drivers": dict(Counter(one.driver or "" for one in own)),
                "kernels": dict(Counter(kernel(one.kernel or "") for one in own)),
                "collectors": dict(Counter(one.version for one in own)),
                "ticks": dict(Counter(f"{one.tick_seconds:g}" for one in own)),
            }
        )
    return found


def kernel(release: str) -> str:
    """Return the leading numbers of a kernel release, or "" if it has none."""
    found = _KERNEL.match(release)
    return "" if found is None else found[0]


def _coverage(site: Site, redactor: Redactor, length: timedelta) -> list[Contents]:
    """Return the installed, known, allocated and idle GPU-hours by cluster and day."""
    found: list[Contents] = []
    if site.hub is None:
        return found
    try:
        for cluster in clusters(site.hub):
            counted = usage(site.hub, cluster, site.now - length, site.now, site.now)
            days: dict[str, list[float]] = {}
            for bucket in counted.buckets:
                seconds = bucket.seconds
                row = days.setdefault(f"{bucket.start:%Y-%m-%d}", [0.0, 0.0, 0.0, 0.0])
                amounts = (seconds.installed, seconds.known, seconds.allocated, seconds.idle)
                row[:] = [had + more / 3600 for had, more in zip(row, amounts, strict=True)]
            names = ("installed", "known", "allocated", "idle")
            for day, row in days.items():
                hours = {f"{n}_gpu_hours": round(h, 1) for n, h in zip(names, row, strict=True)}
                found.append({"cluster": redactor.name(cluster), "day": day, **hours})
    except GpuvigilError as error:
        site.unread["usage"] = type(error).__name__
    return found


def _verdicts(site: Site, redactor: Redactor, length: timedelta) -> list[Contents]:
    """Return the span's incidents without free text; IDs and subjects are hashed."""
    all_ = readable(site.records(RecordKind.INCIDENT), Incident.from_record)
    since = site.now - length
    return [
        {
            "incident": redactor.name(one.id),
            "subject": redactor.name(one.subject.key),
            "about": one.subject.kind,
            "simulated": one.simulated,
            "fault": one.fault,
            "condition": one.condition,
            "xid": one.xid,
            "sxid": one.sxid,
            "severity": one.severity.value,
            "state": one.state,
            "since": to_text(one.since),
            "resolved_at": None if one.resolved_at is None else to_text(one.resolved_at),
            "members": len(one.members),
            "holders": len(one.impact.holders),
            "acknowledged": bool(one.acknowledged_by),
        }
        for one in all_
        if (one.resolved_at or site.now) >= since and not one.marked
    ]


def _feedback(site: Site, redactor: Redactor, length: timedelta) -> list[Contents]:
    """Return the span's answers on whether an incident was useful; incidents and people are hashed."""
    since = site.now - length
    return [
        {
            "incident": redactor.name(one.incident),
            "fault": one.fault,
            "useful": one.useful,
            "by": redactor.name(one.by),
            "at": to_text(one.at),
        }
        for one in readable(site.records(RecordKind.OPINION), Opinion.from_record)
        if one.at >= since
    ]
