from wenet_uio.dataset.storage.backoff import Backoff


def test_pauses_double_with_jitter_up_to_the_longest_and_begin_again_after_progress():
    backoff = Backoff(first=1.0, longest=5.0)
    for most in (1, 2, 4, 5, 5):
        assert most / 2 <= backoff.next_pause() <= most
    assert backoff.failures == 5
    backoff.reset()
    assert backoff.failures == 0
    assert backoff.next_pause() <= 1


def test_an_outage_of_days_does_not_overflow():
    backoff = Backoff(first=0.1, longest=5.0)
    assert all(backoff.next_pause() <= 5 for _ in range(20_000))
