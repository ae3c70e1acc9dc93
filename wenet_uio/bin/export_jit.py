"""Export a trained model to TorchScript, for WeNet's C++ runtime.

    %(prog)s --config exp/conformer/train.yaml \\
        --checkpoint exp/conformer/avg.pt --output_file final.zip \\
        --output_quant_file final_quant.zip --check_data data/test/data.list

A model is written only if it recognises audio as the checkpoint does: that of --check_data, else of
the validation set of the run, else noise. A model that can stream is checked in chunks too.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from wenet_uio.base.cli import command_parser, run
from wenet_uio.base.files import written_aside
from wenet_uio.base.messages import note
from wenet_uio.export.check import compare
from wenet_uio.export.chunks import LEFT_CHUNKS, check_chunks, streaming_chunks
from wenet_uio.export.command import add_options, check_exportable, load_trained
from wenet_uio.export.exported import ExportedModel
from wenet_uio.export.torchscript import check_encoder, from_torchscript, to_torchscript
from wenet_uio.search.types import DecodeOptions


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    add_options(parser)
    parser.add_argument("--output_file", required=True, help="output file, such as final.zip")
    parser.add_argument(
        "--output_quant_file", help="output file of an int8 model, such as final_quant.zip"
    )
    parser.add_argument(
        "--if_possible",
        action="store_true",
        help="for scripts: a model that WeNet's runtime does not run is a note, and no error",
    )

    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Export, check and write the models."""
    args = parser().parse_args(arguments)
    trained = load_trained(args)
    try:
        check_exportable(trained.model)
        check_encoder(trained.hybrid.encoder)
    except ValueError as error:
        if not args.if_possible:
            raise
        note(f"no {args.output_file}: {error}")
        return

    ways = {"": DecodeOptions()}
    chunks, _ = streaming_chunks(trained.hybrid, None, LEFT_CHUNKS, check_chunks)
    if chunks is not None:
        options = DecodeOptions(
            decoding_chunk_size=chunks.size, num_decoding_left_chunks=chunks.left
        )
        ways[f", in chunks of {chunks.size}"] = options

    references = {way: trained.references(options) for way, options in ways.items()}
    for path, int8 in ((args.output_file, False), (args.output_quant_file, True)):
        if path is None:
            continue

        content = to_torchscript(trained.hybrid, quantize=int8)
        exported = ExportedModel(from_torchscript(content), trained.hybrid)
        for way, options in ways.items():
            agreement = compare(exported, references[way], options)
            trained.accept(f"{path}{way}", agreement, int8=int8)

        with written_aside(path) as file:
            file.write(content)

        print(f"{path}: {len(content) / 1e6:.1f} MB")


if __name__ == "__main__":
    run(main)
