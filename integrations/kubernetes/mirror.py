"""A mirror of all objects of one kind: listed once, then watched."""

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpuvigil.log import Log
from gpuvigil.model import UNREADABLE
from gpuvigil.schedulers.kubernetes_api import ApiError, ApiServer, Gone, Object

log = Log("kubernetes")

T = TypeVar("T")

NOT_ASKED = "it was not asked yet"

_SHORTEST_REST_SECONDS = 0.5
_LONGEST_REST_SECONDS = 30.0
_BRIEF_SECONDS = 1.0  # a watch that ends sooner and told nothing is not begun again at once


@dataclass(frozen=True, slots=True)
class Copy(Generic[T]):
    """What is known now, by uid; `why` it may not be so any more, empty when it is."""

    objects: Mapping[str, T]
    why: str


class Mirror(Generic[T]):
    """Follows one path. `keep` takes what is of interest from an object, None to leave it out.

    Of an object that it cannot read, what was known before is kept.
    """

    def __init__(
        self,
        api: ApiServer,
        path: str,
        keep: Callable[[Object], T | None],
        changed: Callable[[], None],
        rest_seconds: float = _SHORTEST_REST_SECONDS,
    ) -> None:
        self._api = api
        self._path = path
        self._keep = keep
        self._changed = changed
        self._shortest_rest = rest_seconds
        self._objects: dict[str, T] = {}
        self._version: str | None = None
        self._why = NOT_ASKED
        self._odd: set[str] = set()
        self._lock = threading.Lock()

    def copy(self) -> Copy[T]:
        """From any thread."""
        with self._lock:
            return Copy(dict(self._objects), self._why)

    @property
    def version(self) -> str | None:
        """The last version that was heard of; None when all has to be listed."""
        return self._version

    def run(self, stop: threading.Event) -> None:
        """Follow until `stop`; after a failure rest, longer each time it fails again."""
        rest = self._shortest_rest
        while not stop.is_set():
            began, before = time.monotonic(), self._version
            try:
                self.once(stop)
                in_vain = time.monotonic() - began < _BRIEF_SECONDS and before == self._version
            except Gone as error:
                # What happened since is known when all has been listed, however long that takes.
                self._version, in_vain = None, before is None
                self._fail(f"it forgot what has changed since: {error}")
            except ApiError as error:
                # A cut watch is followed on at once; what cannot even be begun is unknown.
                in_vain = before == self._version
                if in_vain:
                    self._fail(str(error))
            except UNREADABLE as error:
                in_vain = True
                self._fail(f"an answer of an unexpected form: {error!r}")
            rest = min(2 * rest, _LONGEST_REST_SECONDS) if in_vain else self._shortest_rest
            if in_vain:
                stop.wait(rest * random.uniform(0.5, 1.0))  # not all at once

    def once(self, stop: threading.Event) -> None:
        """List if that is needed, then follow one watch to its end."""
        if self._version is None:
            found, version = self._list()
            with self._lock:
                self._objects, self._version = found, version
            self._succeed()
            self._changed()
        for event in self._api.watch(self._path, self._version or ""):
            self._succeed()
            self._apply(event)
            if stop.is_set():
                return
        self._succeed()

    def _list(self) -> tuple[dict[str, T], str]:
        """What is kept of all objects, and their version; a page is dropped before the next is read."""
        found: dict[str, T] = {}
        version = ""
        for page in self._api.pages(self._path):
            version = page.version
            for one in page.objects:
                kept, uid = self._read(one), _uid(one)
                if kept is not None and uid:
                    found[uid] = kept
        return found, version

    def _apply(self, event: Object) -> None:
        told = event.get("object") or {}
        uid, version = _uid(told), (told.get("metadata") or {}).get("resourceVersion")
        # A bookmark is a version and nothing else.
        kept = None if event.get("type") in {"DELETED", "BOOKMARK"} else self._read(told)
        with self._lock:
            before = self._objects.get(uid)
            if event.get("type") != "BOOKMARK":
                if event.get("type") == "DELETED":
                    self._odd.discard(uid)
                if kept is None:
                    self._objects.pop(uid, None)
                else:
                    self._objects[uid] = kept
            self._version = version or self._version
        if event.get("type") != "BOOKMARK" and kept != before:
            self._changed()

    def _read(self, found: Object) -> T | None:
        """What is kept of an object, None to leave it out."""
        uid = _uid(found)
        try:
            return self._keep(found)
        except UNREADABLE as error:
            if uid not in self._odd:
                self._odd.add(uid)
                name = (found.get("metadata") or {}).get("name")
                log.warning("an object cannot be read", path=self._path, name=name, why=repr(error))
            return self._objects.get(uid)

    def _fail(self, why: str) -> None:
        if why != self._why:
            log.warning("the API server does not tell", path=self._path, why=why)
        self._why = why
        self._changed()

    def _succeed(self) -> None:
        if self._why:
            log.info("the API server tells", path=self._path)
            self._why = ""


def _uid(found: Object) -> str:
    return str((found.get("metadata") or {}).get("uid", ""))
