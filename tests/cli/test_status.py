import re
import socket
import threading
import time

import pytest
from click.testing import CliRunner
from rich.console import Console

from olp_ray.cli import main
from olp_ray.cli.status import status_table
from olp_ray.config import FleetConfig, RouterConfig, RuntimeConfig
from olp_ray.errors import RuntimeShellError
from olp_ray.runtime.status import _require_listener, coordinator_status
from olp_ray.runtime.wiring import start_coordinator


@pytest.mark.ray_local
def test_status_of_a_running_coordinator_and_of_one_that_does_not_run(ray_local):
    runtime = RuntimeConfig(coordinator_name="status-test", shards=2)
    devices = FleetConfig.parse("2xa100-8b").core_devices("timed")
    running = start_coordinator(devices, RouterConfig(), runtime, seed=0)
    console = Console(width=200)
    with console.capture() as captured:
        console.print(status_table(coordinator_status("status-test")))
    text = captured.get()
    assert "policy online_lp" in text
    address = ray_local.get_runtime_context().gcs_address
    assert address in text
    assert "d0: 0, d1: 0" in text
    assert "2 (shards=2 was asked for)" in text
    for line in ("blocks rebuilt after a fault of their shard", "silent shards replaced"):
        assert re.search(rf"{line}\W+0\b", text)
    for line in ("updates that came too late to count, by shard", "errors of shards", "errors"):
        assert re.search(rf"{line}\W+none\b", text)
    ray_local.kill(running.actor)
    with pytest.raises(RuntimeShellError, match="no actor 'nothing' runs here") as caught:
        coordinator_status("nothing")
    assert f"Ray at {address}" in str(caught.value)
    assert "--address" in str(caught.value)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "no Ray runs at '127.0.0.1:1'"),
        ("nowhere.invalid:6379", "no Ray runs at 'nowhere.invalid:6379'"),
        ("ray://127.0.0.1:1", "no Ray runs at 'ray://127.0.0.1:1'"),
        ("127.0.0.1:99999", "no Ray runs at '127.0.0.1:99999'"),
        ("nowhere", "expected auto or HOST:PORT"),
    ],
)
def test_an_address_where_nothing_listens_is_an_error_at_once(monkeypatch, address, said):
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # other tests may have connected this process
    began = time.monotonic()
    result = CliRunner().invoke(main, ["status", "--address", address])
    assert time.monotonic() - began < 5
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize("answer", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_port_where_something_else_listens_is_an_error_soon(monkeypatch, answer):
    """It says nothing, hangs up, or speaks another language."""
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    done = threading.Event()

    def serve(listener):
        connection, _ = listener.accept()
        with connection:
            if answer is None:
                done.wait()
            connection.sendall(answer or b"")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        began = time.monotonic()
        result = CliRunner().invoke(main, ["status", "--address", address])
        took_s = time.monotonic() - began
        done.set()
        server.join()
    assert took_s < 10
    assert result.exit_code == 2
    assert f"no Ray runs at '{address}': something else listens there" in result.output


@pytest.mark.ray_local
def test_the_port_of_a_ray_is_taken_for_one(ray_local):
    _require_listener(ray_local.get_runtime_context().gcs_address)


def test_a_ray_that_refuses_is_named_with_what_it_may_want(monkeypatch):
    def refuses(**_):
        raise ConnectionError

    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("olp_ray.runtime.status._require_listener", lambda address: None)
    monkeypatch.setattr("ray.init", refuses)
    with pytest.raises(RuntimeShellError, match=r"no Ray runs at '10\.0\.0\.1:6379', or it wants a token"):
        coordinator_status("any", "10.0.0.1:6379")


def test_an_empty_ray_address_is_none(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "")
    _require_listener("auto")  # Ray looks for itself then
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(RuntimeShellError, match="no Ray runs at"):
        _require_listener("auto")
