"""Somebody at a browser who asks the pages something, and counts their clicks."""

import re
from dataclasses import dataclass

from playwright.sync_api import Locator, Page, ViewportSize

from tests.polling import wait_until

PHONE = ViewportSize(width=390, height=844)
# Everything that can be read on the page, shadow trees of its parts included.
READ = """() => {
  const said = [];
  const walk = (of) => { for (const it of of.childNodes) {
    if (it.nodeType === 3 && it.data.trim()) said.push(it.data.trim());
    if (it.nodeType !== 1 || ["STYLE", "SCRIPT"].includes(it.tagName)) continue;
    if (it.shadowRoot) walk(it.shadowRoot);
    walk(it);
  } };
  const main = document.querySelector("[data-testid=stMain]");
  if (main) walk(main);
  return said.join(" ").replace(/\\s+/g, " ");
}"""


@dataclass
class Hand:
    """Somebody at a browser, who counts their clicks."""

    page: Page
    clicks: int = 0

    @property
    def on_phone(self) -> bool:
        """Where the pages are behind a button."""
        return self.page.viewport_size == PHONE

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.first.click(timeout=20_000)

    def look_for(self, text: str) -> None:
        """Into the search, and Enter."""
        self.click(self.page.get_by_role("searchbox"))
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    def to(self, page: str) -> None:
        line = self.page.get_by_role("navigation")
        line.wait_for()
        if self.on_phone:
            self.click(line.get_by_role("button", name=re.compile("^Pages, now")))
        self.click(line.get_by_role("link", name=page, exact=True))

    def reads(self, *patterns: str, path: str = "") -> str:
        """What the page says once it says all of this."""

        def look() -> str | None:
            text: str = self.page.evaluate(READ)
            there = path in self.page.url and all(re.search(it, text) for it in patterns)
            return text if there else None

        try:
            return wait_until("the answer", look, 20.0)
        except AssertionError:
            raise AssertionError(f"{patterns} {path}: {self.page.evaluate(READ)[:3000]}") from None
