"""Error rates before and after a fine-tuning: both are shown, and what of the change is writing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import yaml

from tests.support.markup import check_markup
from tests.support.models.recogniser import CONFIG
from wenet_uio.addons.publish.error_rates import (
    describe_share,
    error_rates,
    read_changes,
    table_of_changes,
)
from wenet_uio.addons.publish.run_report import write_run_report
from wenet_uio.bin import report_run


def write_rates(folder: Path, written: float | None, normalised: float | None = None) -> None:
    """What score.sh writes of a decode mode; infinite rates are n/a."""
    for name, rate in (("wer", written), ("wer_normalized", normalised)):
        if rate is not None:
            folder.mkdir(parents=True, exist_ok=True)
            text = "n/a" if rate == float("inf") else f"{rate:.2f}"
            line = f"Counted -> words (WER)\nOverall -> {text} % N=9 C=9 S=0 D=0 I=0\n"
            (folder / name).write_text(line, encoding="utf-8")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose fine-tuning writes better and hears worse."""
    keys = {**CONFIG, "input_dim": 20, "output_dim": 9}
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(keys))
    write_rates(tmp_path / "before/attention", 11.5, 4.5)
    write_rates(tmp_path / "attention", 8.9, 6.0)
    return tmp_path


def test_the_rates_of_normalised_texts_stand_beside_the_plain_ones(tmp_path: Path) -> None:
    for mode, rate, normalised in (("a", "20.00", "10.00"), ("b", "n/a", None)):
        (tmp_path / mode).mkdir()
        line = "Counted -> words (WER)\nOverall -> {} % N=9 C=9 S=0 D=0 I=0\n"
        (tmp_path / mode / "wer").write_text(line.format(rate))
        if normalised:
            (tmp_path / mode / "wer_normalized").write_text(line.format(normalised))
    table = error_rates(tmp_path)
    assert table.head[1:4] == ["WER, %", "95 % interval", "WER of normalised texts, %"]
    assert [row[:4] for row in table.rows] == [["a", "20.00", "", "10.00"], ["b", "n/a", "", ""]]


def test_the_tool_says_both_rates_before_and_after_and_what_of_the_change_is_writing(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report_run.main([str(run)])
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == (
        f"{run}: attention: as written 11.50 % before fine-tuning, 8.90 % after; normalised 4.50 % "
        "before, 6.00 % after; of -2.60 points, writing is -4.10 and hearing +1.50"
    )
    assert printed.err.splitlines()[-1] == (
        f"warning: {run}: attention: normalised error rate 6.00 %, before fine-tuning 4.50 %"
    )


def test_the_report_and_the_card_have_the_rates_before_and_after(run: Path, capsys) -> None:
    compared = {"list": "data/dev/data.list", "utterances": 200, "of": 1203}
    (run / "avg.shares.yaml").write_text(yaml.safe_dump({"share": 0.75, "compared": compared}))
    report_run.main([str(run)])
    page, card = ((run / name).read_text() for name in ("report.html", "README.md"))
    cells = ("attention", "11.50", "8.90", "4.50", "6.00", "-2.60", "-4.10", "+1.50")
    assert f"<td>{'<td>'.join(cells)}" in page
    check_markup(page)
    assert f"| {' | '.join(cells)} |" in card
    share = "75 % of the fine-tuning, chosen on 200 of 1203 utterances of data/dev/data.list"
    assert share in page
    assert share in card


def test_a_run_from_scratch_has_no_rates_before(run: Path, tmp_path: Path) -> None:
    for path in (run / "before").rglob("wer*"):
        path.unlink()
    assert table_of_changes(run).rows == []
    assert describe_share(run) == ""
    assert "Before and after" not in write_run_report(run).read_text()


@pytest.mark.parametrize("seed", range(20))
def test_each_of_both_rates_that_is_higher_than_before_is_warned_of_and_their_parts_add_up(
    seed, tmp_path
):
    drawn = random.Random(seed)
    expected: list[str] = []
    for name in ("attention", "ctc_greedy_search", "clean/attention", "other/attention"):
        kinds = []
        for rates in ((None, 0.0, 9.5, 10.25, 120.0, float("inf")), (None, 0.0, 3.5, 40.0)):
            kinds.append([drawn.choice(rates) for _ in range(2)])
        for place, folder in enumerate((tmp_path / "before" / name, tmp_path / name)):
            write_rates(folder, kinds[0][place], kinds[1][place])

        both = None not in kinds[0]
        for kind, (before, after) in zip(("", "normalised "), kinds, strict=True):
            if both and None not in (before, after) and after > before:
                texts = [
                    "n/a" if rate == float("inf") else f"{rate:.2f}" for rate in (after, before)
                ]
                line = f"{kind}error rate {texts[0]} %, before fine-tuning {texts[1]} %"
                expected.append(f"{name}: {line}")

    changes = read_changes(tmp_path)
    assert sorted(line for change in changes for line in change.warnings()) == sorted(expected)
    for change in changes:
        assert "nan" not in f"{change} {table_of_changes(tmp_path).rows}"
        writing, hearing = change.writing, change.hearing
        if writing is not None and hearing is not None and float("inf") not in change.written:
            assert writing + hearing == pytest.approx(change.points)


@pytest.mark.parametrize("content", ["", "[1, 2]", "{share: 0.5}", "{share: x, compared: {}}"])
def test_a_damaged_record_of_the_share_is_no_share(tmp_path, content):
    (tmp_path / "avg.shares.yaml").write_text(content)
    assert describe_share(tmp_path) == ""
