"""What is refused because of who calls: more of the tree of `app/errors.py`.

AppError
├── Unauthenticated            401
│   ├── UnknownCredential      401
│   └── TokenExpired           401
├── Forbidden                  403
│   └── ForbiddenToUsers       403
├── ScopeNotHeld               403
├── EvictionNotAllowed         403
└── Unavailable                503
    └── TokenKeysUnavailable
"""

from collections.abc import Mapping, Sequence

from app.errors import AppError, Unavailable


class Unauthenticated(AppError):
    status, code, title = 401, "unauthenticated", "Unauthenticated"
    headers: Mapping[str, str] = {"WWW-Authenticate": 'Bearer realm="cupo"'}  # RFC 6750, section 3

    def __init__(self) -> None:
        super().__init__("Send the header «Authorization: Bearer …» with a key or token that is valid.")


class UnknownCredential(Unauthenticated):
    """A key or token was sent and is none that counts: why is nobody's business."""

    headers: Mapping[str, str] = {"WWW-Authenticate": 'Bearer realm="cupo", error="invalid_token"'}


class TokenExpired(Unauthenticated):
    """The token was good and has run out. Said only of one whose signature holds: a forger learns nothing."""

    headers: Mapping[str, str] = {
        "WWW-Authenticate": 'Bearer realm="cupo", error="invalid_token", error_description="expired"'
    }

    def __init__(self) -> None:
        AppError.__init__(self, "The token has expired. Get a new one from where it came.")


class Forbidden(AppError):
    """The caller is known and may not make this call."""

    status, code, title = 403, "forbidden", "Forbidden"

    def __init__(self, scope: str) -> None:
        super().__init__(f"This call needs the scope {scope}.")
        challenge = f'Bearer realm="cupo", error="insufficient_scope", scope="{scope}"'
        self.headers = {"WWW-Authenticate": challenge}  # RFC 6750, section 3.1


class ForbiddenToUsers(Forbidden):
    """The call is for keys, though it is about the user whose token came with it."""

    def __init__(self, scope: str) -> None:
        super().__init__(scope)
        self.detail = f"No user's own token may make this call. It is for keys with the scope {scope}."


class ScopeNotHeld(AppError):
    """A key was to be given scopes that its maker does not have: nobody raises their own rights."""

    status, code, title = 403, "scope_not_held", "Scope not held"

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(f"A key can be given only what its maker may do, not {', '.join(missing)}.")
        challenge = f'Bearer realm="cupo", error="insufficient_scope", scope="{" ".join(missing)}"'
        self.headers = {"WWW-Authenticate": challenge}


class EvictionNotAllowed(AppError):
    status, code, title = 403, "eviction_not_allowed", "Eviction not allowed"

    def __init__(self) -> None:
        super().__init__(
            "A user's own token may not ask for eviction. Name a device to replace, or revoke one."
        )


class TokenKeysUnavailable(Unavailable):
    """Users' tokens cannot be verified now; keys work."""

    code, title = "token_keys_unavailable", "Token keys unavailable"
    headers: Mapping[str, str] = {"Retry-After": "30"}

    def __init__(self) -> None:
        super().__init__("The keys that verify users' tokens cannot be had now. Nothing was changed.")
