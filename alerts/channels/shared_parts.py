"""What every channel says, each in its own form: questions with their answers, and links."""

from urllib.parse import urlsplit

from gpuvigil.model import Severity
from gpuvigil.web.page_links import PIPELINE, REPORTS

from ..messages.message import Message

LONGEST_TITLE = 300


def answers(message: Message) -> list[tuple[str, str]]:
    """Return a pair per question; of a resolved incident its times, the reason and what is left."""
    if not message.firing:
        why = [("Why over", message.ended)] if message.ended else []
        return [("From", message.since), *why, ("Do now", message.action)]
    return [
        ("Where", message.where),
        ("Since", message.since),
        ("Impact", message.impact),
        ("Evidence", message.evidence),
        ("Do now", message.action),
    ]


def links(message: Message) -> list[tuple[str, str]]:
    """Return the name and address of each link; what is needed first comes first."""
    if urlsplit(message.link).path.endswith(REPORTS):
        return [("Open the report", message.link)]
    kind = {"gpu": "GPU", "node": "node", "port": "port"}[message.subject.kind]
    # An incident about gpuvigil itself is about no node.
    kind = "pipeline" if urlsplit(message.link).path.endswith(PIPELINE) else kind
    page = [(f"Open the {kind}", message.link)]
    if message.runbook and message.firing:
        page.append(("Runbook", message.runbook))
    return page + _answers(message)


def _answers(message: Message) -> list[tuple[str, str]]:
    """Return the links to the incident's page, and to answers that need no sign-in."""
    answer, story = message.answer_link, ("The whole story", message.incident_link)
    if answer is None:
        asks = message.firing and not message.owners_only
        return [("Acknowledge", message.incident_link) if asks else story]
    if not message.firing:
        return [story, ("Useful or noise?", answer)]
    taken = [("Acknowledge", f"{answer}?do=acknowledge"), ("Silence 4 h", f"{answer}?do=silence")]
    return [*taken, story, ("Useful or noise?", f"{answer}?do=opinion")]


def title(message: Message, longest: int) -> str:
    """Return what and where, at most `longest` characters, and how bad: not by a colour alone."""
    how_bad = message.severity.value
    says_so = not message.firing or message.severity is Severity.INFO
    says_so = says_so or message.worse
    mark = "" if says_so else f" ({how_bad})"
    return cut(message.summary, longest - len(mark)) + mark


def headline(message: Message) -> str:
    """Return one line for a phone's notification: what, how bad, who is hit, what to do."""
    what = title(message, LONGEST_TITLE)
    if not message.firing:
        return f"{what}. {message.action}"
    return f"{what}. Impact: {message.impact}. Do now: {message.action}"


def cut(text: str, longest: int) -> str:
    """Cut a text to at most `longest` characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def cut_bytes(text: str, longest: int) -> str:
    """Cut a text to at most `longest` bytes of UTF-8."""
    written = text.encode()
    if len(written) <= longest:
        return text
    return written[: longest - 3].decode(errors="ignore") + "…"
