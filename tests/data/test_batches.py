"""The order of the windows: a permutation each epoch, the same whoever asks, from wherever they ask."""

from __future__ import annotations

import numpy as np
import pytest

from dwsweep.data.batches import check_enough, window_indices
from dwsweep.data.token_store import windows_of


@pytest.mark.parametrize("n", [1, 2, 3, 37, 64, 65, 4097])
def test_each_epoch_visits_every_window_once(n: int) -> None:
    epochs = 3
    stream = window_indices(7, 0, epochs * n, 1, n).reshape(epochs, n)
    for epoch in stream:
        assert sorted(epoch.tolist()) == list(range(n))


def test_the_order_of_all_sweeps_so_far_is_kept() -> None:
    """Frozen: a change here changes every batch of every sweep."""
    assert window_indices(0, 0, 2, 8, 1000).tolist() == [
        [929, 290, 701, 673, 426, 680, 418, 570],
        [369, 954, 408, 832, 923, 225, 515, 821],
    ]
    assert window_indices(12345, 10**6, 1, 4, 3_000_000_000).tolist() == [
        [2139309921, 2264918671, 2357890673, 1785116847]
    ]
    assert window_indices(3, 40, 1, 4, 37).tolist() == [[25, 12, 27, 26]]  # of a later epoch


def test_dtype_holds_the_largest_window() -> None:
    assert window_indices(0, 0, 1, 4, 2**31 - 1).dtype == np.int32
    large = window_indices(0, 0, 50, 4, 2**31 + 10)
    assert large.dtype == np.int64 and large.max() >= 2**30 and large.min() >= 0


def test_seek_equals_replay_in_batches_of_any_size() -> None:
    whole = window_indices(3, 0, 320, 1, 37).reshape(40, 8)  # epochs end inside batches
    for first, steps in [(0, 40), (0, 1), (4, 3), (39, 1), (13, 27)]:
        assert np.array_equal(window_indices(3, first, steps, 8, 37), whole[first : first + steps])


def test_a_window_has_its_tokens_and_the_next_one() -> None:
    tokens = np.arange(1000, dtype=np.uint16)
    assert check_enough(1000, 9, 1) == 111 and check_enough(999, 9, 1) == 110
    windows = windows_of(tokens, np.array([[0, 110], [77, 77]], np.int32), 9)
    assert windows.shape == (2, 2, 10) and windows.dtype == np.uint16
    assert windows[:, :, 0].tolist() == [[0, 990], [693, 693]] and (np.diff(windows) == 1).all()
    with pytest.raises(IndexError):
        windows_of(tokens, np.array([111]), 9)
