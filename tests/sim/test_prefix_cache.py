"""The prefix cache by hand, and its bound under any use."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from olp_ray.sim.prefix_cache import PrefixCache


def test_matches_leading_blocks_only() -> None:
    cache = PrefixCache(16)
    cache.pin((1, 2, 3))
    assert cache.match_blocks((1, 2, 3, 4)) == 3
    assert cache.match_blocks((1, 9, 3)) == 1
    assert cache.match_blocks((9, 2)) == 0


def test_pinned_blocks_survive_and_loose_ones_go_from_the_end_of_the_oldest_prompt() -> None:
    cache = PrefixCache(16)
    cache.pin((1, 2))
    cache.pin((5, 6))
    cache.unpin((1, 2))
    cache.trim(16)  # room for one loose block
    assert cache.match_blocks((1, 2)) == 1
    cache.trim(0)
    assert cache.match_blocks((1, 2)) == 0
    assert cache.match_blocks((5, 6)) == 2


def test_a_block_in_use_twice_stays_until_both_are_done() -> None:
    cache = PrefixCache(16)
    cache.pin((7,))
    cache.pin((7,))
    cache.unpin((7,))
    cache.trim(0)
    assert cache.match_blocks((7,)) == 1
    cache.unpin((7,))
    cache.trim(0)
    assert cache.match_blocks((7,)) == 0


@given(uses=st.lists(st.lists(st.integers(0, 20), unique=True, max_size=6), max_size=20), free=st.integers(0, 10))
def test_loose_blocks_never_exceed_free_memory(uses: list[list[int]], free: int) -> None:
    cache = PrefixCache(1)
    for hashes in uses:
        cache.pin(hashes)
        cache.unpin(hashes)
        cache.trim(free)
        assert sum(cache.match_blocks((block,)) for block in range(21)) <= free
