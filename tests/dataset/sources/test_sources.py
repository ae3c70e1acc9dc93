import lhotse
import pytest
import yaml

from tests.support.data.nemo import tarred_source, write_tarred
from tests.support.data.tars import everything, wav, write_tar
from wenet_uio.config import ConfigError
from wenet_uio.config.mixture import load_mixture
from wenet_uio.config.source import parse_source
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.open import open_corpus, read_source


@pytest.fixture
def write(tmp_path):
    def to_file(content, name="mix.yaml"):
        path = tmp_path / name
        path.write_text(yaml.safe_dump(content).replace("SETS", str(tmp_path)))
        return str(path)

    return to_file


def utterances(**source):
    """Every utterance of a source that has one list."""
    (found,) = parse_source(source).lists()
    return everything(open_list(*found))


def test_webdataset_shards_are_read_as_the_source_says(tmp_path):
    tar = write_tar(tmp_path / "a.tar", [("a.b.txt", "x"), ("a.b.wav", wav())])
    (tmp_path / "a.list").write_text(f"{tar}\n")
    source = {"type": "shard", "data_list": str(tmp_path / "a.list")}
    keys = [utterances(**source, **more)[0].key for more in ({}, {"key_ends": "first"})]
    assert keys == ["a.b", "a"]


def test_tars_and_manifests_of_nemo_are_one_list(tmp_path):
    write_tarred(tmp_path, "x")
    found = utterances(**tarred_source("x", parent=tmp_path))
    assert [(u.key, u.text) for u in found] == [
        ("x00", "a"),
        ("x01", "b"),
        ("x10", "c"),
        ("x11", "d"),
    ]


@pytest.fixture
def cuts(tmp_path):
    (tmp_path / "one.wav").write_bytes(wav(0.5))
    recording = lhotse.Recording.from_file(tmp_path / "one.wav")
    supervision = lhotse.SupervisionSegment("s", "one", 0, 0.5, text="hello")
    found = lhotse.CutSet.from_cuts(
        [lhotse.MonoCut("one", 0, 0.5, 0, [supervision], recording=recording)]
    )
    found.to_file(str(tmp_path / "cuts.jsonl.gz"))
    (tmp_path / "shar").mkdir()
    found.to_shar(str(tmp_path / "shar"), {"recording": "wav"})


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("lhotse", {"cuts_path": "cuts.jsonl.gz"}),
        ("lhotse_cuts", {"cuts_path": "cuts.jsonl.gz"}),
        ("lhotse_shar", {"shar_path": "shar"}),
    ],
)
def test_cuts_and_shar_are_sources(cuts, tmp_path, kind, keys):
    for several in (False, True):
        paths = {name: str(tmp_path / value) for name, value in keys.items()}
        paths = {name: [value] for name, value in paths.items()} if several else paths
        (utterance,) = utterances(type=kind, **paths)
        assert (utterance.key, utterance.text) == ("one", "hello")


def test_a_shar_stays_as_lhotse_wrote_it(cuts, tmp_path):
    before = sorted((tmp_path / "shar").iterdir())
    utterances(type="lhotse_shar", shar_path=str(tmp_path / "shar"))
    assert sorted((tmp_path / "shar").iterdir()) == before


def test_the_lists_of_a_mixture_are_named_once_each(write, tmp_path):
    write_tarred(tmp_path, "x")
    text = {"type": "txt", "paths": "SETS/no.txt"}  # has no list
    path = write([tarred_source("x"), text, {"type": "group", "input_cfg": [tarred_source("x")]}])
    (found,) = read_source(path, "raw").lists()
    assert found.data_type == "shard"
    assert open(found.data_list).read().count("\n") == 2


def test_a_source_of_texts_has_no_list():
    assert parse_source({"type": "txt", "paths": "a.txt"}).lists() == ()


@pytest.mark.parametrize(
    "values",
    [
        {"type": "txt", "paths": "a.txt"},
        {"type": "tts_text", "manifest_filepath": "a", "speakers_filepath": ["s"]},
        {"type": "group", "text_field": "t", "input_cfg": [{"type": "raw", "data_list": "a"}]},
        {"type": "nemo", "data_list": "a", "weight": 2.0, "tags": {"x": 1}},
    ],
)
def test_a_source_as_a_run_writes_it_is_the_same_source(values):
    conf = parse_source(values)
    assert parse_source(conf.model_dump(mode="json")) == conf


@pytest.mark.parametrize(
    ("key", "value", "owner"),
    [
        ("questions_path", "q.txt", "txt_pair"),
        ("seconds_per_character", 0.15, "tts_text"),
        ("rename", {"speaker": "spk"}, "shard"),
        ("audio_locator_tag", "<a>", "multimodal_conversation"),
    ],
)
def test_a_key_of_another_type_is_refused(key, value, owner):
    with pytest.raises(ValueError, match=f"a source of type raw has no {key}; {owner} has"):
        parse_source({"type": "raw", "data_list": "a", key: value})


def test_keys_that_a_loader_of_nemo_gives_all_its_sources_are_taken_by_every_type():
    text = parse_source({"type": "txt", "paths": "a", "token_equivalent_duration": 0.1})
    assert text == parse_source({"type": "txt", "paths": "a"})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            {"type": "nemo_tarred", "manifest_filepath": "m", "tarred_audio_filepath_": "t"},
            "tarred_audio_filepath_: unknown key; did you mean 'tarred_audio_filepath",
        ),
        ({"type": "nemo_tarred", "manifest_filepath": "m"}, "needs tarred_audio_filepaths"),
        (
            {"type": "nemo", "manifest_filepath": "m", "tarred_audio_filepaths": "t"},
            "type nemo has no tarred_audio_filepaths",
        ),
        ({"type": "lhotse_shar", "cuts_path": "c"}, "needs shar_path"),
        (
            {"type": "nemo", "manifest_filepath": [["m", 0.5], ["n"]]},
            r"\['n'\]: expected \[path, weight\]: give each path one weight",
        ),
        (
            {
                "type": "nemo_tarred",
                "manifest_filepath": [["m", 0.5], ["n", 0.5]],
                "tarred_audio_filepath": "t_{0..1}.tar",
            },
            "manifest_filepath and tarred_audio_filepaths of paths with weights need as many items",
        ),
        ({"type": "lhotse_shar", "shar_path": [["m", -0.5]]}, "weight"),
        ({"type": "shard", "data_list": "a", "key_ends": "frist"}, "key_ends"),
        (
            {"type": "nemo", "manifest_filepath": "m", "extra_fields": []},
            "extra_fields: unknown key",
        ),
    ],
)
def test_a_source_with_impossible_keys_is_refused(write, source, message):
    with pytest.raises(ConfigError, match=message):
        load_mixture(write([source]))


def test_a_folder_without_a_shar_is_refused(tmp_path):
    with pytest.raises(ListError, match="expected as many recording.*found 0 and 0"):
        parse_source({"type": "lhotse_shar", "shar_path": str(tmp_path)}).lists()


@pytest.mark.parametrize("inner", ["mix.yaml", "other.yaml"])
def test_a_mixture_that_includes_itself_is_refused_with_the_way_to_itself(write, tmp_path, inner):
    def group(name):
        return {"type": "group", "input_cfg": [{"type": "group", "input_cfg": f"SETS/{name}"}]}

    mix, other = write([group(inner)]), write([group("mix.yaml")], "other.yaml")
    way = f"{mix} > {mix}" if inner == "mix.yaml" else f"{other} > {mix} > {other}"
    for open_sources in (
        lambda: read_source(mix, "raw").lists(),
        lambda: open_corpus(mix, "raw"),
    ):
        with pytest.raises(ConfigError, match=f"this file of sources includes itself: {way}$"):
            open_sources()


def test_a_file_of_sources_may_be_included_twice(write, tmp_path):
    write_tarred(tmp_path, "x")
    write([tarred_source("x")], "inner.yaml")
    path = write([{"type": "group", "input_cfg": "SETS/inner.yaml"}] * 2)
    assert open_corpus(path, "shard").num_samples == 8


@pytest.mark.parametrize(
    ("source", "paths"),
    [
        (
            {"type": "nemo", "manifest_filepath": [["a.json", 0.7], ["b.json", 0.3]]},
            [{"manifest_filepath": "a.json"}, {"manifest_filepath": "b.json"}],
        ),
        (
            {
                "type": "nemo_tarred",
                "manifest_filepath": [["a.json", 0.7], ["b.json", 0.3]],
                "tarred_audio_filepath": [["a.tar", 0.7], ["b.tar"]],
            },
            [
                {"manifest_filepath": "a.json", "tarred_audio_filepaths": "a.tar"},
                {"manifest_filepath": "b.json", "tarred_audio_filepaths": ("b.tar",)},
            ],
        ),
        (
            {"type": "lhotse_shar", "shar_path": [["a", 0.7], ["b", 0.3]]},
            [{"shar_path": "a"}, {"shar_path": "b"}],
        ),
    ],
)
def test_paths_with_weights_are_a_group_of_sources_with_weights(source, paths):
    keys_of_all = {"text_field": "words", "weight": 2.0, "tags": {"x": 1}}
    group = parse_source({**source, **keys_of_all})
    assert (group.type, group.weight, group.tags) == ("group", 2.0, {"x": 1})
    assert [member.weight for member in group.input_cfg] == [0.7, 0.3]
    assert [member.text_field for member in group.input_cfg] == ["words", "words"]
    found = [
        {key: getattr(member, key) for key in keys}
        for member, keys in zip(group.input_cfg, paths, strict=True)
    ]
    assert found == paths
    assert parse_source(group.model_dump(mode="json")) == group


def test_manifests_with_commas_between_them_are_several(tmp_path):
    for name in ("a", "b"):
        write_tarred(tmp_path, name)
    keys = ("manifest_filepath", "tarred_audio_filepaths")
    sources = [tarred_source(name, parent=tmp_path) for name in ("a", "b")]
    joined = {key: ",".join(source[key] for source in sources) for key in keys}
    found = utterances(type="nemo_tarred", **joined)
    expected = [utterance for source in sources for utterance in utterances(**source)]
    assert [u.key for u in found] == [u.key for u in expected]


def test_a_manifest_whose_name_has_a_comma_is_one(tmp_path):
    (tmp_path / "one.wav").write_bytes(wav(0.5))
    line = '{"audio_filepath": "one.wav", "duration": 0.5, "text": "x"}\n'
    for name in ("a,b.json", "c.json"):
        (tmp_path / name).write_text(line)
    paths = [f"{tmp_path}/a,b.json", f"{tmp_path}/c.json", f"{tmp_path}/{{c,c}}.json"]
    for path in paths:
        assert len(parse_source({"type": "nemo", "manifest_filepath": path}).lists()) == 1
    both = f"{tmp_path}/c.json, {tmp_path}/c.json"
    assert len(parse_source({"type": "nemo", "manifest_filepath": both}).lists()) == 2


def test_a_missing_file_of_sources_is_named_with_the_file_that_includes_it(write, tmp_path):
    inner = write([{"type": "group", "input_cfg": "SETS/no.yaml"}], "inner.yaml")
    outer = write([{"type": "group", "input_cfg": inner}])
    with pytest.raises(ConfigError, match=f"^{inner}: input_cfg: .*no.yaml: no such file"):
        open_corpus(outer, "raw")
    with pytest.raises(ConfigError, match=f"^{inner}: input_cfg: .*no.yaml: no such file"):
        open_corpus(inner, "raw")
    with pytest.raises(ConfigError, match=f"^{inner}: input_cfg: .*no.yaml: no such file"):
        read_source(outer, "raw").lists()
