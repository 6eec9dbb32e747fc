"""The sign-in page, which loads nothing from elsewhere."""

import base64
import hashlib
from dataclasses import dataclass
from html import escape
from urllib.parse import urlencode

from accounting.people.roles import Person, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInOptions:
    """The ways to sign in that the page offers beside the access token."""

    names: bool = False
    provider: bool = False


def page(reason: str, rest: str, offered: SignInOptions = SignInOptions()) -> bytes:
    """Return the page as HTML; `reason` says why it is shown, `rest` is the wanted address."""
    said = f'<p class="reason" role="alert">{escape(reason)}</p>' if reason else ""
    named = offered.names or offered.provider
    other = urlencode({"next": rest})
    parts = (
        f'<p><a class="button" href="/sign-in/oidc?{escape(other)}">Sign in with your organisation</a></p>'
        if offered.provider
        else "",
        _NAMES.format(next=escape(rest)) if offered.names else "",
        _FOLDED.format(next=escape(rest))
        if named
        else _TOKEN.format(next=escape(rest), focus=" autofocus"),
    )
    return _PAGE.format(title="sign in", style=_STYLE, body=said + "".join(parts)).encode()


def leaving(person: Person, *, by_proxy: bool = False) -> bytes:
    """Return a page on who is signed in and how to sign out; a proxy's people sign out at the proxy."""
    who = f"Signed in as {escape(person.name)}" if person.name else "Signed in by a link"
    sign_out = (
        "<p>The proxy in front of gpuvigil signs you in with every request: sign out there.</p>"
        if by_proxy
        else '<form method="post" action="/sign-out"><button type="submit">Sign out</button></form>'
    )
    body = f'<p>{who}: {_ROLES[person.role]}.</p>{sign_out}<p><a href="/">Back</a></p>'
    return _PAGE.format(title="account", style=_STYLE, body=body).encode()


_ROLES = {
    Role.OPERATOR: "operator, sees and may do everything",
    Role.VIEWER: "viewer, sees everything but other people's names",
    Role.TEAM: "sees the jobs of their own teams",
    Role.OWN: "sees only their own jobs",
}


def source_hash(text: str) -> str:
    """Return the hash by which a content security policy allows one inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_STYLE = """
:root{color-scheme:dark}
body{margin:0;min-height:100vh;display:grid;place-items:center;background:#0d1117;color:#e6edf3;
font:16px/1.5 system-ui,sans-serif}
main{box-sizing:border-box;width:min(27rem,96vw);background:#161b22;border:1px solid #2b3440;border-radius:.5rem;padding:1.5rem}
h1{font-size:1.25rem;margin:0 0 .25rem}p{margin:.25rem 0 1rem;color:#9aa7b4}
.reason{color:#ffb4ab;border-left:3px solid #e5484d;padding-left:.75rem}
label{display:block;font-size:.875rem;margin-bottom:.25rem}
input{width:100%;box-sizing:border-box;font:inherit;padding:.5rem;border-radius:.375rem;
border:1px solid #3d4855;background:#0d1117;color:inherit}
button{margin-top:1rem;font:inherit;padding:.5rem 1rem;border:0;border-radius:.375rem;
background:#1f7a6f;color:#fff;cursor:pointer}
:focus-visible{outline:2px solid #58d5c4;outline-offset:2px}
code{color:#e6edf3}a{color:#58d5c4}
input+label{margin-top:.75rem}
.button{display:block;text-align:center;padding:.5rem 1rem;border-radius:.375rem;background:#1f7a6f;
color:#fff;text-decoration:none}
details{margin-top:1.25rem}summary{color:#9aa7b4;cursor:pointer}
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>gpuvigil: {title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><style>{style}</style></head>
<body><main><h1>gpuvigil</h1>{body}
</main></body></html>
"""

_NAMES = """
<form method="post" action="/sign-in">
<input type="hidden" name="next" value="{next}">
<label for="name">Name</label>
<input id="name" name="name" maxlength="100" autocomplete="username" autocapitalize="none" autofocus required>
<label for="password">Password</label>
<input id="password" name="password" type="password" maxlength="1024" autocomplete="current-password" required>
<button type="submit">Sign in</button>
</form>"""

_TOKEN = """
<p>Run <code>gpuvigil url</code> for an address that signs you in, or enter the access token.</p>
<form method="post" action="/sign-in">
<input type="hidden" name="next" value="{next}">
<label for="token">Access token</label>
<input id="token" name="token" type="password" autocomplete="current-password"{focus} required>
<button type="submit">Sign in</button>
</form>"""

_FOLDED = "<details><summary>Access token</summary>" + _TOKEN.replace("{focus}", "") + "</details>"

POLICY = (
    f"default-src 'none'; style-src {source_hash(_STYLE)}; img-src data:; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
