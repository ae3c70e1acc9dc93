from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from torch.utils.tensorboard import SummaryWriter

from tests.support import preloaded
from tests.support.markup import check_markup
from tests.support.train.training_corpus import write_corpus
from wenet_uio.addons.publish.run_report import write_run_report

ROOT = Path(__file__).parents[3]


def start(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return preloaded.run(command, cwd=folder, env=environment)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a complete run `exp` of two epochs; one of its 23 utterances is bad."""
    folder = write_corpus(tmp_path_factory.mktemp("run"), observe_interval=1, report=True)
    bad = folder / "bad.wav"
    bad.write_text("no audio")
    with open(folder / "train.list", "a") as file:
        file.write('{"key": "half<b>", "wav": "bad.wav", "txt": "ab"}\n')
    data = [
        "--config",
        "train.yaml",
        "--train_data",
        "train.list",
        "--cv_data",
        "cv.list",
        "--device",
        "cpu",
    ]
    done = start(folder, str(ROOT / "wenet_uio/bin/train.py"), *data, "--model_dir", "exp")
    assert done.returncode == 0, done.stderr
    assert "report: exp/report.html" in done.stderr
    return folder


@pytest.mark.all
def test_runs_that_share_a_tensorboard_dir_have_their_own_curves_in_every_report(
    tmp_path: Path,
) -> None:
    folder = write_corpus(tmp_path, max_epoch=1, report=True)
    data = ["--config", "train.yaml", "--train_data", "train.list", "--cv_data", "cv.list"]
    pages = {}
    for name, epochs in (("first", 2), ("second", 1)):
        more = ["--override_config", f"max_epoch={epochs}", "--tensorboard_dir", "tensorboard"]
        train = [str(ROOT / "wenet_uio/bin/train.py"), *data, *more, "--device", "cpu"]
        assert start(folder, *train, "--model_dir", f"exp/{name}").returncode == 0
        pages[name] = (folder / f"exp/{name}/report.html").read_text()

    for name, epochs in (("first", 2), ("second", 1)):
        assert f"Complete: {epochs} of {epochs} epochs" in pages[name]
        again = start(folder, str(ROOT / "tools/report_run.py"), f"exp/{name}")
        assert again.returncode == 0, again.stderr
        assert (folder / f"exp/{name}/report.html").read_text() == pages[name]


def test_a_run_ends_with_a_page_that_needs_no_other_file(run: Path) -> None:
    page = (run / "exp/report.html").read_text()
    assert "Complete: 2 of 2 epochs, 12 optimizer steps." in page
    assert "No decoded text is scored yet." in page
    pictures = re.findall(r'<img alt="([^"]*)" src="data:image/png;base64,[\w+/=]{1000,}">', page)
    assert sorted(pictures) == ["attention decoder", "attention encoder", "ctc"]
    assert page.count('<figure class="chart">') == 8
    assert "<td>1 of 2<td>epoch_0<td>6<td>" in page
    assert "<td>2 of 2<td>epoch_1<td>12<td>" in page
    assert not re.search(r">\s*(None|nan|inf)\b|[{\[]&#39;", page)
    check_markup(page)
    assert "heard: " in page
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    assert (run / "exp/train.yaml").read_text().splitlines()[0] in page
    for name in ("torch", "commit", "ranks", "cpu", "memory", "command"):
        assert f"<td>{name}<td>" in page


def test_a_run_ends_with_a_model_card(run: Path) -> None:
    card = (run / "exp/README.md").read_text()
    assert "| training | train.list | 22 | 0.0" in card
    assert "| validation | cv.list | 5 | 0.0" in card
    assert "No decoded text is scored yet." in card
    assert str(run) not in card


def test_bad_samples_are_named_and_escaped(run: Path) -> None:
    page = (run / "exp/report.html").read_text()
    assert "half&lt;b&gt;" in page
    assert "half<b>" not in page
    assert "<td>bad<td>1\n" in page


def test_the_tool_adds_error_rates_and_replaces_the_page(run: Path) -> None:
    (run / "exp/ctc_greedy_search").mkdir()
    (run / "exp/ctc_greedy_search/wer").write_text(
        "utt: …\nOverall -> 4.63 % N=1047 C=1000 S=45 D=2 I=1\n95 % interval -> 3.9 to 5.4 %, 10 "
        "resamples …\n"
    )
    done = start(run, str(ROOT / "tools/report_run.py"), "exp", "--language", "he", "--char", "1")
    assert (done.returncode, done.stdout) == (0, "exp/report.html\nexp/README.md\n"), done.stderr
    assert "language: he\nmetrics:\n- cer\n" in (run / "exp/README.md").read_text()
    page = (run / "exp/report.html").read_text()
    assert "<td>ctc_greedy_search<td>4.63<td>3.9 to 5.4<td>1047<td>45<td>2<td>1" in page
    assert not list((run / "exp").glob(".*.tmp"))
    assert "warning" not in done.stderr


def test_report_and_card_show_how_far_the_confidences_of_dev_are_to_be_trusted(run: Path) -> None:
    sample = run / "exp/calibration"
    (sample / "rnnt_greedy_search").mkdir(parents=True)
    (sample / "text").write_text("a the cat\nb sat\nc not decoded\n")
    for key, words in (("a", [("the", 0.95), ("hat", 0.35)]), ("b", [("sat", 0.85)])):
        record = [{"word": word, "confidence": confidence} for word, confidence in words]
        line = json.dumps({"key": key, "hypotheses": [{"text": "", "words": record}]})
        with (sample / "rnnt_greedy_search/nbest.jsonl").open("a") as file:
            file.write(line + "\n")

    done = start(run, str(ROOT / "tools/report_run.py"), "exp")
    assert done.returncode == 0, done.stderr
    page, card = (run / "exp/report.html").read_text(), (run / "exp/README.md").read_text()
    # The means are (95 + 35 + 85) / 3, 2 of 3, and (5 + 35 + 15) / 3.
    assert "<td>rnnt_greedy_search<td>3<td>71.7<td>66.7<td>18.3" in page
    assert "| rnnt_greedy_search | 3 | 71.7 | 66.7 | 18.3 |" in card


def test_an_unfinished_run_has_a_report_too(run: Path, tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text((run / "exp/train.yaml").read_text())
    assert "No epoch is complete yet." in write_run_report(tmp_path).read_text()
    with pytest.raises(ValueError, match="no run here, the folder has no train.yaml"):
        write_run_report(run / "none")


def test_markup_in_the_config_the_ledger_and_the_name_stays_text(tmp_path: Path) -> None:
    script = "<script>alert(1)<"
    folder = tmp_path / f"{script}run"
    folder.mkdir()
    (folder / "train.yaml").write_text(f"# {script}config\n")
    (folder / "bad_samples.jsonl").write_text(
        json.dumps(dict.fromkeys(("key", "reason", "detail"), script)) + "\n"
    )
    (folder / "environment.yaml").write_text(yaml.safe_dump([{"command": f"{script}start"}]))
    page = write_run_report(folder).read_text()
    escaped = "&lt;script&gt;alert(1)&lt;"
    assert "<script>alert" not in page
    for text in (
        f"<h1>{escaped}run</h1>",
        f"# {escaped}config",
        f"<td>{escaped}<td>{escaped}",
        f"<td>{escaped}start",
    ):
        assert text in page


def test_the_first_and_the_latest_starts_of_a_run_are_shown(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").touch()
    (tmp_path / "environment.yaml").write_text(yaml.safe_dump([{"torch": "2.11"}] * 5))
    page = write_run_report(tmp_path).read_text()
    assert re.findall(r"<th>(start[^<]*?)(?=[<\n])", page) == [
        "start 1 of 5",
        "start 4 of 5",
        "start 5 of 5",
    ]


def test_a_curve_whose_points_a_restart_took_back_is_left_out(run: Path, tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:  # a killed run that came as far as step 100
        writer.add_scalar("data/utterances", 7, 100)
    with SummaryWriter(str(tmp_path), purge_step=5, filename_suffix=".later") as writer:
        writer.add_scalar("cv/loss", 1.5, 5)
    assert write_run_report(run / "exp", tmp_path).exists()


def test_losses_that_are_not_finite_are_said(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("max_epoch: 9\n")
    with SummaryWriter(str(tmp_path / "tensorboard")) as writer:
        for step, loss in ((5, float("nan")), (10, 1.5), (15, float("inf"))):
            writer.add_scalar("cv/loss", loss, step)
    page = write_run_report(tmp_path).read_text()
    assert "Not complete: 3 of 9 epochs, 15 optimizer steps." in page
    assert "loss 1.5, after epoch 2 of 9 (epoch_1)." in page
    assert "<td>1 of 9<td>epoch_0<td>5<td>not finite" in page
    assert "validation (2 points are not finite)" in page
    assert not re.search(r">\s*(nan|inf)\b", page)
