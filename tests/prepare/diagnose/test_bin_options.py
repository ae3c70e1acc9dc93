"""estimate_duration_bins.py with NeMo's options: weighted manifests, a tokenizer for each language,
prompts.
"""

import json

import numpy as np
import pytest
import yaml

from tests.support.data.tars import wav
from tools import estimate_duration_bins
from wenet_uio.text.spm import SentencepieceOptions, train_sentencepiece

TEXTS = {
    "en": ["hello world", "hello", "we love words"],
    "pl": ["dzień dobry", "dobry", "tak tak tak"],
}
SECONDS = {"en": 0.5, "pl": 1.5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A manifest, a sentencepiece model and an input_cfg of two languages."""
    folder = tmp_path_factory.mktemp("bins")
    sources = []
    for language, texts in TEXTS.items():
        entries = []
        for number in range(30):
            path = folder / f"{language}{number}.wav"
            seconds = SECONDS[language] + number / 100
            if number < 2:
                path.write_bytes(wav(seconds))
            entries.append(
                {"audio_filepath": str(path), "duration": seconds, "text": texts[number % 3]}
            )
        (folder / f"{language}.json").write_text(
            "".join(json.dumps(entry) + "\n" for entry in entries)
        )
        train_sentencepiece(
            texts * 5, folder / language / "tokenizer", SentencepieceOptions(vocab_size=16)
        )
        weight = 0.9 if language == "en" else 0.1
        manifest = {
            "type": "nemo",
            "manifest_filepath": f"{folder}/{language}.json",
            "tags": {"lang": language},
        }
        sources.append({**manifest, "weight": weight})
    (folder / "input_cfg.yaml").write_text(yaml.safe_dump(sources))
    return folder


@pytest.fixture
def estimate(folder, capsys):
    def run(*words):
        estimate_duration_bins.main([str(word) for word in words])
        said = capsys.readouterr()
        return yaml.safe_load(said.out)["batch_conf"], said.err

    return run


def test_weights_of_manifests_on_the_command_line_are_those_of_a_yaml(folder, estimate):
    conf, _ = estimate("-b", 4, folder / "input_cfg.yaml")
    assert estimate("-b", 4, f"[[{folder}/en.json,0.9],[{folder}/pl.json,0.1]]")[0] == conf
    other, _ = estimate("--num_bins", 4, f"[[{folder}/en.json,0.1],[{folder}/pl.json,0.9]]")
    assert np.median(other["bucket_duration_bins"]) > np.median(conf["bucket_duration_bins"])
    assert (
        len(estimate("-b", 4, f"[{folder}/en.json,{folder}/pl.json]")[0]["bucket_duration_bins"])
        == 4
    )


def test_tokens_are_counted_by_the_tokenizer_of_each_language(folder, estimate):
    models = [f"{folder}/en/tokenizer.model", f"{folder}/pl"]
    words = ("--tokenizer", *models, "--langs", "en", "pl", "--buckets", 2, "--sub-buckets", 2)
    conf, _ = estimate(*words, folder / "input_cfg.yaml")
    assert {len(end) for end in conf["bucket_duration_bins"]} == {2}
    single, _ = estimate("-t", models[0], "-b", 2, "-s", 2, folder / "input_cfg.yaml")
    # Pl cut by en has more pieces
    assert single["bucket_duration_bins"] != conf["bucket_duration_bins"]
    same, _ = estimate(
        *words,
        "--prompt-format",
        "canary",
        "--prompt",
        "[{'role':'user'}]",
        folder / "input_cfg.yaml",
    )
    assert same == conf


def test_utterances_without_a_known_language_are_said_to_be_left_out(folder, estimate):
    model = f"{folder}/en/tokenizer.model"
    words = ("-t", model, "-a", "en", "-b", 2, "-s", 2, f"[{folder}/en.json]")
    with pytest.raises(
        ValueError,
        match="no utterance with audio is left; the filters leave out: 30 by token_min_length",
    ):
        estimate(*words)
    _, said = estimate("-t", model, "-a", "en", "-b", 2, "-s", 2, folder / "input_cfg.yaml")
    assert "utterances are left out by token_min_length" in said


def test_bounds_and_a_config_apply(folder, estimate, tmp_path):
    conf, said = estimate("-b", 2, "-u", 1.0, folder / "input_cfg.yaml")
    assert conf["bucket_duration_bins"][-1] <= 1.0
    assert "utterances are left out by max_duration" in said
    (tmp_path / "train.yaml").write_text(
        yaml.safe_dump({"dataset_conf": {"filter_conf": {"max_duration": 1.0}}})
    )
    assert (
        estimate("-b", 2, "--config", tmp_path / "train.yaml", folder / "input_cfg.yaml")[0] == conf
    )


@pytest.mark.parametrize(("threshold", "left_out"), [(4.0, 0), (0.5, 1)])
def test_the_threshold_of_outliers_is_that_of_nemo(folder, estimate, threshold, left_out):
    words = ("-t", f"{folder}/en/tokenizer.model", "-b", 1, "-s", 2)
    for name in ("--token-outlier-threshold", "--token_outlier_threshold"):
        _, said = estimate(*words, name, threshold, f"{folder}/en.json")
        count = int(said.split(" of 30 utterances are outliers")[0].split()[-1])
        assert (count > 0) == bool(left_out)


@pytest.mark.parametrize("packed", [True, False])
def test_cuts_of_lhotse_are_read_as_they_are(folder, estimate, tmp_path, packed):
    pytest.importorskip("lhotse")
    from lhotse import CutSet, MonoCut, Recording, SupervisionSegment

    recording = Recording.from_file(f"{folder}/en0.wav")
    cuts = CutSet.from_cuts(
        MonoCut(
            id=f"c{number}",
            start=0.0,
            duration=0.1 + number / 100,
            channel=0,
            recording=recording,
            supervisions=[
                SupervisionSegment(
                    f"s{number}", recording.id, 0.0, 0.1 + number / 100, text="hello"
                )
            ],
        )
        for number in range(20)
    )
    path = tmp_path / f"some.jsonl{'.gz' * packed}"
    cuts.to_file(path)
    conf, _ = estimate("-b", 2, path)
    assert conf["bucket_duration_bins"][-1] == pytest.approx(0.29)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["[[a.json,0.7],[b.json]]"], "1 of 2 sources of one level have a weight"),
        (["[[a.json,x]]"], r"found \['a.json', 'x'\]"),
        (["[a.json"], "expected manifests with weights, such as"),
        (["-s", "5", "a.list"], "bins of tokens need --config with a tokenizer, or --tokenizer"),
        (["-s", "5", "-t", "a", "b", "--", "a.list"], "names 2 models: give as many --langs"),
        (
            ["-s", "5", "-t", "a", "--langs", "en", "pl", "--", "a.list"],
            "names 1 models, --langs 2 languages",
        ),
    ],
)
def test_options_that_do_not_fit_are_answered_in_one_line(words, said):
    with pytest.raises(ValueError, match=said):
        estimate_duration_bins.main(words)
