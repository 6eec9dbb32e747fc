"""`gpuvigil person` and `gpuvigil audit`, on a real hub."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli import audit_command, person_command
from dashboard.auth.accounts import Accounts
from dashboard.auth.keys import Keys
from tests.hub.in_process import HubThread
from tests.servers import ROOT, HubProcess

PASSWORD = "correct horse battery"
NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Site:
    config: Path
    secrets: Path
    password: Path

    def person(self, *arguments: str) -> int:
        return person_command.main(["--config", str(self.config), *arguments])

    def audit(self, *arguments: str) -> int:
        return audit_command.main(["--config", str(self.config), *arguments])

    @property
    def accounts(self) -> Accounts:
        return Accounts(self.secrets)


def configured(directory: Path, hub: str) -> Site:
    config, secrets, password = (directory / name for name in ("d.toml", "secrets", "password"))
    config.write_text(f'{hub}[dashboard]\nsecrets_directory = "{secrets}"\n')
    password.write_text(f"{PASSWORD}\n")
    password.chmod(0o600)
    return Site(config, secrets, password)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubThread(tmp_path_factory.mktemp("hub")) as process:
        yield process


@pytest.fixture
def site(hub: HubProcess, tmp_path: Path) -> Site:
    file = hub.service_token_file
    return configured(tmp_path, f'[hub]\nurl = "{hub.url}"\nservice_token_file = "{file}"\n')


@pytest.mark.server
def test_a_person_comes_changes_and_goes_and_each_step_is_in_the_audit_log(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(site.password)
    assert (
        site.person("add", "mira", "--role", "team", "--team", "nlp", "--password-file", file) == 0
    )
    assert site.accounts.matching("mira", PASSWORD) is not None
    assert site.person("role", "mira", "--role", "operator", "--user", "mira01") == 0
    site.password.write_text(f"{PASSWORD}!\n")
    assert site.person("passwd", "mira", "--password-file", file) == 0
    assert site.accounts.matching("mira", f"{PASSWORD}!") is not None
    capsys.readouterr()
    assert site.person("list") == 0
    assert capsys.readouterr().out == "mira  operator  users: mira01  teams: nlp\n"
    assert site.person("remove", "mira") == 0
    assert site.accounts.all() == {}
    assert site.person("end-sessions", "mira") == 0
    capsys.readouterr()
    assert site.audit("-o", "json") == 0
    told = capsys.readouterr().out
    done = [one["detail"].partition(",")[0] for one in json.loads(told) if one["about"] == "mira"]
    assert done[0] == "added as team"
    assert done[2:] == ["password changed", "removed", "sessions ended"]
    assert PASSWORD not in told
    assert "$argon2" not in told
    assert site.audit("--person", "nobody") == 0
    assert capsys.readouterr().out == "nothing was recorded in this time\n"


@pytest.mark.server
def test_what_cannot_be_is_one_line_and_changes_nothing(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(site.password)
    for wrong in (
        ("passwd", "nobody", "--password-file", file),
        ("role", "nobody", "--role", "own"),
        ("remove", "nobody"),
        ("add", "a b", "--role", "own", "--password-file", file),
    ):
        assert site.person(*wrong) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert site.accounts.all() == {}


def test_without_a_hub_a_person_is_added_all_the_same_and_the_log_is_said_to_lack_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text("t\n")
    site = configured(
        tmp_path, f'[hub]\nurl = "http://127.0.0.1:1"\nservice_token_file = "{token}"\n'
    )
    assert site.person("add", "ada", "--role", "own", "--password-file", str(site.password)) == 0
    assert "done, but not in the audit log" in capsys.readouterr().err
    assert set(site.accounts.all()) == {"ada"}


def test_no_password_can_be_given_where_other_users_of_a_machine_read_it() -> None:
    with pytest.raises(SystemExit):
        person_command.main(["add", "ada", "--role", "own", "--password", PASSWORD])


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def given_away(secrets: Path) -> None:
    Keys(secrets)  # as the dashboard makes it
    for one in (secrets, *secrets.rglob("*")):
        os.chown(one, NOBODY, NOBODY)


def typed(site: Site, *words: str, within: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own: whom it runs as holds for all threads, of a hub here as well."""
    command = [sys.executable, "-m", "gpuvigil", *words, "--config", str(site.config)]
    return subprocess.run(
        [*within, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_what_root_makes_in_the_services_folder_is_the_services(
    shared: Path,
) -> None:
    site = configured(shared, '[hub]\nurl = "http://127.0.0.1:9"\n')
    given_away(site.secrets)
    password = str(site.password)  # which root alone may read
    for words in (
        ("person", "add", "mira", "--role", "operator", "--password-file", password),
        ("person", "end-sessions", "mira"),
    ):
        done = typed(site, *words)
        assert done.returncode == 0, done.stderr
    assert "/?token=" in typed(site, "url").stdout
    made = [site.secrets, *site.secrets.rglob("*")]
    names = {one.name for one in made}
    assert {"people.json", ".people.lock", "links", "ended"} <= names
    assert len(list((site.secrets / "links").iterdir())) >= 1
    assert {(one.stat().st_uid, one.stat().st_gid) for one in made} == {(NOBODY, NOBODY)}
    assert set(site.accounts.all()) == {"mira"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to lose")
def test_root_that_may_not_become_another_user_is_told_as_whom_to_run_it(shared: Path) -> None:
    site = configured(shared, '[hub]\nurl = "http://127.0.0.1:9"\n')
    given_away(site.secrets)
    done = typed(site, "url", within=("setpriv", "--bounding-set=-setuid,-setgid"))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"run this as user {NOBODY}" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list((site.secrets / "links").iterdir()) == []
