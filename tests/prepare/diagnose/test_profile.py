import pytest

from tests.support.data.loading import loader
from wenet_uio.prepare.diagnose.profile import Profile, profile


@pytest.mark.parametrize("device", ["worker", "accelerator"])
def test_every_step_of_the_chain_has_its_time_and_they_add_up(make_lists, device):
    data_list = make_lists(40)["raw"]
    deferred = device == "accelerator"
    found = profile(lambda: loader(data_list, "raw", defer_features=deferred), batches=4)
    assert found.batches == 4
    assert found.audio_seconds > 0
    assert min(found.seconds.values()) > 0
    steps = ["Tokenize", "Filter", "Resample", "SpeedPerturb"]
    features = (
        ["Defer"] if deferred else ["Dither", "ComputeFbank", "SpecAug", "SpecSub", "SpecTrim"]
    )
    assert set(found.seconds) == {
        *("plan", "read", "decode", "pad and the rest", *steps, *features),
        *(["features on the device"] if deferred else []),
    }
    assert sum(found.as_dict()["share"].values()) == pytest.approx(1, abs=0.01)


def test_the_batches_are_those_of_training(make_lists):
    data_list = make_lists(40)["raw"]
    seen = []

    class Watched:
        def __call__(self, example):
            seen.append(example.key)
            return example

    def make_loader():
        made = loader(data_list, "raw")
        chains = made.reader.chains
        made.reader.use_chains(chains._replace(audio=(*chains.audio, Watched())))
        return made

    profile(make_loader, batches=1000)
    assert sorted(seen) == sorted(key for batch in loader(data_list, "raw") for key in batch.keys)


def test_advice_is_given_for_steps_with_a_large_share():
    found = Profile(10, 100.0, 0.01, 0.1, {"read": 1.0, "decode": 8.0, "ComputeFbank": 1.0})
    (line,) = found.advice()
    assert line.startswith("decode takes 80%: pack 16-bit wav")
    assert Profile(10, 100.0, 0.2, 0.1, {"read": 0.1, "Defer": 9.9}).advice() == [
        "20% of the frames are padding: see plan_report.py"
    ]


def test_the_number_of_workers_is_rounded_up():
    found = Profile(10, 100.0, 0.0, 0.1, {"read": 1.0})
    assert (found.speed, found.workers_for(100), found.workers_for(101)) == (100.0, 1, 2)


def test_the_text_has_a_line_per_step_and_totals():
    table, read, decode, totals = Profile(
        10, 3600.0, 0.013, 0.1, {"read": 1.0, "decode": 3.0}
    ).lines()
    assert table.split() == ["ms", "a", "batch", "share"]
    assert read.split() == ["read", "100.00", "25.0%"]
    assert decode.split() == ["decode", "300.00", "75.0%"]
    assert totals.startswith(
        "10 batches, 1.00 hours: 900 audio seconds per second in one process; 1.3% padding"
    )


def test_a_list_of_one_batch_cannot_be_profiled(make_lists):
    data_list = make_lists(3)["raw"]
    with pytest.raises(ValueError, match="has only one batch"):
        profile(lambda: loader(data_list, "raw", conf={"batch_conf": {"batch_size": 8}}), batches=4)
