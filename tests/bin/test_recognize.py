"""recognize.py on audio, from the command line: files, order, raw and shard lists, bad audio."""

import json
import multiprocessing
import sys
from pathlib import Path

import pytest
import torch
import yaml

from tests.support import preloaded
from tests.support.models.recogniser import CONFIG, KEYS
from tests.support.search.plain_search import write_arpa
from wenet_uio.bin import recognize
from wenet_uio.config import load_config
from wenet_uio.models import build_model
from wenet_uio.search import MODES

ROOT = Path(__file__).parents[2]


def call(*options, modes=MODES, data="raw"):
    arguments = [
        "--config",
        "train.yaml",
        "--checkpoint",
        "model.pt",
        "--result_dir",
        "out",
        "--device",
        "cpu",
    ]
    arguments += [
        "--data_type",
        data,
        "--test_data",
        f"{data}.list",
        "--modes",
        *modes,
        "--beam_size",
        "3",
    ]
    recognize.main([*arguments, *map(str, options)])
    return {mode: Path("out", mode, "text").read_text(encoding="utf-8") for mode in modes}


def test_every_mode_gets_a_text_in_the_order_of_the_list(folder):
    texts = call()
    for text in texts.values():
        assert [line.split()[0] for line in text.splitlines()] == KEYS
    assert (folder / "out" / "skipped").read_text() == ""


def test_16_bits_are_named_and_used_in_every_mode(folder, capsys):
    call()
    assert "dtype" not in capsys.readouterr().err  # the model was trained in fp32
    texts = call("--dtype", "bf16")
    assert "dtype bf16 on this cpu\n" in capsys.readouterr().err
    for text in texts.values():
        assert [line.split()[0] for line in text.splitlines()] == KEYS


def test_raw_and_shard_lists_give_the_same_text(folder):
    expected = call()
    assert all(len(line.split()) == 2 for line in expected["ctc_prefix_beam_search"].splitlines())
    assert call(data="shard") == expected


@pytest.mark.third
@pytest.mark.parametrize(
    ("encoder", "conf"),
    [
        ("conformer", {"input_layer": "conv2d2"}),
        ("transformer", {"input_layer": "conv1d2"}),
        ("branchformer", {"linear_units": None, "cgmlp_linear_units": 32}),
        (
            "squeezeformer",
            {"linear_units": None, "input_layer": None, "reduce_idx": None, "recover_idx": None},
        ),
    ],
)
def test_every_batch_size_gives_the_same_hypotheses(folder, encoder, conf):
    conf = {
        key: value
        for key, value in {**CONFIG["encoder_conf"], **conf}.items()
        if value or key.endswith("idx")
    }
    Path("train.yaml").write_text(
        yaml.safe_dump(CONFIG | {"encoder": encoder, "encoder_conf": conf})
    )
    torch.manual_seed(2)
    model = build_model(load_config("train.yaml"))
    torch.nn.init.normal_(model.ctc.ctc_lo.weight)  # tokens that change from frame to frame
    torch.save(model.state_dict(), "model.pt")
    found = []
    for batch_size in (1, 2, 16):
        call("--batch_size", batch_size, "--nbest", 2)
        found.append([nbests(mode) for mode in MODES])
    assert any(hypothesis["text"] for line in found[0][0] for hypothesis in line["hypotheses"])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            for line, same in zip(one, other, strict=True):
                assert line["key"] == same["key"]
                for hypothesis, equal in zip(line["hypotheses"], same["hypotheses"], strict=True):
                    assert hypothesis["text"] == equal["text"]
                    # Written with four digits
                    assert hypothesis["score"] == pytest.approx(equal["score"], abs=2e-4)


def nbests(mode):
    return [json.loads(line) for line in Path("out", mode, "nbest.jsonl").read_text().splitlines()]


@pytest.fixture
def _spawned_quickly():
    """Processes that are spawned have torch already."""
    multiprocessing.set_executable(preloaded.python())
    yield
    multiprocessing.set_executable(sys.executable)


@pytest.mark.usefixtures("_spawned_quickly")
def test_several_processes_give_the_results_of_one(folder, capsys):
    (folder / "u1.wav").write_bytes(b"RIFF")
    options = ["--batch_size", 2, "--token_times", "--nbest", 2]
    alone = call(*options)
    files = {
        path: path.read_bytes() for path in sorted((folder / "out").rglob("*")) if path.is_file()
    }
    assert len(files) == 2 * len(MODES) + 1
    assert call(*options, "--nproc", 2, "--result_dir", "out") == alone
    assert {path: path.read_bytes() for path in files} == files
    assert capsys.readouterr().out.count("4 utterances, ") == 2


def test_nbest_lists_have_scores_times_and_confidences(folder):
    mode = "ctc_prefix_beam_search"
    texts = call("--nbest", 3, modes=[mode])
    lines = [
        json.loads(line)
        for line in (folder / "out" / mode / "nbest.jsonl").read_text().splitlines()
    ]
    assert [line["key"] for line in lines] == KEYS
    for line, text in zip(lines, texts[mode].splitlines(), strict=True):
        scores = [hypothesis["score"] for hypothesis in line["hypotheses"]]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        assert f"{line['key']} {line['hypotheses'][0]['text']}" == text
        assert "tokens" not in line["hypotheses"][0]

    call("--token_times", modes=[mode])
    for line in (folder / "out" / mode / "nbest.jsonl").read_text().splitlines():
        (best,) = json.loads(line)["hypotheses"]
        times = [token["time"] for token in best["tokens"]]
        assert "".join(token["token"] for token in best["tokens"]) == best["text"]
        assert times == sorted(times)
        assert 0 < times[0] < times[-1] < 1.0  # seconds of the longest
        assert all(0 < token["confidence"] <= 1 for token in best["tokens"])
        assert 0 < best["confidence"] <= 1


def test_hot_words_and_a_language_model_change_the_texts(folder, caplog):
    mode = "ctc_prefix_beam_search"
    plain = call(modes=[mode])[mode]
    (folder / "names").write_text("hh\nzzz\n")
    hot = call("--context_list_path", "names", "--context_graph_score", 5, modes=[mode])[mode]
    assert hot.count("hh") > plain.count("hh")
    assert "--context_list_path: skipped 1 phrases that the units cannot spell: zzz" in caplog.text

    pytest.importorskip("kenlm")
    write_arpa(folder / "lm.arpa", "abcdefgh")
    assert call("--lm_path", "lm.arpa", "--length_bonus", -9, modes=[mode])[mode] < plain


@pytest.mark.usefixtures("_spawned_quickly")
def test_several_processes_report_an_error_in_one_line(folder):
    (folder / "model.pt").write_bytes(b"no weights")
    with pytest.raises(ValueError, match=r"model\.pt: not the weights of a model"):
        call("--nproc", 2)


def test_utterances_that_cannot_be_read_are_listed_and_the_others_decoded(folder, capsys):
    (folder / "u4.wav").write_bytes(b"RIFF")
    texts = call(modes=["ctc_greedy_search"])
    assert [line.split()[0] for line in texts["ctc_greedy_search"].splitlines()] == [
        "u5",
        "u1",
        "u2",
        "u3",
    ]
    assert (folder / "out" / "skipped").read_text().startswith("u4 unreadable: ")
    output = capsys.readouterr()
    assert output.out.startswith("4 utterances, ")
    assert "1 could not be read (out/skipped):\n  u4 unreadable" in output.err


def test_it_is_an_error_if_no_utterance_can_be_read(folder):
    for key in KEYS:
        (folder / f"{key}.wav").write_bytes(b"RIFF")
    with pytest.raises(ValueError, match=r"raw\.list: not one utterance could be read"):
        call(modes=["ctc_greedy_search"])


def test_an_unknown_mode_is_one_line_and_writes_nothing(tmp_path):
    arguments = [
        "--modes",
        "ctc_greedy",
        "--config",
        "no.yaml",
        "--checkpoint",
        "no.pt",
        "--test_data",
        "no.list",
    ]
    result = preloaded.run(
        ["-m", "wenet_uio.bin.recognize", *arguments, "--result_dir", "out"], cwd=tmp_path
    )
    assert result.returncode == 1
    assert result.stderr.startswith("error: unknown decode mode ctc_greedy; known: attention, ")
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.third
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch_size", 0], "--batch_size"),
        (["--beam_size", 0], "beam_size"),
        (["--decoding_chunk_size", 4], "decoding_chunk_size 4"),
        (["--lm_weight", "nan"], "lm_weight: expected a finite number, found nan"),
        (["--length_bonus", "inf"], "length_bonus: expected a finite number, found inf"),
        (["--length_bonus", 0.8], "length_bonus 0.8 is of a language model, and none is given"),
        (["--lm_unit", "word"], "lm_unit word is of a language model, and none is given"),
    ],
)
def test_options_that_do_not_fit_the_model_are_named(folder, options, message):
    with pytest.raises(ValueError, match=message):
        call(*options)
    assert not (folder / "out").exists()


def test_hot_words_without_a_mode_that_uses_them_are_an_error(folder):
    (folder / "names").write_text("hh\n")
    with pytest.raises(
        ValueError,
        match="--context_list_path is not used by attention; add one of these modes: "
        "attention_rescoring, ctc_prefix_beam_search, rnnt_beam_search",
    ):
        call("--context_list_path", "names", modes=["attention"])


def test_config_tokenizer_and_loader_are_built_once(folder, monkeypatch):
    calls = []
    for name in ("load_model_config", "build_tokenizer", "build_loader"):
        build = getattr(recognize, name)

        def counted(*args, build=build, name=name, **options):
            calls.append(name)
            return build(*args, **options)

        monkeypatch.setattr(recognize, name, counted)
    call(modes=["ctc_greedy_search"])
    assert calls == ["load_model_config", "build_tokenizer", "build_loader"]
