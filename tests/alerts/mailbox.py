"""A mailbox behind a real mail server."""

from email import message_from_bytes
from email.policy import default
from typing import Any


class Mailbox:
    """What came in; refuses with `answer` if there is one, and `greylisted` readers for now."""

    def __init__(self) -> None:
        self.mails: list[Any] = []
        self.answer = ""
        self.greylisted: set[str] = set()

    async def handle_RCPT(  # noqa: N802 - aiosmtpd calls it so
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: list[str]
    ) -> str:
        if address in self.greylisted:
            return "450 Greylisted"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802 - aiosmtpd calls it so
        self, _server: Any, _session: Any, envelope: Any
    ) -> str:
        if self.answer:
            return self.answer
        self.mails.append((envelope, message_from_bytes(envelope.content, policy=default)))
        return "250 OK"
