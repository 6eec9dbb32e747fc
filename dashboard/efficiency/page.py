"""The page of GPUs that are held and do little: thin glue between the hub and Streamlit."""

from ..layout import asked_page
from .drawing import page
from .hub_queries import tables

PAGE = asked_page.AskedPage(
    key="efficiency",
    title="Efficiency",
    about="held GPUs that do little",
    unknown="How GPUs are used is not known",
    ask=tables,
    shown=page,
    fresh_seconds=60.0,  # the store is asked for an hour of every GPU
)


def draw() -> None:
    """The whole page; it renews itself as one."""
    asked_page.draw(PAGE)
