"""Amounts of money on the page of users and teams."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """How amounts are written if there are prices."""

    currency: str

    def text(self, amount: float | None) -> str:
        """Return an amount, below 100 with cents; a dash for None."""
        return "–" if amount is None else f"{amount:,.{0 if abs(amount) >= 100 else 2}f}"
