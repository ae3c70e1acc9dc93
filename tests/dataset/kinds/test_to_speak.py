"""Texts without audio that an operator speaks in the worker: planned as audio, the same after every
resume.
"""

import json
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.data.loading import TOKENIZER, FakeConfig, same
from wenet_uio.config.base import ConfigError
from wenet_uio.config.mixture import MixtureConf
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.kinds.to_speak import spoken
from wenet_uio.dataset.ledger import Ledger
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.dataset.types import ExampleToSpeak, SkipSample, ToSpeak

HERE = "tests.dataset.kinds.test_to_speak"
RATE = 11025
PER_CHARACTER = 0.1


@dataclass(frozen=True)
class Noise:
    """Speaks each character as noise; the seed of the sample gives length and content."""

    longest: float = PER_CHARACTER
    """Seconds of a character."""
    silent: str = ""
    """Text that is not spoken."""

    def __call__(self, example):
        if example.to_speak is None or example.text == self.silent:
            return example
        generator = torch.Generator().manual_seed(example.random)
        share = 0.5 + 0.5 * torch.rand(1, generator=generator).item()
        seconds = share * self.longest * len(example.to_speak.text)
        return replace(
            example,
            waveform=1000 * torch.randn(int(seconds * RATE), generator=generator),
            sample_rate=RATE,
        )


def speaking(**conf):
    own = {"use": f"{HERE}:Noise", "after": "decode", "conf": conf}
    return {"operators": [own], "filter_conf": {"min_length": 1}}


def sources(folder, texts, *others, **keys):
    path = folder / "texts.json"
    path.write_text(
        "".join(json.dumps({"key": f"t{n}", "text": text}) + "\n" for n, text in enumerate(texts))
    )
    (folder / "speakers.txt").write_text("ann bob eve\n")
    own = {
        "type": "tts_text",
        "manifest_filepath": str(path),
        "seconds_per_character": PER_CHARACTER,
    }
    return MixtureConf.model_validate(
        [{**own, "speakers_filepath": str(folder / "speakers.txt"), **keys}, *others]
    )


def loader(mixture, conf, *, training=True, **options):
    options = LoaderOptions(empty_batches=True, **options)
    return build_loader(
        mixture, "raw", FakeConfig(**conf), TOKENIZER, training=training, options=options
    )


TEXTS = ["abc" * (1 + number % 4) + "a" * (number % 3) for number in range(20)]


@pytest.mark.parametrize("epochs", [2])
def test_texts_are_heard_the_same_on_any_number_of_workers(tmp_path, make_lists, epochs):
    mixture = sources(tmp_path, TEXTS, {"type": "raw", "data_list": make_lists(12)["raw"]})
    read = []
    for workers in (0, 1, 2):
        one = loader(mixture, speaking(), num_workers=workers)
        read.append([batch for _ in range(epochs) for batch in one])
    assert all(same(*pair) for other in read[1:] for pair in zip(read[0], other, strict=True))
    assert [batch.extra for batch in read[0]] == [batch.extra for batch in read[2]]
    half = len(read[0]) // 2
    heard = [
        {key for batch in part for key in batch.keys} for part in (read[0][:half], read[0][half:])
    ]
    assert {f"t{number}" for number in range(20)} <= heard[0] & heard[1]
    assert len(heard[0]) == 32
    assert not any(batch.skipped for batch in read[0])


@pytest.mark.parametrize(("ranks", "workers"), [(1, 2), (2, 0), (3, 0)])
def test_a_resume_inside_an_epoch_goes_on_with_the_same_speech(tmp_path, ranks, workers):
    mixture = sources(tmp_path, TEXTS)
    expected = {
        key: row for batch in loader(mixture, speaking()) for key, row in rows_of(batch).items()
    }
    one = loader(mixture, speaking(), num_workers=workers)
    stream = iter(one)
    found = {key: row for _ in range(2) for key, row in rows_of(next(stream)).items()}
    assert 0 < len(found) < 20
    for rank in range(ranks):
        other = loader(mixture, speaking(), rank=rank, world_size=ranks)
        other.load_state_dict(json.loads(json.dumps(one.state_dict())))
        found |= {key: row for batch in other for key, row in rows_of(batch).items()}
    assert found.keys() == expected.keys()
    assert all(
        torch.equal(found[key][0], expected[key][0]) and found[key][1] == expected[key][1]
        for key in found
    )


def rows_of(batch):
    return {
        key: (feats[:length].clone(), extra["speaker"])
        for key, feats, length, extra in zip(
            batch.keys, batch.feats, batch.feats_lengths, batch.extra, strict=True
        )
    }


def test_every_epoch_has_other_speakers_and_other_speech(tmp_path):
    one = loader(sources(tmp_path, TEXTS), speaking())
    first, second = (
        {key: row for batch in one for key, row in rows_of(batch).items()} for _ in range(2)
    )
    assert {speaker for _, speaker in first.values()} == {"ann", "bob", "eve"}
    assert any(first[key][1] != second[key][1] for key in first)
    assert not any(torch.equal(first[key][0], second[key][0]) for key in first)


def test_a_tag_names_the_speaker_of_all_texts_of_a_source(tmp_path):
    (batch, *_) = loader(sources(tmp_path, ["ab"], tags={"speaker": 7}), speaking())
    assert batch.extra == ({"speaker": 7},)


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=30),
    bound=st.integers(330, 900),
    ranks=st.sampled_from([1, 2, 5]),
)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_batches_of_speech_keep_the_bound_of_the_plan(tmp_path, lengths, bound, ranks):
    conf = {**speaking(), "batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": bound}}
    mixture = sources(tmp_path, ["a" * length for length in lengths])
    loaders = [loader(mixture, conf, rank=rank, world_size=ranks) for rank in range(ranks)]
    read = [list(one) for one in loaders]
    assert len({len(batches) for batches in read}) == 1
    assert all(
        batch.feats.size(0) * batch.feats.size(1) <= bound for batches in read for batch in batches
    )
    planned = [key for batches in read for batch in batches for key in batch.keys]
    filtered = sum(loaders[0].cursor.plan.filtered().values())
    assert len(set(planned)) == len(planned) == len(lengths) - filtered


def test_speech_that_is_longer_than_planned_is_left_out_by_name(tmp_path):
    conf = {**speaking(longest=20 * PER_CHARACTER), "max_bad_ratio": 1.0, "speed_perturb": False}
    one = loader(sources(tmp_path, TEXTS), conf, ledger=Ledger(tmp_path / "bad.jsonl"))
    skipped = [each for batch in one for each in batch.skipped]
    lost = {each.key for each in skipped}
    assert len(lost) == 20
    assert {each.reason for each in skipped} == {"longer_than_planned"}
    assert all(
        "planned; raise seconds_per_character of the source" in each.detail for each in skipped
    )
    assert {
        json.loads(line)["key"] for line in (tmp_path / "bad.jsonl").read_text().splitlines()
    } == lost


def test_a_stated_duration_bounds_the_speech_too(tmp_path):
    mixture = sources(tmp_path, [])
    lines = [
        {"key": "short", "text": "abc", "duration": 0.1},
        {"key": "long", "text": "abc", "duration": 0.3},
    ]
    (tmp_path / "texts.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    batches = list(loader(mixture, {**speaking(), "max_bad_ratio": 1.0, "speed_perturb": False}))
    assert [key for batch in batches for key in batch.keys] == ["long"]
    assert [each.key for batch in batches for each in batch.skipped] == ["short"]


def test_a_text_that_no_operator_speaks_stops_the_run_and_is_named(tmp_path):
    with pytest.raises(
        ValueError, match="t0: no waveform; no operator after `decode` spoke its text"
    ):
        list(loader(sources(tmp_path, ["abc"]), speaking(silent="abc")))


@pytest.mark.parametrize("training", [True, False])
def test_texts_to_speak_need_an_operator_after_decode(tmp_path, training):
    mixture, conf = sources(tmp_path, ["abc"]), speaking()
    message = "sources of type tts_text need an operator that speaks"
    conf["operators"][0]["after"] = "resample"
    for without in ({}, conf):
        with pytest.raises(ConfigError, match=message):
            loader(mixture, without, training=training)
    if not training:
        with pytest.raises(ConfigError, match="after: decode and evaluation: true"):
            loader(mixture, speaking(), training=False)
        conf["operators"][0] |= {"after": "decode", "evaluation": True}
        assert [batch.keys for batch in loader(mixture, conf, training=False)] == [("t0",)]


def test_the_audio_beside_the_texts_gives_equal_batches_in_raw_and_in_shard_mode(
    tmp_path, make_lists
):
    lists = make_lists(15)
    raw, shard = (
        list(loader(sources(tmp_path, TEXTS, {"type": kind, "data_list": lists[kind]}), speaking()))
        for kind in ("raw", "shard")
    )
    assert all(same(*pair) for pair in zip(raw, shard, strict=True))
    assert any({key[0] for key in batch.keys} == {"t", "u"} for batch in raw), [
        batch.keys for batch in raw
    ]


def test_features_of_speech_can_be_computed_on_the_accelerator(tmp_path):
    mixture = sources(tmp_path, TEXTS)
    conf = {**speaking(), "fbank_conf": {"num_mel_bins": 20, "dither": 0.0}, "spec_aug": False}
    plain, deferred = (list(loader(mixture, conf, defer_features=on)) for on in (False, True))
    for one, other in zip(plain, deferred, strict=True):
        assert one.keys == other.keys
        assert torch.allclose(one.feats, other.to("cpu").feats, atol=1e-3)


def test_tokens_of_texts_to_speak_are_counted_for_the_filters(tmp_path):
    conf = {**speaking(), "filter_conf": {"min_length": 1, "max_tps": 3}, "speed_perturb": False}
    one = loader(sources(tmp_path, TEXTS), conf)
    assert one.cursor.plan.filtered() == {"max_tps": 20}


def test_speech_of_just_the_planned_length_is_kept():
    def keep(example):
        raise AssertionError("runs after the check")

    def longer_by(samples):
        def speak(example):
            return replace(example, waveform=torch.zeros(RATE + samples), sample_rate=RATE)

        return (speak, keep)

    to_speak = ExampleToSpeak(
        key="a", text="a", waveform=None, sample_rate=0, random=1, speed=1.0, extra={},
        speech=ToSpeak("a", None, 1.0),
    )  # fmt: skip
    example, left = spoken(to_speak, longer_by(0))
    assert (example.waveform.numel(), left) == (RATE, (keep,))
    with pytest.raises(SkipSample, match=r"longer_than_planned"):
        spoken(to_speak, longer_by(1))
