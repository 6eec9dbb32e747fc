"""What `gpuvigil join` writes on a node, and what it leaves alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from collector.join.node_files import Joining, configuration, write
from gpuvigil.config import load
from gpuvigil.errors import ConfigError

PEM = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"
JOINING = Joining(url="https://hub1:8428", token="secret", authority=PEM, cluster="main")


def test_the_configuration_is_one_and_names_the_files_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "collector.toml"
    file.write_text(configuration(replace(JOINING, node="gpu-1", rack='r"7'), tmp_path))
    config = load(file, {})
    assert config.hub.url == JOINING.url
    assert config.hub.ca_file == tmp_path / "ca.pem"
    names = config.collector
    assert (names.cluster, names.node, names.rack) == ("main", "gpu-1", 'r"7')
    file.write_text(configuration(replace(JOINING, authority=None), tmp_path))
    assert load(file, {}).hub.ca_file is None


def test_the_token_is_for_its_owner_and_what_says_the_same_is_left_alone(tmp_path: Path) -> None:
    said = write(JOINING, tmp_path / "etc", replace=False)
    assert [line.split()[0] for line in said] == ["written"] * 3
    token = tmp_path / "etc/collector-token"
    assert (token.read_text(), token.stat().st_mode & 0o777) == ("secret\n", 0o600)
    # The hub's own machine has it for its services, too.
    token.chmod(0o640)
    said = write(JOINING, tmp_path / "etc", replace=False)
    assert [line.split()[0] for line in said] == ["unchanged"] * 3
    assert token.stat().st_mode & 0o777 == 0o640
    said = write(replace(JOINING, token="other"), tmp_path / "etc", replace=False)
    assert [line.split()[0] for line in said] == ["unchanged", "replaced", "unchanged"]
    assert (token.read_text(), token.stat().st_mode & 0o777) == ("other\n", 0o600)
    assert not (tmp_path / "etc/collector-token.old").exists()


def test_a_configuration_that_says_something_else_is_replaced_only_when_asked(
    tmp_path: Path,
) -> None:
    write(JOINING, tmp_path, replace=False)
    elsewhere = replace(JOINING, url="https://hub2:8428", token="theirs")
    with pytest.raises(ConfigError, match="is there already, for https://hub1:8428, and says"):
        write(elsewhere, tmp_path, replace=False)
    assert (tmp_path / "collector-token").read_text() == "secret\n"
    said = write(elsewhere, tmp_path, replace=True)
    assert said[0].endswith(f"(before: {tmp_path / 'collector.toml.old'})")
    assert load(tmp_path / "collector.toml.old", {}).hub.url == JOINING.url
    assert load(tmp_path / "collector.toml", {}).hub.url == elsewhere.url


def test_a_file_that_is_no_configuration_is_kept_too(tmp_path: Path) -> None:
    (tmp_path / "collector.toml").write_text("[hub\n")
    with pytest.raises(ConfigError, match="is there already, and cannot be read: --replace"):
        write(JOINING, tmp_path, replace=False)
    with pytest.raises(ConfigError, match=r"cannot write .*: File exists"):
        write(JOINING, tmp_path / "collector.toml", replace=True)


def test_what_the_hub_of_the_same_machine_reads_is_never_replaced(tmp_path: Path) -> None:
    token, authority = tmp_path / "collector-token", tmp_path / "ca.pem"
    site = tmp_path / "gpuvigil.toml"
    site.write_text(f'[hub]\ncollector_token_file = "{token}"\nca_file = "{authority}"\n')
    token.write_text("secret\n")
    authority.write_text(PEM)
    said = write(JOINING, tmp_path, replace=False)
    assert [line.split()[0] for line in said] == ["written", "unchanged", "unchanged"]
    for other in (
        replace(JOINING, token="own"),
        replace(JOINING, authority=PEM.replace("MAA", "MAE")),
    ):
        with pytest.raises(ConfigError, match=r"is the hub's of this machine .*server init"):
            write(other, tmp_path, replace=True)
    assert (token.read_text(), authority.read_text()) == ("secret\n", PEM)
    # A machine that only asks the hub, as for Slurm, has no hub's token.
    site.write_text(f'[hub]\nca_file = "{authority}"\n')
    write(replace(JOINING, token="own"), tmp_path, replace=True)
    assert token.read_text() == "own\n"
