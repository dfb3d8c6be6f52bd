import json

import pytest

from olp_ray.core.types import Reject, RejectReason, Request
from olp_ray.serve import openai_api as api

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def parse_chat(**changes):
    return api.parse_chat(json.dumps({**CHAT, **changes}).encode())


def parse_completion(**changes):
    return api.parse_completion(json.dumps({"model": "m", "prompt": "hello", **changes}).encode())


@pytest.mark.parametrize("header", ["101", "-101", "1" + "0" * 400, "9" * 5000, "soon", "1.5", ""])
def test_a_priority_that_is_none_is_named_with_what_is_allowed(header):
    with pytest.raises(api.ApiError, match=r"x-request-priority.*a whole number from -100 to 100") as caught:
        api.priority(header)
    assert caught.value.status == 400
    assert len(str(caught.value)) < 200


def test_a_priority_is_a_whole_number():
    assert [api.priority(header) for header in ("0", "-100", "100", " 7 ")] == [0, -100, 100, 7]


def test_prompt_tokens_are_a_quarter_of_the_bytes_rounded_up():
    assert [api.estimated_tokens(text) for text in ("", "a", "abcd", "abcde", "ää")] == [1, 1, 1, 2, 1]
    assert parse_completion(prompt="x" * 401).prompt_tokens == 101
    assert parse_completion(prompt=[5, 6, 7]).prompt_tokens == 3
    assert parse_completion(prompt=["hello"]).prompt == "hello"


def test_chat_text_is_every_message_with_its_role():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": parts}]
    assert parse_chat(messages=messages).prompt == "system: s\nuser: ab\n"


def test_max_completion_tokens_wins_over_max_tokens_in_chats():
    assert parse_chat(max_tokens=5, max_completion_tokens=7).max_tokens == 7
    assert parse_chat(max_tokens=5).max_tokens == 5
    assert parse_chat().max_tokens is None


@pytest.mark.parametrize(
    ("parse", "changes", "param"),
    [
        (parse_chat, {"messages": []}, "messages"),
        (parse_chat, {"messages": ["hi"]}, "messages[0]"),
        (parse_chat, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
        (parse_chat, {"model": ""}, "model"),
        (parse_chat, {"model": None}, "model"),
        (parse_chat, {"max_tokens": 0}, "max_tokens"),
        (parse_chat, {"max_tokens": True}, "max_tokens"),
        (parse_chat, {"max_completion_tokens": 1.5}, "max_completion_tokens"),
        (parse_chat, {"n": 2}, "n"),
        (parse_chat, {"stream": "yes"}, "stream"),
        (parse_chat, {"stream_options": 3}, "stream_options"),
        (parse_chat, {"seed": "x"}, "seed"),
        (parse_completion, {"prompt": None}, "prompt"),
        (parse_completion, {"prompt": []}, "prompt"),
        (parse_completion, {"prompt": ["a", "b"]}, "prompt"),
        (parse_completion, {"prompt": [1, -2]}, "prompt"),
    ],
)
def test_a_wrong_field_is_named(parse, changes, param):
    with pytest.raises(api.ApiError) as caught:
        parse(**changes)
    assert caught.value.status == 400
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert caught.value.body["error"]["param"] == param


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b'"x"', b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_refused(raw):
    with pytest.raises(api.ApiError, match="the body is") as caught:
        api.parse_chat(raw)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("reason", "status", "retry"),
    [
        (RejectReason.QUEUE_FULL, 429, "3"),
        (RejectReason.DEADLINE_PASSED, 429, "3"),
        (RejectReason.PRICE, 429, "3"),
        (RejectReason.NO_DEVICE, 503, "3"),
        (RejectReason.NEVER_FITS, 400, None),
    ],
)
def test_a_rejection_says_reason_limit_knob_and_when_to_come_back(reason, status, retry):
    error = api.rejection(Reject(Request("r", 0.0, 1, 1.0), reason, "queue_size=4", "queue_size", 2.2))
    assert error.status == status
    assert error.headers.get("retry-after") == retry
    inside = error.body["error"]
    assert (inside["reason"], inside["limit"], inside["knob"]) == (reason, "queue_size=4", "queue_size")
    assert inside.get("retry_after_s") == (None if retry is None else 2.2)
    assert ("retry_after_s" in inside) == (retry is not None)


def test_streamed_text_is_the_whole_text():
    assert api.filler(0, 5) + api.filler(5, 20) == api.filler(0, 25)
    assert len(api.filler(0, 25).split()) == 25
