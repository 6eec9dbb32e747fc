"""The hub's answers while it starts: opening its store and its records may take long."""

from ..auth.authentication import App, Message, Send
from ..http.responses import Receive, failure

_ALIVE = "/healthz"


class StartupApp:
    """An ASGI application that answers 503 with what the hub waits for, until `opened`."""

    def __init__(self) -> None:
        self._waits_for = "its store"
        self._app: App | None = None

    def waits_for(self, what: str) -> None:
        self._waits_for = what

    def opened(self, app: App) -> None:
        """Let `app` answer from now on."""
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if self._app is not None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            answer = failure(503, f"the hub starts, and opens {self._waits_for}", 1)
            if scope["path"] == _ALIVE:
                answer.status_code = 200
            await answer(scope, receive, send)
