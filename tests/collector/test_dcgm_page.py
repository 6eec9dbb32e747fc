"""`/metrics` in DCGM's words: what comes back through a real Prometheus is what was read."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from collector.rows.catalogue_rows import Row
from collector.rows.dcgm_page import dcgm
from collector.rows.info_rows import Page
from gpuvigil.config import StoreSettings
from gpuvigil.metrics import GPU
from gpuvigil.model import (
    Allocation,
    Event,
    EventKind,
    GpuIdentity,
    Holder,
    Subject,
    job_holder,
    pod_holder,
)
from gpuvigil.store.prometheus import PrometheusStore
from tests.polling import wait_until
from tests.text_pages import TextPages
from tests.timeseries import Prometheus

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)
NODE = Subject(cluster="c", node="gpu-a")
MODEL = "NVIDIA H100 80GB HBM3"
CARD = GpuIdentity(uuid="GPU-1", index=0, pci_address="0000:1b:00.0", model=MODEL)
FIELDS = {
    "up": 1,
    "index": 0,
    "utilization_percent": 98,
    "memory_used_bytes": 70_000 * 1024**2,
    "memory_total_bytes": 81_000 * 1024**2,
    "sm_clock_hertz": 1_980_000_000,
    "power_watts": 652.25,
    "energy_joules": 2000.5,
    "graphics_activity_percent": 87.5,
    "power_cap_seconds": 3.0,
    "remap_failure": 0,
}


def page(as_dcgm: bool = True) -> Page:
    return Page(NODE, {"GPU-1": CARD}, links=False, calls=False, as_dcgm=as_dcgm)


def shown(one: Page, held: list[Allocation], fields: dict[str, float]) -> str:
    tags = {"cluster": "c", "node": "gpu-a", "uuid": "GPU-1", "model": MODEL}
    told = [Row(measurement=GPU, tags=tags, fields=fields, at=NOW)]
    make = one.dcgm(held)
    return "" if make is None else make(one.rows(told, "550.54.15", NOW))


def held_by(holder: Holder, pod: str | None = None) -> list[Allocation]:
    gpu = Subject(cluster="c", node="gpu-a", gpu="GPU-1")
    return [
        Allocation(
            subject=gpu,
            holder=holder,
            user=None,
            command=None,
            started_at=NOW,
            ended_at=None,
            pod=pod,
        )
    ]


def samples(text: str) -> dict[str, tuple[dict[str, str], float]]:
    families = text_string_to_metric_families(text)
    return {one.name: (one.labels, one.value) for family in families for one in family.samples}


def test_names_units_and_labels_are_those_of_dcgm_exporter() -> None:
    text = shown(page(), held_by(job_holder(7)), FIELDS)
    found = samples(text)
    labels, value = found["DCGM_FI_DEV_SM_CLOCK"]
    assert value == 1980
    assert labels == {
        "gpu": "0",
        "UUID": "GPU-1",
        "pci_bus_id": "00000000:1B:00.0",
        "device": "nvidia0",
        "modelName": MODEL,
        "Hostname": "gpu-a",
        "DCGM_FI_DRIVER_VERSION": "550.54.15",
        "hpc_job": "7",
    }
    wanted = {
        "DCGM_FI_DEV_GPU_UTIL": 98,
        "DCGM_FI_DEV_FB_USED": 70_000,
        "DCGM_FI_DEV_FB_FREE": 11_000,
        "DCGM_FI_DEV_POWER_USAGE": 652.25,
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.875,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
        "DCGM_FI_DEV_XID_ERRORS": 0,
    }
    assert {name: found[name][1] for name in wanted} == wanted
    assert "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{" in text
    assert "_VIOLATION" not in text


def test_a_pod_is_named_as_dcgm_exporter_names_one_and_a_process_is_not() -> None:
    pod = samples(shown(page(), held_by(pod_holder("n/p"), "n/p"), FIELDS))
    labels, _ = pod["DCGM_FI_DEV_GPU_UTIL"]
    assert (labels["namespace"], labels["pod"]) == ("n", "p")
    text = shown(page(), held_by(Holder.parse("pid 7")), FIELDS)
    assert "hpc_job" not in text
    assert "pod=" not in text


def test_the_last_xid_stands_and_a_gpu_that_does_not_answer_is_not_there() -> None:
    one = page()
    gpu = Subject(cluster="c", node="gpu-a", gpu="GPU-1")
    for number, xid in enumerate((48, 63)):
        one.count([Event(kind=EventKind.XID, subject=gpu, at=NOW, id=f"{number}", xid=xid)])
    assert samples(shown(one, [], FIELDS))["DCGM_FI_DEV_XID_ERRORS"][1] == 63
    assert shown(one, [], {**FIELDS, "up": 0}) == ""
    assert shown(page(as_dcgm=False), [], FIELDS) == ""


def test_without_rows_there_is_no_text() -> None:
    assert dcgm([], {}, []) == ""


class _Page(TextPages):
    def __init__(self, content: str) -> None:
        self._content = content
        self.start()

    def text(self, path: str) -> str:
        return self._content


@pytest.mark.server
def test_a_prometheus_gives_back_what_was_read(tmp_path: Path) -> None:
    text = shown(page(), held_by(job_holder(7)), FIELDS)
    with (
        _Page(text) as served,
        Prometheus(tmp_path, served.address, {"/metrics": {"cluster": "c"}}) as server,
    ):
        store = PrometheusStore(StoreSettings(kind="prometheus", url=server.url))
        names = [name for name in FIELDS if name not in {"power_cap_seconds", "memory_total_bytes"}]

        def read() -> list[dict[str, object]]:
            since = datetime.now(timezone.utc) - timedelta(seconds=60)
            return list(store.latest("gpu", names, since).to_pylist())

        wait_until("it was scraped", lambda: bool(read()), 60)
        row = read()[0]
        assert {name: row[name] for name in names} == {name: FIELDS[name] for name in names}
        (holders,) = store.holders(datetime.now(timezone.utc)).values()
        assert holders == frozenset({(job_holder(7), None)})
