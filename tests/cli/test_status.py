import re
import time

import pytest
from click.testing import CliRunner
from rich.console import Console

from olp_ray.cli import main
from olp_ray.cli.status import status_table
from olp_ray.config import FleetConfig, RouterConfig, RuntimeConfig
from olp_ray.errors import RuntimeShellError
from olp_ray.runtime.wiring import _require_listener, coordinator_status, start_coordinator


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
    assert "d0: 0, d1: 0" in text
    assert "2 (shards=2 was asked for)" in text
    for line in ("blocks rebuilt after a fault of their shard", "silent shards replaced"):
        assert re.search(rf"{line}\W+0\b", text)
    for line in ("updates that came too late to count, by shard", "errors of shards", "errors"):
        assert re.search(rf"{line}\W+none\b", text)
    ray_local.kill(running.actor)
    with pytest.raises(RuntimeShellError, match="no actor 'nothing' runs here"):
        coordinator_status("nothing")


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


def test_an_empty_ray_address_is_none(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "")
    _require_listener("auto")  # Ray looks for itself then
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(RuntimeShellError, match="no Ray runs at"):
        _require_listener("auto")
