"""The metrics as Prometheus asks for them."""

import os

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

router = APIRouter(tags=["operations"])

_TEXT = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus's text format"}


@router.get(
    "/metrics",
    operation_id="getMetrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: _TEXT},
)
async def get_metrics(request: Request) -> Response:
    """Of all the service's processes. In OpenMetrics where `Accept` asks for it."""
    # In a thread: the files of several processes take milliseconds to read.
    media_type, text = await to_thread.run_sync(exposition, request.headers.get("accept", ""))
    return Response(text, media_type=media_type)


def exposition(accept: str) -> tuple[str, bytes]:
    """Media type and text: of this process, or of all that share its folder."""
    registry = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call] # not in its types
    encode, media_type = choose_encoder(accept)
    return media_type, encode(registry)
