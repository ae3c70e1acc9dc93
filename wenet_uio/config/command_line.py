"""Options of commands that change the config or name a model, and the options of WeNet's commands.

A command takes the options of the WeNet command with the same purpose: with their meaning, or with
one line that says why they change nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wenet_uio.base.hub_address import is_hub_address, named_model, require_no_name
from wenet_uio.base.messages import note
from wenet_uio.config.named_code import Loaded
from wenet_uio.config.trust import RecipeCode

FILES = {
    "symbol_table": ("tokenizer_conf.symbol_table_path", ()),
    "bpe_model": ("tokenizer_conf.bpe_path", ("tokenizer=bpe",)),
    "non_lang_syms": ("tokenizer_conf.non_lang_syms_path", ()),
    "cmvn": ("cmvn_conf.cmvn_file", ("cmvn=global_cmvn",)),
}
"""{option: (key of the config that has the path, further changes of the config)}."""
DOWNLOAD = Loaded("wenet_uio.addons.publish.load:downloaded")
"""`DOWNLOAD(address)` returns the folder of a model of a hub, as load_model takes it."""
LORA = ("use_lora", "only_optimize_lora")
LORA_CONF = ("lora_list", "lora_rank", "lora_alpha", "lora_dropout")


def add_override_option(parser: argparse.ArgumentParser) -> None:
    """Add --override_config: `key=value` strings for `load_config`."""
    parser.add_argument(
        "--override_config",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="keys of the config to change, such as encoder_conf.num_blocks=6",
    )


def add_config_options(parser: argparse.ArgumentParser, *, cmvn: bool = False) -> None:
    """Add --override_config, and the files that WeNet's commands name; `config_overrides` reads
    them.

    Args:
        cmvn: add --cmvn too.
    """
    add_override_option(parser)
    group = parser.add_argument_group("files, if the config does not name them")
    group.add_argument(
        "--symbol_table", "--dict", metavar="FILE", help="units (default: the config's)"
    )
    group.add_argument(
        "--bpe_model",
        metavar="FILE",
        help="sentencepiece model; sets tokenizer bpe (default: the config's)",
    )
    group.add_argument(
        "--non_lang_syms", metavar="FILE", help="non-language symbols (default: the config's)"
    )
    if cmvn:
        group.add_argument(
            "--cmvn",
            metavar="FILE",
            help="mean and variance statistics in JSON (default: the config's)",
        )


def add_lora_options(parser: argparse.ArgumentParser, *, training: bool) -> None:
    """Add WeNet's options of LoRA, which `config_overrides` reads; decoding needs --use_lora
    alone.
    """
    group = parser.add_argument_group("LoRA")
    group.add_argument(
        "--use_lora",
        nargs="?",
        const="true",
        metavar="BOOL",
        help="the model has low-rank weights (default: the config's)",
    )
    group.add_argument(
        "--lora_ckpt_path",
        metavar="FILE",
        help="low-rank weights alone, which belong to those of --checkpoint (average_model.py "
        "--only_lora)",
    )
    if not training:
        return

    group.add_argument(
        "--only_optimize_lora",
        nargs="?",
        const="true",
        metavar="BOOL",
        help="train only these (default: the config's)",
    )
    group.add_argument(
        "--lora_list",
        metavar="A,B",
        help="projections, such as linear_q,linear_v (default: the config's)",
    )
    group.add_argument(
        "--lora_rank", metavar="N", help="rank of the product (default: the config's)"
    )
    group.add_argument(
        "--lora_alpha",
        metavar="X",
        help="the product is scaled by alpha / rank (default: the config's)",
    )
    group.add_argument(
        "--lora_dropout", metavar="RATE", help="dropout before the product (default: the config's)"
    )


def choose_result_dir(command_line: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Set --result_dir to the folder of --result_file, WeNet's option, if it is not stated.

    Without both, the command ends with its usage.
    """
    if args.result_dir is None:
        if args.result_file is None:
            command_line.error("the following arguments are required: --result_dir")
        args.result_dir = str(Path(args.result_file).parent)


def config_overrides(args: argparse.Namespace) -> list[str]:
    """Return changes of the config, as `key=value`, from the options of `add_config_options` and
    `add_lora_options`.

    Those of --override_config come last and win.
    """
    stated = {name: value for name, value in vars(args).items() if value is not None}
    changes: list[str] = []
    for option, (key, further_changes) in FILES.items():
        if option in stated:
            path = json.dumps(stated[option], ensure_ascii=False)
            changes += [*further_changes, f"{key}={path}"]

    # The low-rank weights were merged into the others: there are none to optimise.
    if str(stated.get("use_lora")).lower() == "false":
        changes.append("only_optimize_lora=false")

    for name in LORA:
        if name in stated:
            changes.append(f"{name}={stated[name]}")
    for name in LORA_CONF:
        if name in stated:
            value = f"[{stated[name]}]" if name == "lora_list" else stated[name]
            changes.append(f"lora_conf.{name}={value}")

    return [*changes, *args.override_config]


def add_trust_code(parser: argparse.ArgumentParser) -> None:
    """Add --trust_code and --trust_recipe, which set `trust_code`: options of commands that read
    the train.yaml of a trained model.
    """
    parser.add_argument(
        "--trust_code",
        action="store_true",
        help="run the operators, the encoder and the model of other packages that the train.yaml "
        "names, which can be any code; the default is to refuse them",
    )
    parser.add_argument(
        "--trust_recipe",
        dest="trust_code",
        type=lambda folder: RecipeCode(Path(folder)),
        metavar="DIR",
        help="run those of them that the recipe in this folder brings: modules of its local/, and "
        "what its conf/*.yaml name",
    )


def add_gpu_option(parser: argparse.ArgumentParser) -> None:
    """Add --gpu, WeNet's number of the GPU, which `device_of` reads."""
    parser.add_argument(
        "--gpu",
        type=int,
        metavar="N",
        help="instead of --device: number of the GPU, -1 for the CPU (default: as --device says)",
    )


def device_of(
    args: argparse.Namespace, *, has_gpu: bool, environment: Mapping[str, str] = os.environ
) -> str:
    """Return the device that --gpu or --device names: auto, cpu, cuda, or cuda:N.

    CUDA counts the GPUs that CUDA_VISIBLE_DEVICES lists. WeNet's commands replace this variable by
    the number of --gpu, so a number in the list means the GPU with this number. As there, --gpu is
    the CPU on a machine without a GPU; a note says so.
    """
    if args.gpu is None:
        return args.device
    if args.gpu < 0:
        return "cpu"
    if not has_gpu:
        note(f"--gpu {args.gpu}: no GPU is found; the CPU is used")
        return "cpu"

    visible = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    number = str(args.gpu)
    if number in visible:
        return f"cuda:{visible.index(number)}"
    return f"cuda:{number}"


def change_nothing(parser: argparse._ActionsContainer, reasons: Mapping[str, str]) -> None:
    """Accept options of WeNet that change nothing here; standard error gets a line for each that is
    given.

    Args:
        reasons: {option: why it changes nothing}.
    """
    for option, reason in reasons.items():
        parser.add_argument(option, action=_ChangesNothing, reason=reason)


class _ChangesNothing(argparse.Action):
    """An option with or without a value, which is not kept."""

    def __init__(self, option_strings: Sequence[str], reason: str, **_: Any) -> None:
        nothing = argparse.SUPPRESS
        super().__init__(option_strings, dest=nothing, nargs="?", default=nothing, help=nothing)
        self.reason = reason

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        print(f"{option} changes nothing here: {self.reason}", file=sys.stderr)


def local_model(path: str, revision: str | None = None) -> str:
    """Return the folder of `hf://org/name`, which is downloaded; other paths stay as they are.

    Raises:
        OSError, ValueError: see named_model and require_no_name, or the model cannot be downloaded.
    """
    named = named_model(path, revision)
    if is_hub_address(named):
        return str(DOWNLOAD(named))

    require_no_name(named)
    return named
