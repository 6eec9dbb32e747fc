"""How the lines of scontrol are read, whatever people wrote into them."""

from pathlib import Path

import pytest

from alerts.actions.drain_rules import Machine
from alerts.actions.slurm import Slurm, SlurmError

# As scontrol 22.05 writes a node with -o, shortened.
LINE = (
    "NodeName={name} Arch=x86_64 OS=Linux 6.1.0 #1 SMP State={state} ThreadsPerCore=2"
    " Partitions=gpu CfgTRES=cpu=8{written}"
)


def shown(directory: Path, *lines: str) -> dict[str, Machine]:
    """What is read of such lines, which a program of that name prints."""
    (directory / "lines").write_text("\n".join([*lines, ""]))
    program = directory / "scontrol"
    program.write_text('#!/bin/sh\ncat "$(dirname "$0")/lines"\n')
    program.chmod(0o755)
    return dict(Slurm(str(directory), 20.0).machines())


@pytest.mark.parametrize(
    "reason",
    [
        "see ticket: State=IDLE NodeName=n9",
        "x Comment=y State=IDLE NodeName=n9",
        "line\u2028NodeName=n9 State=IDLE",
        "gpuvigil [gpu_lost i1] GPU fell off the bus",
    ],
)
def test_a_reason_that_looks_like_a_node_is_a_reason(tmp_path: Path, reason: str) -> None:
    written = f" Reason={reason} [jo@2026-11-20T12:00:00] Comment=State=DOWN"
    found = shown(tmp_path, LINE.format(name="n7", state="IDLE+DRAIN", written=written))
    assert list(found) == ["n7"]
    assert found["n7"].states == {"IDLE", "DRAIN"}
    assert found["n7"].reason == reason.partition(" Comment=")[0]


def test_a_comment_is_no_state_either_and_signs_are_words(tmp_path: Path) -> None:
    (one,) = shown(
        tmp_path, LINE.format(name="n7", state="DOWN*+DRAIN", written=" Comment=a State=IDLE")
    ).values()
    assert one == Machine(name="n7", states=frozenset({"DOWN", "DRAIN", "NOT_RESPONDING"}))
    with pytest.raises(SlurmError, match="named no node"):
        shown(tmp_path, "Reason=x NodeName=n9 State=IDLE")


def test_what_scontrol_says_at_last_is_the_reason(tmp_path: Path) -> None:
    program = tmp_path / "scontrol"
    program.write_text(
        "#!/bin/sh\nfor n in 1 2 3; do echo try $n: no answer >&2; done\n"
        "echo 'slurm_load_node error: Unable to contact slurm controller' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    with pytest.raises(SlurmError) as caught:
        dict(Slurm(str(tmp_path), 20.0).machines())
    said = str(caught.value)
    assert "Unable to contact slurm controller; does 'scontrol ping' answer here?" in said
    assert "try" not in said
