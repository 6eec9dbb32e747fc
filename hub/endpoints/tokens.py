"""Tokens over HTTP: the calls of `gpuvigil token`, which only a service's token may make, and the
exchange of a join token for a node's own.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gpuvigil.hub_client.joining import PATH as JOIN_PATH
from gpuvigil.log import Log

from ..http.bearer import Issued, Scope
from ..http.responses import MemoryBudget, Refused, in_thread, question_of
from ..records import IssuedTokens, NotGivenError, Wanted

_LOG = Log("hub")
_LARGEST_BYTES = 10_000
_MOST_ASKING_BYTES = 1024 * 1024
_LONGEST_OVERLAP_SECONDS = 90 * 86_400
_TOO_LONG_SECONDS = _LONGEST_OVERLAP_SECONDS + 1
_T = TypeVar("_T")


class TokensEndpoint:
    """Lists, issues, revokes, rotates and exchanges tokens."""

    def __init__(self, issued_tokens: IssuedTokens) -> None:
        self._issued_tokens = issued_tokens
        self._asking = MemoryBudget(_MOST_ASKING_BYTES)

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/tokens", self.list, methods=["GET"]),
            Route("/api/v1/tokens", self.create, methods=["POST"]),
            Route("/api/v1/tokens/join", self.create_join, methods=["POST"]),
            Route(JOIN_PATH, self.join, methods=["POST"]),
            Route("/api/v1/tokens/{id}/revoke", self.revoke, methods=["POST"]),
            Route("/api/v1/tokens/{id}/rotate", self.rotate, methods=["POST"]),
        ]

    async def list(self, _request: Request) -> Response:
        tokens = await _run(self._issued_tokens.all)
        return JSONResponse({"tokens": [it.to_json() for it in tokens]})

    async def create(self, request: Request) -> Response:
        texts = _texts(await self._question(request), "scope", "name", "cluster", "node")
        try:
            scope = Scope(texts.pop("scope"))
        except ValueError:
            known = ", ".join(it.value for it in Scope)
            raise Refused(400, f"the scope is none of {known}") from None
        return _token_answer(
            "token created", *await _run(partial(self._issued_tokens.create, scope, **texts))
        )

    async def create_join(self, request: Request) -> Response:
        asked = await self._question(request)
        texts = _texts(asked, "name", "cluster")
        uses, seconds = asked.get("uses"), asked.get("seconds")
        if type(uses) is not int or not isinstance(seconds, int | float):
            raise Refused(400, "uses and seconds must be numbers")
        # A time that is not positive gets the same refusal as one that is too long.
        lasts = timedelta(seconds=min(seconds, _TOO_LONG_SECONDS) if seconds > 0 else 0)
        work = partial(self._issued_tokens.create_join, uses, lasts, **texts)
        return _token_answer("token created", *await _run(work))

    async def join(self, request: Request) -> Response:
        bearer = request.state.bearer
        if bearer.scope is not Scope.JOIN:
            raise Refused(403, "only a join token is exchanged for a node's token")
        texts = _texts(await self._question(request), "cluster", "node", "id", "sha256")
        try:
            wanted = Wanted(**texts)
            issued = await _run(partial(self._issued_tokens.join, bearer.join, wanted))
        except ValueError as error:
            raise Refused(400, str(error)) from None
        except NotGivenError as error:
            raise Refused(409 if error.in_use else 403, str(error)) from None
        _LOG.info("node joined", id=issued.id, by=bearer.join, node=issued.node)
        return JSONResponse({"issued": issued.to_json()})

    async def _question(self, request: Request) -> Mapping[str, Any]:
        with self._asking.of(request.state.bearer) as held:
            return await question_of(request, _LARGEST_BYTES, held)

    async def revoke(self, request: Request) -> Response:
        ended = await _run(partial(self._issued_tokens.revoke, request.path_params["id"]))
        _LOG.info("token revoked", id=ended.id, scope=ended.scope, name=ended.name)
        return JSONResponse({"revoked": ended.id})

    async def rotate(self, request: Request) -> Response:
        asked = await self._question(request)
        seconds = asked.get("overlap_seconds", 0)
        if not isinstance(seconds, int | float) or not 0 <= seconds <= _LONGEST_OVERLAP_SECONDS:
            raise Refused(400, f"overlap_seconds must be from 0 to {_LONGEST_OVERLAP_SECONDS}")
        work = partial(
            self._issued_tokens.rotate, request.path_params["id"], timedelta(seconds=seconds)
        )
        return _token_answer("token rotated", *await _run(work))


def _texts(asked: Mapping[str, Any], *keys: str) -> dict[str, str]:
    found = {key: asked.get(key, "") for key in keys}
    if not all(isinstance(it, str) and len(it) <= 256 for it in found.values()):
        raise Refused(400, f"{', '.join(keys[:-1])} and {keys[-1]} must be short texts")
    return found


def _token_answer(what: str, issued: Issued, token: str) -> Response:
    _LOG.info(what, id=issued.id, scope=issued.scope, name=issued.name, node=issued.node)
    return JSONResponse({"issued": issued.to_json(), "token": token})


async def _run(work: Callable[[], _T]) -> _T:
    try:
        return await in_thread(work)
    except ValueError as error:
        raise Refused(400, str(error)) from None
    except KeyError as error:
        raise Refused(404, f"no token that holds has the id {error}") from None
