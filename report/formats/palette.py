"""The report's colours: for white paper, distinguishable in grey and by colour-blind eyes."""

from dataclasses import dataclass

FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
INK = "#1c2733"
MUTED = "#57636f"
LINE = "#c9d1d9"
SOFT = "#dfe4ea"
NO_DATA = "#f6f7f9"
RED = "#9c1c12"
USED = "#1f8f7e"
UNUSED = "#d9c8f2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """A fill colour, and the colour of words on it."""

    fill: str
    ink: str


STATE_FILLS: dict[str, Fill] = {
    "active": Fill(fill="#0f766a", ink="#ffffff"),
    "idle": Fill(fill="#c9b1ec", ink=INK),
    "free": Fill(fill="#eceff3", ink=INK),
    "unavailable": Fill(fill="#7d1a12", ink="#ffffff"),
    "unknown": Fill(fill="#ffffff", ink=INK),
}

_RAMP = ((246, 251, 250), (125, 204, 190), (8, 82, 74))


def ramp(share: float) -> tuple[str, str]:
    """Return a colour from pale to deep for 0 to 1, and the colour of words on it."""
    place = min(max(share, 0.0), 1.0) * 2
    low, high = _RAMP[:2] if place <= 1 else _RAMP[1:]
    part = place if place <= 1 else place - 1
    mixed = [round(a + (b - a) * part) for a, b in zip(low, high, strict=True)]
    return "#{:02x}{:02x}{:02x}".format(*mixed), "#ffffff" if _light(mixed) < 0.2 else INK


def _light(color: list[int]) -> float:
    """Return the relative luminance as defined by WCAG 2."""
    parts = [one / 255 for one in color]
    red, green, blue = [
        one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts
    ]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
