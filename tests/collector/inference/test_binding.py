"""Whose GPUs a page may name where nobody can see which process listens for it."""

from pathlib import Path

import pytest

from collector.inference.address import Address, address
from collector.inference.binding import of_its_user

HERE = "http://127.0.0.1:8002/metrics"


def proc(root: Path, *listeners: int, port: int = 8002) -> Path:
    """Processes 10 and 20 of two users, and sockets that listen for these users."""
    for pid, user in ((10, 1000), (20, 2000), (30, 0)):
        (root / str(pid)).mkdir()
        (root / str(pid) / "status").write_text(f"Name:\tpython\nUid:\t{user}\t{user}\t0\t0\n")
    (root / "self/net").mkdir(parents=True)
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
    lines = [
        f"   {n}: 0100007F:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 {user} 0 {900 + n} 1"
        for n, user in enumerate(listeners)
    ]
    (root / "self/net/tcp").write_text("\n".join([head, *lines]) + "\n")
    return root


def where(url: str = HERE) -> Address:
    return address(url, anywhere=True)


@pytest.mark.parametrize(
    ("listeners", "found"),
    [
        ((1000,), ("GPU-a", "GPU-c")),
        ((2000,), ("GPU-b", "GPU-c")),
        ((1000, 1000), ("GPU-a", "GPU-c")),  # two engines of one server
        ((1000, 2000), ()),  # whose answer it was is not known
        ((0,), ()),  # root is nobody in particular
        ((), ()),
    ],
)
def test_gpus_count_on_which_the_user_runs_something_who_listens(
    listeners: tuple[int, ...], found: tuple[str, ...], tmp_path: Path
) -> None:
    processes = {"GPU-a": (10,), "GPU-b": (20,), "GPU-c": (20, 10), "GPU-d": (30,), "GPU-e": (99,)}
    assert of_its_user(proc(tmp_path, *listeners), where(), processes) == found


def test_of_another_port_or_machine_nothing_is_known(tmp_path: Path) -> None:
    processes = {"GPU-a": (10,)}
    assert of_its_user(proc(tmp_path, 1000, port=8000), where(), processes) == ()
    (tmp_path / "self/net/fib_trie").write_text("  |-- 10.0.0.1\n     /32 host LOCAL\n")
    elsewhere = where("http://10.0.0.2:8000/metrics")
    assert of_its_user(tmp_path, elsewhere, processes) == ()
    assert of_its_user(tmp_path, where("http://10.0.0.1:8000/metrics"), processes) == ("GPU-a",)
