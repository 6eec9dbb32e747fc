"""What a newcomer does, from an empty clone: two commands, one page, one fault, one message."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.end_to_end.conftest import about
from tests.product import Product, clean_environment
from tests.receiver import Receiver

pytestmark = [pytest.mark.site, pytest.mark.server, pytest.mark.timeout(900)]

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean clone of what is committed."""
    folder = tmp_path_factory.mktemp("clone") / "gpuvigil"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    return folder


def with_webhook(folder: Path, receiver: Receiver) -> Path:
    path = folder / "my.toml"
    path.write_text(f'[[alerts.webhooks]]\nname = "ops"\nurl = "{receiver.url}"\n')
    return path


def inject(folder: Path, product: Product, *arguments: str) -> None:
    subprocess.run(
        [str(folder / ".venv/bin/gpuvigil"), "inject", *arguments],
        env={**clean_environment(), "XDG_STATE_HOME": str(product.state.parent)},
        check=True,
        timeout=30,
    )


def timeless(message: str) -> str:
    """A message without what differs from one time to the next."""
    differs = {
        r"\d\d:\d\d:\d\d UTC on \d+ \w+": "TIME",
        r"\d+ s ago": "AGO",
        r"127\.0\.0\.1:\d+": "HOST",
        r"=\d{4}-\d\d-\d\dT\d\d%3A\d\d%3A\d\dZ": "=WHEN",
        r"-\d{8}T\d{12}Z": "-OPENED",
        r"/answer/[\w.-]+": "/answer/SIGNED",
    }
    text = message.strip()
    for pattern, word in differs.items():
        text = re.sub(pattern, word, text)
    return text


def open_page(browser: Browser, url: str) -> Page:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(url)
    page.get_by_text("Needs attention").wait_for()
    return page


def test_make_up_from_an_empty_clone_shows_a_fault_appear_and_go(
    clone: Path, tmp_path: Path, browser: Browser
) -> None:
    with Receiver() as receiver:
        config = with_webhook(tmp_path, receiver)
        command = ["make", "up", f"ARGUMENTS=--config {config}"]
        with Product(command, clone, tmp_path) as product:
            page = open_page(browser, product.url(timeout_seconds=600))
            page.get_by_text(re.compile("simulated", re.IGNORECASE)).first.wait_for()
            inject(clone, product, "xid79", "--node", "sim-003", "--gpu", "5")
            got = receiver.wait(lambda all_: bool(about(all_, "gpu_lost", "firing")))
            fired = about(got, "gpu_lost", "firing")[0].payload["alerts"][0]
            assert fired["annotations"]["summary"].startswith("[simulated]")
            assert "sim-003 GPU 5" in fired["annotations"]["summary"]
            sample = (clone / "README.md").read_text().split("```\n[simulated]")[1].split("```")[0]
            assert timeless(fired["annotations"]["description"]) == timeless(f"[simulated]{sample}")
            entry = page.locator(".attention li", has_text="sim-003 GPU 5").first
            entry.wait_for()
            inject(clone, product, "xid79", "--node", "sim-003", "--gpu", "5", "--clear")
            got = receiver.wait(lambda all_: bool(about(all_, "gpu_lost", "resolved")))
            resolved = about(got, "gpu_lost", "resolved")[0].payload["alerts"][0]
            assert resolved["fingerprint"] == fired["fingerprint"]
            entry.wait_for(state="hidden")
            page.close()
            product.stop()  # make passes the signal on and ends by it itself
            assert product.lines[-1] == "stopped", product.output
        # A restart is quick: everything is made already.
        with Product(command, clone, tmp_path) as product:
            page = open_page(browser, product.url())
            assert product.seconds_to_url < 10.0, product.output
            page.close()


def packages_of(python: Path) -> Path:
    words = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip())


def test_the_built_wheel_runs_without_the_clone_and_its_tools(
    clone: Path, tmp_path: Path, browser: Browser
) -> None:
    """Beside what `make up` installed: that the same requirements install from nothing is told above."""
    python = [sys.executable, "-m"]
    subprocess.run(
        [*python, "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(clone)],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run(["make", ".venv/up"], cwd=clone, env=clean_environment(), check=True)
    subprocess.run([*python, "venv", str(tmp_path / "venv")], check=True)
    packages = packages_of(tmp_path / "venv/bin/python")
    # Files like it in that folder are not read, so that the clone is not found.
    (packages / "others.pth").write_text(f"{packages_of(clone / '.venv/bin/python')}\n")
    pip = [str(tmp_path / "venv/bin/pip"), "install", "--quiet", "--no-index", "--no-deps"]
    # The same version is there, in the clone.
    subprocess.run([*pip, "--force-reinstall", str(wheel)], check=True)
    assert (packages / "gpuvigil").is_dir()
    program = tmp_path / "venv/bin/gpuvigil"
    command = [str(program), "up", "--simulate", "2"]
    with Product(command, tmp_path, tmp_path / "state") as product:
        page = open_page(browser, product.url())
        page.get_by_text(re.compile("simulated", re.IGNORECASE)).first.wait_for()
        page.close()
        assert product.stop() == 0, product.output
