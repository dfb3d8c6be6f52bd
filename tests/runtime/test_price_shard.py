import numpy as np
import pytest

from olp_ray.core.prices import PriceBlock, pick_winners, rows_of
from olp_ray.errors import PriceError
from olp_ray.runtime.price_shard import PriceShard


def test_a_plain_shard_gives_the_tables_of_its_block(work_stream):
    work = work_stream(devices=3).next()
    block = PriceBlock([0, 1, 2], work.start_prices, work.grid)
    shard = PriceShard()
    shard.rebuild([0, 1, 2], work.start_prices, work.grid)
    per_device, value = rows_of(work, np.arange(3))
    block.begin(work.update_id, work.scalars, per_device, work.samples, value)
    bids = shard.open(work.update_id, work.scalars, per_device, work.samples, value)
    winners = pick_winners([block.best(0)], work.scalars)
    np.testing.assert_array_equal(pick_winners([bids], work.scalars).device, winners.device)
    block.accept(winners)
    second = pick_winners([block.best(1)], work.scalars)
    shard.step(work.update_id, winners, 1)
    block.accept(second)
    np.testing.assert_array_equal(shard.close(work.update_id, second), block.finish())


def test_a_shard_without_a_block_says_what_to_do():
    with pytest.raises(PriceError, match="call rebuild first"):
        PriceShard().close(0, None)


def test_a_shard_refuses_a_step_of_another_update(work_stream):
    work = work_stream(devices=1).next()
    shard = PriceShard()
    shard.rebuild([0], work.start_prices, work.grid)
    with pytest.raises(PriceError, match="update 7 is not open"):
        shard.step(7, None, 1)
