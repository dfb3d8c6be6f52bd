"""Starts and ends everything that `olp-ray serve` is: Ray, coordinator, engines, ingress."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
import socket
import threading
from typing import Any

import ray
from ray import serve

from olp_ray.config.serve import ServeConfig
from olp_ray.core.types import Device
from olp_ray.errors import ConfigError
from olp_ray.runtime.names import NAMESPACE, ray_address
from olp_ray.runtime.wiring import RunningCoordinator, open_ray, start_coordinator
from olp_ray.serve.engines.actor import EngineActor
from olp_ray.serve.ingress import Ingress
from olp_ray.serve.lengths import OutputLengths
from olp_ray.sim.engine import engine_spec

_APPLICATION = "olp-ray"
_START_TAKES = "10 to 60 s, the most on a busy machine and after an install"


class Endpoint:
    """A running endpoint. `close` ends it, and Ray too if Ray was started for it."""

    def __init__(self, url: str, models: list[str], coordinator: RunningCoordinator, engines: dict[str, Any]) -> None:
        self.url = url
        self.models = models
        self.coordinator = coordinator.actor
        self.engines = engines
        self._running = coordinator
        self._owns_ray = False

    def close(self) -> None:
        if self._owns_ray:  # everything goes with it, at once
            ray.shutdown()
            return
        serve.delete(_APPLICATION)
        for engine in self.engines.values():
            ray.kill(engine)
        self._running.stop()


def run(config: ServeConfig, blocking: bool = True) -> Endpoint:
    """Start the endpoint; blocking stays until Ctrl-C (or SIGTERM), then ends it.

    Uses the Ray that this process is connected to, else starts one on this machine. Raises `ConfigError`.
    """
    devices = serving_devices(config)
    require_free_port(config.host, config.port)
    owns_ray = not ray.is_initialized()
    if blocking:
        print(f"starting Ray, coordinator, {len(devices)} engines and ingress: {_START_TAKES}", flush=True)
    if owns_ray:
        open_ray()
    endpoint = _start(config, devices)
    endpoint._owns_ray = owns_ray
    if blocking:
        _print_welcome(endpoint)
        _wait_for_end()
        print("\nstopping", flush=True)
        endpoint.close()
    return endpoint


def require_free_port(host: str, port: int) -> None:
    """Raise `ConfigError` when nothing can listen there, before anything is started."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just left counts as free
        try:
            probe.bind((host, port))
        except OSError as error:
            hint = ": another server is there, perhaps `olp-ray serve`" if error.errno == errno.EADDRINUSE else ""
            raise ConfigError(f"can not listen at {host}:{port}: {error.strerror}{hint}; choose with --port") from error


def serving_devices(config: ServeConfig) -> list[Device]:
    """The fleet's devices, each with the models that it serves; without a list, the model of its kind."""
    devices = []
    for device, entry in zip(config.fleet.core_devices("timed"), config.fleet.expand(), strict=True):
        kind = entry.hardware()
        if kind is None:
            raise ConfigError(f"device {device.id}: an emulated engine needs a kind")
        devices.append(dataclasses.replace(device, models=device.models or frozenset({kind.model})))
    return devices


def _start(config: ServeConfig, devices: list[Device]) -> Endpoint:
    running = start_coordinator(devices, config.router, config.runtime, config.seed)
    engines = _start_engines(config, devices)
    names = {device_id: _engine_name(config, device_id) for device_id in engines}
    models = sorted({model for device in devices for model in device.models})
    lengths = OutputLengths(config.output_lengths, config.seed, config.most_output_tokens, config.predictor)
    serve.start(http_options={"host": config.host, "port": config.port})
    ingress = Ingress.bind(config.runtime.coordinator_name, names, models, lengths)  # type: ignore[attr-defined]
    serve.run(ingress, name=_APPLICATION, route_prefix="/")
    host = "127.0.0.1" if config.host == "0.0.0.0" else config.host
    return Endpoint(f"http://{host}:{config.port}", models, running, engines)


def _start_engines(config: ServeConfig, devices: list[Device]) -> dict[str, Any]:
    """Engine actors by device id, up and known to the coordinator."""
    progress_s = config.router.settings("timed").online_lp.update_s
    engines = {}
    for device, entry in zip(devices, config.fleet.expand(), strict=True):
        actor: Any = ray.remote(EngineActor).options(
            name=_engine_name(config, device.id),
            namespace=NAMESPACE,
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=10_000,
        )
        spec = engine_spec(entry, "timed")
        name = config.runtime.coordinator_name
        engines[device.id] = actor.remote(device, spec, name, config.chunk_interval_s, progress_s)
    ray.get([engine.announce.remote() for engine in engines.values()])
    return engines


def _engine_name(config: ServeConfig, device_id: str) -> str:
    return f"{config.runtime.coordinator_name}-engine-{device_id}"


def _print_welcome(endpoint: Endpoint) -> None:
    status = ray.get(endpoint.coordinator.status.remote())
    model = endpoint.models[0]
    print(f"olp-ray serves {', '.join(endpoint.models)} at {endpoint.url} ({len(endpoint.engines)} emulated engines)")
    print(f"policy {status['policy']}; price shards: {status['shards']} ({status['shards_reason']})")
    address = ray_address()
    token = "RAY_AUTH_MODE=token " if os.environ.get("RAY_AUTH_MODE") == "token" else ""  # Ray sets it where it asks
    print(f"Ray at {address}; in another terminal: {token}olp-ray status --address {address}")
    print("try:")
    print(f"  curl {endpoint.url}/v1/chat/completions -H 'content-type: application/json' \\")
    print(
        f"""    -d '{{"model": "{model}", "max_tokens": 20, "messages": [{{"role": "user", "content": "hello"}}]}}'"""
    )
    print("Ctrl-C stops it", flush=True)


def _wait_for_end() -> None:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    while not ended.wait(timeout=0.5):
        pass
