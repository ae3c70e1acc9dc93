import json

import lhotse
import pytest
import yaml

from tests.dataset.support.tars import everything, wav, write_tar
from wenet_uio.config import ConfigError
from wenet_uio.config.mixture import load_mixture
from wenet_uio.dataset.corpus.sources import lists_of_sources
from wenet_uio.dataset.formats.data_list import ListError
from wenet_uio.dataset.open import open_corpus


@pytest.fixture
def write(tmp_path):
    def to_file(content, name="mix.yaml"):
        path = tmp_path / name
        path.write_text(yaml.safe_dump(content).replace("SETS", str(tmp_path)))
        return str(path)

    return to_file


@pytest.fixture
def tarred(tmp_path):
    """Make a NeMo set of two tars of two utterances in a folder of its own."""

    def make(name, texts="abcd", field="text"):
        folder = tmp_path / name
        folder.mkdir()
        for number in (0, 1):
            names = [f"{name}{number}{part}.wav" for part in (0, 1)]
            write_tar(folder / f"audio_{number}.tar", [(member, wav(seed=len(member))) for member in names])
            entries = [
                {"audio_filepath": member, field: text, "shard_id": number}
                for member, text in zip(names, texts[2 * number :], strict=False)
            ]
            (folder / f"manifest_{number}.json").write_text("".join(json.dumps(entry) + "\n" for entry in entries))

    return make


def tarred_source(name, **keys):
    return {
        "type": "nemo_tarred",
        "manifest_filepath": f"SETS/{name}/manifest__OP_0..1_CL_.json",
        "tarred_audio_filepaths": f"SETS/{name}/audio__OP_0..1_CL_.tar",
        **keys,
    }


def test_an_input_cfg_of_nemo_is_opened(write, tarred, tmp_path):
    for name in ("x", "y", "z"):
        tarred(name)
    path = write(
        {
            "input_cfg": [
                {
                    "type": "group",
                    "weight": 0.7,
                    "tags": {"task": "asr"},
                    "input_cfg": [
                        tarred_source("x", weight=0.6, tags={"lang": "en"}, shuffle=True, shard_seed="trng"),
                        tarred_source("y", weight=0.4, tags={"lang": "pl"}, skip_missing_manifest_entries=True),
                    ],
                },
                {"type": "group", "weight": 0.3, "tags": {"task": "ast"}, "input_cfg": [tarred_source("z", weight=1)]},
            ]
        }
    )
    mix = open_corpus(path, "raw")
    assert [source.share for source in mix.sources] == pytest.approx([0.42, 0.28, 0.3])
    assert [(u.key, u.text, u.extra["task"]) for u in everything(mix)][:5] == [
        ("x00", "a", "asr"),
        ("x01", "b", "asr"),
        ("x10", "c", "asr"),
        ("x11", "d", "asr"),
        ("y00", "a", "asr"),
    ]
    assert {u.extra.get("lang") for u in everything(mix)} == {"en", "pl", None}


def test_buckets_of_nemo_are_one_source(write, tarred):
    tarred("x")
    tarred("y")
    x, y = tarred_source("x"), tarred_source("y")
    path = write([{name: [[x[name]], [y[name]]] if name != "type" else x[name] for name in x}])
    assert [u.key for u in everything(open_corpus(path, "raw"))][3:6] == ["x11", "y00", "y01"]


def test_sharded_manifests_of_files_are_a_corpus_each_in_one_share(write, tmp_path):
    for number in (0, 1, 2):
        (tmp_path / f"{number}.wav").write_bytes(wav())
        line = json.dumps({"audio_filepath": f"{number}.wav", "text": "a"}) + "\n"
        (tmp_path / f"manifest_{number}.json").write_text(line * (number + 1))
    several = {"type": "nemo", "manifest_filepath": "SETS/manifest_{0..1}.json", "weight": 3}
    path = write([several, {"type": "nemo", "manifest_filepath": "SETS/manifest_2.json", "weight": 1}])
    assert [source.share for source in open_corpus(path, "raw").sources] == pytest.approx([0.25, 0.5, 0.25])


def test_a_group_says_for_its_sources_what_they_do_not_say(write, tarred):
    tarred("x", field="answer")
    tarred("y", field="reply")
    sources = [tarred_source("x"), tarred_source("y", text_field="reply")]
    path = write([{"type": "group", "text_field": "answer", "input_cfg": write(sources, "inner.yaml")}])
    assert [u.text for u in everything(open_corpus(path, "raw"))] == list("abcdabcd")


def test_webdataset_shards_are_read_the_way_the_source_says(write, tmp_path):
    tar = write_tar(tmp_path / "a.tar", [("a.b.txt", "x"), ("a.b.wav", wav())])
    (tmp_path / "a.list").write_text(f"{tar}\n")
    source = {"type": "shard", "data_list": "SETS/a.list"}
    keys = [
        everything(open_corpus(write([{**source, **more}], name), "raw"))[0].key
        for name, more in (("auto.yaml", {}), ("first.yaml", {"key_ends": "first"}))
    ]
    assert keys == ["a.b", "a"]


@pytest.fixture
def cuts(tmp_path):
    (tmp_path / "one.wav").write_bytes(wav(0.5))
    recording = lhotse.Recording.from_file(tmp_path / "one.wav")
    supervision = lhotse.SupervisionSegment("s", "one", 0, 0.5, text="hello")
    found = lhotse.CutSet.from_cuts([lhotse.MonoCut("one", 0, 0.5, 0, [supervision], recording=recording)])
    found.to_file(str(tmp_path / "cuts.jsonl.gz"))
    (tmp_path / "shar").mkdir()
    found.to_shar(str(tmp_path / "shar"), {"recording": "wav"})


@pytest.mark.parametrize(
    "source",
    [
        {"type": "lhotse", "cuts_path": "SETS/cuts.jsonl.gz"},
        {"type": "lhotse_cuts", "cuts_path": "SETS/cuts.jsonl.gz"},
        {"type": "lhotse_shar", "shar_path": "SETS/shar"},
        {"type": "lhotse_shar", "shar_path": ["SETS/shar"]},
    ],
)
def test_cuts_and_shar_are_sources(write, cuts, source):
    (utterance,) = everything(open_corpus(write([source]), "raw"))
    assert (utterance.key, utterance.text) == ("one", "hello")


def test_a_shar_stays_as_lhotse_wrote_it(write, cuts, tmp_path):
    before = sorted((tmp_path / "shar").iterdir())
    open_corpus(write([{"type": "lhotse_shar", "shar_path": "SETS/shar"}]), "raw")
    assert sorted((tmp_path / "shar").iterdir()) == before


def test_the_lists_behind_a_mixture_are_named_each_once(write, tarred):
    tarred("x")
    path = write([tarred_source("x"), {"type": "group", "input_cfg": [tarred_source("x")]}])
    (found,) = lists_of_sources(load_mixture(path).sources)
    assert found.data_type == "shard"
    assert open(found.data_list).read().count("\n") == 2


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            {"type": "nemo_tarred", "manifest_filepath": "m", "tarred_audio_filepath": "t"},
            "tarred_audio_filepath: unknown key; did you mean 'tarred_audio_filepaths'",
        ),
        ({"type": "nemo_tarred", "manifest_filepath": "m"}, "needs tarred_audio_filepaths"),
        (
            {"type": "nemo", "manifest_filepath": "m", "tarred_audio_filepaths": "t"},
            "type nemo has no tarred_audio_filepaths",
        ),
        ({"type": "lhotse_shar", "cuts_path": "c"}, "needs shar_path"),
        ({"type": "nemo", "manifest_filepath": [["m", 0.5]]}, "manifest_filepath"),
        ({"type": "shard", "data_list": "a", "key_ends": "frist"}, "key_ends"),
        ({"type": "nemo", "manifest_filepath": "m", "extra_fields": []}, "extra_fields: unknown key"),
    ],
)
def test_a_source_that_cannot_be_meant_is_refused(write, source, message):
    with pytest.raises(ConfigError, match=message):
        open_corpus(write([source]), "raw")


def test_a_folder_that_is_no_shar_is_refused(write, tmp_path):
    with pytest.raises(ListError, match="expected as many recording.*found 0 and 0"):
        open_corpus(write([{"type": "lhotse_shar", "shar_path": str(tmp_path)}]), "raw")
