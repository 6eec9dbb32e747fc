"""Draw the page of held GPUs that do little: thin glue between the hub and Streamlit."""

from ..layout import asked_page
from .drawing import page
from .hub_queries import tables

PAGE = asked_page.AskedPage(
    key="efficiency",
    title="Efficiency",
    about="allocated GPUs that do little",
    unknown="How GPUs are used is not known",
    ask=tables,
    shown=page,
    fresh_seconds=60.0,  # an answer needs an hour of every GPU from the store
)


def draw() -> None:
    """Draw the whole page, which refreshes as one."""
    asked_page.draw(PAGE)
