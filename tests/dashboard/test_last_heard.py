"""A silent node is silent since it was last heard live, also when its backlog arrived after that."""

from datetime import datetime, timezone
from pathlib import Path

import pytest

from dashboard.data.hub_queries import load, numbers
from dashboard.model.facts import Facts
from dashboard.model.newest_rows import CELL_FIELDS
from gpuvigil.clock import from_text
from tests.hub.talk import ask, identity
from tests.servers import QuickHub


@pytest.mark.server
def test_a_node_is_last_heard_when_its_live_body_came_whatever_was_buffered(
    tmp_path: Path,
) -> None:
    with QuickHub(tmp_path / "hub") as process:
        url, token = f"{process.url}/api/v2/write", process.collector_token
        for node, lane in (("n1", "live"), ("n1", "backlog"), ("n2", "backlog")):
            body = f"node,cluster=test,node={node} load_average=1".encode()
            headers = identity(1, lane, node=node)
            assert ask(url, body, token=token, headers=headers).status == 204
        client = process.hub()
        facts, _ = numbers(client, load(client).onto(Facts(now=_now())), CELL_FIELDS)
        first = next(it for it in client.status()["nodes"] if it["node"] == "n1")
    assert facts.last_seen == {("test", "n1"): from_text(first["live_at"])}
    assert from_text(first["live_at"]) < from_text(first["received_at"])


def _now() -> datetime:
    return datetime.now(timezone.utc)
