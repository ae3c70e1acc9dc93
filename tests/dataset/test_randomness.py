import numpy as np
import pytest

from wenet_uio.dataset.randomness import Permutation, key_of, uniform


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000, 4097])
def test_a_permutation_hits_every_position_once(size):
    image = Permutation(size, key_of(1, 2))(np.arange(size))
    assert sorted(image.tolist()) == list(range(size))


def test_permutations_of_two_epochs_are_unrelated():
    first, second = (Permutation(10000, key_of(7, epoch))(np.arange(10000)) for epoch in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.05
    assert abs(np.corrcoef(first, np.arange(10000))[0, 1]) < 0.05


def test_a_seed_may_be_any_integer():
    seeds = (-1, -777, 1 << 64, (1 << 70) + 5, 0, 1)
    assert len({key_of(seed, 0) for seed in seeds}) == len(seeds) - 1
    assert key_of(-1) == key_of((1 << 64) - 1)
    assert key_of(1 << 64) == key_of(0)


def test_draws_are_uniform_and_pinned():
    draws = uniform(key_of(3), np.arange(100000))
    assert abs(draws.mean() - 0.5) < 0.005
    assert draws.min() >= 0
    assert draws.max() < 1
    assert key_of(777, 0) != key_of(0, 777)
    assert key_of(777, 0) == 8316426977437027269
