"""Every page's HTML says where the server is."""

from dashboard.layout.page_shell import inline_scripts, page_routes, page_shell


def test_the_server_is_named_before_any_script_of_streamlits() -> None:
    html = page_shell()
    first, *others = inline_scripts(html)
    assert "BACKEND_BASE_URL: window.location.origin" in first
    assert html.index(first) < html.index("<script type=")
    assert len(others) == html.count("<script>") - 1


def test_there_is_a_route_for_every_page() -> None:
    assert [route.path for route in page_routes(["/", "/node"])] == ["/", "/node"]
