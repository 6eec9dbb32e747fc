"""What a result is bound to: the code and the tables it came from, and none of the words about them."""

from pathlib import Path

import pytest

from evaluation.fingerprint import hash_of

CODE = '"""A fleet."""\n\nLIMIT = 70.0  # degrees\n\n\ndef hot(it: float) -> bool:\n    """Whether it is hot."""\n    return it > LIMIT\n'


def of(folder: Path, code: str, table: str = "a,b\n1,2\n") -> str:
    place = folder / "fleet"
    place.mkdir(exist_ok=True)
    (place / "heat.py").write_text(code)
    (place / "heat.csv").write_text(table)
    return hash_of(["fleet"], folder)


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("A fleet.", "Many GPUs.", True),
        ("Whether it is hot.", "Return whether the GPU is hot.", True),
        ("  # degrees", "", True),
        ("70.0", "71.0", False),
        ("def hot", "def warm", False),
    ],
)
def test_words_about_code_change_no_hash_and_code_does(
    tmp_path: Path, old: str, new: str, is_same: bool
) -> None:
    assert (of(tmp_path, CODE) == of(tmp_path, CODE.replace(old, new))) is is_same


def test_a_table_changes_it(tmp_path: Path) -> None:
    assert of(tmp_path, CODE) != of(tmp_path, CODE, "a,b\n1,3\n")
