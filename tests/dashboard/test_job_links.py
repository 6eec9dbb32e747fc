"""In a sentence the jobs' names lead to their pages, and nothing else does."""

from dashboard.layout.job_links import html, nodes, of_cell, parts
from gpuvigil.web.markup import Html

PAGE = "/job?cluster=c&job=7"


def test_each_job_that_is_named_leads_to_its_page() -> None:
    assert parts("job 7 of ann: 8 GPUs", "c", ["job 7"]) == [
        ("job 7", PAGE),
        (" of ann: 8 GPUs", ""),
    ]
    assert nodes("held by job 7", "c", ["job 7"]) == ["held by ", ["a", {"href": PAGE}, "job 7"]]
    assert parts("job 7, pod a/b", "c", ["job 7", "pod a/b"]) == [
        ("job 7", PAGE),
        (", ", ""),
        ("pod a/b", "/job?cluster=c&job=pod+a%2Fb"),
    ]


def test_a_longer_number_is_another_job_and_a_program_has_no_page() -> None:
    assert parts("job 77 and job 7_1", "c", ["job 7"]) == [("job 77 and job 7_1", "")]
    assert parts("pid 7", "c", ["pid 7"]) == [("pid 7", "")]
    assert parts("", "c", ["job 7"]) == []
    assert parts("job 7", "c", [""]) == [("job 7", "")]


def test_strangers_names_stay_text() -> None:
    found = html("job <b> of <i>", "c", ["job <b>"])
    assert found == '<a href="/job?cluster=c&amp;job=%3Cb%3E">job &lt;b&gt;</a> of &lt;i&gt;'
    assert isinstance(found, Html)


def test_a_user_is_a_link_only_where_it_says_whose_something_is() -> None:
    page = "/people?user=wait"
    assert parts("job 7 of wait: GPUs wait", "c", ["job 7"], ["wait"]) == [
        ("job 7", PAGE),
        (" of ", ""),
        ("wait", page),
        (": GPUs wait", ""),
    ]
    assert parts("held by pid 7 (wait)", "c", [], ["wait", ""]) == [
        ("held by pid 7 (", ""),
        ("wait", page),
        (")", ""),
    ]
    assert parts("of waiting", "c", [], ["wait"]) == [("of waiting", "")]


def test_a_cell_leads_to_the_page_of_what_it_names() -> None:
    assert of_cell("job", "job 7", "c") == of_cell("holder", "job 7", "c") == PAGE
    assert of_cell("user", "ann", "c") == "/people?user=ann"
    assert of_cell("account", "vision", None) == "/people?team=vision"
    assert of_cell("node", "n1", "c") == "/node?cluster=c&node=n1"
    assert of_cell("nodes", "n1 n2", "c") == of_cell("nodes", "n[1-2]", "c") == ""
    assert of_cell("holder", "pid 7", "c") == of_cell("gpus", 8, "c") == of_cell("user", None, "c")
