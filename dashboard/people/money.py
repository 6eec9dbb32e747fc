"""Amounts of money on the page of users and teams."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """Whether there are prices, and how an amount is said."""

    currency: str

    def said(self, amount: float | None) -> str:
        """With cents where it is small; a dash for what has no price."""
        return "–" if amount is None else f"{amount:,.{0 if abs(amount) >= 100 else 2}f}"
