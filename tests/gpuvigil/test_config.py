"""A wrong configuration is one clear line; a right one is typed."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpuvigil.config import Config, load, read_secret, secret_source
from gpuvigil.errors import ConfigError
from gpuvigil.hub_client import Hub


def refusal(tmp_path: Path, text: str, environment: dict[str, str] | None = None) -> str:
    path = tmp_path / "gpuvigil.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path, environment or {})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_a_file_everything_has_its_default() -> None:
    assert load(None, {}) == Config()


def test_a_file_is_laid_over_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        "[hub]\nport = 9\ndata_directory = 'd'\n[collector]\ntick_seconds = 2\n"
        "[[alerts.webhooks]]\nname = 'ops'\nurl = 'http://127.0.0.1/x'\n"
    )
    config = load(path, {})
    assert config.hub.port == 9
    assert config.hub.data_directory == tmp_path / "d"
    assert config.collector.tick_seconds == 2.0
    assert [webhook.name for webhook in config.alerts.webhooks] == ["ops"]


def test_names_may_hold_spaces_and_a_metrics_port_may_be_none(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[collector]\ncluster = 'gpu lab/2'\nmetrics_port = -1\n")
    collector = load(path, {}).collector
    assert (collector.cluster, collector.node, collector.metrics_port) == ("gpu lab/2", "", -1)


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1", "ftp://a", "http://a:x", "http://a:0", "http://["]
)
def test_an_address_of_the_hub_that_is_none_is_a_wrong_configuration(url: str) -> None:
    with pytest.raises(ConfigError, match=r"hub\.url: .* is not an http or https address"):
        Hub(url, lambda: "token")


def test_a_variable_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[hub]\nport = 9\n[collector]\ngpus = true\n")
    config = load(
        path,
        {"GPUVIGIL_HUB_PORT": "10", "GPUVIGIL_COLLECTOR_GPUS": "false", "GPUVIGIL_PARENT": "1"},
    )
    assert (config.hub.port, config.collector.gpus) == (10, False)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[hub]\nprot = 1\n", ["line 2", "hub.prot", "unknown key"]),
        ("[hubb]\n", ["line 1", "hubb", "unknown key"]),
        ("[hub]\nport = 'x'\n", ["line 2", "hub.port", "not a whole number"]),
        ("[hub]\nport = true\n", ["hub.port", "not a whole number"]),
        ("[collector]\ntick_seconds = 0\n", ["collector.tick_seconds", "more than 0"]),
        ("[collector]\nport_poll_seconds = 0\n", ["collector.port_poll_seconds", "more than 0"]),
        ("[hub]\ntelemetry_days = nan\n", ["line 2", "hub.telemetry_days", "from 0 to"]),
        ("[hub]\nrecords_days = 1e9\n", ["hub.records_days", "to 40000"]),
        ("[hub]\nport = 70000\n", ["hub.port", "from 0 to 65535"]),
        ("[collector]\nmetrics_port = -2\n", ["collector.metrics_port", "from -1 to"]),
        ("[hub]\nbody_bytes = 0\n", ["hub.body_bytes", "from 1 to"]),
        ("[simulator]\ngpus_per_node = 0\n", ["simulator.gpus_per_node", "from 1 to 256"]),
        ("[analyzer]\nclear_seconds = -1\n", ["analyzer.clear_seconds", "from 0 to"]),
        (
            "[[alerts.webhooks]]\nurl = 'x'\ntimeout_seconds = inf\n",
            ["line 3", "alerts.webhooks.timeout_seconds", "from 0 to"],
        ),
        ("[collector]\ncluster = ''\n", ["line 2", "collector.cluster", "is not a name"]),
        ("[collector]\nnode = 'n東'\n", ["collector.node", "is not a name"]),
        ("[collector]\nnode = 'n\\\\'\n", ["collector.node", "is not a name"]),
        ("[collector]\nnode = '..'\n", ["collector.node", "is not a name"]),
        ("[collector]\ncluster = 'simulated'\n", ["collector.cluster", "no machine sends"]),
        ("[collector]\ncluster = 'selftest'\n", ["collector.cluster", "no machine sends"]),
        (
            "[dashboard]\ntrusted_proxies = ['10.0.0.5', '10.0.0.5/24']\n",
            ["line 2", "dashboard.trusted_proxies", "'10.0.0.5/24'", "host bits"],
        ),
        ("[dashboard]\ntrusted_proxies = ['proxy']\n", ["'proxy'", "no address"]),
        ("[dashboard]\nconnections_count = 0\n", ["connections_count", "from 1 to"]),
        ("[influxdb]\nurl = 'influxdb:8086'\n", ["line 2", "influxdb.url", "not an http or https"]),
        (
            "[influxdb]\nurl = 'http://ada:x@influxdb'\n",
            ["influxdb.url", "goes into influxdb.user"],
        ),
        ("[influxdb]\nwaiting_count = 0\n", ["influxdb.waiting_count", "from 1 to"]),
        ("hub = 3\n", ["hub", "must be a table"]),
        ("[hub\n", ["gpuvigil.toml"]),
        ("[log]\nlevel = 'loud'\n", ["log.level", "debug, info"]),
        ("[[alerts.webhooks]]\nname = 'ops'\n", ["ops", "url_file"]),
        ("[alerts]\nwebhooks = 3\n", ["line 2", "alerts.webhooks", "must be a list"]),
        ("[[alerts.email]]\nserver = 'm'\nsender = 'a b'\nto = ['x@y']", ["line 3", "sender"]),
        (
            "[[alerts.email]]\nserver = 'm'\nsender = 'a@b'",
            ["line 1", "to, owner_domain or owner_address"],
        ),
        ("[[alerts.command]]\ncommand = ['rm']", ["line 2", "command", "whole path"]),
        ("[[alerts.pagerduty]]\nname = 'p'", ["line 1", "routing_key_file"]),
        ("[[alerts.slack]]\ntoken_file = 't'", ["line 1", "channel"]),
        ("[[alerts.slack]]\nname = 'ops'\n", ["line 1", "alerts.slack", "ops", "url_file"]),
        ("[[alerts.slack]]\nurl = 'x'\ntimeout_seconds = 0\n", ["line 3", "more than 0"]),
        (
            "[[alerts.webhooks]]\nurl = 'x'\nminimum_severity = 'info'\n"
            "[[alerts.slack]]\nurl = 'x'\nminimum_severity = 'loud'\n",
            ["line 6", "alerts.slack.minimum_severity", "critical, warning, info"],
        ),
        (
            "[[alerts.slack]]\nname = 'a'\nurl = 'x'\n[[alerts.slack]]\nname = 'b'\n",
            ["line 4", "'b' needs url"],
        ),
        (
            "[[alerts.slack]]\nurl = 'x'\n\n[[alerts.slack]]\nurll = 'x'\n",
            ["line 5", "alerts.slack.urll", "unknown key"],
        ),
        (
            "[hub]\nport = 1\n[dashboard]\nport = 70000\n",
            ["line 4", "dashboard.port", "from 0 to 65535"],
        ),
        ("hub.port = 70000\n", ["line 1", "hub.port"]),
    ],
)
def test_a_mistake_names_its_place_and_what_was_expected(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    message = refusal(tmp_path, text)
    assert all(word in message for word in words), message


def test_a_setting_that_was_retired_is_named_and_the_file_still_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "old.toml"
    file.write_text("[actions]\nresume = true\nresume_after_seconds = 900.0\n")
    assert load(file, {}).actions.resume
    assert "old.toml, line 3, actions.resume_after_seconds" in caplog.text
    assert "gpuvigil node accept" in caplog.text


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    message = refusal(tmp_path, "", {"GPUVIGIL_HUB_PORT": "many"})
    assert message == "GPUVIGIL_HUB_PORT: 'many' is not a whole number"


def test_a_list_in_a_variable_has_commas(tmp_path: Path) -> None:
    given = {
        "GPUVIGIL_ANALYZER_XID_OVERRIDES": "63=warning, 45=ignore",
        "GPUVIGIL_ANALYZER_HEALTH_CHECK_USERS": "",
    }
    found = load(None, given).analyzer
    assert found.xid_overrides == ("63=warning", "45=ignore")
    assert found.health_check_users == ()
    message = refusal(tmp_path, "", {"GPUVIGIL_ANALYZER_XID_OVERRIDES": "63=warning,79"})
    assert "'79' is not like 63=warning" in message
    given = {"GPUVIGIL_ANALYZER_SXID_OVERRIDES": "12028=critical,10004=ignore"}
    assert load(None, given).analyzer.sxid_overrides == ("12028=critical", "10004=ignore")
    message = refusal(tmp_path, "", {"GPUVIGIL_ALERTS_SLACK": "ops,oncall"})
    assert message == "GPUVIGIL_ALERTS_SLACK: must be a list"


@pytest.mark.parametrize(
    ("key", "entry", "example"),
    [
        ("xid_overrides", "79", "63=warning"),
        ("xid_overrides", "12028=warning", "63=warning"),  # an SXid
        ("sxid_overrides", "12028", "12028=warning"),
        ("sxid_overrides", "12028=fatal", "12028=warning"),
        ("sxid_overrides", "120280=info", "12028=warning"),
        ("sxid_overrides", "63=warning", "12028=warning"),  # an Xid
    ],
)
def test_an_override_that_is_none_is_refused_with_its_place(
    tmp_path: Path, key: str, entry: str, example: str
) -> None:
    message = refusal(tmp_path, f"[analyzer]\n{key} = ['{entry}']\n")
    assert f"analyzer.{key}" in message
    assert f"'{entry}' is not like {example}; severities are critical, warning" in message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.toml: No such file"):
        load(tmp_path / "no.toml", {})


def test_an_unreadable_secret_is_named_and_its_content_never_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"token in .*t: No such file"):
        read_secret(tmp_path / "t", "token")
    (tmp_path / "t").write_text("abc\nhunter2\n")
    with pytest.raises(ConfigError, match="exactly one line") as caught:
        read_secret(tmp_path / "t", "token")
    assert "hunter2" not in str(caught.value)


@pytest.mark.server
@pytest.mark.parametrize("command", ["hub", "collect", "analyze", "alert", "dashboard", "simulate"])
def test_every_service_refuses_a_wrong_file_with_one_line_and_exit_code_2(
    tmp_path: Path, command: str
) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[hub]\nprot = 1\n")
    ended = subprocess.run(
        [sys.executable, "-m", "gpuvigil", command, "--config", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.count("\n") == 1
    assert "line 2, hub.prot: unknown key" in ended.stderr


def test_a_secret_is_what_one_sees(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(b"\xef\xbb\xbfsome word\r\n")  # as some editors begin, and end a line
    assert read_secret(file, "token") == "some word"
    for unseen in ("\u200b", "\u00a0", "\x00", "\r"):
        file.write_text(f"some{unseen}word\n", newline="")
        with pytest.raises(ConfigError, match=r"the token in .* type it anew|exactly one line"):
            read_secret(file, "token")


def test_a_secret_is_what_its_file_holds_now(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    secret = secret_source(file, "hub.collector_token_file", "token")
    assert [secret(), secret()] == ["one", "one"]
    file.write_text("two\n")
    assert secret() == "two"
    (tmp_path / "new").write_text("3rd\n")
    (tmp_path / "new").replace(file)
    assert secret() == "3rd"
    file.write_text("")
    for _ in range(2):
        with pytest.raises(ConfigError, match="must be exactly one line"):
            secret()
    file.unlink()
    with pytest.raises(ConfigError, match="cannot read the token"):
        secret()
    file.write_text("again\n")
    assert secret() == "again"


def test_an_address_for_people_begins_with_http(tmp_path: Path) -> None:
    file = tmp_path / "gpuvigil.toml"
    file.write_text('[alerts]\nexternal_url = "gpus.example.com"\n')
    with pytest.raises(ConfigError, match=r"'gpus\.example\.com' is not an http or https address"):
        load(file, {})
    file.write_text('[alerts]\nexternal_url = "https://gpus.example.com"\n')
    assert load(file, {}).alerts.external_url == "https://gpus.example.com"


_AS_NOBODY = """
import os, sys
from pathlib import Path
from gpuvigil.config import secret_source
b"x".decode("utf-8-sig")  # read before nobody has to find it
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
secret_source(Path("secret"), "hub.service_token_file", "service token")
"""


@pytest.mark.parametrize(
    ("mode", "todo"),
    [
        (0o000, "put sudo before the command, let the service's user read it"),
        (0o644, "put it there"),
    ],
)
def test_a_secret_that_only_root_may_read_is_told_with_sudo(
    tmp_path: Path, mode: int, todo: str
) -> None:
    (tmp_path / "secret").touch(mode)
    tmp_path.chmod(0o755)
    words = [sys.executable, "-c", _AS_NOBODY]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert f"; {todo}, or name another file in hub.service_token_file" in done.stderr
