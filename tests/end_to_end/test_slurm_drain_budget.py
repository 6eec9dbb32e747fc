"""Every node of a real Slurm finds something critical at the same moment: the cluster stays in service."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from collector.check.facts import GpuFacts
from collector.check.rules import findings
from collector.check.slurm_drain import Drained, drain
from gpuvigil.model import Unmeasured
from tests.collector.check.nodes import a_node, identity
from tests.end_to_end.slurm import PROGRAMS, Slurm
from tests.polling import wait_until

pytestmark = [pytest.mark.server, pytest.mark.site]

NODES = tuple(f"n{number}" for number in range(1, 13))
(LOST,) = findings(
    a_node(
        gpus={
            **a_node().gpus,
            2: GpuFacts(index=2, identity=identity(2), reason=Unmeasured.LOST, failure="code 15"),
        }
    )
)


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, needs: Callable[[str, str], str]
) -> Iterator[Slurm]:
    for program in PROGRAMS:
        needs(program, "scripts/install-test-servers")
    directory = tmp_path_factory.mktemp("slurm")
    nothing = directory / "nothing.sh"
    nothing.write_text("#!/bin/sh\n")
    nothing.chmod(0o755)
    with Slurm(directory / "slurm", prolog=nothing, epilog=nothing, nodes=NODES) as cluster:
        yield cluster


@pytest.fixture
def slurm(running: Slurm, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    monkeypatch.setenv("SLURM_CONF", running.environment["SLURM_CONF"])
    for node in NODES:
        if running.state(node) != {"IDLE"}:
            running.ask("scontrol", "update", f"nodename={node}", "state=undrain")
    wait_until("idle nodes", lambda: all(running.state(node) == {"IDLE"} for node in NODES), 60.0)
    return running


def all_at_once(percent: float) -> dict[str, Drained]:
    with ThreadPoolExecutor(len(NODES)) as pool:
        done = pool.map(lambda node: drain(a_node(), [LOST], node, percent), NODES)
        return dict(zip(NODES, done, strict=True))


def drained(slurm: Slurm) -> set[str]:
    return {node for node in NODES if "DRAIN" in slurm.state(node)}


def test_when_every_node_is_critical_at_once_the_budget_goes_and_the_rest_stays(
    slurm: Slurm,
) -> None:
    done = all_at_once(25.0)
    out = drained(slurm)
    assert out == {node for node, one in done.items() if one.out}
    assert len(out) == 3
    assert Counter(one.line.startswith("drained ") for one in done.values()) == {True: 3, False: 9}
    refused = [one.line for one in done.values() if not one.out]
    assert all("actions.most_percent (25 %) allows 3" in line for line in refused)
    for node in out:
        assert slurm.shown(node)["Reason"].startswith("gpuvigil gpu_lost: ")
    # Nor does any go later, while as many are out.
    assert not any(one.line.startswith("drained") for one in all_at_once(25.0).values())
    assert drained(slurm) == out


def test_whoever_took_them_out_counts_and_a_budget_of_less_than_a_node_is_none(
    slurm: Slurm,
) -> None:
    slurm.update(state="drain", reason="new DIMMs, jo")  # of n1, by a person
    assert "1 of 12 node is out of service" in drain(a_node(), [LOST], "n2", 16.0).line
    assert drain(a_node(), [LOST], "n2", 17.0) == Drained(line="drained n2", out=True)
    assert drain(a_node(), [LOST], "n1", 100.0).line.endswith(
        "has somebody's reason: new DIMMs, jo"
    )
    assert "allows 0" in drain(a_node(), [LOST], "n3", 8.0).line


def test_when_the_controller_cannot_be_asked_nothing_is_drained(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert drain(a_node(), [LOST], "stranger", 100.0).line.endswith("Slurm knows no node stranger")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "nowhere.conf"))
    done = drain(a_node(), [LOST], "n2", 100.0)
    assert (done.out, done.line.startswith("not drained: scontrol show node: ")) == (False, True)
