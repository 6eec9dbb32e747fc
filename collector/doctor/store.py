"""The store that telemetry goes to past the hub: whether it would take lines from here."""

from contextlib import closing

from gpuvigil.clock import EPOCH
from gpuvigil.config import StoreSettings
from gpuvigil.errors import ConfigError, HubRefused, HubUnavailable

from ..beside import beside
from ..body import Body
from ..envelope import WRITE_PATH
from .diagnosis import Diagnosis, missing, ok

_PATIENCE_SECONDS = 4.0
# Nothing is written by it, yet it passes every door that lines have to pass.
_EMPTY = Body(path=WRITE_PATH, headers={}, content=b"", at=EPOCH)


def diagnose(settings: StoreSettings) -> list[Diagnosis]:
    """One line; none where telemetry goes to the hub."""
    try:
        target = beside(settings)
        if target is None:
            return []
        with closing(target.connect(_PATIENCE_SECONDS)) as server:
            target.send(server, _EMPTY)
    except ConfigError as error:
        return [missing("store", str(error), "set store.url, or name the file of its secret")]
    except HubUnavailable as error:
        todo = "is it up, is the address right, does a firewall stand between?"
        return [missing("store", str(error), todo)]
    except HubRefused as error:
        # 400: it would take lines, if there were any.
        if error.status != 400:
            todo = "look at store.write_url, store.bucket and the token"
            return [missing("store", str(error), todo)]
    where = settings.write_url or settings.url
    return [ok("store", f"{settings.kind} at {where} takes lines; telemetry goes there")]
