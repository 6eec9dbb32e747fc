"""Slurm's short forms, and which device is which number of its."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.owners.gres import read
from collector.owners.jobfiles import numbers
from gpuvigil.hostlist import expand


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("n1", ["n1"]),
        ("gpu[01-03,7]", ["gpu01", "gpu02", "gpu03", "gpu7"]),
        ("a1,b[2-3],c", ["a1", "b2", "b3", "c"]),
        ("r[1-2]n[1-2]-x", ["r1n1-x", "r1n2-x", "r2n1-x", "r2n2-x"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("/dev/nvidia[0-1]", ["/dev/nvidia0", "/dev/nvidia1"]),
        ("", []),
    ],
)
def test_a_short_form_is_its_names_in_order(expression: str, names: list[str]) -> None:
    assert list(expand(expression)) == names


@given(st.text("n[]0123456789,-x", max_size=40))
def test_no_short_form_is_too_strange(expression: str) -> None:
    assert all(isinstance(name, str) for name in expand(expression[:40]))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0,1,2", (0, 1, 2)),
        ("0-3", (0, 1, 2, 3)),
        ("0-1,5,7-8", (0, 1, 5, 7, 8)),
        ("3,3", (3,)),
        ("", ()),
        ("GPU-17", ()),
        ("0-99999999999", tuple(range(64))),
    ],
)
def test_numbers_are_those_of_slurms_forms(text: str, found: tuple[int, ...]) -> None:
    assert numbers(text) == found


def minors(folder: Path, text: str, node: str = "n1") -> tuple[int | None, ...] | None:
    (folder / "gres.conf").write_text(text)
    return read(str(folder / "slurm.conf"), node).minors


def test_the_order_of_the_file_is_the_order_of_the_numbers(tmp_path: Path) -> None:
    text = """
        # two boards, the second was put in first
        NodeName=n[1-2] Name=gpu Type=h100 File=/dev/nvidia5
        nodename=n1 NAME=gpu File=/dev/nvidia[2,0-1]   # the others
        NodeName=n3 Name=gpu File=/dev/nvidia9
        Name=nic File=/dev/infiniband/uverbs0
        Name=gpu \\
            File=/dev/nvidia7
    """
    assert minors(tmp_path, text) == (5, 2, 0, 1, 7)
    assert minors(tmp_path, text, "n3") == (9, 7)


def test_what_has_no_device_file_keeps_its_numbers(tmp_path: Path) -> None:
    slices = (
        "MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap21,/dev/nvidia-caps/nvidia-cap22"
    )
    text = f"Name=gpu Count=2\nName=gpu File=/dev/nvidia3\nName=gpu {slices}\nName=gpu Count=x"
    assert minors(tmp_path, text) == (None, None, 3, 1, None)


def test_included_files_count_where_they_stand_and_never_for_ever(tmp_path: Path) -> None:
    (tmp_path / "more.conf").write_text("Name=gpu File=/dev/nvidia4\nInclude more.conf\n")
    text = "Name=gpu File=/dev/nvidia1\ninclude more.conf\nName=gpu File=/dev/nvidia0\n"
    assert minors(tmp_path, text) == (1, 4, 4, 4, 0)


def test_with_autodetect_or_without_a_file_slurm_numbers_by_itself(tmp_path: Path) -> None:
    assert read(str(tmp_path / "slurm.conf"), "n1").minors is None
    assert minors(tmp_path, "AutoDetect=nvml\n") is None


@pytest.mark.parametrize("slurm_conf", ["", "/", "."])
def test_where_slurm_did_not_say_where_its_files_are_gpus_go_by_address(
    slurm_conf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gres.conf").write_text("" if slurm_conf else "Name=gpu File=/dev/nvidia7\n")
    monkeypatch.chdir(tmp_path)
    assert read(slurm_conf, "n1").minors is None
