import torch

from wenet_uio.dataset.chain.features import CHUNK, white_noise, white_noises

SEEDS = torch.tensor([5, 6, 2**62, 0])


def test_noise_is_a_function_of_seed_and_place_alone():
    together = white_noise(SEEDS, 100_001)
    for row, seed in enumerate(SEEDS):
        assert torch.equal(white_noise(seed[None], 777)[0], together[row, :777])
    assert not torch.equal(together[0], together[1])


def test_noises_of_several_lengths_are_those_of_each():
    samples = [1, 0, 4 * CHUNK - 3, 777, 4 * CHUNK + 5]
    noises = white_noises([*SEEDS.tolist(), 2**63 - 1], samples)
    for seed, number, noise in zip([*SEEDS, 2**63 - 1], samples, noises, strict=True):
        assert torch.equal(noise, white_noise(torch.tensor([int(seed)]), number)[0])


def test_noise_is_normal_and_white():
    noise = white_noise(SEEDS, 1_000_000).double()
    assert noise.mean(1).abs().max() < 0.005
    assert (noise.std(1) - 1).abs().max() < 0.005
    assert (noise.pow(4).mean(1) - 3).abs().max() < 0.05
    for lag in (1, 2, 3, 4, 5, 160):
        assert (noise[:, lag:] * noise[:, :-lag]).mean(1).abs().max() < 0.005
    assert (noise[0] * noise[1]).mean().abs() < 0.005


def test_neighbouring_seeds_have_nothing_in_common():
    noise = white_noise(torch.arange(1000), 4)
    assert noise.mean().abs() < 0.07
    assert abs(float(noise.std()) - 1) < 0.05


def test_noise_is_quantiles_of_splitmix64():
    parts = torch.tensor(splitmix(seed=1, count=2), dtype=torch.float64)
    expected = torch.special.ndtri((parts + 32768.5) / 65536).float()
    assert torch.equal(white_noise(torch.tensor([1]), 8)[0], expected)


def splitmix(seed, count):
    """SplitMix64 as published: the signed 16-bit parts of each number, lowest part first."""
    parts, mask = [], 2**64 - 1
    for number in range(1, count + 1):
        z = (seed + number * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        z ^= z >> 31
        parts += [(z >> shift) & 0xFFFF for shift in (0, 16, 32, 48)]
    return [part - 65536 if part >= 32768 else part for part in parts]
