import pytest
import torch

from wenet_uio.config.dataset import FbankConf
from wenet_uio.dataset.chain.mel import (
    BAND_STEP,
    BAND_WEIGHTS,
    FRAME_BLOCK,
    WIDEST_BAND,
    frames_per_product,
    mel_energies,
    mel_matrix,
    mel_weights,
)

BINS = [*range(1, 26), 40, 64, 80, 81, 128]
CPU = torch.device("cpu")


def power_of(spectrum):
    return spectrum.square().unflatten(1, (-1, 2)).sum(2)


@pytest.mark.parametrize("rate", [8000, 16000, 48000])
def test_bands_give_the_product_with_the_whole_matrix(rate):
    fft_size = 1 << (rate // 40 - 1).bit_length()
    spectrum = torch.randn(7, fft_size + 2, generator=torch.Generator().manual_seed(0))
    for bins in BINS:
        matrix = mel_matrix(rate, fft_size, FbankConf(num_mel_bins=bins))
        energies = torch.full((7, bins), torch.nan)
        mel_energies(spectrum.clone(), mel_weights(matrix, CPU), energies)
        torch.testing.assert_close(energies, power_of(spectrum) @ matrix.float())


def test_a_band_has_whole_steps_of_bins_and_few_weights():
    for bins in BINS[BAND_STEP - 1 :]:
        bands = mel_weights(mel_matrix(16000, 512, FbankConf(num_mel_bins=bins)), CPU)
        assert isinstance(bands, tuple)
        assert {bin for band in bands for bin in range(bins)[band.bins]} == set(range(bins))

        for band in bands:
            width = band.weights.shape[1]
            assert width % BAND_STEP == 0
            assert width <= WIDEST_BAND
            assert width == BAND_STEP or band.weights.size <= BAND_WEIGHTS


@pytest.mark.parametrize("rate", [8000, 16000, 48000])
@pytest.mark.parametrize("bins", [bins for bins in BINS if bins >= BAND_STEP])
def test_energies_of_a_frame_do_not_depend_on_the_other_frames_of_whole_blocks(bins, rate):
    fft_size = 1 << (rate // 40 - 1).bit_length()
    mel = mel_weights(mel_matrix(rate, fft_size, FbankConf(num_mel_bins=bins)), CPU)
    most = min(504, frames_per_product(mel))
    spectrum = torch.randn(most, fft_size + 2, generator=torch.Generator().manual_seed(bins))
    of_all = torch.empty(most, bins)
    mel_energies(spectrum.clone(), mel, of_all)

    for frames in range(FRAME_BLOCK, most, 3 * FRAME_BLOCK):
        for first in {0, 1, most - frames}:
            energies = torch.empty(frames, bins)
            mel_energies(spectrum[first : first + frames].clone(), mel, energies)
            assert torch.equal(energies, of_all[first : first + frames])


def test_every_bin_is_a_triangle_that_peaks_below_one():
    matrix = mel_matrix(16000, 512, FbankConf(num_mel_bins=23))
    assert matrix.shape == (257, 23)
    assert (matrix.amax(0) > 0.5).all()
    assert float(matrix.max()) <= 1
    assert not matrix[-1].any(), "the bin at half the sample rate is ignored, as in Kaldi"
