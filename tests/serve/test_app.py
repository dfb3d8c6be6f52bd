import socket

import pytest

from olp_ray.config import ServeConfig
from olp_ray.errors import ConfigError
from olp_ray.serve.app import require_free_port, run


def test_a_port_that_is_taken_is_told_before_anything_is_started():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"can not listen at 127\.0\.0\.1:{port}.*perhaps `olp-ray serve`.*--port"
        ):
            run(ServeConfig(port=port))


def test_a_host_that_is_not_ours_is_told():
    with pytest.raises(ConfigError, match=r"can not listen at 192\.0\.2\.77:8000"):
        require_free_port("192.0.2.77", 8000)


def test_a_port_that_was_just_left_is_free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with socket.create_connection(address), server.accept()[0]:
            pass
    require_free_port(*address)
