"""What `gpuvigil join` asks of systemd, where there is none, and where the unit does not come up."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from collector.join import unit
from gpuvigil import systemd
from gpuvigil.errors import GpuvigilError


class Systemctl:
    """A machine's systemd by what its programs say: the first words of a command, and its answer."""

    def __init__(self, **answers: tuple[int, str]) -> None:
        self.asked: list[str] = []
        self._answers = answers

    def __call__(self, words: Sequence[str]) -> tuple[int, str]:
        self.asked.append(" ".join(words))
        return self._answers.get(words[1] if words[0] == "systemctl" else words[0], (0, ""))


def test_a_machine_without_the_unit_or_without_systemd_is_told_so(tmp_path: Path) -> None:
    unit.check(Systemctl())
    with pytest.raises(GpuvigilError, match="install the package gpuvigil-collector first"):
        unit.check(Systemctl(cat=(1, "No files found")))
    with pytest.raises(GpuvigilError, match="the steps without systemd"):
        systemd.run([str(tmp_path / "systemctl")])


def test_a_unit_that_does_not_start_is_told_with_the_collectors_last_line() -> None:
    called = Systemctl()
    unit.start(called)
    verbs = [words.split()[1] for words in called.asked]
    assert verbs == ["reset-failed", "enable", "restart"]
    called = Systemctl(restart=(1, "Job failed."), journalctl=(0, "gpuvigil collect: no"))
    with pytest.raises(GpuvigilError) as caught:
        unit.start(called)
    assert "Job failed.; its last line: gpuvigil collect: no (journalctl" in str(caught.value)


@pytest.mark.parametrize(
    ("state", "gave_up"),
    [("auto-restart", True), ("failed", True), ("running", False), ("start", False)],
)
def test_a_collector_that_ends_at_once_is_not_waited_for(state: str, gave_up: bool) -> None:
    assert systemd.gives_up(unit.UNIT, Systemctl(show=(0, state))) is gave_up
