"""What several of these tests need."""

from collections.abc import Iterator
from contextlib import closing
from socket import create_server

import pytest
from aiosmtpd.controller import Controller

from gpuvigil.config import EmailSettings

from .mailbox import Mailbox


@pytest.fixture
def mailbox() -> Iterator[tuple[Mailbox, EmailSettings]]:
    with closing(create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    box = Mailbox()
    controller = Controller(box, hostname="127.0.0.1", port=port)
    controller.start()
    settings = EmailSettings(
        server="127.0.0.1", port=port, security="none", sender="gpus@example.org", to=("o@x.org",)
    )
    yield box, settings
    controller.stop()
