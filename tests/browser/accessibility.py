"""What axe finds wrong with a page, for tests of every page."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

# Everything that axe knows by default: WCAG 2 A and AA, and its own good practices.
OPTIONS = {"resultTypes": ["violations"]}


def violations(page: Page) -> list[str]:
    """A line per element that breaks a rule: the rule, the element, and what is wrong with it."""
    found = Axe().run(page, options=OPTIONS).response["violations"]
    return [
        f"{rule['id']}: {' '.join(map(str, node['target']))}: {node.get('failureSummary', '')}"
        for rule in found
        for node in rule["nodes"]
    ]
