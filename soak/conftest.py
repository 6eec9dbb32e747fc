"""What long runs share with the tests."""

from tests.conftest import browser, needs

__all__ = ["browser", "needs"]
