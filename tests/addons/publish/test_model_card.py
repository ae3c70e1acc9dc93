"""The model card of a run."""

import json
import logging
import sys

import pytest
import yaml

import wenet_uio
from tests.support.train.training_corpus import CONFIG
from wenet_uio.addons.publish.model_card import MARKER, CardFacts, write_model_card
from wenet_uio.config import load_config, save_config
from wenet_uio.models import build_model

UNITS = ("<blank>", "<unk>", "a", "b", "c", "<sos/eos>")
WER = (
    "Counted -> words (WER)\nOverall -> 4.63 % N=1047 C=1000 S=45 D=2 I=1\n"
    "95 % interval -> 3.91 to 5.40 %, 1000 resamples …\n"
)


def write_run(folder, start=None, **keys):
    """Write train.yaml, units.txt, environment.yaml and the record of an epoch; `keys` change the
    config.
    """
    folder.mkdir(parents=True)
    (folder / "units.txt").write_text(
        "".join(f"{unit} {number}\n" for number, unit in enumerate(UNITS))
    )
    (folder / "train.yaml").write_text(yaml.safe_dump(CONFIG | {"output_dim": len(UNITS)} | keys))
    save_config(load_config(folder / "train.yaml"), folder / "train.yaml")
    record = {"list": "data/train/data.list", "utterances": 2520, "hours": 0.3068}
    values = {
        "started": "2026-11-22 06:10:55",
        "command": f"{folder}/train.py --train_data {folder}/train.list",
        "commit": "8b28a1c0ffee+",
        "ranks": 2,
        "gpus": "2 x H100",
        "cpu": "16 cores, EPYC",
        "python": "3.11.7",
        "torch": "2.11.0",
        "train_data": record,
        "cv_data": {**record, "list": "data/dev/data.list", "utterances": 180},
        "utterance_seconds": {"median": 0.42, "most": 0.66, "longest": 2.28},
    }
    (folder / "environment.yaml").write_text(yaml.safe_dump([values | (start or {})]))
    samples = {"all": 23, "read": 20, "filtered": {"too_long": 2}, "bad": {"unreadable": 1}}
    (folder / "epoch_19.yaml").write_text(
        yaml.safe_dump({"epoch": 19, "step": 1580, "samples": samples})
    )
    return folder


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "exp" / "conformer")


def front_matter(card):
    text = card.read_text()
    assert text.startswith("---\n")
    return yaml.safe_load(text.split("---\n")[1])


def rows_of(card):
    lines = [
        line.strip("|").split(" | ")
        for line in card.read_text().splitlines()
        if line.startswith("| ")
    ]
    return {line[0].strip(): [cell.strip() for cell in line[1:]] for line in lines}


def test_the_card_has_data_config_error_rates_and_the_circumstances_of_the_training(run):
    (run / "attention").mkdir()
    (run / "attention/wer").write_text(WER)
    card = write_model_card(run, CardFacts(["en"], "wer"))
    assert card == run / "README.md"
    rows = rows_of(card)
    assert rows["decode mode"][:2] == ["WER, %", "95 % interval"]
    assert rows["attention"] == ["4.63", "3.91 to 5.40", "1047", "45", "2", "1"]
    assert rows["training"] == ["data/train/data.list", "2520", "0.3068"]
    assert rows["validation"][:2] == ["data/dev/data.list", "180"]
    count = sum(
        weight.numel() for weight in build_model(load_config(run / "train.yaml")).parameters()
    )
    assert rows["parameters"] == [str(count)]
    assert rows["encoder"] == ["conformer: 1 blocks, width 16, 2 heads"]
    assert rows["sample rate"] == ["16000 Hz"]
    assert (rows["optimizer steps"], rows["commit of wenet_uio"]) == (["1580"], ["8b28a1c0ffee+"])
    assert (rows["GPUs"], rows["CPU"], rows["processes"]) == (
        ["2 x H100"],
        ["16 cores, EPYC"],
        ["2"],
    )
    assert rows["packages"] == ["python 3.11.7, torch 2.11.0"]
    text = card.read_text()
    assert "A speech recogniser (en) with a conformer encoder" in text
    assert "Utterances read in the last epoch: 20. Left out: 2 too_long, 1 unreadable." in text
    assert "The model does not stream" in text
    assert "The longest training utterance has 2.28 s" in text


def test_the_front_matter_is_that_of_model_hubs_and_leaves_out_what_is_not_known(run):
    front = front_matter(write_model_card(run))
    assert front.keys() == {"library_name", "pipeline_tag", "tags"}
    assert front["pipeline_tag"] == "automatic-speech-recognition"
    front = front_matter(write_model_card(run, CardFacts(["en", "zh"], "cer")))
    assert (front["language"], front["metrics"]) == (["en", "zh"], ["cer"])


@pytest.mark.parametrize(
    ("counted", "name"),
    [("words", "WER"), ("characters", "CER"), ("characters and words", "MER")],
)
def test_the_card_names_the_rate_that_was_scored(run, counted, name):
    (run / "attention").mkdir()
    line = f"Counted -> {counted} ({name})\nOverall -> n/a % N=0 C=0 S=0 D=0 I=3\n"
    (run / "attention/wer").write_text(line)
    card = write_model_card(run, CardFacts(["en"], "cer"))
    assert front_matter(card)["metrics"] == [name.lower()]
    rows = rows_of(card)
    assert rows["decode mode"][0] == f"{name}, %"
    assert rows["attention"] == ["n/a", "", "0", "0", "0", "3"]


def test_language_and_the_keys_that_a_person_added_stay(run):
    card = write_model_card(run, CardFacts(["zh"], "cer"))
    card.write_text(
        card.read_text().replace("---\n", "---\nlicense: apache-2.0\nlanguage_bcp47: [zh-CN]\n", 1)
    )
    front = front_matter(write_model_card(run))
    assert (front["license"], front["language_bcp47"]) == ("apache-2.0", ["zh-CN"])
    assert (front["language"], front["metrics"]) == ("zh", ["cer"])
    assert front_matter(write_model_card(run, CardFacts(["en"])))["language"] == "en"


@pytest.mark.parametrize(
    "content", [b"# My model\n", b"", b"\xff\xfe", b"---\nlicense: mit\n---\n"]
)
def test_a_readme_that_a_person_wrote_stays_and_the_log_says_so(run, content, caplog):
    (run / "README.md").write_bytes(content)
    assert write_model_card(run) is None
    assert (run / "README.md").read_bytes() == content
    assert (
        "README.md: not written by this tool (its marker line is missing); the model card is not wr"
        in caplog.text
    )


def test_a_card_with_damaged_front_matter_stays_and_the_log_says_so(run, caplog):
    for damage in ("---\n[: \n---\n", "---\n- a\n---\n"):
        (run / "README.md").write_text(f"{damage}{MARKER}\n")
        assert write_model_card(run) is None
        assert (run / "README.md").read_text() == f"{damage}{MARKER}\n"
        assert "README.md: " in caplog.records[-1].message
    (run / "README.md").write_text(f"{MARKER}\r\n# saved on Windows, front matter removed\r\n")
    assert write_model_card(run)


def test_no_absolute_path_and_no_secret_is_in_the_card(tmp_path):
    lists = {
        f"{tmp_path}/corpus/train.list": "train.list",
        f"file://{tmp_path}/train.list": "train.list",
        "~/train.list": "train.list",
        "s3://user:pa55word@bucket/train.list?token=t0ken": "s3://…@bucket/train.list?…",
    }
    for number, (data_list, shown) in enumerate(lists.items()):
        folder = tmp_path / str(number)
        start = {"train_data": {"list": data_list, "utterances": 3, "hours": 1.0}}
        keys = {
            "cmvn_conf": {"cmvn_file": f"{tmp_path}/cmvn"},
            "data": data_list,
            "cmvn": "global_cmvn",
        }
        text = write_model_card(write_run(folder, start, **keys)).read_text()
        assert f"| training | {shown} | 3 | 1 |" in text
        assert not [part for part in (str(tmp_path), "pa55word", "t0ken", "~") if part in text]


def test_the_lines_of_the_card_run_beside_the_folder_whatever_its_name(tmp_path, monkeypatch):
    folder = write_run(tmp_path / 'a "b" `c` $d|e')
    text = write_model_card(folder).read_text()
    found = []
    monkeypatch.setattr(wenet_uio, "load_model", lambda path: found.append(path) or sys.exit())
    with pytest.raises(SystemExit):
        exec(text.split("```python\n")[1].split("```\n")[0], {})
    assert found == [folder.name]
    assert f"wenet-uio transcribe --model '{folder.name}' talk.mp3\n" in text
    assert f"wenet-uio serve --model '{folder.name}'\n" in text
    assert '# a "b" \\`c\\` $d\\|e\n' in text


def test_old_and_foreign_runs_have_a_card_of_what_is_known(run):
    for name in ("environment.yaml", "epoch_19.yaml"):
        (run / name).unlink()
    rows = rows_of(write_model_card(run))
    assert not {"training", "commit of wenet_uio", "GPUs", "epochs", "begun"} & rows.keys()
    assert "## Data" not in (run / "README.md").read_text()
    (run / "epoch_3.yaml").write_text("cv_loss: 4.2\nepoch: 3\n")  # as WeNet writes it
    assert rows_of(write_model_card(run))["epochs"] == ["1"]
    (run / "environment.yaml").write_text(yaml.safe_dump([{"commit": "unknown", "torch": "2.0"}]))
    assert rows_of(write_model_card(run))["packages"] == ["torch 2.0"]
    assert "unknown" not in (run / "README.md").read_text()


def test_a_model_that_streams_is_described_as_such_and_a_transducer_by_its_losses(tmp_path):
    encoder = CONFIG["encoder_conf"] | {"use_dynamic_chunk": True, "causal": True}
    text = write_model_card(write_run(tmp_path / "a", encoder_conf=encoder)).read_text()
    assert "The model streams: it encodes audio chunk by chunk." in text
    losses = {"transducer_weight": 0.7, "ctc_weight": 0.3, "attention_weight": 0.0}
    rows = rows_of(
        write_model_card(write_run(tmp_path / "b", model="transducer", model_conf=losses))
    )
    assert rows["losses"] == ["ctc_weight 0.3, transducer_weight 0.7"]
    assert rows["predictor"] == ["rnn"]
    assert "decoder" not in rows


def test_models_of_wenet_have_a_card(golden, tmp_path, caplog):
    caplog.set_level(logging.ERROR)
    for folder in sorted(golden.iterdir()):
        if (folder / "train.yaml").is_file():
            copy = tmp_path / folder.name
            copy.mkdir()
            for name in ("train.yaml", "units.txt"):
                (copy / name).write_bytes((folder / name).read_bytes())
            rows = rows_of(write_model_card(copy))
            assert int(json.loads(rows["parameters"][0])) > 1000, folder
