"""What axe finds wrong with a page, for tests of every page."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

# Everything that axe knows by default: WCAG 2 A and AA, and its own good practices.
OPTIONS = {"resultTypes": ["violations"]}


# Streamlit fades what a run that takes long is about to replace.
_TRIES, _REST_MS = 5, 2000.0


def violations(page: Page) -> list[str]:
    """A line per element that breaks a rule: the rule, the element, and what is wrong with it.

    Of a page that rests: what breaks one only while a run goes on does not count.
    """
    for _ in range(_TRIES):
        found = _violations(page)
        if not found:
            break
        page.wait_for_timeout(_REST_MS)
    return found


def _violations(page: Page) -> list[str]:
    found = Axe().run(page, options=OPTIONS).response["violations"]
    return [
        f"{rule['id']}: {' '.join(map(str, node['target']))}: {node.get('failureSummary', '')}"
        for rule in found
        for node in rule["nodes"]
    ]
