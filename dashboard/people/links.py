"""Names of jobs, users and teams as links to their pages."""

from gpuvigil.model import Holder
from gpuvigil.web import page_links

from ..layout.tree import Node, el

NO_USER, NO_TEAM = "user not known", "no team"


def holder_link(cluster: str, holder: str) -> Node:
    """Return a job or pod as a link to its page; processes have no page."""
    href = page_links.job_page(cluster, Holder.parse(holder)) if holder else ""
    return el("a", holder, href=href) if href else holder or "–"


def person_link(name: str, *, team: bool) -> Node:
    """Return a user's or a team's name as a link to its page."""
    if not name:
        return NO_TEAM if team else NO_USER
    return el("a", name, href=page_links.team_page(name) if team else page_links.user_page(name))
