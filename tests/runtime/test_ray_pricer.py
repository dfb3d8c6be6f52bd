import os
import signal
import time

import numpy as np
import pytest

from olp_ray.config.runtime import RuntimeConfig
from olp_ray.core.prices import InlinePricer, PriceBlock
from olp_ray.errors import PriceError, RuntimeShellError
from olp_ray.runtime.price_shard import PriceShard
from olp_ray.runtime.ray_pricer import RayPricer
from olp_ray.runtime.shard_pool import ShardPool

pytestmark = pytest.mark.ray_local


class SlowShard(PriceShard):
    """Bids after 50 ms."""

    def open(self, *update):
        time.sleep(0.05)
        return super().open(*update)


class NanShard(PriceShard):
    """Its tables are not numbers."""

    def close(self, *winners):
        return super().close(*winners) * np.nan


class ShortShard(PriceShard):
    """Its bids are one too few."""

    def open(self, *update):
        return type(bids := super().open(*update))(*(column[1:] for column in bids))


@pytest.fixture
def start(ray_local):
    """Starts pricers and closes them."""
    pricers = []

    def build(shards, shard_class=PriceShard, config=None, spare=False, **options):
        pricers.append(RayPricer(ShardPool(shards, config or RuntimeConfig(), shard_class, spare=spare), **options))
        return pricers[-1]

    yield build
    for pricer in pricers:
        pricer.close()


@pytest.mark.parametrize("shards", [1, 3, 5])
def test_prices_equal_inline_to_the_bit(start, shards, work_stream):
    ours, reference = start(shards), InlinePricer()
    stream, twin = work_stream(devices=5), work_stream(devices=5)
    for _ in range(6):
        ours.submit(stream.next())
        reference.submit(twin.next())
        got, expected = ours.collect(), reference.collect()
        assert len(got) == shards
        for device_id, tables in by_device(expected).items():
            np.testing.assert_array_equal(by_device(got)[device_id], tables)
        stream.took(got)
        twin.took(expected)
    assert any(tables.any() for tables in by_device(got).values())


def test_four_slow_shards_bid_at_the_same_time_in_their_own_processes(start, ray_local, work_stream):
    pool_pricer = start(4, SlowShard)
    stream = work_stream(devices=4, rounds=1)
    pool_pricer.submit(stream.next())
    stream.took(pool_pricer.collect())
    rounds_s = []
    for _ in range(10):  # on a busy machine some take longer
        pool_pricer.submit(stream.next())
        ready = pool_pricer.collect()
        assert len(ready) == 4
        stream.took(ready)
        rounds_s.append(pool_pricer.status().rounds_s)
    assert 0.05 <= min(rounds_s) < 0.1
    pids = set(ray_local.get([handle.process_id.remote() for handle in pool_pricer.shard_handles]))
    assert len(pids) == 4
    assert os.getpid() not in pids


def test_no_gradient_is_computed_in_the_process_of_the_pricer(start, monkeypatch, work_stream):
    def here(*_):
        raise AssertionError("computed in the router's process")

    for name in ("begin", "best", "accept", "finish"):
        monkeypatch.setattr(PriceBlock, name, here)
    pricer = start(2)
    pricer.submit(work_stream().next())
    assert len(pricer.collect()) == 2


def test_a_stopped_shard_misses_and_then_is_replaced_while_the_others_go_on(start, ray_local, work_stream):
    began = time.monotonic()
    pricer = start(3, clock=lambda: time.monotonic() - began, max_missed_updates=3)
    stream = work_stream(devices=3)
    pids = ray_local.get([handle.process_id.remote() for handle in pricer.shard_handles])
    tick = _ticker(pricer, stream, began)
    assert _until(tick, lambda got: len(got) == 3)
    os.kill(pids[1], signal.SIGSTOP)
    try:
        got = [tick() for _ in range(3)][-1]
        assert [item.device_ids for item in got] == [("d0",), ("d2",)]
        assert _until(tick, lambda got: len(got) == 3)
    finally:
        os.kill(pids[1], signal.SIGKILL)
    status = pricer.status()
    assert status.replaced == 1
    assert status.missed[1] >= 3
    assert set(status.missed) <= {0, 1, 2}


@pytest.mark.parametrize("spare", [False, True])
def test_a_killed_shard_is_rebuilt_from_the_last_tables(start, ray_local, work_stream, spare):
    began = time.monotonic()
    pricer = start(2, spare=spare, clock=lambda: time.monotonic() - began, max_missed_updates=1000)
    pricer.wait_until_up()
    stream = work_stream(devices=2)
    tick = _ticker(pricer, stream, began)
    assert _until(tick, lambda got: len(got) == 2)
    pid = ray_local.get(pricer.shard_handles[0].process_id.remote())
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    assert _until(tick, lambda got: len(got) == 2, after_a_miss=True)
    assert time.monotonic() - killed < 10
    status = pricer.status()
    assert (status.rebuilt, status.replaced) == (1, 0)
    assert status.missed[0] >= 1
    assert ray_local.get(pricer.shard_handles[0].process_id.remote()) != pid


def test_a_service_whose_shards_are_all_there_has_nothing_to_tell(start, work_stream):
    began = time.monotonic()
    pricer = start(2, spare=True, clock=lambda: time.monotonic() - began)
    pricer.wait_until_up()
    tick = _ticker(pricer, work_stream(devices=2), began, interval_s=2.0)
    for _ in range(3):
        assert len(tick()) == 2
    status = pricer.status()
    assert (status.updates, status.missed, status.rebuilt, status.replaced, status.errors) == (3, {}, 0, 0, {})
    assert status.lag == {0: 0, 1: 0}


def test_a_shard_stopped_for_one_update_gives_what_the_simulator_gives_with_that_update_lost(
    start, ray_local, work_stream
):
    began = time.monotonic()
    ours = start(3, clock=lambda: time.monotonic() - began, max_missed_updates=100)
    twin, inline = work_stream(devices=3), InlinePricer(blocks=3, missed=[(2, ["d1"])])
    stream = work_stream(devices=3)
    pids = ray_local.get([handle.process_id.remote() for handle in ours.shard_handles])
    for update_id in range(6):
        if update_id == 2:
            os.kill(pids[1], signal.SIGSTOP)
        ours.submit(stream.next(due_s=time.monotonic() - began + 1.0))
        time.sleep(1.0)
        os.kill(pids[1], signal.SIGCONT)
        ray_local.get([handle.process_id.remote() for handle in ours.shard_handles])  # all are awake
        inline.submit(twin.next())
        got, expected = ours.collect(), inline.collect()
        assert len(got) == (2 if update_id == 2 else 3)
        for device_id, tables in by_device(expected).items():
            np.testing.assert_array_equal(by_device(got)[device_id], tables)
        stream.took(got)
        twin.took(expected)


@pytest.mark.parametrize("shard_class", [NanShard, ShortShard])
def test_nonsense_from_a_shard_is_a_miss_live_and_an_error_when_simulated(start, work_stream, shard_class):
    simulated = start(2, shard_class)
    simulated.submit(work_stream(devices=2).next())
    with pytest.raises(RuntimeShellError, match=r"price shard 0 did not finish update 0.*PriceError"):
        simulated.collect()
    began = time.monotonic()
    live = start(2, shard_class, clock=lambda: time.monotonic() - began)
    live.wait_until_up()
    stream = work_stream(devices=2)
    for _ in range(2):
        live.submit(stream.next(due_s=time.monotonic() - began + 60.0))
        while not live.take_round_times():
            time.sleep(0.01)
        assert live.collect() == []
    status = live.status()
    assert status.missed == {0: 2, 1: 2}
    assert status.errors == {"PriceError": 4}
    assert (status.rebuilt, status.replaced) == (2, 0)


def test_price_work_without_a_start_is_refused(start, work_stream):
    stream = work_stream(devices=2)
    stream.next()
    with pytest.raises(PriceError, match="without start prices"):
        start(1).submit(stream.next())


def test_shards_are_spread_over_a_placement_group(start, ray_local, work_stream):
    config = RuntimeConfig(placement="pack", shard_resources={"price_shard": 1})
    pricer = start(2, config=config)
    pricer.submit(work_stream(devices=2).next())
    assert len(pricer.collect()) == 2
    assert ray_local.available_resources()["price_shard"] == 14


def test_placement_needs_something_to_place(ray_local):
    with pytest.raises(RuntimeShellError, match="asks for nothing"):
        ShardPool(2, RuntimeConfig(placement="spread"))


def _ticker(pricer, stream, began, interval_s=0.15):
    def tick():
        pricer.submit(stream.next(due_s=time.monotonic() - began + interval_s))
        time.sleep(interval_s)
        got = pricer.collect()
        stream.took(got)
        return got

    return tick


def _until(tick, condition, updates=100, after_a_miss=False):
    missed = not after_a_miss
    for _ in range(updates):
        met = condition(tick())
        if met and missed:
            return True
        missed = missed or not met
    return False


def by_device(ready):
    """Tables of each device id."""
    return {device_id: item.tables[i] for item in ready for i, device_id in enumerate(item.device_ids)}
