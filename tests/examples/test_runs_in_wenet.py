"""A run of each recipe, opened by the rules of WeNet's reader: no unknown keyword, the same ids,
the same texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from tests.support.data.digits import WORDS, batches_of, train_steps, write_cmvn, write_digits
from tests.support.data.wenet_reader import WenetReader
from wenet_uio.config import Config, load_config, parse_config, save_config
from wenet_uio.config.named_files import copy_files
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.models import build_model
from wenet_uio.search import DecodeOptions
from wenet_uio.search.decode import Search
from wenet_uio.search.recogniser import Recogniser
from wenet_uio.search.recognition import recognize
from wenet_uio.text.symbols import write_symbols
from wenet_uio.text.tokenizer import build_tokenizer
from wenet_uio.train.run_config import read_config

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted(path.parent for path in ROOT.glob("examples/*/*/run.sh"))
U2PP = ROOT / "examples/fsdd/s0/conf/train_u2++_conformer.yaml"
MODES = ("ctc_greedy_search", "ctc_prefix_beam_search", "attention", "attention_rescoring")
SMALL = [
    *("encoder_conf.num_blocks=1", "encoder_conf.output_size=32", "encoder_conf.attention_heads=2"),
    *(
        "decoder_conf.num_blocks=1",
        "decoder_conf.attention_heads=2",
        "decoder_conf.linear_units=32",
    ),
    *("encoder_conf.linear_units=32", "cmvn=null"),
]
LEARNS = [
    *("encoder_conf.num_blocks=2", "encoder_conf.output_size=48", "encoder_conf.linear_units=96"),
    *("encoder_conf.dropout_rate=0", "encoder_conf.positional_dropout_rate=0"),
    *(
        "decoder_conf.linear_units=96",
        "decoder_conf.dropout_rate=0",
        "decoder_conf.positional_dropout_rate=0",
    ),
]
"""Sizes of a model that learns the digits in seconds."""
Weights = dict[str, torch.Tensor]
Texts = dict[str, list[str]]
"""{mode: texts, in the order of the keys}."""


def start_run(
    config_path: Path, folder: Path, units: Sequence[str], overrides: list[str]
) -> Config:
    """Write the train.yaml of a run into `folder`, as training does, and its `units`."""
    folder.mkdir(exist_ok=True)
    write_symbols(folder / "dict.txt", units)
    config, _ = read_config(
        config_path, [f"tokenizer_conf.symbol_table_path={folder}/dict.txt", *overrides]
    )
    save_config(copy_files(config, folder), folder / "train.yaml")
    return config


@pytest.mark.third
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.parent.name)
def test_wenet_knows_every_keyword_and_the_ids_of_a_run(
    recipe: Path, golden2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recipe)
    default, *_ = re.findall(r"\bconfig=(conf/\S+\.yaml)", (recipe / "run.sh").read_text())
    config = start_run(recipe / default, tmp_path / "run", "abc", [])
    reader = WenetReader(tmp_path / "run/train.yaml", golden2 / "wenet_kwargs.yaml")
    assert (reader.unknown_keywords(), reader.missing_keywords()) == ([], [])
    with torch.device("meta"):
        model = build_model(config.model_copy(update={"cmvn": None}))
    assert reader.ids == (model.blank, model.sos, model.eos)
    assert reader.values["tokenizer_conf"]["symbol_table_path"] == "units.txt"


IN_WENET = [
    path
    for path in sorted(ROOT.glob("examples/fsdd/s0/conf/*.yaml"))
    if path.stem not in ("train_zipformer", "finetune")  # finetune.yaml has no model
]


@pytest.mark.parametrize("conf", IN_WENET, ids=lambda conf: conf.stem)
def test_wenet_knows_every_keyword_of_every_model_of_fsdd(
    conf: Path, golden2: Path, tmp_path: Path
) -> None:
    start_run(conf, tmp_path / "run", "abc", [])
    reader = WenetReader(tmp_path / "run/train.yaml", golden2 / "wenet_kwargs.yaml")
    assert (reader.unknown_keywords(), reader.missing_keywords()) == ([], [])


FIRERED = [
    *("model=firered", "encoder=firered_conformer", "encoder_conf.input_layer=firered_conv2d4"),
    *("encoder_conf.pos_enc_layer_type=rel_pos_firered", "encoder_conf.conv_inner_factor=4"),
    *(
        "encoder_conf.selfattention_layer_type=firered_rel_selfattn",
        "encoder_conf.final_norm=false",
    ),
]
OTHER_KINDS = {
    "efficient": ["encoder=efficientConformer", "encoder_conf.group_size=4"],
    "ctl": ["model=ctl_model", "encoder=dual_conformer", "model_conf.n_negatives=3"],
    "firered": FIRERED,
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_wenet_knows_every_keyword_and_the_ids_of_other_kinds(
    kind: str, golden2: Path, tmp_path: Path
) -> None:
    config = start_run(U2PP, tmp_path / "run", "abc", [*OTHER_KINDS[kind], "cmvn=null"])
    reader = WenetReader(tmp_path / "run/train.yaml", golden2 / "wenet_kwargs.yaml")
    assert (reader.unknown_keywords(), reader.missing_keywords()) == ([], [])
    with torch.device("meta"):
        model = build_model(config)
    assert reader.ids == (model.blank, model.sos, model.eos)


def texts(config: Config, weights: Weights, data_list: Path) -> Texts:
    """{mode: texts} of a model."""
    model, tokenizer = build_model(config), build_tokenizer(config)
    model.load_state_dict(weights)
    loader = build_loader(str(data_list), "raw", config, tokenizer, training=False)
    search = Search(MODES, DecodeOptions(), [])
    found = recognize(
        Recogniser(config, tokenizer, model), loader, search, device=torch.device("cpu")
    )
    return {mode: [found.texts[mode][key] for key in sorted(found.texts[mode])] for mode in MODES}


def assert_wenet_gives_the_same_texts(
    folder: Path, golden2: Path, run: tuple[Config, Weights, Path]
) -> Texts:
    """Compare the texts of a run in `folder`, the working directory, with those of what WeNet sees
    of the run.
    """
    config, weights, data_list = run
    view = WenetReader(folder / "train.yaml", golden2 / "wenet_kwargs.yaml").view()
    expected = texts(config, weights, data_list)
    assert texts(parse_config(view, "WeNet's view"), weights, data_list) == expected
    assert all(any(found) for found in expected.values()), expected

    last = view["output_dim"] - 1  # WeNet's ids without special_tokens
    view["tokenizer_conf"]["special_tokens"] = {"<sos>": last, "<eos>": last}
    others = texts(parse_config(view, "without special_tokens"), weights, data_list)
    assert others["attention"] != expected["attention"]
    assert others["ctc_greedy_search"] == expected["ctc_greedy_search"]
    return expected


def test_what_wenet_sees_of_a_run_gives_the_same_texts_of_fsdd_in_all_modes(
    corpora: Path, golden2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_list, _ = write_digits(corpora, tmp_path, 400)
    config = start_run(
        U2PP, tmp_path / "run", "abcdefghij", [*SMALL, "decoder_conf.r_num_blocks=1"]
    )
    torch.manual_seed(4)
    weights = build_model(config).state_dict()
    for name in ("ctc.ctc_lo", "decoder.left_decoder.output_layer", "decoder.left_decoder.embed.0"):
        # Tokens that change from frame to frame
        torch.nn.init.normal_(weights[f"{name}.weight"], std=1.0)
    weights["ctc.ctc_lo.bias"][0] = -5.0  # few blanks
    # WeNet takes the paths of the yaml relative to the working directory
    monkeypatch.chdir(tmp_path / "run")
    assert_wenet_gives_the_same_texts(tmp_path / "run", golden2, (config, weights, data_list))


@pytest.mark.all
def test_a_trained_run_has_mostly_the_right_texts_of_fsdd_and_wenet_has_the_same(
    corpora: Path, golden2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
    train_list, units = write_digits(corpora, tmp_path / "train", every=10)
    test_list, _ = write_digits(corpora, tmp_path / "test", every=100, first=55)
    overrides = [f"tokenizer_conf.symbol_table_path={units}", *LEARNS]
    batches = batches_of(load_config(U2PP, [*overrides, "cmvn=null"]), train_list)
    write_cmvn(batches, tmp_path / "global_cmvn")
    config = start_run(
        U2PP, tmp_path / "run", WORDS, [*overrides, f"cmvn_conf.cmvn_file={tmp_path}/global_cmvn"]
    )
    torch.manual_seed(0)
    model = build_model(config)
    train_steps(model, batches, 160, 3e-3)
    monkeypatch.chdir(tmp_path / "run")
    run = (config, model.state_dict(), test_list)
    found = assert_wenet_gives_the_same_texts(tmp_path / "run", golden2, run)
    spoken = [WORDS[digit] for digit in range(10) for _ in range(3)]
    for mode in MODES:
        right = sum(text == word for text, word in zip(found[mode], spoken, strict=True))
        assert right >= 20, (mode, found[mode])
