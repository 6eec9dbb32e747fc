"""A real OpenID Connect provider (Canaille) with three people, as a process of its own.

`python -m tests.oidc_provider REDIRECT PORT` prints a line once it listens.
"""

import importlib
import sys
from datetime import datetime, timezone
from typing import Any

PASSWORD, SECRET = "correct horse battery", "secret of the client"
PEOPLE = {"olga": "gpu-admins", "mira": "students", "nora": "visitors"}


def made(redirect: str, port: int) -> Any:
    """Return the application, which holds people and the client in memory."""
    canaille: Any = importlib.import_module("canaille")
    key = importlib.import_module("joserfc.jwk").RSAKey.generate_key(2048)
    app = canaille.create_app(
        {
            "SECRET_KEY": "a secret of the provider's own cookies",
            "SERVER_NAME": f"127.0.0.1:{port}",
            "PREFERRED_URL_SCHEME": "http",
            "CANAILLE": {"DATABASE": "memory", "JAVASCRIPT": False, "SMTP": None},
            "CANAILLE_OIDC": {"ACTIVE_JWKS": [key.as_dict(private=True)]},
        }
    )
    with app.app_context():
        _fill(redirect)
    return app


def _fill(redirect: str) -> None:
    models: Any = importlib.import_module("canaille.app").models
    keep = importlib.import_module("canaille.backends").Backend.instance.save
    for name, group in PEOPLE.items():
        user = models.User(
            user_name=name,
            formatted_name=name.title(),
            family_name=name.title(),
            emails=[f"{name}@example.org"],
            password=PASSWORD,
        )
        keep(user)
        keep(models.Group(display_name=group, members=[user]))
    client = models.Client(
        client_id="gpuvigil",
        client_secret=SECRET,
        client_name="gpuvigil",
        client_id_issued_at=datetime.now(timezone.utc),
        client_secret_expires_at=None,
        redirect_uris=[redirect],
        grant_types=["authorization_code"],
        response_types=["code"],
        scope=["openid", "profile", "groups"],
        token_endpoint_auth_method="client_secret_basic",
    )
    keep(client)
    client.audience = [client]
    keep(client)


def main() -> None:
    redirect, port = sys.argv[1], int(sys.argv[2])
    make_server = importlib.import_module("werkzeug.serving").make_server
    server = make_server("127.0.0.1", port, made(redirect, port))
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
