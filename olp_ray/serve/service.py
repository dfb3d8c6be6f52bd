"""How one HTTP call is answered: parsed, submitted, waited for, and passed on. No routes here, no decisions."""

from __future__ import annotations

import asyncio
import dataclasses
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import ray
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from olp_ray.core.types import Assign, Reject, Request
from olp_ray.errors import RequestError, RuntimeShellError
from olp_ray.runtime.background import background
from olp_ray.runtime.metrics import MetricSet, render
from olp_ray.runtime.names import find_actor
from olp_ray.serve import openai_api as api
from olp_ray.serve.dispatch import Dispatcher, Ticket
from olp_ray.serve.lengths import OutputLengths

_MOST_EXPLAINED = 100  # in one answer: each costs the coordinator a look at every device
_ASK_TIMEOUT_S = 2.0  # health and metrics do not wait longer for the coordinator


class OpenAIService:
    """models are the names served; engine_names are actor names by device id."""

    def __init__(
        self, coordinator_name: str, engine_names: Mapping[str, str], models: Sequence[str], lengths: OutputLengths
    ) -> None:
        self._coordinator = find_actor(coordinator_name)
        engines = {device_id: find_actor(name) for device_id, name in engine_names.items()}
        self._dispatcher = Dispatcher(f"ingress-{uuid.uuid4().hex[:8]}", self._coordinator, engines)
        self._models = list(models)
        self._lengths = lengths
        self._metrics = MetricSet()
        self._started_s = int(time.time())
        self._carrier: asyncio.Task[None] | None = None

    def models(self) -> dict[str, Any]:
        """The models served."""
        about = {"object": "model", "created": self._started_s, "owned_by": "olp-ray"}
        return {"object": "list", "data": [{"id": name, **about} for name in self._models]}

    async def health(self) -> Response:
        """200 while the coordinator's loop turns, else 503 with the reason."""
        try:
            self._carrying()
            await asyncio.wait_for(self._coordinator.check_health.remote(), _ASK_TIMEOUT_S)
        except Exception as error:
            return JSONResponse({"status": "unhealthy", "reason": f"{type(error).__name__}: {error}"}, 503)
        return JSONResponse({"status": "ok"})

    async def metrics(self) -> Response:
        """Prometheus text of this ingress and the coordinator."""
        sets = [self._metrics]
        try:
            sets.append(await asyncio.wait_for(self._coordinator.metrics.remote(), _ASK_TIMEOUT_S))
        except (TimeoutError, ray.exceptions.RayError):
            self._metrics.add("olp_ray_errors_total", "CoordinatorSilent")
        return PlainTextResponse(render(sets), media_type="text/plain; version=0.0.4")

    async def explain(self, name: str | None) -> Response:
        """What the router says of the first requests, or of the one with this x-request-id; 404 when it is not here."""
        names = self._dispatcher.names
        ids = [request_id for request_id, known in names.items() if known == name]
        if name is not None and not ids:
            return _error(api.unknown_request(name))
        try:
            asked = [self._coordinator.explain.remote(request_id) for request_id in ids]
            if name is None:
                asked = [self._coordinator.explain.remote(None, _MOST_EXPLAINED)]
            found = [one for part in await asyncio.wait_for(asyncio.gather(*asked), _ASK_TIMEOUT_S) for one in part]
        except (TimeoutError, ray.exceptions.RayError) as error:
            return _error(api.unavailable(f"the coordinator does not answer: {type(error).__name__}", "router_gone"))
        if name is not None and not found:
            return _error(api.unknown_request(name))
        return JSONResponse(
            [dataclasses.asdict(one) | {"request_id": names.get(one.request_id, one.request_id)} for one in found]
        )

    async def answer(self, http: HttpRequest, route: str, parse: Callable[[bytes], api.Call]) -> Response:
        """Answer a completion call, whole or as server-sent events."""
        request_id = http.headers.get("x-request-id") or uuid.uuid4().hex
        ticket = None
        try:
            call = parse(await http.body())
            ticket = self._open(call, http.headers, request_id)
            device_id = await self._assigned(ticket)
            headers = {"x-olp-ray-device": device_id}  # Serve adds x-request-id
            if call.stream:
                stream = self._events(ticket, call, request_id)
                self._metrics.add("olp_ray_http_requests_total", route, "200")
                return _TicketStream(stream, headers, lambda: self._close(ticket, route))
            tokens = await self._all_tokens(ticket)
            body = api.whole_body(
                call, request_id, int(time.time()), api.filler(0, tokens), tokens, _finish(call, tokens)
            )
            response: Response = JSONResponse(body, headers=headers)
        except api.ApiError as error:
            response = _error(error)
        except RuntimeShellError as error:
            response = _error(api.unavailable(str(error), "engine_lost"))
        except asyncio.CancelledError:
            self._close(ticket, route)
            raise
        if ticket is not None:
            self._dispatcher.close(ticket)
        self._metrics.add("olp_ray_http_requests_total", route, str(response.status_code))
        return response

    def _open(self, call: api.Call, headers: Mapping[str, str], name: str) -> Ticket:
        if call.model not in self._models:
            raise api.unknown_model(call.model, self._models)
        self._carrying()
        limit = call.max_tokens
        try:
            request = Request(
                uuid.uuid4().hex,
                arrival_s=0.0,  # set by the coordinator on its own clock
                prompt_tokens=call.prompt_tokens,
                predicted_output_tokens=1.0,  # set by `lengths`
                max_output_tokens=limit,
                model=call.model,
                priority=api.priority(headers.get("x-request-priority", "0")),
                session=headers.get("x-session-id", ""),
                slo_ttft_s=float(headers["x-slo-ttft-ms"]) / 1e3 if "x-slo-ttft-ms" in headers else None,
            )
        except (RequestError, ValueError) as error:
            raise api.ApiError(400, f"a header is wrong: {error}", "invalid_request_error") from error
        request = self._lengths.predicted(request)
        return self._dispatcher.open(request, self._lengths.draw(call.prompt or "", call.seed, limit), name)

    async def _assigned(self, ticket: Ticket) -> str:
        """Wait for the coordinator's decision; the device's id. Raises `ApiError`."""
        first: set[asyncio.Future[Any]] = {ticket.answered, self._carrying()}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not ticket.answered.done():
            raise api.unavailable("the coordinator is gone", "router_gone")
        answer = ticket.answered.result()
        if isinstance(answer, Reject):
            raise api.rejection(answer)
        if not isinstance(answer, Assign):
            raise api.unavailable(f"the router refused the request: {answer.text}", "router_error")
        self._metrics.observe("olp_ray_queue_seconds", time.monotonic() - ticket.came_s)
        return answer.key.device_id

    async def _all_tokens(self, ticket: Ticket) -> int:
        total = 0
        async for count in self._counted(ticket):
            total += count
        return total

    async def _events(self, ticket: Ticket, call: api.Call, request_id: str) -> AsyncIterator[str]:
        created_s, sent = int(time.time()), 0
        try:
            async for count in self._counted(ticket):
                yield api.chunk(call, request_id, created_s, api.filler(sent, count), None, first=sent == 0)
                sent += count
        except RuntimeShellError as error:
            yield api.event(api.unavailable(str(error), "engine_lost").body)
            return
        yield api.chunk(call, request_id, created_s, "", _finish(call, sent), first=False)
        if call.include_usage:
            yield api.usage_chunk(call, request_id, created_s, sent)
        yield "data: [DONE]\n\n"

    async def _counted(self, ticket: Ticket) -> AsyncIterator[int]:
        first, total = True, 0
        async for count in ticket.tokens():
            if first:
                self._metrics.observe("olp_ray_time_to_first_token_seconds", time.monotonic() - ticket.came_s)
                first = False
            self._metrics.add("olp_ray_output_tokens_total", amount=count)
            total += count
            yield count
        self._lengths.learn(ticket.request, total)
        self._metrics.observe("olp_ray_request_seconds", time.monotonic() - ticket.came_s)

    def _close(self, ticket: Ticket | None, route: str) -> None:
        """The end of a call, in whatever way; before the last token it was the client who left."""
        if ticket is None:
            return
        if not ticket.over:
            self._metrics.add("olp_ray_http_disconnects_total", route)
        self._dispatcher.close(ticket)

    def _carrying(self) -> asyncio.Task[None]:
        """The dispatcher's task, started by the first call. Raises `ApiError` when it ended."""
        if self._carrier is None:
            self._carrier = background(self._dispatcher.run())
        if self._carrier.done():
            raise api.unavailable(f"the coordinator is gone: {self._carrier.exception()}", "router_gone")
        return self._carrier


class _TicketStream(StreamingResponse):
    """A stream that closes its ticket however it ends, also when it never began."""

    def __init__(self, events: AsyncIterator[str], headers: Mapping[str, str], close: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={**headers, "cache-control": "no-cache"})
        self._close = close

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()


def _finish(call: api.Call, tokens: int) -> str:
    return "length" if call.max_tokens is not None and tokens >= call.max_tokens else "stop"


def _error(error: api.ApiError) -> Response:
    return JSONResponse(error.body, error.status, headers=error.headers)
