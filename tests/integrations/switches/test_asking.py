"""The site's Prometheus is asked over HTTP: what it may answer, and what is told of it."""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs

import pytest

from gpuvigil.clock import ManualClock
from gpuvigil.config import SwitchesSettings
from gpuvigil.errors import ConfigError
from gpuvigil.model import Record, Switch
from integrations.fabric.seen import NotReadError, SeenSwitch
from integrations.fabric.watch import Watch
from integrations.switches.mapping import SwitchMapping, load, parse
from integrations.switches.prometheus import Prometheus
from integrations.switches.switches_command import Reader, log, main
from tests.sources import ROOT

from .said import NEIGHBOURS, only

NOON = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
_MAIN = "import sys; from integrations.switches.switches_command import main; sys.exit(main(sys.argv[1:]))"
SNMP = load(ROOT / "packaging/switches/snmp_exporter.toml")


@contextmanager
def serving(
    said: bytes | Mapping[str, bytes],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    drip: float = 0.0,
) -> Iterator[tuple[str, list[str]]]:
    """Answers every query alike, or each its own; `drip`: a byte in so many seconds. Gives its address, and each Authorization."""
    asked: list[str] = []
    over = Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            body = said if isinstance(said, bytes) else said[form["query"][0]]
            asked.append(self.headers.get("Authorization", ""))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            for n in range(0, len(body), 1 if drip else len(body)):
                self.wfile.write(body[n : n + 1] if drip else body)
                self.wfile.flush()
                if drip and over.wait(drip):
                    return

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def answer(*result: object) -> bytes:
    whole = {"status": "success", "data": {"resultType": "vector", "result": list(result)}}
    return json.dumps(whole).encode()


UP = {"metric": {"instance": "leaf1", "ifName": "e1"}, "value": [1.0, "1"]}


def ask(url: str, **more: Any) -> Mapping[str, SeenSwitch]:
    settings = SwitchesSettings(url=url, **{"timeout_seconds": 5.0, **more})
    return Reader(Prometheus(settings), [SNMP], MINUTE, ManualClock(NOON)).read({}).switches


def test_it_is_asked_with_its_secrets_and_a_compressed_answer_is_read(tmp_path: Path) -> None:
    token, password = tmp_path / "token", tmp_path / "password"
    token.write_text("s3cret\n")
    password.write_text("pass\n")
    packed = gzip.compress(answer(UP))
    with serving(packed, headers={"Content-Encoding": "gzip"}) as (url, asked):
        assert only(ask(url, token_file=token)).up
        assert only(ask(url, user="me", password_file=password)).up
    assert set(asked) == {"Bearer s3cret", "Basic bWU6cGFzcw=="}
    with pytest.raises(ConfigError, match=r"switches\.password_file"):
        Prometheus(SwitchesSettings(url="http://h", user="me"))
    with pytest.raises(ConfigError, match=r"switches's token in .*: No such file"):
        Prometheus(SwitchesSettings(url="http://h", token_file=tmp_path / "no"))
    with pytest.raises(ConfigError, match=r"switches\.url is not set"):
        Prometheus(SwitchesSettings())


def test_a_query_that_fails_is_named_with_what_the_server_says(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    why = b'{"status":"error","errorType":"bad_data","error":"1:3: parse error of s3cret"}'
    with serving(why, 400) as (url, _), pytest.raises(NotReadError) as error:
        ask(url, token_file=token)
    assert "snmp_exporter.toml: [state] 'ifOperStatus" in str(error.value)
    assert "status 400: 1:3: parse error of ***" in str(error.value)
    with serving(b"<html>") as (url, _), pytest.raises(NotReadError, match="not JSON"):
        ask(url)
    with serving(b"[" * 100_000) as (url, _), pytest.raises(NotReadError, match="not JSON"):
        ask(url)
    with pytest.raises(NotReadError, match="does not answer"):
        ask(url)


def test_an_answer_that_is_too_large_or_too_slow_is_given_up() -> None:
    body = answer(UP)
    with serving(body) as (url, _):
        assert only(ask(url, answer_bytes=len(body))).up
        with pytest.raises(NotReadError, match=f"the answer is over {len(body) - 1} bytes"):
            ask(url, answer_bytes=len(body) - 1)
    bomb = gzip.compress(b" " * 10_000_000)
    over, late = r"is over 1000000 bytes", r"does not answer whole within 0\.5 s"
    packed = {"Content-Encoding": "gzip"}
    with serving(bomb, headers=packed) as (url, _), pytest.raises(NotReadError, match=over):
        ask(url, answer_bytes=1_000_000)
    with serving(body, drip=0.05) as (url, _), pytest.raises(NotReadError, match=late):
        ask(url, timeout_seconds=0.5)


def test_what_cannot_be_asked_is_one_line_and_nothing_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records: list[Record] = []
    with serving(answer(UP)) as (url, _):
        prometheus = Prometheus(SwitchesSettings(url=url))
        reader = Reader(prometheus, [SNMP], MINUTE, ManualClock(NOON))
        watch = Watch(reader.read, "c", tmp_path / "memory", ManualClock(NOON), log)
        watch.round(records.extend)
    assert [it.subject for it in records] == ["c/leaf1"]
    for _ in range(3):
        watch.round(lambda them: pytest.fail(f"told {them}"))
    assert caplog.text.count("the fabric is not read") == 1


def test_switches_of_a_silent_exporter_are_neither_lost_nor_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def up(switch: str, exporter: str) -> object:
        labels = {"s": switch, "p": "e1", "instance": exporter}
        return {"metric": labels, "value": [1.0, "1"]}

    bodies: dict[str, bytes] = {"n": answer()}
    clock = ManualClock(NOON)
    two = [up("a", "g1"), up("b", "g1")]
    three = [up("c", "g2"), up("d", "g2"), up("x", "g2")]
    with serving(bodies) as (url, _):
        prometheus = Prometheus(SwitchesSettings(url=url))
        reader = Reader(prometheus, [NEIGHBOURS], 3 * MINUTE, clock)
        watch = Watch(reader.read, "c", tmp_path / "memory", clock, log)

        def look(*result: object) -> dict[str, Switch]:
            bodies["q"] = answer(*result)
            told: list[Record] = []
            watch.round(told.extend)
            clock.advance(60.0)
            return {it.subject: Switch.from_record(it) for it in told}

        look(*two, *three)
        told = look(*three)
        assert {name for name, it in told.items() if it.lost_at} == set()
        assert set(told) == {"c/c", "c/d", "c/x"}
        assert "g1 tells of none of its 2 switches any more" in caplog.text
        # One that is missing alone is lost after three minutes: a scrape of it may have failed.
        look(*two, *three)
        for lost in (set(), set(), {"c/b"}):
            told = look(two[0], *three)
            assert {name for name, it in told.items() if it.lost_at} == lost


def text_mapping(letter: str) -> SwitchMapping:
    """A mapping `f-LETTER` whose queries are `LETTER-TABLE`."""
    tables = """
[state]
query = "{0}-state"
up = [1]
down = [2]
[admin]
query = "{0}-admin"
disabled = [2]
[speed]
query = "{0}-speed"
[receive_errors]
query = "{0}-errors"
"""
    return parse('switch = "s"\nport = "p"' + tables.format(letter), f"f-{letter}")


def series(switch: str, value: int) -> object:
    return {"metric": {"s": switch, "p": "e1"}, "value": [1.0, str(value)]}


class Site:
    """Two mappings, `a` of three switches and `b` of one, and what is told of them, look by look."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(NOON)
        self.bodies = {
            f"{letter}-{name}": answer(*(series(it, value) for it in switches))
            for letter, switches in (("a", ("a1", "a2", "a3")), ("b", ("b1",)))
            for name, value in (("state", 1), ("admin", 1), ("speed", 400), ("errors", 7))
        }
        self.folder = folder

    def looking(self, url: str) -> Watch:
        """As after a start; what was told is remembered."""
        mappings = [text_mapping(it) for it in "ab"]
        reader = Reader(Prometheus(SwitchesSettings(url=url)), mappings, 3 * MINUTE, self.clock)
        return Watch(reader.read, "c", self.folder / "memory", self.clock, log)

    def told(self, watch: Watch) -> dict[str, Switch]:
        records: list[Record] = []
        watch.round(records.extend)
        self.clock.advance(60.0)
        return {it.subject: Switch.from_record(it) for it in records}


@pytest.mark.medium
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("broken", "whole"), [("a", ["c/b1"]), ("b", ["c/a1", "c/a2", "c/a3"])])
def test_where_one_mapping_has_no_series_the_others_are_read(
    tmp_path: Path, broken: str, whole: list[str], restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path)
    with serving(site.bodies) as (url, _):
        watch = site.looking(url)
        assert len(site.told(watch)) == 4
        good = site.bodies[f"{broken}-state"]
        site.bodies[f"{broken}-state"] = answer()
        if restarted:
            watch = site.looking(url)
        for _ in range(40):
            told = site.told(watch)
            assert set(told) <= set(whole)
            assert all(it.lost_at is None for it in told.values())
        assert f"f-{broken}: [state]: Prometheus has no series" in caplog.text
        site.bodies[f"{broken}-state"] = good
        assert {it.lost_at for it in site.told(watch).values()} == {None}
        # Where nobody tells anything, there is no look.
        site.bodies |= {"a-state": answer(), "b-state": answer()}
        assert site.told(watch) == {}
        assert "f-a: [state]: Prometheus has no series for 'a-state'" in caplog.text


@pytest.mark.parametrize(
    "reason", [b'{"status":"error"}', answer({"metric": {}, "value": [1, "1"]})]
)
def test_a_table_that_cannot_be_read_is_not_measured_and_no_change(
    tmp_path: Path, reason: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path)
    with serving(site.bodies) as (url, _):
        watch = site.looking(url)
        first = site.told(watch)["c/b1"].ports[0]
        assert first.bits_per_second == 400
        site.bodies |= {"b-state": answer(series("b1", 2)), "b-admin": answer(series("b1", 2))}
        disabled = site.told(watch)["c/b1"].ports[0]
        good = dict(site.bodies)
        site.bodies |= {
            f"{it}-{name}": reason for it in "ab" for name in ("admin", "errors", "speed")
        }
        told = site.told(watch)
        assert told["c/b1"].ports[0] == disabled  # somebody switched it off, and still has
        up = told["c/a1"].ports[0]
        assert (up.bits_per_second, up.best_bits_per_second) == (None, 400)
        assert (up.since, up.counts) == (first.since, first.counts)
        for name in ("admin", "speed", "receive_errors"):
            assert f"f-b: [{name}]" in caplog.text
        site.bodies |= good
        again = site.told(watch)["c/a1"].ports[0]
        assert (again.bits_per_second, again.since) == (400, first.since)


@pytest.mark.parametrize(("interval", "looks"), [(60.0, 30), (600.0, 3), (5.0, 360)])
def test_few_switches_are_believed_after_half_an_hour_however_often_somebody_looks(
    tmp_path: Path, interval: float, looks: int
) -> None:
    clock = ManualClock(NOON)
    every = [series(it, 1) for it in ("a1", "a2", "a3")]
    site = Site(tmp_path)
    with serving(site.bodies) as (url, _):
        reader = Reader(Prometheus(SwitchesSettings(url=url)), [text_mapping("a")], MINUTE, clock)
        seen = {True: reader.read({})}
        site.bodies["a-state"] = answer(*every[:1])
        seen[False] = reader.read({})
    present = [True]
    watch = Watch(lambda _: seen[present[0]], "c", tmp_path / "memory", clock, log)
    watch.round(lambda _: None)
    present[0] = False
    for _ in range(looks):
        watch.round(lambda them: pytest.fail(f"told {them}"))
        clock.advance(interval)
    records: list[Record] = []
    watch.round(records.extend)
    assert {it.subject for it in records if Switch.from_record(it).lost_at} == {"c/a2", "c/a3"}


def test_check_says_what_each_file_finds_and_tells_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, mapping = tmp_path / "c.toml", ROOT / "packaging/switches/snmp_exporter.toml"
    with serving(answer(UP)) as (url, _):
        config.write_text(f'[switches]\nurl = "{url}"\nmappings = ["{mapping}"]\n')
        assert main(["--config", str(config), "--check"]) == 0
        assert (
            f"{mapping}: 1 switch, 1 port: 1 up, 0 down\n  speed: 1 of 1" in capsys.readouterr().out
        )
    assert main(["--config", str(config), "--check"]) == 1
    assert "[state] 'ifOperStatus" in capsys.readouterr().out


@pytest.mark.medium
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "switches.url is not set"),
        ('url = "http://h"', "switches.mappings is not set"),
        ('url = "http://h"\nmappings = ["no.toml"]', "cannot read "),
        (
            'url = "http://h"\ninterval_seconds = 4.9',
            "switches.interval_seconds is 4.9: at least 5",
        ),
    ],
)
def test_settings_that_are_wrong_are_one_line(tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f"[switches]\n{text}\n")
    command = [sys.executable, "-c", _MAIN, "--config", str(config)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr
