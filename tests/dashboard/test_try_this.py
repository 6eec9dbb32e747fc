"""The line of links that a demo has, and no site with GPUs of its own."""

from dataclasses import replace

from dashboard.data.views import FleetView, fleet_view
from dashboard.overview.try_this import links
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Impact, Incident, Severity, Subject
from gpuvigil.web import page_links

from .scene import NOON, busy_fleet, gpu, incident, node

HIT = Impact(gpus=8, holders=("job 7",), text="job 7 of ann may suffer")


def shown(*nodes: Subject, incidents: tuple[Incident, ...] = ()) -> FleetView:
    facts = replace(busy_fleet(nodes), incidents=incidents)
    return fleet_view(facts, AnalyzerSettings(), NOON)


def of_port(number: int, impact: Impact) -> Incident:
    port = replace(node(), device=f"mlx5_{number}", port="1")
    return replace(
        incident("port_degraded", port, Severity.WARNING, label=f"p{number}"), impact=impact
    )


def test_a_demo_leads_to_its_bottleneck_its_slow_job_its_teams_and_its_handover() -> None:
    lost = replace(incident("gpu_lost", gpu(1), Severity.CRITICAL), impact=HIT)
    slow = replace(
        incident("gpu_slow", gpu(2), Severity.WARNING), impact=replace(HIT, holders=("job 9",))
    )
    unused, used = of_port(0, Impact()), of_port(1, HIT)
    assert links(shown(node(), incidents=(lost, slow, unused, used))) == (
        ("A slow network: p1", page_links.incident_page(used.id)),
        ("Why job 9 is slow", "/job?cluster=simulated&job=9"),
        ("What idle GPUs cost, by team", page_links.PEOPLE),
        ("What the next shift has to know", page_links.HANDOVER),
    )


def test_a_leaf_is_called_by_its_name_without_the_nodes_at_it() -> None:
    leaf = replace(
        of_port(1, HIT), label="switch leaf-01-0 (mlx5_1 of n1, n2, n3, n4 and 12 more nodes)"
    )
    words, _ = links(shown(node(), incidents=(leaf,)))[0]
    assert words == "A slow network: switch leaf-01-0"


def test_a_job_that_a_lost_gpu_keeps_from_its_work_is_held_up() -> None:
    lost = replace(incident("gpu_lost", gpu(1), Severity.CRITICAL), impact=HIT)
    words, href = links(shown(node(), incidents=(lost,)))[1]
    assert (words, href) == ("Why job 7 is held up", "/job?cluster=simulated&job=7")


def test_a_job_that_is_held_up_is_not_called_slow_for_what_slows_it_too() -> None:
    lost = replace(incident("gpu_lost", gpu(1), Severity.CRITICAL), impact=HIT)
    words, href = links(shown(node(), incidents=(lost, of_port(1, HIT))))[1]
    assert (words, href) == ("Why job 7 is held up", "/job?cluster=simulated&job=7")


def test_what_holds_up_a_training_goes_before_a_node_that_is_only_silent() -> None:
    lost = replace(incident("gpu_lost", gpu(1), Severity.CRITICAL), impact=HIT)
    silent = replace(
        incident("node_silent", node("sim-009"), Severity.WARNING),
        impact=replace(HIT, holders=("job 9",)),
    )
    words, _ = links(shown(node(), incidents=(silent, lost)))[1]
    assert words == "Why job 7 is held up"


def test_a_job_on_a_silent_node_is_neither_slow_nor_held_up() -> None:
    silent = replace(incident("node_silent", node(), Severity.WARNING), impact=HIT)
    assert links(shown(node(), incidents=(silent,)))[1] == ("What bounds each job", page_links.JOBS)
    dead = replace(silent, condition="dead")
    assert links(shown(node(), incidents=(dead,)))[1][0] == "Why job 7 is held up"


def test_before_anything_was_found_the_pages_that_will_show_it_are_linked() -> None:
    assert [href for _, href in links(shown(node()))] == [
        page_links.NETWORK,
        page_links.JOBS,
        page_links.PEOPLE,
        page_links.HANDOVER,
    ]


def test_processes_have_no_page_to_lead_to() -> None:
    processes = replace(HIT, holders=("pid 7",))
    one = replace(incident("gpu_slow", gpu(2), Severity.WARNING), impact=processes)
    assert links(shown(node(), incidents=(one,)))[1] == ("What bounds each job", page_links.JOBS)


def test_a_job_that_leaves_its_gpus_idle_is_not_called_slow() -> None:
    held = replace(incident("gpu_idle_held", gpu(2), Severity.INFO), impact=HIT)
    assert links(shown(node(), incidents=(held,)))[1] == ("What bounds each job", page_links.JOBS)


def test_where_any_gpu_is_real_there_is_no_such_line() -> None:
    assert links(shown(node("n1", "lab"))) == ()
    assert links(shown(node(), node("n1", "lab"))) == ()
    assert links(shown()) == ()
