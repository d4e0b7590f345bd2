"""Which frames of a dataset are taken."""

import itertools

import pytest

from protodepth.data.frame import evenly, time_blocks


@pytest.mark.parametrize("count", [1, 2, 7, 24, 1000])
@pytest.mark.parametrize("most", [2, 3, 6, 8, 64])
def test_evenly_spaced_numbers_go_from_the_first_to_the_last_with_almost_equal_steps(count: int, most: int) -> None:
    numbers = evenly(count, most)
    assert len(numbers) == min(count, most)
    assert (numbers[0], numbers[-1]) == (0, count - 1)
    steps = {b - a for a, b in itertools.pairwise(numbers)}
    assert not steps or (min(steps) >= 1 and max(steps) - min(steps) <= 1)


def test_none_of_nothing_and_the_first_if_one_is_asked_for() -> None:
    assert evenly(0, 5) == []
    assert evenly(9, 1) == [0]


@pytest.mark.parametrize("count", [10, 15, 41, 333])
def test_time_blocks_are_in_order_and_no_frame_within_the_gap_is_used(count: int) -> None:
    gap = 1
    train, val, test = time_blocks(count, gap).values()
    assert train[0] == 0
    assert test[-1] == count - 1
    assert (val[0] - train[-1], test[0] - val[-1]) in {
        (1 + gap, 1 + gap),
        (1, 1 + gap),
    }  # half of a short block is kept
    assert abs(len(train) - 0.7 * count) <= 0.5


def test_a_long_gap_leaves_half_of_the_block_after_it() -> None:
    blocks = time_blocks(100, 40, (0.5, 0.7, 1.0))
    assert blocks == {"train": range(50), "val": range(60, 70), "test": range(85, 100)}
