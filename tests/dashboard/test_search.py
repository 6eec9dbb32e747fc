"""What somebody types, and the pages that it leads to."""

from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest

from dashboard.data.views import fleet_view
from dashboard.layout.search import EXPLAINED, MOST_OF_GROUP, MOST_SHOWN, Hit, find, results
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import GpuIdentity, Inventory, Severity, Subject
from gpuvigil.web.page_links import switch_page

from .scene import NOON, allocation, busy_fleet, gpu, incident, inventory, node, port

NODES = [node(f"sim-{number:03d}") for number in range(1, 13)]
ACTIVE = incident("gpu_lost", gpu(5, NODES[2]), Severity.CRITICAL)
UUID = "GPU-b0c19a52-0000-0000-0000-00000000beef"


def known() -> GpuIdentity:
    return GpuIdentity(
        uuid=UUID, index=0, pci_address="00000000:1B:00.0", model="H100", serial="1655123000931"
    )


REAL = Inventory(
    subject=node("gpu-a", "real"),
    at=NOON,
    boot="b",
    tick_seconds=1.0,
    version="1",
    gpus=(known(),),
    ports=(port("mlx5_0", True),),
)
FACTS = replace(
    busy_fleet(NODES),
    incidents=(ACTIVE,),
    allocations=(allocation(gpu(1, NODES[0]), "job 77", "zoe"),),
    inventories=(*(inventory(one) for one in NODES), REAL),
)
VIEW = fleet_view(FACTS, AnalyzerSettings(), NOON)
INVENTORIES = {one.subject: one for one in FACTS.inventories}


def hits(text: str) -> tuple[Hit, ...]:
    return find(VIEW, INVENTORIES, text, FACTS.allocations)


def led_to(text: str) -> Subject:
    """The one subject whose page the text leads to."""
    (hit,) = hits(text)
    query = {name: values[0] for name, values in parse_qs(urlsplit(hit.href).query).items()}
    assert (query["from"], query["to"]) == ("2026-01-31T11:00:00Z", "2026-01-31T12:00:00Z")
    device, _, number = query.get("port", "").partition("/")
    return Subject(
        cluster=query["cluster"],
        node=query["node"],
        gpu=query.get("gpu"),
        device=device or None,
        port=number or None,
    )


def test_a_node_is_found_by_its_name_and_by_a_part_of_it() -> None:
    assert led_to("sim-003") == NODES[2]
    assert led_to("  SIM-003 ") == NODES[2]
    assert [hit.title for hit in hits("sim-01")] == ["sim-010", "sim-011", "sim-012"]


@pytest.mark.parametrize("text", [UUID, UUID.lower(), UUID[4:], "b0c1", "GPU-B0C19a52"])
def test_a_gpu_is_found_by_its_uuid_or_the_beginning_of_it(text: str) -> None:
    assert led_to(text) == Subject(cluster="real", node="gpu-a", gpu=UUID)


@pytest.mark.parametrize(
    "text",
    [
        "00000000:1B:00.0",
        "0000:1b:00.0",
        "1b:00.0",
        "1B:00",
        "gpu-a 1b:00.0",
        "1655123000931",
        "165512",
    ],
)
def test_a_gpu_is_found_by_its_pci_address_in_any_spelling_and_by_its_serial(text: str) -> None:
    assert led_to(text) == Subject(cluster="real", node="gpu-a", gpu=UUID)


@pytest.mark.parametrize(
    "text",
    ["sim-003 5", "sim-003:5", "sim-003/5", "sim-003 GPU 5", "sim-003 gpu5", "sim-003 · GPU 5"],
)
def test_a_gpu_is_found_by_its_node_and_index(text: str) -> None:
    assert led_to(text) == gpu(5, NODES[2])


def test_a_port_is_found_by_its_node_and_name() -> None:
    wanted = Subject(cluster="real", node="gpu-a", device="mlx5_0", port="1")
    assert led_to("gpu-a mlx5_0") == wanted
    assert led_to("gpu-a mlx5_0/1") == wanted


def test_a_user_is_found_by_name_and_by_a_part_of_it_also_what_is_held() -> None:
    (user,) = hits("zoe")
    assert (user.href, user.group) == ("/people?user=zoe", "Users")
    assert {(hit.group, hit.title) for hit in hits("zo")} == {
        ("Users", "zoe"),
        ("GPUs", "sim-001 · GPU 1"),
    }


def test_racks_switches_and_ports_are_found_by_name() -> None:
    wired = replace(port("mlx5_9", True), switch="leaf7")
    told = {node("n9"): replace(inventory(node("n9"), rack="row-b"), ports=(wired,))}
    (rack,) = find(VIEW, told, "row-b")
    assert (rack.href, rack.group) == ("/hardware?cluster=simulated&rack=row-b", "Racks")
    (switch,) = find(VIEW, told, "leaf7")
    assert (switch.group, switch.href.startswith("/network?link=")) == ("Switches", True)
    read = Subject(cluster="simulated", node="spine-1", device="switch", port="0")
    (switch,) = find(VIEW, told, "spine-1", (), [read])
    assert (switch.group, switch.href) == ("Switches", switch_page("simulated", "spine-1"))
    (found,) = find(VIEW, told, "mlx5_9")
    assert (found.group, found.title) == ("Ports", "n9 · mlx5_9")


@pytest.mark.parametrize(("text", "found"), [("gpu_", True), ("gp", False)])
def test_an_incident_is_found_by_its_words_which_are_no_two_letters(text: str, found: bool) -> None:
    assert ("Incidents" in {hit.group for hit in hits(text)}) is found


@pytest.mark.parametrize("text", ["job 77", "77", " JOB  77"])
def test_a_job_is_found_by_its_number(text: str) -> None:
    (hit,) = hits(text)
    assert (hit.title, hit.href) == ("job 77", "/job?cluster=simulated&job=77")


def test_a_job_that_holds_nothing_has_a_page_too() -> None:
    (hit,) = hits("job 4711_3")
    assert hit.href == "/job?job=4711_3"
    assert not hits("job <b>")
    assert hits("4711_3") == (hit,)
    assert hits("4711")[0].href == "/job?job=4711"


def test_an_incident_is_found_by_its_id_whether_it_stands_or_not() -> None:
    (active,) = hits(ACTIVE.id)
    assert active.href == f"/incidents?incident={ACTIVE.id}"
    assert active.title == "gpu_lost"
    over = "0123456789abcdef-7"
    assert hits(over)[0].href == f"/incidents?incident={over}"


@pytest.mark.parametrize("text", ["", "  ", "nothing-like-that", "sim-003 99", "ff:1f.7", "b0c"])
def test_what_nothing_is_called_finds_nothing(text: str) -> None:
    assert hits(text) == ()


def test_many_hits_are_listed_by_group_up_to_a_bound_and_the_rest_is_counted() -> None:
    many = tuple(hit for hit in hits("sim-") if hit.group == "Nodes") * 2
    text = results("sim-", many)
    assert text.count("<li>") == MOST_SHOWN
    assert f"and {len(many) - MOST_SHOWN} more" in text
    text = results("sim-", (*many, *hits("job 77")))
    assert text.count("<li>") == MOST_OF_GROUP + 1
    assert text.index("<h2>Jobs") < text.index("<h2>Nodes")


def test_no_hit_says_what_can_be_searched_and_hostile_text_stays_text() -> None:
    text = results("<img src=x>", ())
    assert "<img" not in text
    assert EXPLAINED.split(":", maxsplit=1)[0] in text
