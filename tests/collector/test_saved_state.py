"""What a node knew is known again, whatever became of the file."""

from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.agent import saved_state
from collector.rows.monotone_counters import MonotoneCounters
from gpuvigil.model import Allocation, GpuIdentity, Holder, PortIdentity, Subject

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)
GPU = GpuIdentity(uuid="GPU-1", index=0, pci_address="0000:1B:00.0", model="H100")
PORT = PortIdentity(device="mlx5_0", port="1", kind="infiniband", role="fabric", was_up=True)
HELD = Allocation(
    subject=Subject(cluster="c", node="n1", gpu="GPU-1"),
    holder=Holder.parse("pid 7"),
    user="ada",
    command="python train.py",
    started_at=NOW,
)


def everything() -> saved_state.Remembered:
    counters = MonotoneCounters()
    counters.update("GPU-1 energy_joules", 5.5, from_zero=True)
    return saved_state.Remembered(
        gpus={"GPU-1": GPU},
        ports={("mlx5_0", "1"): PORT},
        held=[HELD],
        counters=counters,
        boot_id="b1",
        missing={"GPU-1": NOW},
        released_until=NOW,
        complete=True,
    )


def test_everything_is_read_as_it_was_saved(tmp_path: Path) -> None:
    saved_state.save(tmp_path / "node.json", everything())
    assert saved_state.load(tmp_path / "node.json") == everything()


@pytest.mark.parametrize(
    ("boot", "before", "after"),
    [("b1", "b1", 30), ("b1", "b2", 55), ("b1", None, 30), (None, "b2", 30)],
)
def test_after_a_boot_registers_are_counted_from_zero(
    tmp_path: Path, boot: str | None, before: str | None, after: int
) -> None:
    known = saved_state.Remembered(boot_id=boot)
    known.counters.update("mlx5_0 1 receive_bytes", 25)
    known.counters.update("node reader_restarts", 25)
    known.counters.update("GPU-1 energy_joules", 25)
    saved_state.save(tmp_path / "node.json", known)
    again = saved_state.load(tmp_path / "node.json")
    again.enter(before)
    assert again.counters.update("mlx5_0 1 receive_bytes", 30) == (after, False)
    assert again.counters.update("GPU-1 energy_joules", 30) == (after, False)
    assert again.counters.update("node reader_restarts", 30) == (30, False)
    assert again.boot_id == (before or boot)


def test_a_first_start_knows_nothing(tmp_path: Path) -> None:
    assert saved_state.load(tmp_path / "node.json") == saved_state.Remembered()


@given(data=st.data())
def test_a_file_that_was_cut_is_nothing_known(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.json"
    saved_state.save(path, everything())
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    assert saved_state.load(path) == saved_state.Remembered()


def test_a_place_that_cannot_be_written_is_no_end(tmp_path: Path) -> None:
    saved_state.save(tmp_path / "no/node.json", everything())
