"""What is said of GPUs from what the reader says, without any process."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from collector.rows.events import EventMaker
from collector.rows.gpu_changes import GpuNews, Silence
from collector.rows.gpu_history import GpuBook
from collector.rows.monotone_counters import MonotoneCounters
from collector.samples.messages import (
    CHANGED,
    LOADED,
    NO_DRIVER,
    RELEASED,
    STARTING,
    GpuTick,
    Tick,
    XidSeen,
)
from gpuvigil.model import EventKind, GpuIdentity, Subject, Unmeasured

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)
SILENCE = Silence(unknown_seconds=2.0, event_seconds=2.0)


def identity(index: int) -> GpuIdentity:
    return GpuIdentity(uuid=f"GPU-{index}", index=index, pci_address=None, model="H100")


def answers(index: int) -> GpuTick:
    return GpuTick(index=index, identity=identity(index), values={"power_watts": 70.0})


def tick(*gpus: GpuTick, state: str = LOADED, silent: float | None = None) -> Tick:
    return Tick(at=NOW, state=state, gpus=gpus, silent_seconds=silent)


def book(*known: int, counters: MonotoneCounters | None = None) -> GpuBook:
    events = EventMaker(node=Subject(cluster="c", node="n1"), boot="b1")
    identities = {identity(index).uuid: identity(index) for index in known}
    return GpuBook(events, identities, counters or MonotoneCounters(), SILENCE)


def said(news: GpuNews) -> dict[str, tuple[float | None, float | None]]:
    """`up` and the reason by UUID."""
    return {
        row.tags["uuid"]: (row.fields.get("up"), row.fields.get("unmeasured_reason"))
        for row in news.rows
    }


def events(news: GpuNews) -> list[tuple[EventKind, str]]:
    return [(event.kind, event.subject.key) for event in news.events]


LOST = (0, Unmeasured.LOST)
SILENT = (None, Unmeasured.DRIVER_NOT_ANSWERING)
UP = (1, None)


def test_a_gpu_that_is_still_being_read_is_not_spoken_for() -> None:
    gpus = book(0, 1)
    pending = replace(answers(1), values=None, silent_seconds=1.0)
    news = gpus.update(tick(answers(0), pending), NOW, None)
    assert said(news) == {"GPU-0": UP}
    assert not news.events
    late = replace(pending, silent_seconds=2.0)
    news = gpus.update(tick(answers(0), late), NOW, None)
    assert said(news) == {"GPU-0": UP, "GPU-1": SILENT}
    assert events(news) == [(EventKind.DRIVER_SILENT, "c/n1/gpu/GPU-1")]
    assert not gpus.update(tick(answers(0), late), NOW, None).events


def test_a_known_gpu_that_the_driver_does_not_list_is_lost() -> None:
    gpus = book(0, 1)
    news = gpus.update(tick(answers(0)), NOW, None)
    assert said(news) == {"GPU-0": UP, "GPU-1": LOST}
    assert events(news) == [(EventKind.GPU_LOST, "c/n1/gpu/GPU-1")]
    back = gpus.update(tick(answers(0), answers(1)), NOW, None)
    assert events(back) == [(EventKind.GPU_BACK, "c/n1/gpu/GPU-1")]


def test_a_gpu_that_hangs_before_it_told_its_name_goes_by_its_index() -> None:
    nameless = GpuTick(index=1, silent_seconds=3.0)
    news = book(0, 1).update(tick(answers(0), nameless), NOW, None)
    assert said(news) == {"GPU-0": UP, "GPU-1": SILENT}


def test_a_gpu_that_is_lost_before_it_told_its_name_goes_by_its_index() -> None:
    nameless = GpuTick(index=1, reason=Unmeasured.LOST)
    assert said(book(0, 1).update(tick(answers(0), nameless), NOW, None))["GPU-1"] == LOST


def test_a_node_whose_driver_is_gone_says_so_of_its_gpus() -> None:
    news = book(0).update(tick(state=NO_DRIVER), NOW, None)
    assert said(news) == {"GPU-0": (None, Unmeasured.DRIVER_NOT_LOADED)}
    assert news.driver_answering is None
    assert news.driver_silent_seconds is None


def test_a_driver_that_cannot_be_used_is_a_read_error_and_answers() -> None:
    gpus = book(0)
    gpus.update(tick(silent=5.0), NOW, None)
    news = gpus.update(tick(state="nvmlInit: read error (NVML code 18)"), NOW, None)
    assert said(news) == {"GPU-0": (None, Unmeasured.READ_ERROR)}
    assert events(news) == [(EventKind.DRIVER_BACK, "c/n1")]


def test_a_driver_that_starts_is_not_spoken_for() -> None:
    assert not book(0).update(tick(state=STARTING), NOW, None).rows


def test_silence_lasts_until_a_driver_answers_also_over_a_new_reader() -> None:
    gpus = book(0)
    news = gpus.update(tick(state=LOADED, silent=5.0), NOW, None)
    assert said(news) == {"GPU-0": SILENT}
    assert events(news) == [(EventKind.DRIVER_SILENT, "c/n1")]
    assert (news.driver_answering, news.driver_silent_seconds) == (False, 5.0)
    later = NOW + timedelta(seconds=10)
    starting = gpus.update(tick(state=STARTING), later, None)
    assert said(starting) == {"GPU-0": SILENT}
    assert not starting.events
    assert starting.driver_silent_seconds == 15.0
    back = gpus.update(tick(answers(0)), later, None)
    assert said(back) == {"GPU-0": UP}
    assert events(back) == [(EventKind.DRIVER_BACK, "c/n1")]
    assert (back.driver_answering, back.driver_silent_seconds) == (True, 0.0)


def test_a_reader_that_says_nothing_is_a_silent_driver_once_that_is_too_long() -> None:
    gpus = book(0)
    assert not gpus.update(None, NOW, None).rows
    news = gpus.update(None, NOW, outage_seconds=30.0)
    assert said(news) == {"GPU-0": SILENT}
    assert news.driver_answering is False


def test_an_xid_is_of_its_gpu_or_of_the_node() -> None:
    gpus = book(0)
    event = gpus.xid(XidSeen(at=NOW, uuid="GPU-0", xid=79))
    assert (event.subject.key, event.xid, event.message) == ("c/n1/gpu/GPU-0", 79, "Xid 79")
    again = gpus.xid(XidSeen(at=NOW, uuid="GPU-0", xid=79))
    assert event.id != again.id
    assert gpus.xid(XidSeen(at=NOW, uuid=None, xid=62)).subject.key == "c/n1"


def test_energy_counts_from_the_first_sight_and_a_fall_is_a_reset() -> None:
    gpus = book()
    told = []
    for joules in (5000.0, 5010.0, 3.0, 4.0):
        gpu = replace(answers(0), values={"energy_joules": joules})
        news = gpus.update(tick(gpu), NOW, None)
        told.append(news.rows[0].fields["energy_joules"])
        resets = [event.kind for event in news.events]
        assert resets == ([EventKind.GPU_RESET] if joules == 3.0 else [])
    assert told == [0.0, 10.0, 13.0, 14.0]


def in_slot(index: int, pci_address: str) -> GpuTick:
    at_home = replace(identity(index), pci_address=pci_address)
    return GpuTick(index=index, identity=at_home, values={"power_watts": 70.0})


def seconds(news: GpuNews, uuid: str) -> float | None:
    (row,) = [row for row in news.rows if row.tags["uuid"] == uuid]
    return row.fields.get("unmeasured_seconds")


def test_a_lost_gpu_is_missing_since_it_was_lost_whatever_comes_between() -> None:
    lost: dict[str, datetime] = {}
    events_ = EventMaker(node=Subject(cluster="c", node="n1"), boot="b1")
    known = {"GPU-0": identity(0), "GPU-1": identity(1)}
    gpus = GpuBook(events_, known, MonotoneCounters(), SILENCE, lost)
    gpus.update(tick(answers(0)), NOW, None)
    assert lost == {"GPU-1": NOW}
    later = NOW + timedelta(minutes=10)
    gpus.update(replace(tick(answers(0), silent=5.0), at=later), later, None)
    again = GpuBook(events_, known, MonotoneCounters(), SILENCE, lost)
    news = again.update(replace(tick(answers(0)), at=later), later, None)
    assert (said(news)["GPU-1"], seconds(news, "GPU-1")) == (LOST, 600.0)
    assert not news.events
    assert events(again.update(tick(answers(0), answers(1)), later, None)) == [
        (EventKind.GPU_BACK, "c/n1/gpu/GPU-1")
    ]
    assert lost == {}


def test_a_silent_gpu_is_unknown_since_its_call_began() -> None:
    gpus = book(0, 1)
    late = replace(answers(1), values=None, silent_seconds=2.5)
    assert seconds(gpus.update(tick(answers(0), late), NOW, None), "GPU-1") == 2.5
    at = NOW + timedelta(seconds=10)
    later = replace(late, silent_seconds=12.5)
    news = gpus.update(replace(tick(answers(0), later), at=at), at, None)
    assert seconds(news, "GPU-1") == 12.5
    assert seconds(news, "GPU-0") is None


RELEASED_NOW = (None, Unmeasured.RELEASED_FOR_MAINTENANCE)


def test_a_release_is_no_fault_and_ends_a_silence_in_its_own_words() -> None:
    gpus = book(0, 1)
    assert said(gpus.update(tick(state=RELEASED), NOW, None)) == {
        "GPU-0": RELEASED_NOW,
        "GPU-1": RELEASED_NOW,
    }
    gpus.update(tick(answers(0), answers(1)), NOW, None)
    gpus.update(tick(silent=5.0), NOW, None)
    news = gpus.update(tick(state=RELEASED), NOW, None)
    assert [(event.kind, event.message) for event in news.events] == [
        (EventKind.DRIVER_BACK, "released for maintenance")
    ]
    assert news.driver_answering is None


def test_a_gpu_that_is_lost_stays_so_during_a_release() -> None:
    gpus = book(0, 1)
    gpus.update(tick(answers(0)), NOW, None)
    news = gpus.update(tick(state=RELEASED), NOW, None)
    assert said(news) == {"GPU-0": RELEASED_NOW, "GPU-1": LOST}
    assert not news.events


def test_a_driver_with_other_gpus_than_before_is_not_spoken_for() -> None:
    assert not book(0).update(tick(state=CHANGED), NOW, None).rows


def test_gpus_are_unknown_while_the_first_call_of_a_start_does_not_come_back() -> None:
    gpus = book(0, 1)
    starting = replace(tick(state=STARTING), starting_seconds=1.0)
    assert said(gpus.update(starting, NOW, None)) == {}
    news = gpus.update(replace(starting, starting_seconds=3.0), NOW, None)
    assert said(news) == {"GPU-0": SILENT, "GPU-1": SILENT}
    assert [row.fields["unmeasured_seconds"] for row in news.rows] == [3.0, 3.0]
    # Until it has taken too long it may only be slow: nobody is told.
    assert not news.events
    late = gpus.update(replace(starting, starting_seconds=20.0, silent_seconds=20.0), NOW, None)
    assert events(late) == [(EventKind.DRIVER_SILENT, "c/n1")]
    assert said(late) == {"GPU-0": SILENT, "GPU-1": SILENT}


def test_the_bus_tells_of_a_gpu_that_is_gone_while_the_driver_hangs() -> None:
    gpus = book()
    both = (in_slot(0, "00000000:1B:00.0"), in_slot(1, "00000000:43:00.0"))
    gpus.see_bus(["0000:1b:00.0", "0000:43:00.0"])
    news = gpus.update(tick(*both), NOW, None)
    assert [row.fields["pcie_present"] for row in news.rows] == [1, 1]
    gpus.see_bus(["0000:1b:00.0"])
    news = gpus.update(tick(silent=5.0), NOW, None)
    assert said(news) == {"GPU-0": SILENT, "GPU-1": LOST}
    assert [row.fields["pcie_present"] for row in news.rows] == [1, 0]
    assert (EventKind.GPU_LOST, "c/n1/gpu/GPU-1") in events(news)


def test_a_gpu_that_is_taken_off_the_bus_during_a_release_is_not_lost() -> None:
    gpus = book()
    gpus.see_bus(["0000:1b:00.0"])
    gpus.update(tick(in_slot(0, "00000000:1B:00.0")), NOW, None)
    gpus.see_bus([])
    news = gpus.update(tick(state=RELEASED), NOW, None)
    assert said(news) == {"GPU-0": RELEASED_NOW}
    assert not news.events
    assert events(gpus.update(tick(state=LOADED), NOW, None)) == [
        (EventKind.GPU_LOST, "c/n1/gpu/GPU-0")
    ]


def test_a_bus_that_never_showed_a_gpu_says_nothing_of_it() -> None:
    empty: list[str] = []
    for bus in (empty, None):
        gpus = book()
        gpus.see_bus(bus)
        gpus.update(tick(in_slot(0, "00000000:1B:00.0")), NOW, None)
        news = gpus.update(tick(silent=5.0), NOW, None)
        assert said(news) == {"GPU-0": SILENT}
        assert news.rows[0].fields["pcie_present"] is None


def test_a_new_gpu_in_the_slot_of_a_lost_one_has_replaced_it() -> None:
    gpus = book()
    gpus.update(tick(in_slot(0, "a"), in_slot(1, "b")), NOW, None)
    gpus.update(tick(in_slot(0, "a")), NOW, None)
    news = gpus.update(tick(in_slot(0, "a"), in_slot(2, "b")), NOW, None)
    assert said(news) == {"GPU-0": UP, "GPU-2": UP}
    assert news.changed


def test_gpus_that_moved_up_at_a_boot_replace_nobody() -> None:
    gpus = book()
    gpus.update(tick(in_slot(0, "a"), in_slot(1, "b")), NOW, None)
    assert said(gpus.update(tick(in_slot(1, "a")), NOW, None)) == {"GPU-0": LOST, "GPU-1": UP}


def test_what_the_hub_remembers_is_known_again_but_for_what_was_replaced() -> None:
    gpus = book()
    gpus.update(tick(in_slot(0, "a"), in_slot(3, "d")), NOW, None)
    had = [
        replace(identity(number), pci_address=slot) for number, slot in enumerate(("a", "b", "d"))
    ]
    since = NOW - timedelta(hours=1)
    assert gpus.restore(had, {"GPU-1": since, "GPU-2": since})
    news = gpus.update(tick(in_slot(0, "a"), in_slot(3, "d")), NOW, None)
    assert said(news) == {"GPU-0": UP, "GPU-1": LOST, "GPU-3": UP}
    assert seconds(news, "GPU-1") == 3600.0
    assert not news.events
    assert not gpus.restore(had, {})


def test_a_gpu_that_was_taken_out_is_forgotten() -> None:
    gpus = book(0, 1)
    gpus.update(tick(answers(0)), NOW, None)
    assert gpus.forget("GPU-1")
    assert said(gpus.update(tick(answers(0)), NOW, None)) == {"GPU-0": UP}
    assert not gpus.forget("GPU-1")


def test_a_gpu_is_unknown_before_people_hear_of_it_and_never_for_the_whole_driver() -> None:
    events_ = EventMaker(node=Subject(cluster="c", node="n1"), boot="b1")
    quick = Silence(unknown_seconds=0.9, event_seconds=2.0)
    gpus = GpuBook(events_, {"GPU-0": identity(0), "GPU-1": identity(1)}, MonotoneCounters(), quick)

    def silent(index: int, for_seconds: float) -> GpuTick:
        return replace(answers(index), values=None, silent_seconds=for_seconds)

    news = gpus.update(tick(answers(0), silent(1, 1.0)), NOW, None)
    assert said(news) == {"GPU-0": UP, "GPU-1": SILENT}
    assert not news.events
    assert events(gpus.update(tick(answers(0), silent(1, 2.0)), NOW, None)) == [
        (EventKind.DRIVER_SILENT, "c/n1/gpu/GPU-1")
    ]
    assert len(gpus.update(tick(answers(0), answers(1)), NOW, None).events) == 1
    # All are silent, and the reader has not yet judged the driver as a whole.
    news = gpus.update(tick(silent(0, 2.0), silent(1, 1.9)), NOW, None)
    assert said(news) == {"GPU-0": SILENT, "GPU-1": SILENT}
    assert not news.events


def test_a_gpu_that_was_silent_with_all_has_a_tick_to_answer_before_it_is_silent_alone() -> None:
    gpus = book(0, 1)
    silent = replace(answers(1), values=None, silent_seconds=60.0)
    assert events(gpus.update(tick(silent=5.0), NOW, None)) == [(EventKind.DRIVER_SILENT, "c/n1")]
    # The driver answers again, for one GPU sooner than for the other.
    assert events(gpus.update(tick(answers(0), silent), NOW, None)) == [
        (EventKind.DRIVER_BACK, "c/n1")
    ]
    assert events(gpus.update(tick(answers(0), silent), NOW, None)) == [
        (EventKind.DRIVER_SILENT, "c/n1/gpu/GPU-1")
    ]


def test_a_gpu_whose_fabric_did_not_come_up_stays_in_the_domain_that_it_was_in() -> None:
    joined = replace(identity(0), fabric_cluster="5e3b", fabric_clique=7)
    known = {"GPU-0": joined}
    made = GpuBook(
        EventMaker(node=Subject(cluster="c", node="n1"), boot="b2"),
        known,
        MonotoneCounters(),
        SILENCE,
    )
    assert not made.update(tick(answers(0)), NOW, None).changed
    assert known["GPU-0"] == joined
    other = replace(joined, fabric_clique=8)
    moved = replace(answers(0), identity=other)
    assert made.update(tick(moved), NOW, None).changed
    assert known["GPU-0"].nvlink_domain == "5e3b.8"


def test_what_a_gpu_s_job_wrote_only_grows_over_restarts_and_is_absent_without_one() -> None:
    counters = MonotoneCounters()

    def written(gpus: GpuBook, moved: dict[str, dict[str, int]]) -> list[float | None]:
        gpus.see_jobs({}, moved)
        rows = gpus.update(tick(answers(0), answers(1)), NOW, None).rows
        return [row.fields.get("job_disk_write_bytes") for row in rows]

    assert written(book(0, 1, counters=counters), {"GPU-1": {"job_disk_write_bytes": 90}}) == [
        None,
        90,
    ]
    again = book(0, 1, counters=counters)
    assert written(again, {"GPU-1": {"job_disk_write_bytes": 0}}) == [None, 90]
    assert written(again, {"GPU-1": {"job_disk_write_bytes": 7}}) == [None, 97]
    assert written(again, {}) == [None, None]
