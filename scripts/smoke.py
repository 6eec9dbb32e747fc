"""Start the product with only what `make up` installs, check that it answers, and end it.

`make smoke` runs it by the interpreter of that environment, on free ports of the loopback.
"""

import importlib.util
import sys
import tempfile
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

from gpuvigil.config import load
from tests.product import Product

FREE_PORTS = "[hub]\nport = 0\n[dashboard]\nport = 0\n[collector]\nmetrics_port = 0\n"
# Installed by `make test`; the product needs none of these.
TOOLS = ("pytest", "ruff", "mypy")
_START_SECONDS = 120.0


def main() -> int:
    """Return 0 when the hub is ready, a page answers and Ctrl-C ends all of it."""
    found = [name for name in TOOLS if importlib.util.find_spec(name) is not None]
    if found:
        sys.stderr.write(f"smoke: {sys.prefix} is not what `make up` makes: {', '.join(found)}\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="gv-smoke-") as name:
        folder = Path(name)
        config = folder / "smoke.toml"
        config.write_text(FREE_PORTS, encoding="utf-8")
        arguments = f"ARGUMENTS=--config {config} --simulate 2"
        command = ["make", "up", f"VENV={sys.prefix}", arguments]
        with Product(command, Path.cwd(), folder) as product:
            page = _page(product.url(_START_SECONDS))
            hub = load(product.state / "gpuvigil.toml").hub.url
            ready = urllib.request.urlopen(f"{hub}/readyz", timeout=10).status
            product.stop()
        if (ready, product.lines[-1]) != (200, "stopped") or "<title>" not in page:
            sys.stderr.write(f"smoke: hub {ready}, page {page[:200]!r}:\n{product.output}\n")
            return 1
        print(f"smoke: ready after {product.seconds_to_url:.1f} s, hub and page answered, stopped")
        return 0


def _page(url: str) -> str:
    """Return the first page as a person sees it who opens the address that `up` prints."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    with opener.open(url, timeout=30) as answer:
        return str(answer.read().decode())


if __name__ == "__main__":
    sys.exit(main())
