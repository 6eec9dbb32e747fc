"""What the kernel log and NVML report is told once, and what comes again is told again."""

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.kernel_log.burst_limit import BURST_SECONDS
from collector.kernel_log.deduplication import ReportMatcher
from collector.kernel_log.event_book import KernelBook
from collector.sensors.kernel_log import Batch, LogEvent, Position
from collector.sensors.kernel_log_parser import parse
from gpuvigil.clock import ManualClock
from gpuvigil.model import Event, EventKind, GpuIdentity, Subject

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
NODE = Subject(cluster="c", node="n1")
GPU = replace(NODE, gpu="GPU-5")
GPUS = {
    uuid: GpuIdentity(uuid=uuid, index=index, pci_address=address, model="H100")
    for index, (uuid, address) in enumerate(
        {"GPU-5": "00000000:05:00.0", "GPU-9": "00000000:9B:00.0", "GPU-?": None}.items()
    )
}


class Case:
    """A book, and lines of the kernel log for it."""

    def __init__(self, directory: Path, **options: int) -> None:
        self.clock = ManualClock(NOW)
        self.file = directory / "kernel_log.json"
        self.book = KernelBook(self.file, NODE, GPUS, self.clock, **options)
        self.sequence = 0

    def kernel(self, *lines: str) -> list[Event]:
        seen = []
        for line in lines:
            event = parse(line)
            assert event is not None, line
            self.sequence += 1
            seen.append(LogEvent(id=f"b-{self.sequence}", at=self.clock.now(), event=event))
        position = Position(boot_id="b", sequence=self.sequence)
        return self.book.ingest(Batch(events=tuple(seen), position=position))

    def nvml(self, code: int, subject: Subject = GPU) -> list[Event]:
        self.sequence += 1
        event = Event(
            kind=EventKind.XID,
            subject=subject,
            at=self.clock.now(),
            id=f"nvml-{self.sequence}",
            xid=code,
        )
        return self.book.xid(event)

    def again(self) -> "Case":
        """The same node after a restart of its collector."""
        other = Case(self.file.parent)
        other.sequence = self.sequence
        return other


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def xid(code: int, address: str = "0000:05:00") -> str:
    return f"NVRM: Xid (PCI:{address}): {code}, pid=7194, name=train, words"


def test_an_xid_is_of_the_gpu_at_its_address(case: Case) -> None:
    (event,) = case.kernel(xid(48, "0000:9b:00"))
    assert (event.kind, event.xid, event.subject.gpu) == (EventKind.XID, 48, "GPU-9")
    assert event.message == "Xid 48: words [0000:9b:00.0, train (pid 7194)]"
    assert event.id == "c/n1|kernel|b-1"
    (unknown,) = case.kernel(xid(48, "0000:77:00"))
    assert unknown.subject == NODE


@pytest.mark.parametrize("kernel_first", [True, False])
def test_what_both_report_is_told_once(case: Case, kernel_first: bool) -> None:
    told = [] if kernel_first else case.nvml(79)
    told += case.kernel(xid(79))
    told += case.nvml(79) if kernel_first else []
    assert len(told) == 1
    case.clock.advance(BURST_SECONDS + 1)
    assert case.book.due() == []


def test_another_gpu_or_another_code_is_another_report(case: Case) -> None:
    assert len(case.kernel(xid(79))) == 1
    assert len(case.nvml(79, replace(NODE, gpu="GPU-9"))) == 1
    assert len(case.nvml(48)) == 1


def test_the_same_later_is_a_repeat_and_no_twin(case: Case) -> None:
    assert len(case.kernel(xid(48))) == 1
    case.clock.advance(BURST_SECONDS + 1)
    assert len(case.nvml(48)) == 1


@given(st.lists(st.tuples(st.sampled_from(["kernel", "driver"]), st.floats(0.0, 1.0)), max_size=30))
def test_no_report_of_one_source_is_lost_and_none_is_told_twice(
    steps: list[tuple[str, float]],
) -> None:
    """Within the span of twins as many are told as the source that said more has said."""

    def told(given: list[tuple[str, float]]) -> int:
        matcher, at, count = ReportMatcher(same_seconds=60.0), NOW, 0
        for number, (source, gap) in enumerate(given):
            at += gap * SECOND
            event = Event(kind=EventKind.XID, subject=GPU, at=at, id=str(number), xid=48)
            if matcher.answered(source, event) is None:
                matcher.wait(source, event, recorded=True)
                count += 1
        return count

    said = [source for source, _ in steps]
    most = max(said.count("kernel"), said.count("driver"))
    assert most <= told(steps) <= len(steps)
    assert told([(source, 0.0) for source in sorted(said)]) == most


def test_a_burst_is_told_at_once_and_then_by_its_count(case: Case) -> None:
    assert len(case.kernel(*[xid(31)] * 40)) == 1
    assert case.book.due() == []
    case.clock.advance(BURST_SECONDS)
    (counted,) = case.book.due()
    assert (counted.count, counted.xid, counted.id) == (39, 31, "c/n1|kernel|b-40")
    assert case.kernel(xid(31)) == []  # still the same burst
    case.clock.advance(BURST_SECONDS)
    (more,) = case.book.due()
    assert more.count == 1
    case.clock.advance(BURST_SECONDS)
    assert case.book.due() == []
    assert len(case.kernel(xid(31))) == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["kernel", "driver", "due", "restart"]),
            st.sampled_from([13, 31]),
            st.integers(0, 15),
        ),
        max_size=30,
    )
)
def test_every_report_is_told_or_counted(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    """Each source is alone with its code here, so that nothing is a twin of anything."""
    case = Case(tmp_path_factory.mktemp("book"))
    told: list[Event] = []
    reports = 0
    for what, code, seconds in steps:
        case.clock.advance(seconds)
        if what == "kernel":
            told += case.kernel(xid(code))
        elif what == "driver":
            told += case.nvml(code + 100)
        elif what == "due":
            told += case.book.due()
        else:
            case.book.save()
            case = case.again()
        reports += what in {"kernel", "driver"}
        # What is not told is saved with every batch, as the collector does.
        if what == "driver" and case.book.position is None:
            case.book.position = Position(boot_id="b")
        case.book.save()
    told += case.book.due()
    told += case.book.flush()
    assert sum(event.count for event in told) == reports
    assert len({event.id for event in told}) == len(told)


def rlw(word: str, unit: str = "RLW_CTRL", link: int = 8, address: str = "0000:05:00") -> str:
    words = "(0x00000007 0x00000001 0x0 0x0 0x0 0x0)"
    return f"NVRM: Xid (PCI:{address}): 145, {unit} {word} XC1 i0 Link {link:02d} {words}"


def test_a_fatal_report_between_nonfatal_ones_is_told_at_once(case: Case) -> None:
    told = case.kernel(rlw("Nonfatal"), rlw("Fatal"), rlw("Nonfatal"))
    assert [("Nonfatal" in event.message, event.count) for event in told] == [(True, 1), (False, 1)]
    case.clock.advance(BURST_SECONDS)
    (counted,) = case.book.due()
    assert ("Nonfatal" in counted.message, counted.count) == (True, 1)


def test_another_unit_or_link_is_another_sort(case: Case) -> None:
    told = case.kernel(
        rlw("Nonfatal"), rlw("Nonfatal", unit="RLW_REMAP"), rlw("Nonfatal", link=9), rlw("Nonfatal")
    )
    assert len(told) == 3


def test_a_switch_that_says_fatal_is_not_counted_among_its_lesser_errors(case: Case) -> None:
    switch = "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028"
    told = case.kernel(*(f"{switch}, {word}, Link 32 x" for word in ("Non-fatal", "Fatal") * 2))
    assert ["non-fatal" in event.message for event in told] == [True, False]
    assert len(case.kernel(f"{switch}, Non-fatal, Link 33 x")) == 1


def test_a_line_that_says_more_replaces_what_nvml_told(case: Case) -> None:
    (plain,) = case.nvml(145)
    (line,) = case.kernel(rlw("Fatal"))
    assert (line.id, line.version, plain.version) == (plain.id, 2, 1)
    assert "Fatal" in line.message
    assert case.kernel(rlw("Fatal")) == []  # the same again, which is counted
    assert case.book.flush()[0].count == 1


def test_a_fatal_line_is_told_although_nvml_said_each_code_before(case: Case) -> None:
    assert len([event for _ in range(3) for event in case.nvml(145)]) == 1
    told = case.kernel(rlw("Nonfatal"), rlw("Fatal"), rlw("Nonfatal"))
    assert [event.version for event in told] == [2, 1]
    assert "Fatal" in told[1].message
    assert [event.count for event in case.book.flush()] == [1]


def test_of_more_sorts_than_are_kept_apart_the_gravest_is_still_told_at_once(
    tmp_path: Path,
) -> None:
    """What is not kept apart is counted, a nonfatal one among nonfatal ones alone."""
    case = Case(tmp_path, most_bursts=10)
    assert len(case.kernel(*(rlw("Nonfatal", link=link) for link in range(10)))) == 10
    assert len(case.kernel(*(rlw("Nonfatal", link=link) for link in range(10, 40)))) == 1
    (fatal,) = case.kernel(rlw("Fatal", link=71), rlw("Nonfatal", link=41))
    assert "Fatal" in fatal.message
    (counted,) = case.book.flush()
    assert ("Nonfatal" in counted.message, counted.count) == (True, 30)


def test_what_is_reported_after_a_reset_is_news(case: Case) -> None:
    case.kernel(xid(48), xid(48))
    (counted, reset) = case.kernel("nvidia 0000:05:00.0: reset done")
    assert (counted.xid, counted.count, reset.kind) == (48, 1, EventKind.GPU_RESET)
    assert [event.xid for event in case.kernel(xid(48))] == [48]
    case.kernel(xid(48))
    assert [event.count for event in case.book.calm(GPU)] == [1]


def test_the_reset_of_what_is_no_gpu_is_nothing(case: Case) -> None:
    assert case.kernel("nvme 0000:01:00.0: reset done") == []


def test_off_the_bus_is_said_with_its_xid_or_alone(case: Case) -> None:
    off = "NVRM: GPU 0000:05:00.0: GPU has fallen off the bus."
    both = case.kernel(xid(79), off)
    assert [event.kind for event in both] == [EventKind.XID]
    (alone,) = case.kernel(off.replace("05", "9b"))
    assert (alone.kind, alone.subject.gpu) == (EventKind.GPU_LOST, "GPU-9")


def test_other_reports_name_their_place(case: Case) -> None:
    told = case.kernel(
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress error",
        "nvidia 0000:05:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "pcieport 0000:00:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (x)",
        "Out of memory: Killed process 4711 (python3) total-vm:1kB",
        "mce: [Hardware Error]: Machine check events logged",
    )
    assert [(event.kind, event.subject, event.message) for event in told] == [
        (
            EventKind.SXID,
            NODE,
            "SXid 12028: non-fatal: Link 32 egress error [nvswitch3, 0000:05:00.0]",
        ),
        (
            EventKind.PCIE_ERROR,
            GPU,
            "PCIe error: Corrected, type=Physical Layer, (Receiver ID) [0000:05:00.0]",
        ),
        (
            EventKind.PCIE_ERROR,
            NODE,
            "PCIe error: Uncorrected (Fatal), type=Transaction Layer, (x) [0000:00:01.0]",
        ),
        (EventKind.OOM_KILL, NODE, "process killed: memory ran out [python3 (pid 4711)]"),
        (EventKind.MACHINE_CHECK, NODE, "machine check: Machine check events logged"),
    ]
    assert told[0].sxid == 12028


def test_corrected_errors_do_not_hide_a_fatal_one(case: Case) -> None:
    corrected = "nvidia 0000:05:00.0: PCIe Bus Error: severity=Corrected, type=x, (y)"
    fatal = "nvidia 0000:05:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=x, (y)"
    assert len(case.kernel(corrected, corrected, fatal)) == 2


def test_position_and_what_is_untold_outlive_the_process(case: Case) -> None:
    case.kernel(*[xid(31)] * 3)
    case.book.save()
    again = case.again()
    assert again.book.position == Position(boot_id="b", sequence=3)
    (counted,) = again.book.due()
    assert (counted.count, counted.xid) == (2, 31)
    again.book.save()
    assert again.again().book.due() == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"boot_id": "b"}', "null"])
def test_a_file_that_is_not_ours_is_a_first_start(
    case: Case, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    case.file.write_text(content)
    assert case.again().book.position is None
    assert "position is lost" in caplog.text


def test_events_are_records_that_come_back(case: Case) -> None:
    (event,) = case.kernel("nvidia-nvswitch3: SXid (PCI:0000:06:00.0): 12028, Fatal, x")
    event = replace(event, count=3)
    assert Event.from_record(event.to_record()) == event
    assert json.loads(json.dumps(event.to_record().to_json()))["body"]["count"] == 3
