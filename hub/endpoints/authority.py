"""The CA certificate that signed the hub's own, for nodes that know its pin (`gpuvigil join`)."""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gpuvigil.config import HubSettings
from gpuvigil.hub_client.authority import PATH, certificate_in

from ..http.responses import Refused

_LARGEST_BYTES = 64 * 1024
_NONE = "this hub has no certificate of its own to show: hub.tls_certificate_file and hub.ca_file"


def authority(settings: HubSettings) -> list[Route]:
    """Return the one route; it answers 404 while there is no certificate to show."""

    def read() -> str | None:
        file = settings.ca_file
        if file is None or settings.tls_certificate_file is None:
            return None
        try:
            with file.open("rb") as stream:
                text = stream.read(_LARGEST_BYTES).decode("ascii", "replace")
        except OSError:
            return None
        return certificate_in(text)

    async def show(_request: Request) -> Response:
        found = await run_in_threadpool(read)
        if found is None:
            raise Refused(404, _NONE)
        return PlainTextResponse(found)

    return [Route(PATH, show, methods=["GET"])]
