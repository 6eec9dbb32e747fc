"""What the documentation says is what the code does."""

import re
from datetime import datetime, timezone
from pathlib import Path

import pytest
import tomllib
import yaml

from accounting.cost.money import Prices
from analyzer.correlation.all_detectors import DETECTORS
from dashboard.layout import frame
from gpuvigil.command_line import COMMANDS
from gpuvigil.config import STORES, load
from gpuvigil.hub_client import Hub, addresses
from hub.http.bearer import Scope
from scripts.docs import PAGES, written
from simulator.fleet.kinds import KINDS, OF_SWITCHES

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def generated() -> dict[str, tuple[Path, str]]:
    """What the code would write, by file name."""
    return {path.name: (path, text) for path, text in written().items()}


@pytest.mark.parametrize("name", list(PAGES))
def test_a_generated_page_is_what_the_code_would_write(
    generated: dict[str, tuple[Path, str]], name: str
) -> None:
    path, text = generated[name]
    assert path.read_text() == text, f"{path.name}: run make docs"


def test_every_command_is_documented_and_no_other() -> None:
    page = (ROOT / "docs/commands.md").read_text()
    documented = set(re.findall(r"^## `gpuvigil ([a-z]+)", page, re.MULTILINE))
    assert documented == set(COMMANDS)


def test_pages_count_the_sorts_of_faults_of_the_simulated_fleet() -> None:
    # Live, somebody reads the switches.
    sorts = len(KINDS | OF_SWITCHES)
    assert f"[faults of {sorts} sorts]" in (ROOT / "README.md").read_text()
    assert f"11 of {len(KINDS)} kinds" in (ROOT / "docs/recordings.md").read_text()


def test_every_word_of_the_vocabulary_is_in_the_glossary() -> None:
    glossary = (ROOT / "docs/glossary.md").read_text()
    words = ("Sample", "Event", "Finding", "Incident", "Transition", "Notice", "Verdict")
    kept = ("Spool", "Store", "Record", "Hot hours", "Sealed unit", "Roll-up", "Token scope")
    for word in (*words, *kept):
        assert glossary.count(f"| **{word}** |") == 1, word
    scopes = glossary.partition("**Token scope**")[2].partition("\n")[0]
    assert {f"`{scope.value}`" for scope in Scope} == set(re.findall(r"`\w+`", scopes))


def test_every_detector_is_documented_and_no_other() -> None:
    page = (ROOT / "docs/detectors.md").read_text()
    documented = re.findall(r"^## `([a-z_]+)`", page, re.MULTILINE)
    assert len(set(documented)) == len(documented)
    assert set(documented) <= {one.name for one in DETECTORS}
    # The others are told in a sentence.
    table = (ROOT / "docs/faults.md").read_text().partition("## Detectors")[2]
    assert {one.name for one in DETECTORS if f"\n| `{one.name}` |" not in table} == set()


def test_pinned_versions_lie_within_the_ranges_we_promise() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    pinned = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
        if "==" in line
    )
    for requirement in wanted:
        name = re.split(r"[\[<>=;]", requirement)[0].strip().lower()
        if name not in {"gpuvigil", "tomli"}:
            assert name in pinned, f"{name} is not pinned in constraints.txt"


def test_every_link_between_our_pages_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if not re.match(r"[a-z]+:", target):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_of_the_dashboard_has_its_section() -> None:
    text = (ROOT / "docs/pages.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^## (.*)$", text, re.MULTILINE))
    assert {page.title for page in frame.PAGES if page.listed} <= sections


def test_every_configuration_in_the_page_on_stores_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs/stores.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    kinds = set()
    for example in examples:
        file = tmp_path / "gpuvigil.toml"
        file.write_text(example, encoding="utf-8")
        kinds.add(load(file, {}).store.kind)
    assert kinds == set(STORES) - {"hub"}


def test_every_configuration_in_the_page_on_scaling_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs/scaling.md").read_text(encoding="utf-8")
    found = []
    for example in re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        file = tmp_path / "gpuvigil.toml"
        file.write_text(example, encoding="utf-8")
        config = load(file, {})
        found += [config.store.kind, *addresses(config.hub.url)]
        for address in addresses(config.hub.url):
            Hub(address, str).close()
    assert "victoriametrics" in found
    assert "http://10.0.0.12:8428" in found


def test_the_example_of_the_services_configuration_is_one() -> None:
    config = load(ROOT / "packaging/gpuvigil.toml", {})
    unit = (ROOT / "packaging/gpuvigil@.service").read_text(encoding="utf-8")
    assert config.hub.url.startswith("https://")
    assert config.hub.tls_certificate_file is not None
    assert config.hub.service_token_file != config.hub.collector_token_file
    assert config.alerts.slack[0].url_file is not None
    (state,) = re.findall(r"^StateDirectory=(.*)$", unit, re.MULTILINE)
    for directory in (config.hub.data_directory, config.dashboard.secrets_directory):
        assert directory.is_relative_to(Path("/var/lib") / state)


def test_the_configuration_in_the_page_on_money_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs/costs.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    file = tmp_path / "gpuvigil.toml"
    file.write_text(example, encoding="utf-8")
    prices = Prices(settings=load(file, {}).cost)
    bought = prices.price("lab", "NVIDIA H100", datetime(2026, 5, 1, tzinfo=timezone.utc))
    assert bought is not None
    assert f"= {bought.per_gpu_hour:.2f} an hour" in page


def test_the_proxy_before_a_store_lets_through_what_a_collector_writes() -> None:
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    nodes, services = yaml.safe_load(example)["users"]
    (route,) = nodes["url_map"]
    written = (ROOT / "collector/spool/remote_write.py").read_text(encoding="utf-8")
    assert set(route["src_paths"]) == set(re.findall(r'f"(/[/\w]*write)\?', written))
    assert "url_map" not in services
    assert services["bearer_token"] != nodes["bearer_token"]


def test_the_developers_page_names_files_that_there_are_and_what_is_in_them() -> None:
    page = (ROOT / "docs/development.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:\w+/)+[\w.]*|pyproject\.toml)`((?: `[\w.]+`)*)", page)
    assert len(named) > 40
    for path, symbols in named:
        assert (ROOT / path).exists(), path
        for symbol in re.findall(r"`([\w.]+)`", symbols):
            words = rf"(?<!\w){re.escape(symbol)}(?!\w)"
            assert re.search(words, (ROOT / path).read_text(encoding="utf-8")), (path, symbol)
