import threading

import torch

from wenet_uio.config.dataset import FbankConf
from wenet_uio.dataset.chain.fbank import fbank
from wenet_uio.dataset.chain.scratch import LARGEST_KEPT, scratch

LIKE = torch.empty(0)


def test_a_name_keeps_its_memory_for_the_next_call():
    first = scratch("first", LIKE, 100)
    assert scratch("first", LIKE, 60).data_ptr() == first.data_ptr()
    assert scratch("second", LIKE, 60).data_ptr() != first.data_ptr()
    assert len(scratch("first", LIKE, 101)) == 101


def test_memory_beyond_the_limit_is_not_kept():
    longest = scratch("long", LIKE, LARGEST_KEPT)
    longer = scratch("long", LIKE, LARGEST_KEPT + 1)
    assert longer.data_ptr() != longest.data_ptr()
    assert scratch("long", LIKE, 1).data_ptr() == longest.data_ptr()


def test_memory_that_inference_mode_made_can_be_changed_outside_of_it():
    with torch.inference_mode():
        scratch("inference", LIKE, 10)
    assert not scratch("inference", LIKE, 10).fill_(1).is_inference()


def test_features_of_threads_at_the_same_time_are_those_of_each():
    waveforms = [torch.randn(48000 + 160 * number) * 1000 for number in range(4)]
    expected = [fbank(waveform, 16000, FbankConf()) for waveform in waveforms]
    barrier = threading.Barrier(len(waveforms))
    found = {}

    def compute(number):
        barrier.wait()
        found[number] = [fbank(waveforms[number], 16000, FbankConf()) for _ in range(10)]

    threads = [threading.Thread(target=compute, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for number, features in enumerate(expected):
        assert all(torch.equal(features, again) for again in found[number])
