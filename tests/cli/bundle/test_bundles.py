"""Secrets and names everywhere, and none of them in a bundle."""

import json
import stat
import tarfile
import time
from datetime import datetime, timedelta, timezone
from importlib import metadata
from pathlib import Path

import pytest

from cli.bundle.bundle_command import evidence_main, support_main
from cli.bundle.contents import about, kernel, support
from cli.bundle.logs import logs
from cli.bundle.reading import Site
from cli.bundle.redaction import Redactor
from cli.bundle.site import redactor
from gpuvigil.config import Config, load
from gpuvigil.model import (
    Allocation,
    GpuIdentity,
    Impact,
    Incident,
    Inventory,
    Opinion,
    Severity,
    Subject,
    pod_holder,
)
from tests.collector.inference.pages import InferenceServer, good, page
from tests.servers import HubProcess, QuickHub

SECRET = "zebra-Quartz.77_needle"
TOKEN = "tok-4711-abcdefgh-ijkl"
NAMES = ("falcon-cluster", "heron-node-01", "wren-rack", "ada.lovelace", "kestrel-team")
UUID = "GPU-0f1e2d3c-aaaa-bbbb-cccc-0123456789ab"
SERIAL, COMMAND = "SN-1650923004711", "train_secret_project.py"
AT = datetime.now(timezone.utc) - timedelta(hours=1)


def opened(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        found = {}
        for one in archive.getmembers():
            stream = archive.extractfile(one)
            assert stream is not None
            found[one.name] = stream.read().decode()
    return found


def site(hub: HubProcess, directory: Path) -> Path:
    """A hub with names in every record, and a state directory with secrets in every place."""
    cluster, node, rack, user, team = NAMES
    here = Subject(cluster=cluster, node=node)
    gpu = Subject(cluster=cluster, node=node, gpu=UUID)
    card = GpuIdentity(uuid=UUID, index=0, pci_address="0000:1b:00.0", model="NVIDIA H100")
    held = Allocation(
        subject=gpu,
        holder=pod_holder(f"{team}/job-0"),
        user=user,
        command=COMMAND,
        started_at=AT,
        ended_at=None,
        account=team,
        pod=f"{team}/job-0",
    )
    incident = Incident(
        id="incident-1",
        fingerprint="f",
        fault="gpu_lost",
        subject=gpu,
        severity=Severity.CRITICAL,
        state="open",
        title=f"GPU of {node} fell off the bus",
        since=AT,
        updated_at=AT,
        impact=Impact(holders=(f"pod {team}/job-0",), users=(user,)),
        label=f"{node} GPU 0",
        serial=SERIAL,
        acknowledged_by=user,
    )
    inventory = Inventory(
        subject=here, at=AT, boot="b", tick_seconds=10.0, version="0.1.0", gpus=(card,), rack=rack
    )
    opinion = Opinion(
        id="o", incident="incident-1", fault="gpu_lost", subject=gpu, by=user, useful=True, at=AT
    )
    hub.hub().write_records([one.to_record() for one in (inventory, held, incident, opinion)])
    (directory / "log").mkdir(parents=True)
    lines = [
        f"2026-01-01T00:00:00.000Z info hub listening port=8428 url=https://u:{SECRET}@h.example/",
        f'2026-01-01T00:00:00.000Z warning alerts "cannot deliver" to={user} token={TOKEN} tries=3',
        f"2026-01-01T00:00:00.000Z error hub {SECRET} node={node}",
        f"Traceback (most recent call last): password={SECRET} {node}",
        f'2026-01-01T00:00:00.000Z info hub "node heard" error="Authorization: Bearer {TOKEN}"',
    ]
    (directory / "log" / "hub.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (directory / "slack-url").write_text(f"https://hooks.example/{SECRET}\n", encoding="utf-8")
    file = directory / "gpuvigil.toml"
    file.write_text(
        f'[hub]\nurl = "{hub.url}"\nservice_token_file = "{hub.service_token_file}"\n'
        f'[collector]\ncluster = "{cluster}"\nnode = "{node}"\nrack = "{rack}"\n'
        f'spool_directory = "{directory}/spool"\ngpus = false\n'
        f'[analyzer]\ntrend_seconds = 900\n[[alerts.slack]]\nname = "{team}"\n'
        f'url_file = "slack-url"\n[[alerts.webhooks]]\nname = "w"\nurl = "https://x.example/{TOKEN}"\n',
        encoding="utf-8",
    )
    return file


@pytest.mark.server
def test_no_secret_and_no_name_is_in_a_bundle(tmp_path: Path) -> None:
    with QuickHub(tmp_path / "hub") as hub:
        file = site(hub, tmp_path / "state")
        service = hub.service_token_file.read_text(encoding="utf-8").strip()
        given = ["--config", str(file), "--out"]
        assert support_main([*given, str(tmp_path / "s.tar.gz")]) == 0
        assert evidence_main([*given, str(tmp_path / "e.tar.gz")]) == 0
    support, evidence = opened(tmp_path / "s.tar.gz"), opened(tmp_path / "e.tar.gz")
    for name, text in [*support.items(), *evidence.items()]:
        for word in (*NAMES, SECRET, TOKEN, UUID, SERIAL, COMMAND, service, "hooks.example"):
            assert word not in text, (name, word)
    assert stat.S_IMODE((tmp_path / "s.tar.gz").stat().st_mode) == 0o600
    log = support["log/hub.log"].splitlines()
    assert "tries=3" in log[1] or "tries=3" in "\n".join(log)
    assert "of another form" in log[-1]
    settings = json.loads(support["settings.json"])
    assert ["analyzer.trend_seconds", 900.0] in settings["set_here"]
    assert json.loads(support["status.json"])["version"]
    assert json.loads(support["doctor.json"])["diagnoses"]
    (fleet,) = json.loads(evidence["fleet.json"])
    assert fleet["models"] == {"NVIDIA H100": 1}
    (verdict,) = json.loads(evidence["verdicts.json"])
    assert (verdict["fault"], verdict["acknowledged"]) == ("gpu_lost", True)
    (word,) = json.loads(evidence["feedback.json"])
    assert word["useful"] is True
    assert word["incident"] == verdict["incident"]


@pytest.mark.medium
def test_a_site_without_a_hub_or_with_wrong_settings_gets_a_bundle_all_the_same(
    tmp_path: Path,
) -> None:
    file = tmp_path / "gpuvigil.toml"
    file.write_text(f'[hub]\nurl = "http://127.0.0.1:9"\ntokn = "{SECRET}"\n', encoding="utf-8")
    out = tmp_path / "s.tar.gz"
    assert support_main(["--config", str(file), "--out", str(out)]) == 0
    found = opened(out)
    assert json.loads(found["unread.json"])["settings"] == "ConfigError"
    assert SECRET not in "".join(found.values())
    assert json.loads(found["settings.json"])["mistakes_at"]


@pytest.mark.medium
def test_where_names_cannot_be_read_no_free_text_is_in_a_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gpuvigil.toml"
    file.write_text('[hub]\nurl = "http://127.0.0.1:9"\n', encoding="utf-8")
    (tmp_path / "log").mkdir()
    line = "2026-01-01T00:00:00.000Z warning hub heron port=8428\n"
    (tmp_path / "log" / "hub.log").write_text(line, encoding="utf-8")
    out = tmp_path / "s.tar.gz"
    assert support_main(["--config", str(file), "--out", str(out)]) == 0
    found = opened(out)
    assert "heron" not in "".join(found.values())
    assert {"logs", "doctor's texts"} <= set(json.loads(found["unread.json"]))
    told = json.loads(found["doctor.json"])["diagnoses"]
    assert told
    assert not any(one["text"] for one in told)
    assert "not all names could be read" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    "text",
    [
        f"password={SECRET}",
        f'{{"api_key": "{SECRET}"}}',
        f"Authorization: Bearer {SECRET}",
        f"https://user:{SECRET}@host/path?token={SECRET}",
        f"mail ada@{SECRET}.org",
        f"/home/{SECRET}/x",
        "10.1.2.3",
        "fe80:0:0:0:1:2:3:4",
        "2001:db8::17",
        "fe80::1",
        "AKIA0123456789abcdefGHIJ",
    ],
)
def test_sentences_lose_what_looks_like_a_secret_or_an_address(text: str) -> None:
    said = Redactor().words(f"tried {text} twice")
    assert SECRET not in said
    assert text not in said
    assert said.startswith("tried ")
    assert said.endswith(" twice")


def test_a_name_is_one_word_in_a_bundle_and_another_in_the_next() -> None:
    one, other = Redactor(names=["gpu-01"]), Redactor(names=["gpu-01"])
    assert one.words("node gpu-01 and gpu-011") == f"node {one.name('gpu-01')} and gpu-011"
    assert one.name("gpu-01") == one.name("gpu-01") != other.name("gpu-01")


def test_a_short_name_is_hidden_as_a_whole_word_and_a_short_number_is_none() -> None:
    one = Redactor(names=["ab", "q", "7", "701"])
    assert one.words("ab abc xq, q: 7 701") == (
        f"{one.name('ab')} abc xq, {one.name('q')}: 7 {one.name('701')}"
    )


def test_the_longest_name_at_a_place_is_hidden_whatever_signs_are_in_it() -> None:
    one = Redactor(names=["gpu-01", "gpu-01 GPU 0", "team", "team/job-0", "job"])
    assert one.words("gpu-01 GPU 0, team/job-0; gpu-01 GPU 1_") == (
        f"{one.name('gpu-01 GPU 0')}, {one.name('team/job-0')}; {one.name('gpu-01')} GPU 1_"
    )


@pytest.mark.medium
def test_a_large_site_has_many_names() -> None:
    names = [f"gpu-{number:06}" for number in range(150_000)]
    began = time.monotonic()
    one = Redactor(names=names)
    assert one.words(f"lost {names[-1]}") == f"lost {one.name(names[-1])}"
    assert time.monotonic() - began < 5.0


def test_a_key_that_is_not_ours_is_hidden() -> None:
    one = Redactor()
    told = one.value({"store": {"rows": 1, "heron": 2}, "tables": {"gpu": 3}})
    assert told == {"store": {"rows": 1, one.name("heron"): 2}, "tables": {"gpu": 3}}


@pytest.mark.server
def test_of_more_records_than_are_read_names_are_not_known(tmp_path: Path) -> None:
    with QuickHub(tmp_path / "hub") as hub:
        file = site(hub, tmp_path / "state")
        for most, known in ((1, False), (2, True)):
            one = Site(config=load(file), file=file, hub=hub.hub(), now=AT, most_records=most)
            assert one.knows_names() is known


@pytest.mark.server
def test_a_site_without_files_of_logs_gets_its_journal_or_how_to_read_them(tmp_path: Path) -> None:
    program = tmp_path / "journalctl"
    with QuickHub(tmp_path / "hub") as hub:

        def told(**more: str) -> tuple[dict[str, list[str]], str]:
            seen = {"PATH": str(tmp_path), **more}
            here = Site(config=Config(), file=None, hub=hub.hub(), now=AT, environment=seen)
            found = dict(logs(here, Redactor(names=["heron"]), tmp_path))
            return found, here.unread.get("logs", "")

        assert told()[0] == {}
        assert "journalctl -u 'gpuvigil@*' -u 'gpuvigil-*' -n 2000" in told()[1]
        line = "2026-01-01T00:00:00.000Z info hub listening port=8428 node=heron"
        program.write_text(f"#!/bin/sh\necho '{line}'; echo 'heron: exited'\n", encoding="utf-8")
        program.chmod(0o755)
        (found,) = told()[0].values()
        assert found[0].startswith(
            "2026-01-01T00:00:00.000Z info hub listening port=8428 node=name-"
        )
        assert found[1:] == ["left out: 1 line of another form"]
        assert told()[1] == ""
        in_pod = told(KUBERNETES_SERVICE_HOST="10.0.0.1")
        assert (in_pod[0], "kubectl -n gpuvigil logs" in in_pod[1]) == ({}, True)
        program.write_text(f"#!/bin/sh\necho '{line}'; exit 1\n", encoding="utf-8")
        assert told()[0] == {}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("[ada-lovelace]\nx = 1", "line 1"),
        ("[hub]\nada-lovelace = 1", "hub"),
        ('[hub]\n"ada lovelace" = 1', "hub"),
        ("[analyzer]\ntrend_seconds = true", "line 2, analyzer.trend_seconds"),
        ("", "GPUVIGIL_HUB_PORT"),
    ],
)
def test_of_a_mistake_its_line_and_keys_of_ours_are_told(
    tmp_path: Path, line: str, kept: str
) -> None:
    file = tmp_path / "ada.toml"
    file.write_text(f"{line}\n", encoding="utf-8")
    environment = {"GPUVIGIL_ADA_LOVELACE": "1", "GPUVIGIL_HUB_PORT": "x"}
    site = Site(config=Config(), file=file, hub=None, now=AT, environment=environment)
    told = support(site, redactor(site), None)["settings.json"]["mistakes_at"]
    assert kept in "\n".join(told)
    assert not [one for one in ("ada", "ADA", "lovelace") if one in "".join(told)]


def test_a_part_of_an_address_is_hidden_where_it_stands_alone(tmp_path: Path) -> None:
    file = tmp_path / "gpuvigil.toml"
    url = f"https://ada:{SECRET}@metrics.falcon.example:9090/hooks/T0-{SECRET}?key=short7"
    file.write_text(f'[switches]\nurl = "{url}"\n', encoding="utf-8")
    site = Site(config=load(file), file=file, hub=None, now=AT, environment={})
    hide = redactor(site)
    for text in (
        "metrics.falcon.example: Connection refused",
        'password authentication failed for user "ada"',
        f"no {SECRET} here",
        f"no such path: T0-{SECRET}",
        "key=short7",
    ):
        said = hide.words(text)
        assert not [one for one in ("falcon", '"ada"', SECRET, "short7") if one in said], said


@pytest.mark.parametrize(
    ("release", "told"),
    [
        ("6.8.0-45-falconlabs", "6.8.0-45"),
        ("5.15.0-1041.falcon", "5.15.0-1041"),
        ("6.1.0", "6.1.0"),
        ("falcon", ""),
    ],
)
def test_of_a_kernel_the_numbers_are_told(release: str, told: str) -> None:
    assert kernel(release) == told


def test_packages_that_gpuvigil_does_not_need_are_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "falcon_tools-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: falcon-tools\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert metadata.version("falcon-tools") == "1.0"
    packages = about(Site(config=Config(), file=None, hub=None, now=AT))["packages"]
    assert {
        "gpuvigil",
        "duckdb",
        "h11",
    } <= packages.keys()  # itself, what it needs, and what that needs
    assert "falcon-tools" not in packages


@pytest.mark.server
def test_what_people_call_their_models_is_not_in_a_bundle(tmp_path: Path) -> None:
    with QuickHub(tmp_path / "hub") as hub, InferenceServer(good(page("vllm-0.9"))) as server:
        file = tmp_path / "gpuvigil.toml"
        file.write_text(
            f'[hub]\nurl = "{hub.url}"\nservice_token_file = "{hub.service_token_file}"\n'
            f'[collector]\ngpus = false\nspool_directory = "{tmp_path}/spool"\n'
            f'inference_urls = ["{server.url}"]\n',
            encoding="utf-8",
        )
        out = tmp_path / "s.tar.gz"
        assert support_main(["--config", str(file), "--out", str(out)]) == 0
    doctor = opened(out)["doctor.json"]
    assert "inference server" in doctor
    assert "qwen" not in doctor


def test_a_log_line_of_another_form_is_left_out() -> None:
    redactor = Redactor()
    line = '2026-01-01T00:00:00.000Z info hub "node heard" node=n1 seconds=1.5'
    kept = redactor.log_line(line)
    assert kept is not None
    assert kept.endswith(f'"node heard" node={redactor.name("n1")} seconds=1.5')
    assert redactor.log_line("INFO something else") is None
    assert redactor.log_line("2026-01-01T00:00:00.000Z info hub s3cr3t node=n1") is None
