"""The whole endpoint over real HTTP: Serve, coordinator with shards, emulated engines."""

import asyncio
import time

import httpx
import openai
import pytest
from click.testing import CliRunner

from olp_ray.cli import main as main_command
from olp_ray.cli.explain import ask
from olp_ray.config import FleetConfig, RouterConfig, RuntimeConfig, ServeConfig
from olp_ray.config.fleet import DeviceConfig
from olp_ray.serve.app import run

pytestmark = pytest.mark.ray_local

MODEL = "llama3-8b"
HELLO = [{"role": "user", "content": "hello"}]
LONG = {"model": MODEL, "prompt": "write", "max_tokens": 4000, "seed": 3}


@pytest.fixture(scope="module")
def endpoint(ray_local):
    """Two engines of two slots each and a queue of four."""
    running = run(
        ServeConfig(
            fleet=FleetConfig(devices=(DeviceConfig(count=2, kind="a100-8b", slots=2),)),
            router=RouterConfig(policy="central_fifo", queue_size=4),
            runtime=RuntimeConfig(coordinator_name="endpoint-test", shards=2),
            port=8765,
            output_lengths="pd_1_4",
        ),
        blocking=False,
    )
    yield running
    running.close()


@pytest.fixture
def client(endpoint):
    with openai.OpenAI(base_url=f"{endpoint.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def post(endpoint, path, body, **headers):
    return httpx.post(f"{endpoint.url}{path}", json=body, headers=headers, timeout=30)


def residents(ray, endpoint):
    status = ray.get(endpoint.coordinator.status.remote())
    return sum(status["residents"].values()) + status["waiting"]


def engine_load(ray, endpoint):
    statuses = ray.get([engine.status.remote() for engine in endpoint.engines.values()])
    return sum(status["running"] + status["waiting"] for status in statuses)


def wait_until(condition, timeout_s=10.0):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "did not come about in time"
        time.sleep(0.02)


def test_chat_whole_and_streaming_with_the_openai_client(client):
    whole = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=12)
    assert whole.usage.completion_tokens == len(whole.choices[0].message.content.split()) == 12
    assert whole.usage.prompt_tokens == 3
    assert whole.choices[0].finish_reason == "length"
    stream = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=12, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert len(chunks) > 3
    assert chunks[-1].usage.completion_tokens == 12
    assert chunks[-2].choices[0].finish_reason == "length"


def test_text_completion_whole_and_streaming(client):
    whole = client.completions.create(model=MODEL, prompt="hello", max_tokens=6)
    streamed = client.completions.create(model=MODEL, prompt="hello", max_tokens=6, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == whole.choices[0].text


def test_models_health_and_metrics(endpoint, client):
    assert [model.id for model in client.models.list()] == [MODEL]
    assert httpx.get(f"{endpoint.url}/health").json() == {"status": "ok"}
    client.completions.create(model=MODEL, prompt="hello", max_tokens=2)
    text = httpx.get(f"{endpoint.url}/metrics").text
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    assert {"olp_ray_queue_length", "olp_ray_residents", "olp_ray_http_requests_total"} <= names
    assert all(name.startswith("olp_ray_") for name in names)


def test_request_id_goes_through_and_the_device_is_named(endpoint):
    body = {"model": MODEL, "prompt": "hello", "max_tokens": 2}
    response = post(endpoint, "/v1/completions", body, **{"x-request-id": "mine"})
    assert response.headers["x-request-id"] == "mine"
    assert response.headers["x-olp-ray-device"] in {"d0", "d1"}


def test_faults_of_the_caller_are_told_in_openai_style(endpoint, client):
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model=MODEL, prompt="hello", max_tokens=-1)
    assert bad.value.param == "max_tokens"
    with pytest.raises(openai.NotFoundError) as unknown:
        client.completions.create(model="nothing", prompt="hello")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model=MODEL, prompt="x" * 2_000_000)
    assert long.value.code == "context_length_exceeded"
    header = post(endpoint, "/v1/completions", {"model": MODEL, "prompt": "x"}, **{"x-slo-ttft-ms": "soon"})
    assert header.status_code == 400
    rank = post(endpoint, "/v1/completions", {"model": MODEL, "prompt": "x"}, **{"x-request-priority": "1" + "0" * 400})
    assert (rank.status_code, rank.json()["error"]["param"]) == (400, "x-request-priority")


def test_a_full_queue_is_429_with_reason_and_retry_after(endpoint, ray_local):
    async def main():
        async with httpx.AsyncClient(base_url=endpoint.url, timeout=30) as http:
            held = [asyncio.ensure_future(http.post("/v1/completions", json=LONG)) for _ in range(8)]
            while residents(ray_local, endpoint) < 8:
                await asyncio.sleep(0.02)
            refused = await http.post("/v1/completions", json=LONG)
            for call in held:
                call.cancel()
            await asyncio.gather(*held, return_exceptions=True)
            return refused

    refused = asyncio.run(main())
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["reason"] == "queue_full"
    assert refused.json()["error"]["knob"] == "queue_size"
    wait_until(lambda: residents(ray_local, endpoint) == 0 and engine_load(ray_local, endpoint) == 0)


def test_explain_says_why_a_request_waits_by_the_name_that_its_client_gave_it(endpoint, ray_local):
    async def main():
        async with httpx.AsyncClient(base_url=endpoint.url, timeout=30) as http:
            held = []
            for i in range(5):
                headers = {"x-request-id": f"asked/{i}"}
                held.append(asyncio.ensure_future(http.post("/v1/completions", json=LONG, headers=headers)))
                while residents(ray_local, endpoint) < i + 1:
                    await asyncio.sleep(0.02)
            everything = (await http.get("/explain")).json()
            (waiting,) = await asyncio.to_thread(ask, endpoint.url, "asked/4")
            (running,) = await asyncio.to_thread(ask, endpoint.url, "asked/0")
            nobody = await http.get("/explain/nobody")
            shown = await asyncio.to_thread(CliRunner().invoke, main_command, ["explain", "--url", endpoint.url])
            for call in held:
                call.cancel()
            await asyncio.gather(*held, return_exceptions=True)
            return everything, waiting, running, nobody, shown.output

    everything, waiting, running, nobody, shown = asyncio.run(main())
    assert {one["request_id"] for one in everything} == {f"asked/{i}" for i in range(5)}
    assert (waiting["state"], waiting["reason"], waiting["rank"]) == ("waiting", "no_free_slot", 0)
    assert (waiting["start_rule"], waiting["expected_start_s"] > 0) == ("earliest_fit", True)
    assert running["state"] in ("assigned", "running")
    assert running["device_id"] in ("d0", "d1")
    assert (nobody.status_code, nobody.json()["error"]["code"]) == (404, "request_not_found")
    assert "asked/4" in shown
    assert "no_free_slot" in shown
    wait_until(lambda: residents(ray_local, endpoint) == 0 and engine_load(ray_local, endpoint) == 0)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("prompt", ["write", "x" * 400_000], ids=["decode", "prefill"])
def test_a_client_that_leaves_frees_its_slot(endpoint, ray_local, stream, prompt):
    async def main():
        async with httpx.AsyncClient(base_url=endpoint.url, timeout=30) as http:
            call = asyncio.ensure_future(
                http.post("/v1/completions", json={**LONG, "prompt": prompt, "stream": stream})
            )
            while engine_load(ray_local, endpoint) == 0:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.1)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    asyncio.run(main())
    wait_until(lambda: residents(ray_local, endpoint) == 0 and engine_load(ray_local, endpoint) == 0, 3.0)


def test_a_client_that_leaves_while_it_waits_leaves_the_queue(endpoint, ray_local):
    async def main():
        async with httpx.AsyncClient(base_url=endpoint.url, timeout=30) as http:
            calls = [asyncio.ensure_future(http.post("/v1/completions", json=LONG)) for _ in range(6)]
            while residents(ray_local, endpoint) < 6:
                await asyncio.sleep(0.02)
            calls.pop().cancel()
            calls.pop().cancel()
            while residents(ray_local, endpoint) > 4:
                await asyncio.sleep(0.02)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    asyncio.run(asyncio.wait_for(main(), 20))
    wait_until(lambda: residents(ray_local, endpoint) == 0)


def test_an_engine_that_is_killed_comes_back_and_takes_requests(endpoint, ray_local, client):
    ray_local.kill(endpoint.engines["d0"], no_restart=False)

    def serves_again():
        devices = {
            post(endpoint, "/v1/completions", {**LONG, "max_tokens": 1}).headers["x-olp-ray-device"] for _ in "ab"
        }
        return devices == {"d0", "d1"}

    wait_until(serves_again, 20.0)
