import torch

from wenet_uio.config.dataset import FbankConf
from wenet_uio.dataset.chain import mel
from wenet_uio.dataset.chain.mel import mel_energies, mel_matrix, mel_weights


def test_bands_give_the_product_with_the_whole_matrix():
    matrix = mel_matrix(16000, 512, FbankConf(num_mel_bins=40))
    spectrum = torch.randn(7, 2 * 257, generator=torch.Generator().manual_seed(0))
    power = spectrum.square().view(7, 257, 2).sum(2)
    energies = torch.empty(7, 40)
    bands = mel_weights(matrix, torch.device("cpu"))
    assert isinstance(bands, tuple)
    mel_energies(spectrum.clone(), bands, energies)
    torch.testing.assert_close(energies, power @ matrix.float())
    assert len(bands) == -(-40 // mel.BAND_BINS)
    assert sum(band.weights.size for band in bands) < matrix.numel()


def test_every_bin_is_a_triangle_that_peaks_below_one():
    matrix = mel_matrix(16000, 512, FbankConf(num_mel_bins=23))
    assert matrix.shape == (257, 23)
    assert (matrix.amax(0) > 0.5).all()
    assert float(matrix.max()) <= 1
    assert not matrix[-1].any(), "the bin at half the sample rate is ignored, as in Kaldi"
