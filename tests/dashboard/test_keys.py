import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from dashboard.auth.keys import LINK_LIFE, Keys
from gpuvigil.errors import ConfigError

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "secrets", timedelta(hours=2))


def test_a_link_token_works_once(keys: Keys) -> None:
    token = keys.new_link_token(NOW)
    assert keys.use_link_token(token, NOW)
    assert not keys.use_link_token(token, NOW)


def test_of_many_tries_at_once_with_one_link_token_one_wins(keys: Keys) -> None:
    token = keys.new_link_token(NOW)
    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(lambda _: keys.use_link_token(token, NOW), range(64)))
    assert won.count(True) == 1


def test_a_link_token_that_was_never_given_does_not_work(keys: Keys) -> None:
    assert not keys.use_link_token("../session-key", NOW)
    assert not keys.use_link_token("", NOW)


def test_a_link_token_is_too_old_after_its_life_and_is_swept_away(
    keys: Keys, tmp_path: Path
) -> None:
    later = NOW + LINK_LIFE + timedelta(seconds=1)
    token = keys.new_link_token(NOW)
    assert not keys.use_link_token(token, later)
    keys.new_link_token(NOW)
    keys.new_link_token(later)
    assert len(list((tmp_path / "secrets" / "links").iterdir())) == 1


def test_tokens_do_not_lie_on_the_disk_as_they_are(keys: Keys, tmp_path: Path) -> None:
    token = keys.new_link_token(NOW)
    assert all(token not in path.name for path in tmp_path.rglob("*"))


def test_a_cookie_holds_until_its_session_ends(keys: Keys) -> None:
    cookie = keys.new_cookie(NOW)
    assert keys.payload(cookie, NOW + timedelta(minutes=119)) is not None
    assert keys.payload(cookie, NOW + timedelta(hours=2)) is None


def test_a_cookie_that_was_changed_or_made_up_is_refused(keys: Keys, tmp_path: Path) -> None:
    cookie = keys.new_cookie(NOW)
    expires, nonce, signature = cookie.split(".")
    other = Keys(tmp_path / "other").new_cookie(NOW)
    forged = [
        f"{int(expires) + 9999}.{nonce}.{signature}",
        f"{expires}.{nonce[:-1]}.{signature}",
        f"{expires}.{nonce}.",
        "..",
        "",
        "ü.ü.ü",
        other,
    ]
    assert all(keys.payload(value, NOW) is None for value in forged)


def test_secrets_are_made_once_and_only_their_owner_may_read_them(tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: Keys(directory), range(8)))
    cookie = made[0].new_cookie(NOW)
    assert all(one.payload(cookie, NOW) is not None for one in made)
    assert sorted(path.name for path in directory.iterdir()) == [
        "access-token",
        "links",
        "session-key",
    ]
    for name in ("access-token", "session-key"):
        assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_directory_that_others_could_read_is_closed(tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    directory.mkdir(mode=0o755)
    Keys(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_directory_that_cannot_be_used_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="secrets_directory: cannot use"):
        Keys(tmp_path / "file" / "secrets")


def test_only_the_access_token_is_the_access_token(keys: Keys, tmp_path: Path) -> None:
    text = (tmp_path / "secrets" / "access-token").read_text(encoding="utf-8")
    assert keys.is_access_token(text)
    assert not keys.is_access_token(text[:-2])
    assert not keys.is_access_token("")
    assert not keys.is_access_token("ключ")
