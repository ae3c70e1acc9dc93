"""Command lines of WeNet's recipes of all years are taken."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from wenet_uio.bin import align, average_model, export_onnx, recognize, train
from wenet_uio.train.run_config import read_config

TRAIN = (
    "--config train.yaml --data_type raw --train_data raw.list --cv_data raw.list --model_dir exp"
)
TRAINING = {
    "2021": f"{TRAIN} --gpu 0 --symbol_table units.txt --ddp.init_method file:///init "
    "--ddp.world_size 1 --ddp.rank 0 "
    "--ddp.dist_backend gloo --num_workers 1 --cmvn global_cmvn --pin_memory",
    "2023": f"{TRAIN} --train_engine torch_ddp --symbol_table units.txt --bpe_model bpe.model "
    "--fp16_grad_sync "
    "--ddp.dist_backend nccl --num_workers 8 --prefetch 500 --pin_memory --deepspeed_config "
    "ds.json --lfmmi_dir  "
    "--deepspeed.save_states model_only --enc_init_mods encoder.,ctc. --use_amp --local_rank 0",
    "2025": f"{TRAIN} --train_engine torch_fsdp --fsdp_cpu_offload True --fsdp_sync_module_states "
    "True "
    "--fsdp_sharding_strategy zero3 --dtype bf16 --timeout 30 --print_model --jit --device cpu "
    "--freeze_modules ctc "
    "--use_lora True --only_optimize_lora True --lora_modules encoder.encoders --lora_attn_attr "
    "self_attn,src_attn "
    "--lora_list linear_q,linear_v --lora_rank 4 --lora_alpha 8 --lora_dropout 0 --override_config "
    "max_epoch~7",
}
"""{year: options of train.py}; ~ stands for a space in an argument."""


def words_of(text: str) -> list[str]:
    return [word.replace("~", " ") for word in text.split(" ")]


@pytest.mark.parametrize("year", TRAINING)
def test_train_takes_the_options_of(
    year: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    args = train.parse_arguments(words_of(TRAINING[year]))
    if year == "2023":
        Path("bpe.model").touch()
        assert args.enc_init_mods == ["encoder", "ctc"]
    config, _ = read_config(args.config, train.overrides(args))
    assert config.tokenizer_conf.symbol_table_path == "units.txt" or year == "2025"
    assert args.device == {"2021": "cuda:0", "2023": "auto", "2025": "cpu"}[year]
    assert config.tokenizer == ("bpe" if year == "2023" else "char")
    if year == "2021":
        assert (config.cmvn, config.cmvn_conf.cmvn_file) == ("global_cmvn", "global_cmvn")
    if year == "2025":
        assert (config.use_lora, config.lora_conf.lora_rank, config.max_epoch) == (True, 4, 7)


def test_several_processes_without_launcher_are_refused(capsys) -> None:
    with pytest.raises(SystemExit):
        train.parse_arguments(words_of(f"{TRAIN} --ddp.world_size 4 --ddp.rank 1"))
    assert (
        "--ddp.world_size: start all ranks by `python -m wenet_uio.bin.launch"
        in capsys.readouterr().err
    )


COMMON = (
    "--config train.yaml --checkpoint model.pt --test_data raw.list --data_type raw --beam_size 3"
)


def recognized(text: str) -> None:
    recognize.main(words_of(text))


def test_recognize_of_2021_writes_the_result_file(folder: Path, capsys) -> None:
    Path("units.txt").rename("words.txt")
    old = f"{COMMON} --gpu -1 --mode attention_rescoring --batch_size 1 --penalty 0.0 --dict words.txt --ctc_weight 0.5"
    recognized(f"{old} --reverse_weight 0.0 --result_file test/text --connect_symbol ▁")
    text = Path("test/text").read_text(encoding="utf-8")
    assert len(text.splitlines()) == 5
    new = f"{COMMON} --device cpu --modes attention_rescoring --symbol_table words.txt --ctc_weight 0.5"
    recognized(
        f"{new} --result_dir out --dtype fp32 --context_bias_mode decoding-graph --use_lora false",
    )
    assert Path("out/attention_rescoring/text").read_text(encoding="utf-8") == text
    lines = capsys.readouterr().err.splitlines()
    ignored = [line.split()[0] for line in lines if "changes nothing here" in line]
    assert ignored == ["--connect_symbol", "--context_bias_mode"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--modes attention", "the following arguments are required: --result_dir"),
        (
            "--modes attention ctc_greedy_search --result_file x",
            "--result_file holds the text of one mode, found 2",
        ),
    ],
)
def test_recognize_says_what_is_wrong_with(options: str, message: str, capsys) -> None:
    with pytest.raises(SystemExit):
        recognize.parse_arguments(words_of(f"{COMMON} {options}"))
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "share"),
    [
        ("", 1.0),
        ("--search_ctc_weight 0.3 --search_transducer_weight 0.7", 0.7),
        ("--search_transducer_weight 1", 0.5),
    ],
)
def test_the_weights_of_rnnt_beam_search_are_those_of_wenet(options: str, share: float) -> None:
    words = words_of(f"{COMMON} --modes rnnt_beam_search --result_dir out {options}".strip())
    weight = recognize.decode_options(recognize.parse_arguments(words)).transducer_weight
    assert weight == pytest.approx(share)


def test_weights_of_rnnt_beam_search_without_sense_are_refused() -> None:
    words = words_of(f"{COMMON} --modes rnnt_beam_search --result_dir out --search_ctc_weight 1")
    with pytest.raises(
        ValueError,
        match="--search_ctc_weight 1 --search_transducer_weight 0: expected 0 or more, and above 0",
    ):
        recognize.decode_options(recognize.parse_arguments(words))


def test_align_takes_the_options_of_wenet(folder: Path, capsys) -> None:
    align.main(
        words_of(
            "--config train.yaml --input_file raw.list --gpu -1 --checkpoint model.pt --dict units.txt "
            "--batch_size 1 "
            "--result_file ali/alignment --gen_praat --blank_thres 0.999 --thres 1e-6"
        )
    )
    assert (
        len(list(Path("ali/textgrid").glob("*.TextGrid")))
        == len(Path("ali/scores").read_text().splitlines())
        > 0
    )
    assert (
        capsys.readouterr().err.count(
            "changes nothing here: a token has the frames of CTC's best path"
        )
        == 2
    )


def test_average_model_takes_the_options_of_wenet(capsys) -> None:
    words = words_of(
        "--dst_model a.pt --src_path none --num 3 --val_best --mode epoch --min_step 0 --max_step 9"
    )
    with pytest.raises(ValueError, match="none: no epoch_N.pt to average"):
        average_model.main(words)
    assert (
        capsys.readouterr().err.count(
            "changes nothing here: weights are saved at the end of epochs"
        )
        == 3
    )


@pytest.mark.parametrize(
    "options",
    [
        "--output_dir onnx --chunk_size 16 --num_decoding_left_chunks 4 --beam 10 --reverse_weight "
        "0.5",
        "--output_onnx_dir onnx --cmvn_file c --ctc_weight 0.5 --beam_size 10 --fp16 --streaming "
        "--decoding_chunk_size 16 --num_decoding_left_chunks 4",
    ],
    ids=["cpu", "gpu"],
)
def test_export_onnx_takes_the_options_of_wenet(options: str) -> None:
    args = export_onnx.parser().parse_args(
        words_of(f"--config train.yaml --checkpoint final.pt --check_data raw.list {options}")
    )
    assert (args.output_dir, args.chunk_size, args.num_decoding_left_chunks) == ("onnx", 16, 4)
