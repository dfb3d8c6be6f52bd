"""The routes, as one Ray Serve deployment around an `OpenAIService`.

Serve takes this class apart and builds it again in the replica, so nothing else lives here, and annotations are not
postponed: FastAPI reads them again there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from ray import serve

from olp_ray.serve import openai_api
from olp_ray.serve.lengths import OutputLengths
from olp_ray.serve.service import OpenAIService

app = FastAPI(title="olp-ray", docs_url=None, redoc_url=None)


@serve.deployment(num_replicas=1, max_ongoing_requests=100_000, ray_actor_options={"num_cpus": 0})
@serve.ingress(app)
class Ingress:
    """Arguments are those of `OpenAIService`."""

    def __init__(
        self, coordinator_name: str, engine_names: Mapping[str, str], models: Sequence[str], lengths: OutputLengths
    ) -> None:
        self._service = OpenAIService(coordinator_name, engine_names, models, lengths)

    @app.post("/v1/chat/completions")
    async def chat(self, http: Request) -> Response:
        """Chat completion, whole or as server-sent events."""
        return await self._service.answer(http, "/v1/chat/completions", openai_api.parse_chat)

    @app.post("/v1/completions")
    async def completions(self, http: Request) -> Response:
        """Text completion, whole or as server-sent events."""
        return await self._service.answer(http, "/v1/completions", openai_api.parse_completion)

    @app.get("/v1/models")
    async def models(self) -> dict[str, Any]:
        """The models served."""
        return self._service.models()

    @app.get("/health")
    async def health(self) -> Response:
        """200 while the coordinator's loop turns, else 503 with the reason."""
        return await self._service.health()

    @app.get("/metrics")
    async def metrics(self) -> Response:
        """Prometheus text of this ingress and the coordinator."""
        return await self._service.metrics()

    @app.get("/explain")
    async def explain_all(self) -> Response:
        """What every request is worth, costs and waits for."""
        return await self._service.explain(None)

    @app.get("/explain/{request_id:path}")
    async def explain(self, request_id: str) -> Response:
        """The same for one x-request-id."""
        return await self._service.explain(request_id)
