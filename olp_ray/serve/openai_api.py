"""Bodies of the OpenAI API in and out, as pure functions: no HTTP server, no routing, no engine."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from olp_ray.core.types import Reject, RejectReason
from olp_ray.core.types.requests import MOST_PRIORITY

_WORDS = ("the ", "route ", "of ", "a ", "token ", "is ", "priced ", "by ", "what ", "it ", "holds ", "back. ")
_UNAVAILABLE = frozenset({RejectReason.NO_DEVICE})


class ApiError(Exception):
    """An answer other than 200: status, OpenAI-style body, headers."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str,
        *,
        param: str | None = None,
        code: str | None = None,
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code, **(extra or {})}}
        self.headers = dict(headers or {})


@dataclass(frozen=True, slots=True)
class Call:
    """A chat or text completion that was asked for. prompt is its text, or None when it came as token ids."""

    model: str
    prompt: str | None
    prompt_tokens: int
    max_tokens: int | None
    stream: bool
    include_usage: bool
    chat: bool
    seed: int


def parse_chat(raw: bytes) -> Call:
    """Read a body of /v1/chat/completions. Raises `ApiError` 400 naming the field."""
    body = _object(raw)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        _bad("messages", f"expected a list of at least one message, got {_shown(messages)}")
    prompt = "".join(_message_text(i, message) for i, message in enumerate(messages))
    limit = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    return _call(body, prompt, estimated_tokens(prompt), limit, chat=True)


def parse_completion(raw: bytes) -> Call:
    """Read a body of /v1/completions. Raises `ApiError` 400 naming the field."""
    body = _object(raw)
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return _call(body, prompt, estimated_tokens(prompt), "max_tokens", chat=False)
    if not (isinstance(prompt, list) and prompt and all(type(token) is int and token >= 0 for token in prompt)):
        _bad("prompt", f"expected one text or one list of token ids, got {_shown(prompt)}")
    return _call(body, None, len(prompt), "max_tokens", chat=False)


def priority(header: str) -> int:
    """Read an x-request-priority. Raises `ApiError` 400 naming the header and what is allowed."""
    try:
        value = int(header)
    except ValueError:  # also for more digits than Python reads
        value = MOST_PRIORITY + 1
    if abs(value) > MOST_PRIORITY:
        allowed = f"a whole number from {-MOST_PRIORITY} to {MOST_PRIORITY}"
        _bad("x-request-priority", f"expected {allowed}, got {_shown(header)}")
    return value


def estimated_tokens(text: str) -> int:
    """ceil(bytes / 4): there is no tokenizer here."""
    return max(1, math.ceil(len(text.encode()) / 4))


def filler(first: int, count: int) -> str:
    """Text of output tokens first .. first + count - 1 of an emulated engine, a word each."""
    return "".join(_WORDS[i % len(_WORDS)] for i in range(first, first + count))


def rejection(reject: Reject) -> ApiError:
    """429 when it is a matter of load, 503 when nothing can serve it now, 400 when it never fits."""
    extra: dict[str, str | float] = {
        "reason": str(reject.reason),
        "limit": reject.limit,
        "knob": reject.knob,
    }
    text = f"rejected: {reject.reason} ({reject.limit}); see {reject.knob}"
    if reject.reason == RejectReason.NEVER_FITS:
        return ApiError(400, text, "invalid_request_error", code="context_length_exceeded", extra=extra)
    extra["retry_after_s"] = reject.retry_after_s
    status, kind = (503, "service_unavailable") if reject.reason in _UNAVAILABLE else (429, "rate_limit_exceeded")
    return ApiError(status, text, kind, code=str(reject.reason), extra=extra, headers=retry_after(reject.retry_after_s))


def retry_after(seconds: float) -> dict[str, str]:
    """The header in whole seconds, at least 1."""
    return {"retry-after": str(max(1, math.ceil(seconds)))}


def unavailable(message: str, reason: str) -> ApiError:
    """503 for a failure on our side."""
    extra = {"reason": reason, "retry_after_s": 1.0}
    return ApiError(503, message, "service_unavailable", code=reason, extra=extra, headers=retry_after(1.0))


def unknown_model(name: str, models: Sequence[str]) -> ApiError:
    """404 with the names there are."""
    text = f"the model {name!r} does not exist; served here: {', '.join(models)}"
    return ApiError(404, text, "invalid_request_error", param="model", code="model_not_found")


def unknown_request(name: str) -> ApiError:
    """404 for a request that neither waits nor runs."""
    text = f"no request {name!r} waits or runs here"
    return ApiError(404, text, "invalid_request_error", param="request_id", code="request_not_found")


def whole_body(call: Call, request_id: str, created_s: int, text: str, tokens: int, finish: str) -> dict[str, Any]:
    """The answer to a call that does not stream."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "logprobs": None}
    choice |= {"message": {"role": "assistant", "content": text}} if call.chat else {"text": text}
    body = _frame(call, request_id, created_s, "chat.completion" if call.chat else "text_completion")
    return {**body, "choices": [choice], "usage": usage(call, tokens)}


def chunk(call: Call, request_id: str, created_s: int, text: str, finish: str | None, first: bool) -> str:
    """One server-sent event with some text, or with the finish reason."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "logprobs": None}
    if call.chat:
        delta = {"content": text} if text else {}
        choice["delta"] = {"role": "assistant", **delta} if first else delta
    else:
        choice["text"] = text
    body = _frame(call, request_id, created_s, "chat.completion.chunk" if call.chat else "text_completion")
    return event({**body, "choices": [choice]})


def usage_chunk(call: Call, request_id: str, created_s: int, tokens: int) -> str:
    """The event before the last, when stream_options.include_usage is set."""
    body = _frame(call, request_id, created_s, "chat.completion.chunk" if call.chat else "text_completion")
    return event({**body, "choices": [], "usage": usage(call, tokens)})


def usage(call: Call, tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": tokens,
        "total_tokens": call.prompt_tokens + tokens,
    }


def event(data: Mapping[str, Any]) -> str:
    """A server-sent event."""
    return f"data: {json.dumps(data, separators=(',', ':'))}\n\n"


def _frame(call: Call, request_id: str, created_s: int, kind: str) -> dict[str, Any]:
    prefix = "chatcmpl" if call.chat else "cmpl"
    return {"id": f"{prefix}-{request_id}", "object": kind, "created": created_s, "model": call.model}


def _object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not valid JSON: {error}", "invalid_request_error") from error
    if not isinstance(body, dict):
        raise ApiError(400, f"the body is {_shown(body)}; expected a JSON object", "invalid_request_error")
    return body


def _call(body: dict[str, Any], prompt: str | None, prompt_tokens: int, limit: str, chat: bool) -> Call:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        _bad("model", f"expected a model's name, got {_shown(model)}")
    max_tokens = body.get(limit)
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        _bad(limit, f"expected a whole number of at least 1, got {_shown(max_tokens)}")
    if body.get("n") not in (None, 1):
        _bad("n", f"only 1 choice is supported, got {_shown(body['n'])}")
    stream = body.get("stream") or False
    if not isinstance(stream, bool):
        _bad("stream", f"expected true or false, got {_shown(stream)}")
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        _bad("stream_options", f"expected an object, got {_shown(options)}")
    seed = body.get("seed") or 0
    if type(seed) is not int:
        _bad("seed", f"expected a whole number, got {_shown(seed)}")
    include_usage = bool(options.get("include_usage"))
    return Call(model, prompt, prompt_tokens, max_tokens, stream, include_usage, chat, seed)


def _message_text(index: int, message: Any) -> str:
    where = f"messages[{index}]"
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        _bad(where, f"expected an object with a role, got {_shown(message)}")
    content = message.get("content")
    if content is None or isinstance(content, str):
        return f"{message['role']}: {content or ''}\n"
    if not isinstance(content, list):
        _bad(f"{where}.content", f"expected text or a list of parts, got {_shown(content)}")
    for part in content:
        if not (isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)):
            _bad(f"{where}.content", f"only text parts are supported, got {_shown(part)}")
    return f"{message['role']}: {''.join(part['text'] for part in content)}\n"


def _bad(param: str, text: str) -> NoReturn:
    raise ApiError(400, f"{param}: {text}", "invalid_request_error", param=param)


def _shown(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
