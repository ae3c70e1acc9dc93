"""The text tools as commands: their output, their files and their errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import preloaded

ROOT = Path(__file__).parents[2]
TEXT = "u1 GO LEFT\nu2 我们 GO\n"


def call(tool, *arguments, stdin=""):
    return subprocess.run(
        [preloaded.python(), ROOT / "tools" / tool, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def bpe_model(tmp_path):
    (tmp_path / "train").write_text("u GO LEFT\nu GO RIGHT\nu WE GO\n" * 3, encoding="utf-8")
    prefix = tmp_path / "bpe"
    result = call(
        *("spm_train.py", "--input", tmp_path / "train", "-s", 1, "--vocab_size", 22),
        *("--model_type", "bpe", "--model_prefix", prefix),
    )
    assert result.returncode == 0, result.stderr
    return f"{prefix}.model"


@pytest.mark.parametrize(
    "tool", ["text2token.py", "make_dict.py", "make_lm.py", "spm_train.py", "compute-wer.py"]
)
def test_help_is_there_and_an_unknown_option_is_refused(tool):
    assert "usage" in call(tool, "--help").stdout
    refused = call(tool, "--no_such_option")
    assert refused.returncode == 2
    assert "usage" in refused.stderr


def test_text_tools_do_not_import_torch():
    script = "import sys, runpy; runpy.run_path(sys.argv[1], run_name='tool'); assert 'torch' not in sys.modules"
    for tool in ("text2token.py", "make_dict.py", "make_lm.py", "spm_train.py", "compute-wer.py"):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(
            [sys.executable, "-c", script, ROOT / "tools" / tool], check=True, env=environment
        )


def test_text2token_cuts_characters_after_the_key(text):
    assert (
        call("text2token.py", "-s", 1, "-n", 1, text).stdout == "u1 G O ▁ L E F T\nu2 我 们 ▁ G O\n"
    )
    assert (
        call("text2token.py", "-s", 1, "-n", 2, "--space", "<space>", stdin="u1 AB C\n").stdout
        == "u1 AB <space>C\n"
    )


def test_text2token_cuts_pieces_words_and_symbols(tmp_path, text, bpe_model):
    (tmp_path / "syms").write_text("{N}\n")
    assert call("text2token.py", "-s", 1, "-m", bpe_model, text).stdout.endswith("u2 我 们 ▁GO\n")
    assert call("text2token.py", "-t", "phn", stdin="sil b\n").stdout == "sil b\n"
    assert call("text2token.py", "-l", tmp_path / "syms", stdin="A{N}B\n").stdout == "A {N} B\n"


def test_make_dict_numbers_the_tokens_of_the_text(tmp_path, text, bpe_model):
    units = tmp_path / "dict" / "units.txt"
    assert call("make_dict.py", text, units).returncode == 0
    assert units.read_text(encoding="utf-8").split()[:8] == [
        "<blank>",
        "0",
        "<unk>",
        "1",
        "<sos/eos>",
        "2",
        "E",
        "3",
    ]
    assert call("make_dict.py", "-m", bpe_model, text, units).returncode == 0
    assert "▁GO" in units.read_text(encoding="utf-8")


def test_make_dict_leaves_no_file_after_a_mistake(tmp_path):
    (tmp_path / "text").write_text("u1\nu2\n")
    result = call("make_dict.py", tmp_path / "text", tmp_path / "units.txt")
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert "no token" in result.stderr
    assert not (tmp_path / "units.txt").exists()


def test_spm_train_says_in_one_line_that_the_vocabulary_is_too_large(tmp_path, text):
    result = call(
        "spm_train.py", "--input", text, "--vocab_size", 9999, "--model_prefix", tmp_path / "bpe"
    )
    assert result.returncode == 1
    assert result.stderr.startswith("error: vocab_size 9999 is too large")
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.glob("bpe*"))


@pytest.mark.parametrize("options", [["--char=1", "--v=1"], ["--char", "1", "--v", "1"]])
def test_compute_wer_reads_options_with_and_without_equals_sign(tmp_path, text, options):
    (tmp_path / "hyp").write_text("u2 我 GO\nu1 GO LEFT\n", encoding="utf-8")
    result = call("compute-wer.py", *options, text, tmp_path / "hyp")
    assert "\nOverall -> 20.00 % N=5 C=4 S=0 D=1 I=0\n" in result.stdout
    assert "\nMandarin -> 50.00 % N=2 C=1 S=0 D=1 I=0\n" in result.stdout


def test_compute_wer_names_a_missing_file(tmp_path, text):
    result = call("compute-wer.py", text, tmp_path / "none")
    assert result.returncode == 1
    assert "none" in result.stderr
    assert result.stderr.count("\n") == 1


def test_compute_wer_compares_systems_and_writes_a_page_with_audio(tmp_path, make_lists):
    lists = make_lists(3)
    (tmp_path / "ref").write_text("utt0000 a b\nutt0001 a b\nutt0002 a b\n")
    (tmp_path / "one").write_text("utt0000 a b\nutt0001 a\nutt0002 x y\n")
    (tmp_path / "two").write_text("utt0000 a b\nutt0001 a b\nutt0002 a b\n")
    pages = []
    for data_type, data_list in lists.items():
        options = ["--v=0", "--compare", tmp_path / "two", "--html", tmp_path / "page.html"]
        options += ["--data_list", data_list, "--data_type", data_type]
        result = call("compute-wer.py", *options, tmp_path / "ref", tmp_path / "one")
        assert result.returncode == 0, result.stderr
        assert "\n95 % interval -> " in result.stdout
        assert "\n2 - 1 -> -50.00 points" in result.stdout
        pages.append((tmp_path / "page.html").read_text())
    assert pages[0] == pages[1]
    assert pages[0].count("<audio ") == 2


def test_compute_wer_reads_files_of_sclite_and_pipes(tmp_path):
    references = "she had { your / the } dark suit (cmh_sa01)\n"
    (tmp_path / "one").write_text("she had the dark coat (cmh_sa01)\n")
    (tmp_path / "two").write_text("cmh_sa01 she had your dark suit\n")
    options = ("--v=0", "--compare", tmp_path / "two", "/dev/stdin", tmp_path / "one")
    done = call("compute-wer.py", *options, stdin=references)
    assert done.stdout.splitlines()[1] == "Overall -> 20.00 % N=5 C=4 S=1 D=0 I=0", done.stderr
    assert "2 - 1 -> -20.00 points" in done.stdout


def test_compute_wer_normalises_both_sides_before_it_scores(tmp_path):
    (tmp_path / "ref").write_text("u1 I won't pay twenty dollars!\nu2 Um\n")
    (tmp_path / "hyp").write_text("u1 i will not pay $20\nu2\n")
    files = (tmp_path / "ref", tmp_path / "hyp")
    plain = call("compute-wer.py", "--v=0", *files).stdout
    assert "Overall -> 83.33 % N=6 C=2" in plain
    whisper = call("compute-wer.py", "--v=0", "--normalize=english", *files).stdout
    assert "Without words: 1 of 2 references; insertions there: 0, in 0 of them\n" in whisper
    assert "Overall -> 0.00 % N=5 C=5 S=0 D=0 I=0\n" in whisper
    refused = call("compute-wer.py", "--cs=1", "--normalize=basic", *files)
    assert refused.returncode == 2
    assert "--normalize: it ignores case; leave out --cs 1" in refused.stderr


def test_compute_wer_of_silence_ends_well_in_all_its_outputs(tmp_path):
    (tmp_path / "ref").write_text("u1\nu2\n")
    (tmp_path / "hyp").write_text("u1 you\nu2\n")
    page = tmp_path / "page.html"
    files = ("--html", page, tmp_path / "ref", tmp_path / "hyp")
    for options in ([], ["--json"], ["--compare", tmp_path / "hyp"]):
        done = call("compute-wer.py", *options, *files)
        assert (done.returncode, done.stderr) == (0, "")
        assert "n/a" in done.stdout or json.loads(done.stdout)["rate"] is None
        assert "<td>overall<td>n/a<td>0<td>0<td>0<td>1\n" in page.read_text()


@pytest.fixture
def config(tmp_path):
    symbols = ["<blank>", "<unk>", "<sos/eos>", *"GOLEFT我们▁"]
    lines = [f"{symbol} {number}\n" for number, symbol in enumerate(dict.fromkeys(symbols))]
    (tmp_path / "units.txt").write_text("".join(lines), encoding="utf-8")
    path = tmp_path / "train.yaml"
    path.write_text("tokenizer: char\ntokenizer_conf: {symbol_table_path: units.txt}\n")
    return path


@pytest.mark.parametrize(
    ("unit", "units"),
    [("token", ["O", "我", "▁", "GO"]), ("word", ["GO", "LEFT", "我们"])],
)
@pytest.mark.parametrize("with_keys", [True, False])
def test_a_language_model_has_the_units_of_the_model_or_words(
    unit, units, with_keys, config, tmp_path
):
    texts = tmp_path / "some texts"
    lines = TEXT if with_keys else TEXT.replace("u1 ", "").replace("u2 ", "")
    texts.write_text(lines, encoding="utf-8")
    done = call(
        *("make_lm.py", "--config", config, "--lm_unit", unit, "--order", 3),
        *(() if with_keys else ("--without_keys",)),
        *(texts, tmp_path / "lm.arpa"),
    )
    assert done.returncode == 0, done.stderr
    assert "2 texts" in done.stdout
    arpa = (tmp_path / "lm.arpa").read_text(encoding="utf-8")
    unigrams = arpa.split("\\1-grams:")[1].split("\\2-grams:")[0]
    found = {line.split("\t")[1] for line in unigrams.splitlines() if line}
    assert {known for known in units if known in found} == {
        known for known in units if unit == "word" or len(known) == 1
    }
    assert "u1" not in arpa


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--order", 1], "--order 1: expected 2 to 6; the package kenlm reads no other models"),
        (["--order", 7], "--order 7: expected 2 to 6; the package kenlm reads no other models"),
        (["--config", "gone.yaml"], "gone.yaml"),
    ],
)
def test_a_language_model_that_cannot_be_made_is_one_line(arguments, message, config, text):
    options = ["--config", config, *arguments]
    done = call("make_lm.py", *options, text, text.with_name("lm.arpa"))
    assert done.returncode != 0
    assert message in done.stderr.splitlines()[-1]
    assert not text.with_name("lm.arpa").exists()


def test_a_language_model_for_a_config_with_code_of_others_needs_trust(config, text):
    (text.with_name("theirs.py")).write_text("open('ran', 'w')\n")
    config.write_text(f"model: theirs:MODEL\n{config.read_text()}")
    done = call("make_lm.py", "--config", config, text, text.with_name("lm.arpa"))
    assert done.returncode != 0
    assert "theirs:MODEL" in done.stderr
    assert "--trust_code" in done.stderr.splitlines()[-1]


def test_an_empty_text_file_makes_no_language_model(config, tmp_path):
    (tmp_path / "empty").touch()
    done = call("make_lm.py", "--config", config, tmp_path / "empty", tmp_path / "lm.arpa")
    assert done.returncode != 0
    assert "no sentence to estimate a language model from" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("target", ["text", "other texts"])
def test_a_language_model_overwrites_no_texts(target, config, text):
    """The name of the model is forgotten after `data/*/text`."""
    others = text.with_name(target)
    others.write_text(TEXT, encoding="utf-8")
    done = call("make_lm.py", "--config", config, text, others)
    assert done.returncode == 1
    assert f"{others}: a file that is no ARPA file is there" in done.stderr.splitlines()[-1]
    assert others.read_text(encoding="utf-8") == TEXT


def test_a_language_model_replaces_an_older_one(config, text):
    arpa = text.with_name("lm.arpa")
    for order in (2, 3):
        assert call("make_lm.py", "--config", config, "--order", order, text, arpa).returncode == 0
        assert ("ngram 3=" in arpa.read_text(encoding="utf-8")) == (order == 3)


@pytest.mark.parametrize("unit", ["token", "word"])
def test_units_of_a_language_model_that_the_recogniser_never_writes_are_named(
    unit, config, tmp_path
):
    """Texts in another case than those of the training, as a whole or in part."""
    (tmp_path / "texts").write_text("u1 left\n")
    options = ["--config", config, "--lm_unit", unit, tmp_path / "texts"]
    done = call("make_lm.py", *options, tmp_path / "lm.arpa")
    assert done.returncode == 1
    assert f"the units file of the model can spell no {unit} of the texts: " in done.stderr
    assert not (tmp_path / "lm.arpa").exists()

    (tmp_path / "more").write_text("u2 GO LEFT\n")
    done = call("make_lm.py", *options, tmp_path / "more", tmp_path / "lm.arpa")
    assert done.returncode == 0, done.stderr
    names = {"token": "4 of 11 different units", "word": "1 of 3 different units"}
    assert f"{names[unit]} of the texts are not in the units file of the model: " in done.stderr
