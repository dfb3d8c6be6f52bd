"""Asking a running coordinator how it is, from a process that is not connected to its Ray yet. Only reads."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

import ray

from olp_ray.errors import RuntimeShellError
from olp_ray.runtime.names import find_actor, ray_address

_CONNECT_TIMEOUT_S = 3.0
_ANSWER_TIMEOUT_S = 5.0  # a busy Ray answers late
# What a client of HTTP/2 says first (RFC 9113, section 3.4), which a server answers with a SETTINGS frame; gRPC, and so
# every Ray, speaks it
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_FRAME_HEADER_BYTES, _TYPE_AT, _SETTINGS = 9, 3, 4


def coordinator_status(name: str, address: str = "auto") -> dict[str, Any]:
    """What the running coordinator of this name says of itself, and `ray_address`, the Ray that it runs in.

    Raises `RuntimeShellError` when no Ray runs at this address, or no coordinator of this name in it.
    """
    if not ray.is_initialized():
        _require_listener(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        except ConnectionError as error:
            raise RuntimeShellError(
                f"no Ray runs at {address!r}, or it wants a token: start `olp-ray serve` first, and set "
                "RAY_AUTH_MODE=token where --address or RAY_ADDRESS names a Ray with token authentication"
            ) from error
    try:
        coordinator = find_actor(name)
    except RuntimeShellError as error:
        raise RuntimeShellError(
            f"{error}; if it runs in another Ray, name that with --address: `olp-ray serve` prints it"
        ) from error
    return {**ray.get(coordinator.status.remote()), "ray_address": ray_address()}


def _require_listener(address: str) -> None:
    """Raise `RuntimeShellError` unless a Ray can be what listens there: Ray itself would try for minutes."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address  # Ray takes an empty one for none, too
    if address == "auto":
        return
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not (host and port.isdecimal()):
        raise RuntimeShellError(f"--address {address!r}: expected auto or HOST:PORT, for example 10.0.0.1:6379")
    try:
        with socket.create_connection((host, int(port)), _CONNECT_TIMEOUT_S) as connection:
            speaks_grpc = os.environ.get("RAY_USE_TLS", "0") != "0" or _speaks_http2(connection)
    except (OSError, OverflowError) as error:
        raise RuntimeShellError(f"no Ray runs at {address!r}: {error}; start `olp-ray serve` first") from error
    if not speaks_grpc:
        raise RuntimeShellError(
            f"no Ray runs at {address!r}: something else listens there; expected the port of Ray's head (6379 unless "
            "`ray start --port` says otherwise)"
        )


def _speaks_http2(connection: socket.socket) -> bool:
    connection.settimeout(_ANSWER_TIMEOUT_S)
    try:
        connection.sendall(_PREFACE)
        header = connection.recv(_FRAME_HEADER_BYTES, socket.MSG_WAITALL)
    except (TimeoutError, ConnectionError):
        return False
    return len(header) == _FRAME_HEADER_BYTES and header[_TYPE_AT] == _SETTINGS
