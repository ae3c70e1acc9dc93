import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

import wenet_uio
from tests.addons.listen.conftest import RATE, bursts, write_model
from wenet_uio.config import load_config
from wenet_uio.export.torchscript import to_torchscript
from wenet_uio.search.recogniser import load_recogniser

pytestmark = pytest.mark.usefixtures("without_silero")
PATHS = ("units.txt", "data/dict/lang_char.txt"), ("global_cmvn", "data/train/global_cmvn")


def test_importing_the_package_is_light():
    check = "import sys, wenet_uio; assert not {'torch', 'numpy', 'yaml'} & sys.modules.keys(); wenet_uio.nothing"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.stderr.strip().endswith(
        "AttributeError: module 'wenet_uio' has no attribute 'nothing'"
    )
    assert set(wenet_uio.__all__) == set(dir(wenet_uio))
    assert all(getattr(wenet_uio, name) for name in wenet_uio.__all__)


def test_a_model_in_wenets_layout_opens_and_the_log_says_which_files_are_taken(
    golden, tmp_path, caplog, monkeypatch
):
    folder = tmp_path / "wenet"
    shutil.copytree(golden / "u2pp_conformer", folder)
    text = (folder / "train.yaml").read_text()
    for name, path in PATHS:
        text = text.replace(f": {name}\n", f": {path}\n")
    (folder / "train.yaml").write_text(
        text.replace("cmvn: data/train/global_cmvn", "cmvn: global_cmvn")
    )
    monkeypatch.chdir(tmp_path)
    recogniser = wenet_uio.load_model(folder, device="cpu")
    assert caplog.text.count(" is taken") == 2
    assert (
        f"tokenizer_conf.symbol_table_path data/dict/lang_char.txt: {folder}/units.txt is taken"
        in caplog.text
    )
    assert recogniser.transcribe(samples=bursts(), sample_rate=RATE).seconds == 6


def test_weights_may_be_named(model):
    shutil.copy(model / "final.pt", model / "epoch_3.pt")
    (model / "final.pt").unlink()
    expected = wenet_uio.load_model(
        model, checkpoint=model / "epoch_3.pt", device="cpu"
    ).transcribe("talk.wav")
    assert (
        wenet_uio.load_model(model / "epoch_3.pt", device="cpu").transcribe("talk.wav") == expected
    )
    with pytest.raises(
        FileNotFoundError, match=r"exp/conformer: neither avg\.pt nor final\.pt in it"
    ):
        wenet_uio.load_model(model)


def test_a_torchscript_export_gives_the_transcript_of_its_run(model):
    trained = wenet_uio.load_model(model, device="cpu")
    (model / "final.zip").write_bytes(to_torchscript(load_recogniser(model).model.eval()))
    exported = wenet_uio.load_model(model / "final.zip")
    assert exported.modes == ["attention_rescoring", "ctc_greedy_search", "ctc_prefix_beam_search"]
    for mode in exported.modes:
        found, expected = (each.transcribe("talk.wav", mode=mode) for each in (exported, trained))
        assert found.text == expected.text
        assert [word.start for word in found.words] == [word.start for word in expected.words]
    with pytest.raises(
        ValueError, match="mode attention: exported models support attention_rescoring, ctc_greedy"
    ):
        exported.transcribe("talk.wav", mode="attention")
    with pytest.raises(
        ValueError, match="dtype bf16: an exported model has the arithmetic of its export"
    ):
        exported.transcribe("talk.wav", decoding={"dtype": "bf16"})
    with pytest.raises(
        ValueError, match="one_pass: exported models encode each segment alone; load the checkpoint"
    ):
        exported.transcribe("talk.wav", one_pass=True)
    with pytest.raises(ValueError, match="exported models cannot stream here; load the checkpoint"):
        exported.stream()
    (model / "final.pt").unlink()
    assert (
        wenet_uio.load_model(model).transcribe("talk.wav").text
        == trained.transcribe("talk.wav").text
    )
    os.rename(model / "final.zip", "alone.zip")
    with pytest.raises(FileNotFoundError, match=r"alone\.zip: no train\.yaml beside it or above"):
        wenet_uio.load_model("alone.zip")


def test_an_onnx_export_gives_the_transcript_of_its_run(model):
    pytest.importorskip("onnxruntime")
    from wenet_uio.addons.runtimes.onnx_files import to_onnx
    from wenet_uio.addons.runtimes.onnx_graphs import wenet_graphs
    from wenet_uio.export.chunks import OFFLINE, Chunks

    trained = wenet_uio.load_model(model, device="cpu")
    for name, chunks in (("offline", OFFLINE), ("streaming", Chunks(4, 2))):
        (model / "onnx" / name).mkdir(parents=True)
        graphs = wenet_graphs(load_recogniser(model).model.eval(), 23, chunks)
        for file, graph in graphs.items():
            (model / "onnx" / name / file).write_bytes(to_onnx(graph))
    expected = trained.transcribe("talk.wav").text
    assert wenet_uio.load_model(model / "onnx").transcribe("talk.wav").text == expected
    decoding = {"decoding_chunk_size": 4, "num_decoding_left_chunks": 2}
    chunked = trained.transcribe("talk.wav", decoding=decoding).text
    assert wenet_uio.load_model(model / "onnx/streaming").transcribe("talk.wav").text == chunked


@pytest.fixture
def exports(model):
    """Paths of all exports of a run: TorchScript, ONNX for WeNet's runtime, offline and streaming,
    and for streams.
    """
    pytest.importorskip("onnxruntime")
    from wenet_uio.addons.runtimes.onnx_files import to_onnx
    from wenet_uio.addons.runtimes.onnx_graphs import streams_graphs, wenet_graphs
    from wenet_uio.export.chunks import OFFLINE, Chunks

    trained = load_recogniser(model).model.eval()
    (model / "final.zip").write_bytes(to_torchscript(trained))
    graphs = {
        "offline": wenet_graphs(trained, 23, OFFLINE),
        "streaming": wenet_graphs(trained, 23, Chunks(4, 2)),
        "streams": streams_graphs(trained, 23),
    }
    for name, files in graphs.items():
        (model / "onnx" / name).mkdir(parents=True)
        for file, graph in files.items():
            (model / "onnx" / name / file).write_bytes(to_onnx(graph))

    return [model / "final.zip", *(model / "onnx" / name for name in graphs)]


def test_audio_shorter_than_the_window_of_the_input_layer_has_no_text_in_any_export(model, exports):
    trained = wenet_uio.load_model(model, device="cpu")
    talk = bursts()
    clicks = [talk[RATE : RATE + length] for length in (1, 400, 800, 1119, 1360)]
    talk[4 * RATE + 8000 : 4 * RATE + 8800] = talk[RATE : RATE + 800]  # 50 ms in the quiet

    for path in exports:
        exported = wenet_uio.load_model(path)
        decoding = {"decoding_chunk_size": 4, "num_decoding_left_chunks": 2}
        chunks = {"decoding": decoding} if path.name == "streaming" else {}
        for mode in exported.modes:
            for samples in (*clicks, talk):
                given = {"samples": samples, "sample_rate": RATE, "mode": mode}
                expected = trained.transcribe(**given, **chunks)
                assert exported.transcribe(**given).text == expected.text
            assert exported.transcribe(samples=clicks[2], sample_rate=RATE, mode=mode).text == ""


@pytest.mark.all
def test_folders_for_sherpa_onnx_open_if_they_have_ctc_and_others_say_what_runs_them(model):
    onnx = pytest.importorskip("onnx")
    from wenet_uio.addons.runtimes.onnx_files import to_onnx
    from wenet_uio.addons.runtimes.onnx_graphs import sherpa_graph
    from wenet_uio.export.chunks import OFFLINE, Chunks

    trained = wenet_uio.load_model(model, device="cpu")
    for name, chunks in (("streaming", Chunks(4, 2)), ("offline", OFFLINE)):
        (model / "onnx" / name).mkdir(parents=True)
        content = to_onnx(sherpa_graph(load_recogniser(model).model.eval(), 23, chunks))
        (model / "onnx" / name / "model.onnx").write_bytes(content)
    decoding = {"decoding_chunk_size": 4, "num_decoding_left_chunks": 2}
    for name, chunked in (("offline", {}), ("streaming", {"decoding": decoding})):
        exported = wenet_uio.load_model(model / "onnx" / name)
        assert exported.modes == ["ctc_greedy_search", "ctc_prefix_beam_search"]
        for mode in exported.modes:
            expected = trained.transcribe("talk.wav", mode=mode, **chunked).text
            assert exported.transcribe("talk.wav", mode=mode).text == expected
            click = exported.transcribe(samples=bursts()[RATE : RATE + 800], sample_rate=RATE)
            assert click.text == ""

    proto = onnx.load_from_string(content)
    for file, kind in (("model.onnx", "zipformer2_ctc"), ("whisper-encoder.onnx", "whisper-x")):
        (model / "other" / kind).mkdir(parents=True)
        onnx.helper.set_model_props(proto, {"model_type": kind})
        onnx.save(proto, model / "other" / kind / file)
        with pytest.raises(
            ValueError, match=f"{file}: sherpa-onnx runs models of this type .{kind}"
        ):
            wenet_uio.load_model(model / "other" / kind)


@pytest.mark.all
def test_an_export_applies_the_penalty_of_the_blank(model, exports):
    trained = wenet_uio.load_model(model, device="cpu")
    for penalty in (-3.0, 3.0):
        given = {"mode": "ctc_greedy_search", "decoding": {"blank_penalty": penalty}}
        expected = trained.transcribe("talk.wav", **given).text
        for path in (exports[0], exports[-1]):
            assert wenet_uio.load_model(path).transcribe("talk.wav", **given).text == expected


def test_what_is_no_model_is_refused_by_name(model, tmp_path):
    for path, message in (
        ("none", "none: no such file or folder"),
        (
            tmp_path,
            r"expected a folder with train\.yaml and avg\.pt or final\.pt, or an export "
            r"\(final\.zip, onnx/\)",
        ),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            wenet_uio.load_model(path)
    (tmp_path / "sherpa").mkdir()
    (tmp_path / "sherpa/model.onnx").touch()
    with pytest.raises(FileNotFoundError, match=r"sherpa: no train\.yaml beside it or above"):
        wenet_uio.load_model("sherpa")
    with pytest.raises(FileNotFoundError, match="one file of an export; give its folder"):
        wenet_uio.load_model("sherpa/model.onnx")
    torch.save({"other": torch.zeros(1)}, model / "final.pt")
    with pytest.raises(ValueError, match=r"final\.pt"):
        wenet_uio.load_model(model)
    config = yaml.safe_load((model / "train.yaml").read_text())
    assert load_config(model / "train.yaml").tokenizer_conf.symbol_table_path == str(
        model / "units.txt"
    )
    config["dataset_conf"]["operators"] = [
        {"use": "os:system", "after": "decode", "evaluation": True}
    ]
    Path(model / "train.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(ValueError, match="os:system"):
        wenet_uio.load_model(model)


@pytest.mark.third
@pytest.mark.parametrize("size", [0, 8])
def test_an_export_has_the_limits_of_its_checkpoint(tmp_path, size):
    run = write_model(tmp_path / "run", use_dynamic_chunk=False)
    (run / "final.zip").write_bytes(to_torchscript(load_recogniser(run).model.eval()))
    for path in (run, run / "final.zip"):
        recogniser = wenet_uio.load_model(path, device="cpu")
        with pytest.raises(ValueError, match=f"^decoding_chunk_size {size}: "):
            recogniser.transcribe(
                samples=bursts(),
                sample_rate=RATE,
                mode="ctc_greedy_search",
                decoding={"decoding_chunk_size": size},
            )
