"""The page behind a message's links: the incident and one form."""

from html import escape

from gpuvigil.clock import moment
from gpuvigil.lifecycle import ACTIVE
from gpuvigil.model import Incident

from ..auth.sign_in_page import source_hash

_STYLE = """
:root{color-scheme:dark}
body{margin:0;min-height:100vh;display:grid;place-items:center;background:#0d1117;color:#e6edf3;
font:16px/1.5 system-ui,sans-serif}
main{box-sizing:border-box;width:min(32rem,96vw);background:#161b22;border:1px solid #2b3440;border-radius:.5rem;padding:1.5rem}
h1{font-size:1.25rem;margin:0 0 .25rem}p{margin:.25rem 0 .75rem;color:#9aa7b4}
.said{color:#e6edf3;border-left:3px solid #58d5c4;padding-left:.75rem}
label{display:block;font-size:.875rem;margin-bottom:.25rem}
input{width:100%;box-sizing:border-box;font:inherit;padding:.5rem;border-radius:.375rem;
border:1px solid #3d4855;background:#0d1117;color:inherit}
.row{display:flex;flex-wrap:wrap;gap:.5rem;margin-top:1rem}
button{font:inherit;padding:.5rem 1rem;border:1px solid #3d4855;border-radius:.375rem;
background:#21262d;color:#e6edf3;cursor:pointer}
button.first{background:#1f7a6f;border-color:#1f7a6f;color:#fff}
:focus-visible{outline:2px solid #58d5c4;outline-offset:2px}
"""

POLICY = (
    f"default-src 'none'; style-src {source_hash(_STYLE)}; img-src data:; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)

_BUTTONS = (
    ("acknowledge", "Acknowledge", "acknowledge"),
    ("silence", "Silence for 4 h", "silence"),
    ("opinion", "Useful", "useful"),
    ("opinion", "Noise", "noise"),
)


def page(
    incident: Incident | None, chosen: str, notice: str, *, done: bool = False, own: str = ""
) -> str:
    """Return the page as HTML; the action `chosen` in the message is the first button. `own` is signed in."""
    shown = f'<p class="said" role="status">{escape(notice)}</p>' if notice else ""
    body = "" if incident is None else _about(incident)
    form = "" if incident is None or done else _form(chosen, own, is_open=is_open(incident))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>gpuvigil: answer</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style></head><body><main>{body or '<h1>gpuvigil</h1>'}{shown}{form}"
        "</main></body></html>"
    )


def is_open(incident: Incident) -> bool:
    """Return whether the incident is open."""
    return incident.state in {state.value for state in ACTIVE}


def _about(incident: Incident) -> str:
    taken = f", taken by {incident.acknowledged_by}" if incident.acknowledged_by else ""
    text = f"{incident.label or incident.subject.key}, since {moment(incident.since)}, {incident.state}{taken}"
    told = [text, incident.impact.text, f"Do now: {incident.action}" if incident.action else ""]
    lines = told if is_open(incident) else told[:1]
    said = "".join(f"<p>{escape(line)}</p>" for line in lines if line)
    return f"<h1>{escape(incident.title)}</h1>{said}"


def _form(chosen: str, own: str, *, is_open: bool) -> str:
    offered = [button for button in _BUTTONS if is_open or button[0] != "acknowledge"]
    ordered = sorted(offered, key=lambda button: button[0] != chosen)
    buttons = "".join(
        f'<button name="answer" value="{value}"{first}>{escape(text)}</button>'
        for (_, text, value), first in zip(
            ordered, (' class="first"', *("",) * len(ordered)), strict=False
        )
    )
    asked = (
        f"<p>As {escape(own)}</p>"
        if own
        else '<label for="by">Your name</label>'
        '<input id="by" name="by" maxlength="200" autocomplete="name" autofocus required>'
    )
    return f'<form method="post">{asked}<div class="row">{buttons}</div></form>'
