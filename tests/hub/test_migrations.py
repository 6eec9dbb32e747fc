"""The records' layouts: from each to the newest, by one hub at a time, and never backwards."""

import json
import sqlite3
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import Engine, inspect, text
from sqlalchemy.engine.interfaces import ReflectedIndex

from gpuvigil.config import HubSettings
from gpuvigil.errors import ConfigError, StoreError
from gpuvigil.model import Record, RecordKind
from hub.records import RecordBook, open_records
from hub.records.migrations.by_alembic import config_of
from hub.records.tables import metadata
from hub.records.upgrade import NEWEST

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
OLD = Path(__file__).parent / "records_before_migrations.sql"

DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.server)]


@pytest.fixture(params=DATABASES)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> HubSettings:
    """Of a hub whose records' database is empty."""
    return _settings(request.param, request, tmp_path)


@pytest.fixture
def other(settings: HubSettings, request: pytest.FixtureRequest, tmp_path: Path) -> HubSettings:
    """Another empty database of the same kind."""
    (tmp_path / "other").mkdir()
    kind = "postgresql" if settings.records_url else "sqlite"
    return _settings(kind, request, tmp_path / "other")


def _settings(kind: str, request: pytest.FixtureRequest, directory: Path) -> HubSettings:
    url = request.getfixturevalue("postgresql").database() if kind == "postgresql" else ""
    return HubSettings(data_directory=directory, records_url=url)


@pytest.fixture
def old(tmp_path: Path) -> HubSettings:
    """Of a hub whose SQLite file was made before the layouts had numbers."""
    connection = sqlite3.connect(tmp_path / "records.sqlite")
    connection.executescript(OLD.read_text(encoding="utf-8"))
    connection.close()
    return HubSettings(data_directory=tmp_path)


def layout(engine: Engine) -> dict[str, list[str]]:
    """Every table of ours with its columns and indexes, as the database itself tells them."""
    found: dict[str, list[str]] = {}
    for table in sorted(metadata.tables):
        looked = inspect(engine)
        found[table] = [
            *(f"{it['name']} {it['type']!r} {it['nullable']}" for it in looked.get_columns(table)),
            *sorted(_index(it) for it in looked.get_indexes(table)),
            str(looked.get_pk_constraint(table)["constrained_columns"]),
            *(str(it["column_names"]) for it in looked.get_unique_constraints(table)),
        ]
    return found


def _index(found: ReflectedIndex) -> str:
    options = found.get("dialect_options", {})
    where = [str(value) for key, value in options.items() if key.endswith("_where")]
    return f"{found['name']} {found['column_names']} {found['unique']} {where}"


def test_the_layouts_lead_to_what_an_empty_database_gets_at_once(
    settings: HubSettings, other: HubSettings
) -> None:
    at_once, followed = open_records(settings), open_records(other)
    with followed.begin() as connection:
        metadata.drop_all(connection)
        connection.execute(text("DROP TABLE alembic_version"))
        command.upgrade(config_of(connection), "head")
    found = layout(at_once)
    assert found == layout(followed)
    assert any("IS NOT NULL" in line for line in found["record"])
    for table in ("counter", "alembic_version"):
        assert _rows(at_once, table) == _rows(followed, table)
    assert _rows(at_once, "alembic_version") == [(NEWEST,)]
    for engine in (at_once, followed):
        engine.dispose()


def _rows(engine: Engine, table: str) -> list[tuple[object, ...]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(f"SELECT * FROM {table}"))]


def test_tables_of_somebody_elses_are_left_alone(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "records.sqlite")
    connection.execute("CREATE TABLE record (theirs)")
    connection.close()
    with pytest.raises(StoreError, match="already exists"):
        open_records(HubSettings(data_directory=tmp_path))
    connection = sqlite3.connect(tmp_path / "records.sqlite")
    tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.close()
    assert tables == [("record",)]


def test_a_file_from_before_the_layouts_had_numbers_is_taken_over(old: HubSettings) -> None:
    book = RecordBook(open_records(old))
    found, sequence = book.changes(0, tuple(RecordKind))
    assert [(it["id"], it["sequence"]) for it in found] == [
        ("an event", 1),
        ("an incident:1", 3),
        ("an incident:2", 4),
        ("an incident", 5),
        ("held", 6),
    ]
    assert json.loads(found[0]["body"]) == {"xid": 79, "text": "it's ü"}
    assert sequence == 6
    # The claim that was made then holds, and what is written goes on from there.
    due = book.claim(RecordKind.TRANSITION, "b", NOON, timedelta(seconds=60), 10)
    assert [it["id"] for it in due] == ["an incident:2"]
    assert book.write([Record(kind=RecordKind.EVENT, id="new", at=NOON, subject="c")]) == (7, 1)
    book.close()


def test_a_file_that_was_taken_over_has_the_newest_layout(old: HubSettings, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    new = open_records(HubSettings(data_directory=tmp_path / "new"))
    taken = open_records(old)
    assert layout(taken) == layout(new)
    for engine in (new, taken):
        engine.dispose()
    # Opened again there is nothing to do.
    open_records(old).dispose()


def test_a_hub_from_before_refuses_what_is_newer_than_it(old: HubSettings) -> None:
    engine = open_records(old)
    with engine.connect() as connection:
        # What that hub looks at: it knew 1.
        assert connection.execute(text("SELECT schema_version FROM counter")).scalar() == 2
    engine.dispose()


def test_a_newer_layout_is_refused_in_one_line(settings: HubSettings) -> None:
    engine = open_records(settings)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '99'"))
    engine.dispose()
    with pytest.raises(StoreError, match="schema 99, this one knows 3") as caught:
        open_records(settings)
    said = str(caught.value)
    assert "newer gpuvigil" in said
    assert "\n" not in said
    assert "records.sqlite" in said or "PostgreSQL at 127.0.0.1" in said


def test_hubs_that_start_at_once_make_one_layout(settings: HubSettings) -> None:
    opened: list[Engine] = []
    ready = threading.Barrier(4)

    def start() -> None:
        ready.wait()
        opened.append(open_records(settings))

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(opened) == 4
    with opened[0].connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM counter")).scalar() == 1
    for engine in opened:
        engine.dispose()


def test_postgresql_that_is_away_is_one_line_without_the_password(
    settings_of_nobody: HubSettings,
) -> None:
    with pytest.raises(StoreError) as caught:
        open_records(settings_of_nobody)
    said = str(caught.value)
    assert "PostgreSQL at 127.0.0.1:1, database records" in said
    assert "refused" in said
    assert "\n" not in said
    assert "s3cret" not in said


@pytest.fixture
def settings_of_nobody(tmp_path: Path) -> HubSettings:
    """The URL in a file; nobody listens there."""
    file = tmp_path / "url"
    file.write_text("postgresql://me:s3cret@127.0.0.1:1/records\n", encoding="utf-8")
    return HubSettings(data_directory=tmp_path, records_url_file=file)


@pytest.mark.parametrize("url", ["mysql://me:s3cret@h/d", "s3cret", "postgresql://me:s3cret@h:x/d"])
def test_another_url_is_refused_without_telling_it(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError, match=r"^hub\.records_url") as caught:
        open_records(HubSettings(data_directory=tmp_path, records_url=url))
    assert "s3cret" not in str(caught.value)
