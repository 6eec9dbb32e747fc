"""The store beside the hub: whether it would accept lines from here."""

import re
from contextlib import closing

from gpuvigil.clock import EPOCH
from gpuvigil.config import StoreSettings
from gpuvigil.errors import ConfigError, HubRefused, HubUnavailable

from ..spool.batches import WRITE_PATH
from ..spool.body import Body
from ..spool.remote_write import direct_store
from .diagnosis import Diagnosis, missing, ok

_PATIENCE_SECONDS = 4.0
# An empty body writes nothing, yet passes every check that lines have to pass.
_EMPTY = Body(path=WRITE_PATH, headers={}, content=b"", at=EPOCH)


# InfluxDB 2 answers so to an empty body; InfluxDB 1 and VictoriaMetrics with 204. Any other 400 is
# about the request: a token that vmauth does not know, a path that nobody serves.
_NO_LINES = re.compile(r"requires points|no (points|lines|data|fields)|empty", re.IGNORECASE)


def _wants_lines(kind: str, refusal: HubRefused) -> bool:
    """Return whether the store refused only because there were no lines."""
    from_influxdb = kind == "influxdb" and bool(refusal.details)
    return refusal.status == 400 and from_influxdb and bool(_NO_LINES.search(str(refusal)))


def diagnose(settings: StoreSettings) -> list[Diagnosis]:
    """Return one line; none where telemetry goes to the hub."""
    try:
        target = direct_store(settings)
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
        if not _wants_lines(settings.kind, error):
            todo = "look at store.write_url, store.bucket and the token, or the user"
            return [missing("store", str(error), todo)]
    where = settings.write_url or settings.url
    return [ok("store", f"{settings.kind} at {where} takes lines; telemetry goes there")]
