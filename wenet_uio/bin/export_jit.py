"""Export a trained model to TorchScript, for WeNet's C++ runtime."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch

from wenet_uio.cli import run
from wenet_uio.config import Config, load_config
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.export.check import compare, utterances
from wenet_uio.export.torchscript import from_torchscript, to_torchscript
from wenet_uio.files import written_aside
from wenet_uio.models import ASRModel, build_model
from wenet_uio.text.tokenizer import Tokenizer, build_tokenizer
from wenet_uio.train.checkpoint import load_weights


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, help="train.yaml of the run")
    parser.add_argument("--checkpoint", required=True, help="weights, such as final.pt or avg_5.pt")
    parser.add_argument("--output_file", required=True, help="model to write, such as final.zip")
    parser.add_argument("--output_quant_file", help="int8 model to write, such as final_quant.zip")
    parser.add_argument("--check_data", help="data list: export only what decodes these as the checkpoint does")
    parser.add_argument("--data_type", choices=("raw", "shard"), default="raw", help="of --check_data (default: raw)")
    parser.add_argument("--num_check", type=int, default=20, help="utterances to check (default: %(default)s)")
    return parser


def main() -> None:
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.num_check < 1:
        parser.error(f"argument --num_check: expected at least 1, found {arguments.num_check}")
    config = load_config(arguments.config)
    model = build_model(config).eval()
    load_weights(model, arguments.checkpoint)
    for path, quantize in ((arguments.output_file, False), (arguments.output_quant_file, True)):
        if path is None:
            continue
        content = to_torchscript(model, quantize=quantize)
        if arguments.check_data:
            _check(path, content, model, config, arguments)
        with written_aside(path) as file:
            file.write(content)
        print(f"{path}: {len(content) / 1e6:.1f} MB")


def _check(path: str, content: bytes, model: ASRModel, config: Config, arguments: argparse.Namespace) -> None:
    """Print how the exported model agrees with the checkpoint; an int8 model may differ, another must not."""
    tokenizer = build_tokenizer(config)
    examples = _examples(config, tokenizer, arguments)
    agreement = compare(model, from_torchscript(content), examples, arguments.num_check)
    if agreement.differences and path == arguments.output_file:
        first = agreement.differences[0]
        texts = [tokenizer.detokenize(tokens) for tokens in (first.checkpoint, first.exported)]
        raise ValueError(
            f"{path}: not written: {agreement.differing} of {agreement.utterances} utterances differ from the "
            f"checkpoint; {first.key} in {first.mode}: {texts[0]!r} became {texts[1]!r}"
        )
    print(
        f"{path}: {agreement.utterances - agreement.differing} of {agreement.utterances} utterances as the checkpoint "
        f"decodes them; largest difference of a log-probability {agreement.largest:.2g}"
    )


def _examples(
    config: Config, tokenizer: Tokenizer, arguments: argparse.Namespace
) -> Iterator[tuple[str, torch.Tensor]]:
    return utterances(build_loader(arguments.check_data, arguments.data_type, config, tokenizer, training=False))


if __name__ == "__main__":
    run(main)
