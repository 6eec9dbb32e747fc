"""Who holds a GPU is a value, and its words are the records'."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.model import Holder, HolderKind, job_holder, pod_holder, process_holder


@pytest.mark.parametrize(
    ("text", "holder"),
    [
        ("job 1234", job_holder(1234)),
        ("job PyTorchJob/train/llama", job_holder("PyTorchJob/train/llama")),
        ("pod training/llama-0", pod_holder("training/llama-0")),
        ("pid 4711", process_holder(4711)),
        ("processes", Holder(HolderKind.OTHER, "processes")),
        ("vm 7", Holder(HolderKind.OTHER, "vm 7")),
        ("job ", Holder(HolderKind.OTHER, "job ")),
    ],
)
def test_the_words_of_a_record_are_read_once(text: str, holder: Holder) -> None:
    assert Holder.parse(text) == holder
    assert str(holder) == text


@given(st.text())
def test_no_word_is_lost_whoever_wrote_it(text: str) -> None:
    assert str(Holder.parse(text)) == text
