import json
from pathlib import Path

import pytest

from app.main import create_app
from app.settings import load_settings
from tests.api.tools import get_tools


@pytest.fixture(scope="session")
def python_tools() -> Path:
    return get_tools("python")


@pytest.fixture(scope="session")
def node_tools() -> Path:
    return get_tools("node")


@pytest.fixture
def document(folder: Path) -> Path:
    """The OpenAPI document in a file."""
    path = folder / "openapi.json"
    app = create_app(load_settings(root_key="the document does not depend on it"))
    path.write_text(json.dumps(app.openapi()))
    return path
