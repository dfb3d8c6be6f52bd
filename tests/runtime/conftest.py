import pytest

from benchmarks.price_works import WorkStream


@pytest.fixture
def work_stream():
    """Builds a stream of random price updates."""
    return WorkStream
