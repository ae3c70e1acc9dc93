"""Export a trained model to ONNX, for WeNet's C++ runtime and for sherpa-onnx, offline and
streaming, float and int8.

    %(prog)s --config exp/u2++/train.yaml \\
        --checkpoint exp/u2++/avg.pt --output_dir exp/u2++/onnx \\
        --check_data data/test/data.list

writes the folders offline and offline_int8 to OUTPUT_DIR and, for a model that can stream,
streaming and streaming_int8. Each folder has:

    encoder.onnx, ctc.onnx, decoder.onnx  WeNet's C++ runtime: its --onnx_dir
    model.onnx, tokens.txt                 sherpa-onnx: from_wenet_ctc

With --runtimes streams it writes the folders streams and streams_int8, which load_model and
serve.py of this package open:

    streams.onnx, ctc.onnx, decoder.onnx  chunks of any size, several streams

Some families of models and some encoders are exported for sherpa-onnx alone, some of them offline
only: wenet_uio/export/README.md and wenet_uio/families/README.md say which, and how sherpa-onnx
opens them.

Needs onnx and onnxruntime: pip install onnx onnxruntime.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from wenet_uio.addons.runtimes.onnx_files import require_onnx, to_int8, to_onnx
from wenet_uio.addons.runtimes.onnx_folder import older_folders_told, write_folder
from wenet_uio.addons.runtimes.onnx_graphs import (
    OFFLINE,
    Chunks,
    check_chunks,
    check_onnx_chunks,
    sherpa_graph,
    streams_graphs,
    wenet_graphs,
)
from wenet_uio.addons.runtimes.onnx_models import ExportedModel, SherpaOnnx, StreamsOnnx, WenetOnnx
from wenet_uio.addons.runtimes.sherpa import CtcExport, SherpaOnly, feature_differences, tokens_file
from wenet_uio.base.cli import command_parser, run
from wenet_uio.config.command_line import change_nothing
from wenet_uio.config.encoder_kind import encoder_kind
from wenet_uio.export.check import Reference, compare, judge
from wenet_uio.export.command import (
    DEFAULT_CHUNK,
    LEFT_CHUNKS,
    Trained,
    add_options,
    check_exportable,
    check_family,
    load_trained,
    streaming_chunks,
)
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.chunks import fitting_chunk
from wenet_uio.search.types import DecodeOptions

RUNTIMES = ("wenet", "sherpa")
"""Runtimes of an export without --runtimes."""
STREAMS = "streams"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    add_options(parser)
    parser.add_argument("--output_dir", "--output_onnx_dir", required=True, help="output folder")
    parser.add_argument(
        "--runtimes",
        nargs="+",
        metavar="RUNTIME",
        choices=(*RUNTIMES, STREAMS),
        default=RUNTIMES,
        help="runtimes to export for, of wenet, sherpa and streams; streams: this package, for "
        f"serve.py and stream() (default: {' '.join(RUNTIMES)})",
    )
    parser.add_argument(
        "--chunk_size",
        "--decoding_chunk_size",
        type=int,
        help="streaming: encoder frames of a chunk; 0 or less: offline only (default: "
        f"{DEFAULT_CHUNK} if the model can stream)",
    )
    parser.add_argument(
        "--num_decoding_left_chunks",
        type=int,
        default=LEFT_CHUNKS,
        help="streaming: chunks seen to the left; -1: all, which sherpa-onnx does not support",
    )
    search = "the runtime has its own options of the search"
    change_nothing(
        parser,
        {
            **dict.fromkeys(("--beam", "--beam_size", "--ctc_weight", "--reverse_weight"), search),
            "--cmvn_file": "the exported encoder has the CMVN of the checkpoint",
            "--fp16": "models are float32 and int8",
            "--streaming": "a model that can stream is always exported for streaming too",
            "--decoder_fastertransformer": "there is no FasterTransformer here",
        },
    )

    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Export, check and write the models."""
    args = parser().parse_args(arguments)
    require_onnx()
    trained = load_trained(args)
    with older_folders_told(Path(args.output_dir), trained.weights_id):
        export_all(trained)


def export_all(trained: Trained) -> None:
    """Export, check and write all folders of a model.

    Raises:
        ValueError: the model or the options do not fit, or a model differs by more than the limits.
    """
    arguments = trained.arguments
    of_family = trained.model.family.sherpa
    if of_family is not None:
        refuse_streams(arguments.runtimes)
        export_for_sherpa(trained, of_family(trained))
        return

    sherpa = encoder_kind(trained.config.encoder).sherpa
    if sherpa is not None:
        refuse_streams(arguments.runtimes)
        check_family(trained.model)
        export_ctc_for_sherpa(trained, sherpa())
        return

    check_exportable(trained.model)
    if STREAMS in arguments.runtimes:
        export_streams(trained)
    if set(RUNTIMES) & set(arguments.runtimes):
        export_for_runtimes(trained)


def refuse_streams(runtimes: Sequence[str]) -> None:
    """Raise a ValueError if the runtimes of a model that sherpa-onnx alone runs have streams."""
    if STREAMS in runtimes:
        raise ValueError(
            f"--runtimes {STREAMS}: sherpa-onnx alone runs exports of this model; load the checkpoint "
            "of the run"
        )


def export_for_runtimes(trained: Trained) -> None:
    """Export, check and write the folders of a model for WeNet's runtime and sherpa-onnx.

    Raises:
        ValueError: as `export_all`.
    """
    arguments = trained.arguments
    if "sherpa" in arguments.runtimes:
        warn_of_features(feature_differences(trained.config.dataset_conf))

    chunks, reason = chunks_of(trained, arguments)
    export(trained, OFFLINE, "offline")
    if chunks is not None:
        export(trained, chunks, "streaming")
    elif reason:
        print(f"no streaming model: {reason}")


def export_for_sherpa(trained: Trained, parts: SherpaOnly) -> None:
    """Export, check and write OUTPUT_DIR/offline and OUTPUT_DIR/offline_int8.

    Raises:
        ValueError: the options ask for another runtime or for chunks, or a model differs by more
            than the limits.
    """
    arguments = trained.arguments
    if "sherpa" not in arguments.runtimes:
        raise ValueError(f"--runtimes wenet: {parts.no_wenet}")
    if (arguments.chunk_size or 0) > 0:
        raise ValueError(f"--chunk_size {arguments.chunk_size}: {parts.no_chunks}")

    warn_of_features(parts.feature_differences)
    contents = {name: to_onnx(graph) for name, graph in parts.graphs.items()}
    for folder, int8 in (("offline", False), ("offline_int8", True)):
        contents = (
            {name: to_int8(content) for name, content in contents.items()} if int8 else contents
        )
        path = Path(arguments.output_dir, folder)
        agreement = parts.compare(contents)
        print(
            judge(
                f"{path}/{', '.join(contents)}",
                agreement,
                trained.limits(int8),
                trained.tokenizer.detokenize,
            )
        )
        write_folder(path, contents, parts.tokens, trained.weights_id)

    print(f"only for sherpa-onnx, without streaming: {parts.no_wenet}; {parts.no_chunks}")


def export_ctc_for_sherpa(trained: Trained, parts: CtcExport) -> None:
    """Export, check and write OUTPUT_DIR/offline and, of a model that can stream, streaming; float
    and int8.

    Raises:
        ValueError: the options ask for another runtime or for chunks, or a model differs by more
            than the limits.
    """
    arguments, model, reason = trained.arguments, trained.hybrid, ""
    if "sherpa" not in arguments.runtimes or not model.ctc_weight:
        raise ValueError(parts.limit)

    warn_of_features(feature_differences(trained.config.dataset_conf))
    kinds: dict[str, Chunks | None] = {"offline": OFFLINE, "streaming": None}
    kinds["streaming"], reason = chunks_of(trained, arguments, parts.check_chunks)

    for name, chunks in kinds.items():
        if chunks is None:
            continue
        content = to_onnx(parts.graph(model, trained.config.feature_dim, chunks))
        for int8 in (False, True):
            content = to_int8(content) if int8 else content
            path = Path(arguments.output_dir, f"{name}_int8" if int8 else name)
            agreement = parts.compare(
                content, model, trained.examples(), arguments.num_check, chunks
            )
            print(
                judge(
                    f"{path}/model.onnx",
                    agreement,
                    trained.limits(int8),
                    trained.tokenizer.detokenize,
                )
            )
            tokens = tokens_file(trained.tokenizer, model.blank)
            write_folder(path, {"model.onnx": content}, tokens, trained.weights_id)

    print(f"only for sherpa-onnx{f'; no streaming model: {reason}' if reason else ''}")


def warn_of_features(differences: list[str]) -> None:
    """Name the feature settings of the model that are not those of sherpa-onnx."""
    for difference in differences:
        print(
            f"warning: the features differ from those of sherpa-onnx: {difference}", file=sys.stderr
        )


def chunks_of(
    trained: Trained,
    arguments: argparse.Namespace,
    check: Callable[[ASRModel, Chunks], None] = check_onnx_chunks,
) -> tuple[Chunks | None, str]:
    """Return the chunks of the streaming model; without a streaming model None and the reason.

    Raises:
        ValueError: the options ask for chunks that the model or a runtime does not support.
    """
    if arguments.chunk_size is not None and arguments.chunk_size <= 0:
        return None, ""

    left_chunks = arguments.num_decoding_left_chunks
    chunks, reason = streaming_chunks(trained.hybrid, arguments.chunk_size, left_chunks, check)
    if chunks is not None and left_chunks < 0 and "sherpa" in arguments.runtimes:
        raise ValueError(
            f"--num_decoding_left_chunks {left_chunks}: sherpa-onnx needs 0 or more; for all chunks (-1) "
            "use --runtimes wenet"
        )

    return chunks, reason


def export(trained: Trained, chunks: Chunks, folder: str) -> None:
    """Export, check and write OUTPUT_DIR/FOLDER and OUTPUT_DIR/FOLDER_int8."""
    model, arguments = trained.hybrid, trained.arguments
    feature_dim = trained.config.feature_dim
    graphs = wenet_graphs(model, feature_dim, chunks) if "wenet" in arguments.runtimes else {}
    if "sherpa" in arguments.runtimes:
        graphs["model.onnx"] = sherpa_graph(model, feature_dim, chunks)

    contents = {name: to_onnx(graph) for name, graph in graphs.items()}
    options = DecodeOptions(decoding_chunk_size=chunks.size, num_decoding_left_chunks=chunks.left)
    references = trained.references(options)

    for int8 in (False, True):
        if int8:
            contents = {name: to_int8(content) for name, content in contents.items()}

        path = Path(arguments.output_dir, f"{folder}_int8" if int8 else folder)
        check(trained, contents, references, options, path, int8)
        write_folder(
            path,
            contents,
            tokens_file(trained.tokenizer, model.blank) if "sherpa" in arguments.runtimes else None,
            trained.weights_id,
        )


def export_streams(trained: Trained) -> None:
    """Export, check and write OUTPUT_DIR/streams and OUTPUT_DIR/streams_int8.

    The check decodes whole utterances, and chunks of the options.

    Raises:
        ValueError: the model cannot stream, the options do not fit, or a model differs by more than
            the limits.
    """
    model, arguments = trained.hybrid, trained.arguments
    size, left = arguments.chunk_size, arguments.num_decoding_left_chunks
    if size is None:
        size = fitting_chunk(model.encoder.traits, DEFAULT_CHUNK)
    check_chunks(model, Chunks(size, left))

    graphs = streams_graphs(model, trained.config.feature_dim)
    contents = {name: to_onnx(graph) for name, graph in graphs.items()}
    in_chunks = DecodeOptions(decoding_chunk_size=size, num_decoding_left_chunks=left)
    of_checks = [DecodeOptions(), in_chunks]
    if model.encoder.traits.static_chunk_size:
        of_checks = [in_chunks]
    references = [(options, trained.references(options)) for options in of_checks]

    for int8 in (False, True):
        if int8:
            contents = {name: to_int8(content) for name, content in contents.items()}

        path = Path(arguments.output_dir, f"{STREAMS}_int8" if int8 else STREAMS)
        for options, utterances in references:
            check(trained, contents, utterances, options, path, int8)
        write_folder(path, contents, None, trained.weights_id)


def check(
    trained: Trained,
    contents: dict[str, bytes],
    references: list[Reference],
    options: DecodeOptions,
    path: Path,
    int8: bool,
) -> None:
    """Compare the models of a folder with the checkpoint and print the differences.

    Raises:
        ValueError: a model differs by more than the limits.
    """
    limits, detokenize = trained.limits(int8), trained.tokenizer.detokenize
    if "encoder.onnx" in contents:
        agreement = compare(ExportedModel(WenetOnnx(contents), trained.hybrid), references, options)
        print(judge(f"{path}/encoder.onnx, ctc.onnx, decoder.onnx", agreement, limits, detokenize))

    if "streams.onnx" in contents:
        streams = ExportedModel(StreamsOnnx(contents, trained.hybrid.encoder), trained.hybrid)
        agreement = compare(streams, references, options)
        print(judge(f"{path}/streams.onnx, ctc.onnx, decoder.onnx", agreement, limits, detokenize))

    if "model.onnx" in contents:
        sherpa = SherpaOnnx(contents["model.onnx"], trained.hybrid)
        agreement = compare(sherpa, references, options, modes=("ctc_greedy_search",))
        print(judge(f"{path}/model.onnx", agreement, limits, detokenize))


if __name__ == "__main__":
    run(main)
