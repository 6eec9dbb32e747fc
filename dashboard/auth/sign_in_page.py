"""The sign-in page: one form, and nothing from anywhere else."""

import base64
import hashlib
from html import escape


def page(reason: str, rest: str) -> bytes:
    """The page as HTML; `reason` says why it is shown, `rest` is the address that was wanted."""
    said = f'<p class="reason" role="alert">{escape(reason)}</p>' if reason else ""
    return _PAGE.format(style=_STYLE, reason=said, next=escape(rest)).encode()


def source_hash(text: str) -> str:
    """How a content security policy names one inline script or style."""
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
code{color:#e6edf3}
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>gpuvigil: sign in</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><style>{style}</style></head>
<body><main><h1>gpuvigil</h1>{reason}
<p>Run <code>gpuvigil url</code> for an address that signs you in, or give the access token.</p>
<form method="post" action="/sign-in">
<input type="hidden" name="next" value="{next}">
<label for="token">Access token</label>
<input id="token" name="token" type="password" autocomplete="current-password" autofocus required>
<button type="submit">Sign in</button>
</form></main></body></html>
"""

POLICY = (
    f"default-src 'none'; style-src {source_hash(_STYLE)}; img-src data:; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
