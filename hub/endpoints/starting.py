"""What is answered while the hub starts: opening its store and its records may take long."""

from ..auth.authentication import App, Message, Send
from ..http.responses import Receive, failure

_ALIVE = "/healthz"


class Opening:
    """The application: 503 with what it waits for, until it has one that answers."""

    def __init__(self) -> None:
        self._waits_for = "its store"
        self._app: App | None = None

    def waits_for(self, what: str) -> None:
        self._waits_for = what

    def opened(self, app: App) -> None:
        """From now on `app` answers."""
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if self._app is not None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            answer = failure(503, f"the hub starts, and opens {self._waits_for}", 1)
            if scope["path"] == _ALIVE:
                answer.status_code = 200
            await answer(scope, receive, send)
