"""A signed link opens for a week, for its incident alone, and by nobody else's key."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.web.signed_links import LIFE, Seal

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=timezone.utc)
OURS = Seal(lambda: "k" * 40)


@given(st.text(max_size=50), st.integers(0, 10**6))
def test_what_was_sealed_is_opened_until_its_end(incident: str, seconds: int) -> None:
    token = OURS.token(incident, NOON)
    offer = OURS.opened(token, NOON + timedelta(seconds=seconds))
    if timedelta(seconds=seconds) < LIFE:
        assert offer is not None
        assert offer.incident == incident
    else:
        assert offer is None


@given(st.integers(0, 200), st.characters(codec="ascii"))
def test_no_sign_of_it_can_be_another(place: int, sign: str) -> None:
    token = OURS.token("i-1", NOON)
    place %= len(token)
    other = token[:place] + sign + token[place + 1 :]
    offer = OURS.opened(other, NOON)
    # The last sign of a part may have bits that mean nothing.
    assert other == token or offer is None or offer.incident == "i-1"


@pytest.mark.parametrize("token", ["", ".", "x", "é.é", "AAAA.AAAA", "A" * 5000])
def test_what_is_not_ours_opens_nothing(token: str) -> None:
    assert OURS.opened(token, NOON) is None
    assert Seal(lambda: "other").opened(OURS.token("i-1", NOON), NOON) is None


def test_a_new_key_ends_the_old_links() -> None:
    keys = ["one"]
    seal = Seal(lambda: keys[-1])
    token = seal.token("i-1", NOON)
    keys.append("two")
    assert seal.opened(token, NOON) is None
