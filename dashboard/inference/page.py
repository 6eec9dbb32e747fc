"""Draw the page of inference: thin glue between the hub and Streamlit."""

from ..layout import asked_page
from .drawing import page
from .hub_queries import tables

PAGE = asked_page.AskedPage(
    key="inference",
    title="Inference",
    about="who serves, and how busy",
    unknown="Who serves is not known",
    ask=tables,
    shown=page,
    fresh_seconds=60.0,  # an answer needs an hour of every GPU from the store
)


def draw() -> None:
    """Draw the whole page, which refreshes as one."""
    asked_page.draw(PAGE)
