"""The API explorer, its assets served from here so that it works without internet, and what problems mean."""

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from fastapi import APIRouter
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from pydantic import BaseModel
from starlette.staticfiles import StaticFiles

from app.errors import AppError, NotFound

ASSETS = "/docs/assets"

router = APIRouter()
assets = StaticFiles(directory=Path(__file__).parent / "static" / "swagger-ui")


class ProblemType(BaseModel):
    """What a problem's `type` refers to."""

    code: str
    title: str
    status: int
    meaning: str


def _page() -> HTMLResponse:
    page = get_swagger_ui_html(
        openapi_url="/openapi.json",
        title="Cupo · API",
        swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{ASSETS}/favicon-32x32.png",
        swagger_ui_parameters={"persistAuthorization": True, "tryItOutEnabled": True},
    )
    page.headers["Content-Security-Policy"] = _policy(bytes(page.body))
    return page


def _policy(page: bytes) -> str:
    """Scripts from here and those that are in the page now; Swagger UI writes styles into its elements."""
    scripts = re.findall(rb"<script>(.*?)</script>", page, re.DOTALL)
    digests = (b64encode(sha256(script).digest()).decode() for script in scripts)
    return "; ".join(
        [
            "default-src 'none'",
            " ".join(["script-src 'self'", *(f"'sha256-{digest}'" for digest in digests)]),
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


PAGE = _page()


@router.get("/docs", include_in_schema=False)
async def explore() -> HTMLResponse:
    return PAGE


@router.get("/problems/{code}", include_in_schema=False)
async def explain_problem(code: str) -> ProblemType:
    """RFC 9457, section 3.1.1: a problem's type should lead to what it means."""
    for kind in _kinds(AppError):
        if getattr(kind, "code", None) == code:
            return ProblemType(
                code=code, title=kind.title, status=kind.status, meaning=kind.__doc__ or kind.title
            )
    raise NotFound


def _kinds(kind: type[AppError]) -> list[type[AppError]]:
    return [found for child in kind.__subclasses__() for found in (child, *_kinds(child))]
