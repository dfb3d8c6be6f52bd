import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olp_ray.core.kernels import pricing
from olp_ray.core.kernels.records import SLOT_PRICE
from olp_ray.core.prices import (
    Bids,
    InlinePricer,
    PerDevice,
    PriceBlock,
    PriceScalars,
    Winners,
    build_tables,
    pick_winners,
    rows_of,
    run_update,
    shift_prices,
    split_devices,
)
from olp_ray.errors import PriceError, SnapshotError
from tests.core.price_twin import plain_cost, plain_demand, plain_shift, plain_update

moderate = settings(max_examples=40, deadline=None)


def blocks_of(start_prices, partition, grid=0):
    return [PriceBlock(indices, start_prices[indices], grid) for indices in partition]


def gathered(blocks, devices):
    """Settled prices of all blocks in fleet order."""
    prices = [None] * devices
    for block in blocks:
        state = block.snapshot()
        for g, row in zip(state["device_indices"], state["prices"], strict=True):
            prices[g] = row
    return np.array(prices)


def tables_of(ready, devices):
    tables = {device_id: table for item in ready for device_id, table in zip(item.device_ids, item.tables, strict=True)}
    return np.array([tables[f"g{i}"] for i in range(devices)])


def open_block(work, block=None):
    """A block (of all devices, if none is given) on which the update is open."""
    block = block or PriceBlock(np.arange(len(work.device_ids)), work.start_prices, work.grid)
    per_device, value = rows_of(work, block.device_indices)
    block.begin(work.update_id, work.scalars, per_device, work.samples, value)
    return block


# -- cost of a life -------------------------------------------------------------------------------------------------


@moderate
@given(seed=st.integers(0, 10**6), buckets=st.integers(1, 9), bucket_s=st.sampled_from([0.7, 4.0, 16.0]))
def test_life_cost_is_the_integral(seed, buckets, bucket_s):
    rng = np.random.default_rng(seed)
    devices, samples, reach = 3, 8, buckets * bucket_s
    prices = rng.uniform(0, 1, (devices, 2, buckets))
    step_s = rng.uniform(0.1, 2, (devices, 1))
    start_s, life_s = rng.uniform(0, 1.4 * reach, samples), rng.uniform(0, 1.5 * reach, (devices, samples))
    start_s[0], life_s[:, 1] = 0.0, bucket_s
    prompt = rng.integers(0, 500, samples).astype(float)
    tables = build_tables(prices, bucket_s)
    for g in range(devices):
        for j in range(samples):
            life = (start_s[j], prompt[j], life_s[g, j], step_s[g, 0])
            plain = plain_cost(prices[g], bucket_s, *life)
            assert pricing.life_cost(tables[g], bucket_s, *life) == pytest.approx(plain, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("start_s", [0.0, 3.0, 200.0])
@pytest.mark.parametrize("life_s", [0.0, 5.0, 16.0, 500.0])
def test_flat_prices_have_a_closed_form(start_s, life_s):
    slot, kv, prompt, step_s = 0.05, 2e-4, 120.0, 0.5
    tables = build_tables(np.broadcast_to(np.array([slot, kv])[:, None], (1, 2, 6)), 16.0)
    cost = pricing.life_cost(tables[0], 16.0, start_s, prompt, life_s, step_s)
    expected = slot * life_s + kv * (prompt * life_s + life_s**2 / (2 * step_s))
    assert cost == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_shift_repeats_the_last_price():
    prices = np.arange(8.0).reshape(1, 2, 4)
    assert shift_prices(prices, 1).tolist() == [[[1, 2, 3, 3], [5, 6, 7, 7]]]
    assert shift_prices(prices, 0).tolist() == prices.tolist()
    assert shift_prices(prices, 9).tolist() == [[[3] * 4, [7] * 4]]


# -- demand and the gradient step -----------------------------------------------------------------------------------


def demand_of(work, won):
    """Demand that a block adds for winners `won` of round 0, read back from the step it takes."""
    block = open_block(work)
    block.best(0)
    return block._demand(won)


@moderate
@given(seed=st.integers(0, 10**6))
def test_demand_is_the_mean_of_every_bucket(work_stream, seed):
    stream = work_stream(seed, devices=3, rounds=1)
    work = stream.next()
    rng = np.random.default_rng(seed)
    won = Winners(rng.integers(-1, 3, stream.samples), rng.integers(0, 4, stream.samples))
    plain = np.zeros((3, 2, stream.buckets))
    for i, g in enumerate(won.device):
        if g >= 0:
            start_s, prompt, output, weight, _ = work.samples[i]
            at_s = start_s + (0, 1, 2, 4)[won.delay[i]] * 4.0
            life_s = output * work.step_s[g]
            plain[g] += weight * plain_demand(stream.buckets, 4.0, at_s, prompt, life_s, work.step_s[g])
    assert demand_of(work, won) == pytest.approx(plain, rel=1e-9, abs=1e-7)


def step_once(demand, capacity, occupied, price, base_price=0.5, rate=0.1):
    """Slot price of bucket 0 after one step, with `demand` slots wanted there by one request of that weight."""
    buckets = 4
    scalars = np.array(PriceScalars(16.0, rate, base_price, 0, 0, 0, 0, 1, buckets, 0, 0), dtype=float)
    flat = np.ones((1, 2, buckets))
    samples = np.array([[0.0, 0.0, 16.0, demand, 0.0]])
    block = PriceBlock([0], flat * price, 0)
    per_device = PerDevice(occupied * flat, capacity * flat, np.ones(1), np.array([-1]))
    block.begin(0, scalars, per_device, samples, np.full((1, 4, 1), 1e9))
    block.accept(pick_winners([block.best(0)], scalars))
    return block.finish()[0, SLOT_PRICE, 0]


def test_price_step_of_the_worked_example():
    assert step_once(demand=6, capacity=4, occupied=3, price=0.05) == pytest.approx(0.065625, abs=1e-15)


def test_price_is_projected_to_its_range():
    assert step_once(demand=0, capacity=4, occupied=0, price=1e-3) == 0.0
    assert step_once(demand=4000, capacity=4, occupied=4, price=0.5) == 5 * 0.5 / 4
    assert step_once(demand=0, capacity=4, occupied=9, price=0.05) == 0.05  # overfull counts as no free share


@moderate
@given(
    seed=st.integers(0, 10**6),
    devices=st.integers(1, 5),
    columns=st.sampled_from(["one", "each"]),
    ahead=st.sampled_from([1, 5, 8, 12, 40]),
)
def test_an_update_agrees_with_its_plain_twin(work_stream, seed, devices, columns, ahead):
    stream = work_stream(seed, devices, columns)
    work = stream.next()
    work.scalars[PriceScalars._fields.index("lookahead_buckets")] = ahead
    block = PriceBlock(np.arange(devices), work.start_prices, work.grid)
    (ready,) = run_update([block], work)
    plain = plain_update(work.start_prices, work, range(devices))
    assert ready.tables[:, :2, :-1] == pytest.approx(plain, rel=1e-9, abs=1e-12)
    assert np.array_equal(ready.tables, build_tables(ready.tables[:, :2, :-1], 4.0))


@moderate
@given(seed=st.integers(0, 10**6), lost=st.lists(st.booleans(), min_size=6, max_size=6))
def test_several_updates_agree_with_the_plain_twin(work_stream, seed, lost):
    devices = 3
    stream = work_stream(seed, devices, samples=8)
    plain, pending, grid, block = None, None, 0, None
    for late in lost:
        work = stream.next()
        if plain is None:
            plain, block = work.start_prices, PriceBlock(np.arange(devices), work.start_prices, 0)
        elif pending is not None:
            plain, pending = pending, None
        plain, grid = plain_shift(plain, work.grid - grid), work.grid
        (ready,) = run_update([block], work)
        computed = plain_update(plain, work, range(devices))
        expected = plain_shift(computed, work.next_grid - work.grid)
        assert ready.tables[:, :2, :-1] == pytest.approx(expected, rel=1e-9, abs=1e-12)
        if not late:
            pending, grid = expected, work.next_grid
            stream.accepted[:] = work.update_id


# -- block layouts --------------------------------------------------------------------------------------------------


def cut(devices, cuts):
    """Contiguous blocks of 0..devices-1, cut before each index in `cuts`."""
    return [part for part in np.split(np.arange(devices), sorted({c for c in cuts if 0 < c < devices})) if len(part)]


def play(stream, updates, partition, missing, start=()):
    """Run `updates`; at update u the devices in missing[u] do not bid, and the tables of `late` ones are refused."""
    blocks, tables = None, []
    for u in range(updates):
        work = stream.next()
        blocks = blocks or blocks_of(work.start_prices, partition)
        silent, late = missing[u]
        bidding = [b for b in blocks if not silent.intersection(b.device_indices.tolist())]
        ready = run_update(bidding, work) if bidding else []
        for item in ready:
            at = [int(device_id[1:]) for device_id in item.device_ids]
            if not late.intersection(at):
                stream.accepted[at] = item.update_id
        tables.append({d: t for item in ready for d, t in zip(item.device_ids, item.tables, strict=True)})
    return tables, gathered(blocks, stream.devices)


@moderate
@given(
    seed=st.integers(0, 10**6),
    devices=st.integers(1, 7),
    columns=st.sampled_from(["one", "each"]),
    coarse=st.lists(st.integers(1, 6), max_size=2),
    finer=st.lists(st.integers(1, 6), max_size=3),
    data=st.data(),
)
def test_block_layout_changes_no_bit(work_stream, seed, devices, columns, coarse, finer, data):
    updates = 5
    parts = cut(devices, coarse)
    some = st.lists(st.sampled_from(range(len(parts))), max_size=2).map(
        lambda picked: frozenset(int(g) for i in picked for g in parts[i])
    )
    missing = data.draw(st.lists(st.tuples(some, some), min_size=updates, max_size=updates))
    results = [
        play(work_stream(seed, devices, columns), updates, partition, missing)
        for partition in (parts, cut(devices, [*coarse, *finer]), cut(devices, range(devices)))
    ]
    tables, prices = results[0]
    for other_tables, other_prices in results[1:]:
        assert np.array_equal(prices, other_prices)
        for one, other in zip(tables, other_tables, strict=True):
            assert one.keys() == other.keys()
            assert all(np.array_equal(one[device], other[device]) for device in one)


@pytest.mark.parametrize("devices", [1, 2, 5, 8])
@pytest.mark.parametrize("columns", ["one", "each"])
def test_inline_pricer_gives_the_same_bits_for_1_2_3_and_g_blocks(work_stream, devices, columns):
    results = []
    for blocks in sorted({1, 2, 3, devices}):
        stream, pricer, seen = work_stream(7, devices, columns), InlinePricer(blocks=blocks), []
        for _ in range(6):
            work = stream.next()
            pricer.submit(work)
            ready = pricer.collect()
            assert sum(len(item.device_ids) for item in ready) == devices
            assert all((item.update_id, item.grid) == (work.update_id, work.next_grid) for item in ready)
            stream.accepted[:] = work.update_id
            seen.append(tables_of(ready, devices))
        assert pricer.collect() == []
        results.append(np.array(seen))
    assert all(np.array_equal(results[0], other) for other in results[1:])


def test_split_covers_every_device_once():
    for devices in range(1, 9):
        for blocks in range(1, 12):
            parts = split_devices(devices, blocks)
            assert np.concatenate(parts).tolist() == list(range(devices))
            assert len(parts) == min(blocks, devices)
            assert max(map(len, parts)) - min(map(len, parts)) <= 1


# -- drafts ---------------------------------------------------------------------------------------------------------


def test_a_late_update_leaves_no_trace(work_stream):
    first = work_stream(3, 4)
    blocks = blocks_of(first.next().start_prices, split_devices(4, 2))
    before = gathered(blocks, 4)
    run_update(blocks, work_stream(3, 4).next())
    assert np.array_equal(gathered(blocks, 4), before)
    late = first.next()  # accepted is still -1: the router did not take update 0
    without = blocks_of(before, split_devices(4, 2))
    one, other = run_update(blocks, late), run_update(without, late)
    assert np.array_equal(tables_of(one, 4), tables_of(other, 4))


def test_an_accepted_update_is_kept_over_missed_ones(work_stream):
    stream = work_stream(4, 2)
    work = stream.next()
    block = PriceBlock([0, 1], work.start_prices, 0)
    (ready,) = run_update([block], work)
    stream.accepted[:] = work.update_id
    stream.next(), stream.next(), stream.next()  # not bid on
    (later,) = run_update([block], stream.next())
    fresh = PriceBlock([0, 1], ready.tables[:, :2, :-1], ready.grid)
    last = dataclasses.replace(_again(work_stream(4, 2), 5)[-1], accepted=np.array([-1, -1]))
    (expected,) = run_update([fresh], last)
    assert np.array_equal(later.tables, expected.tables)


def _again(stream, updates):
    return [stream.next() for _ in range(updates)]


def test_shift_moves_prices_and_grid(work_stream):
    work = work_stream(5, 2).next()
    block = PriceBlock([0, 1], work.start_prices, 3)
    block.shift(2)
    state = block.snapshot()
    assert state["grid"] == 5
    assert np.array_equal(state["prices"], plain_shift(work.start_prices, 2))


def test_snapshot_goes_on_with_the_same_bits(work_stream):
    stream, twin = work_stream(6, 3), work_stream(6, 3)
    block = PriceBlock(np.arange(3), stream.next().start_prices, 0)
    run_update([block], twin.next())
    stream.accepted[:] = twin.accepted[:] = 0
    run_update([block], stream.next())
    other = PriceBlock(np.arange(3), np.zeros((3, 2, 12)), 0)
    other.restore(block.snapshot())
    twin.next()
    (one,), (two,) = run_update([block], stream.next()), run_update([other], twin.next())
    assert np.array_equal(one.tables, two.tables)


def test_snapshot_of_other_devices_is_refused(work_stream):
    work = work_stream(6, 3).next()
    block, other = PriceBlock([0, 1], work.start_prices[:2], 0), PriceBlock([1, 2], work.start_prices[1:], 0)
    before = other.snapshot()
    with pytest.raises(SnapshotError, match=r"\[0, 1\]"):
        other.restore(block.snapshot())
    with pytest.raises(SnapshotError, match="version 2"):
        other.restore({**before, "version": 2})
    assert np.array_equal(other.snapshot()["prices"], before["prices"])


# -- winners --------------------------------------------------------------------------------------------------------


def scalars(rotation, devices):
    return np.array(PriceScalars(1.0, 0.1, 1.0, 0.1, 0.02, 1e-4, rotation, devices, 4, 0, 0), dtype=float)


def bids(*rows):
    margin, delay, rotated = (np.array(column) for column in zip(*rows, strict=True))
    return Bids(margin.astype(float), delay, rotated)


def test_ties_go_to_the_larger_margin_then_earlier_delay_then_rotated_index():
    one = bids((1.0, 0, 3), (2.0, 2, 0), (2.0, 1, 2), (-1.0, 0, 0))
    two = bids((2.0, 3, 4), (2.0, 1, 4), (2.0, 1, 1), (0.0, 0, 1))
    won = pick_winners([one, two], scalars(rotation=2, devices=5))
    assert won.delay.tolist() == [3, 1, 1, 0]
    assert won.device.tolist() == [(4 + 2) % 5, (4 + 2) % 5, (1 + 2) % 5, -1]  # a margin of 0 does not win
    again = pick_winners([two, one], scalars(rotation=2, devices=5))
    assert np.array_equal(again.device, won.device)
    assert np.array_equal(again.delay, won.delay)


@pytest.mark.parametrize("rotation", range(4))
def test_free_and_equal_devices_are_won_in_rotation(work_stream, rotation):
    work = work_stream(8, 4).next(step_s=np.ones(4), start_prices=np.zeros((4, 2, 12)))
    work.scalars[PriceScalars._fields.index("rotation")] = rotation
    work = dataclasses.replace(work, value=np.ones_like(work.value))
    blocks = [open_block(work, block) for block in blocks_of(work.start_prices, split_devices(4, 2))]
    won = pick_winners([block.best(0) for block in blocks], work.scalars)
    assert set(won.device.tolist()) == {rotation}
    assert set(won.delay.tolist()) == {0}


def test_devices_that_may_not_run_a_sample_never_win(work_stream):
    work = work_stream(9, 3, "each").next()
    work.value[:, :, 1] = -np.inf
    block = open_block(work)
    assert 1 not in pick_winners([block.best(0)], work.scalars).device


# -- errors ---------------------------------------------------------------------------------------------------------


def with_nan(array):
    array = array.copy()
    array.flat[-1] = np.nan
    return array


BROKEN = {
    "occupied is not finite": lambda work: {"occupied": with_nan(work.occupied)},
    "occupied has a bucket less": lambda work: {"occupied": work.occupied[:, :, 1:]},
    "capacity is not finite": lambda work: {"capacity": with_nan(work.capacity)},
    "capacity is zero": lambda work: {"capacity": work.capacity * 0},
    "step time is zero": lambda work: {"step_s": work.step_s * 0},
    "step time is not finite": lambda work: {"step_s": with_nan(work.step_s)},
    "samples have a column less": lambda work: {"samples": work.samples[:, 1:]},
    "samples are not finite": lambda work: {"samples": with_nan(work.samples)},
    "value is not a number": lambda work: {"value": with_nan(work.value)},
    "value has a sample less": lambda work: {"value": work.value[1:]},
    "value has a delay less": lambda work: {"value": work.value[:, 1:]},
    "scalars are short": lambda work: {"scalars": work.scalars[1:]},
    "scalars are not finite": lambda work: {"scalars": with_nan(work.scalars)},
}


@pytest.mark.parametrize("case", BROKEN)
def test_wrong_arrays_are_refused_and_change_nothing(work_stream, case):
    stream = work_stream(10, 3)
    first = stream.next()
    block, clean = (PriceBlock(np.arange(3), first.start_prices, 0) for _ in range(2))
    run_update([block], first)
    run_update([clean], first)
    stream.accepted[:] = 0
    work = stream.next()
    with pytest.raises(PriceError):
        open_block(dataclasses.replace(work, **BROKEN[case](work)), block)
    assert np.array_equal(run_update([block], work)[0].tables, run_update([clean], work)[0].tables)


def test_wrong_prices_are_refused():
    for prices in (np.zeros((2, 2)), np.zeros((1, 2, 4)), np.full((2, 2, 4), np.nan), np.full((2, 2, 4), -1.0)):
        with pytest.raises(PriceError, match=r"\(2, 2, N\)"):
            PriceBlock([0, 1], prices, 0)


def test_steps_of_an_update_need_an_open_one(work_stream):
    work = work_stream(11, 2).next()
    block = PriceBlock([0, 1], work.start_prices, 0)
    won = Winners(np.array([-1]), np.array([0]))
    for step in (lambda: block.accept(won), block.finish):
        with pytest.raises(PriceError, match="begin"):
            step()


def test_an_injected_miss_silences_its_whole_block(work_stream):
    stream, pricer = work_stream(12, 4), InlinePricer(blocks=2, missed=[(1, ["g0"])])
    pricer.submit(stream.next())
    assert [item.device_ids for item in pricer.collect()] == [("g0", "g1"), ("g2", "g3")]
    stream.accepted[:] = 0
    pricer.submit(stream.next())
    assert [item.device_ids for item in pricer.collect()] == [("g2", "g3")]
