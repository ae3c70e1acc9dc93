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
only: docs/concepts/exports.md and wenet_uio/families/README.md say which, and how sherpa-onnx
opens them.

Needs onnx and onnxruntime: pip install onnx onnxruntime.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from wenet_uio.addons.runtimes.onnx_files import (
    older_folders_told,
    require_onnx,
    to_int8,
    to_onnx,
    write_folder,
)
from wenet_uio.addons.runtimes.onnx_graphs import (
    check_onnx_chunks,
    sherpa_graph,
    streams_graphs,
    wenet_graphs,
)
from wenet_uio.addons.runtimes.onnx_models import SherpaOnnx, StreamsExport, WenetOnnx
from wenet_uio.addons.runtimes.sherpa import CtcExport, SherpaOnly, feature_differences, tokens_file
from wenet_uio.base.cli import command_parser
from wenet_uio.config.command_line import change_nothing
from wenet_uio.config.encoder_kind import encoder_kind
from wenet_uio.export.check import GREEDY, Reference, compare
from wenet_uio.export.chunks import (
    DEFAULT_CHUNK,
    LEFT_CHUNKS,
    OFFLINE,
    Chunks,
    check_chunks,
    streaming_chunks,
)
from wenet_uio.export.command import (
    Trained,
    add_options,
    check_exportable,
    check_family,
    load_trained,
)
from wenet_uio.export.exported import FOR_STREAMS, FOR_WENET, ExportedModel
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
    runtimes = trained.arguments.runtimes
    offline_export = trained.model.family.exchange.sherpa
    ctc_export = encoder_kind(trained.config.encoder).sherpa

    if STREAMS in runtimes and (offline_export is not None or ctc_export is not None):
        raise ValueError(
            f"--runtimes {STREAMS}: sherpa-onnx alone runs exports of this model; load the checkpoint "
            "of the run"
        )

    if offline_export is not None:
        export_for_sherpa(trained, offline_export(trained))
    elif ctc_export is not None:
        check_family(trained.model)
        export_ctc_for_sherpa(trained, ctc_export())
    else:
        check_exportable(trained.model)
        if STREAMS in runtimes:
            export_streams(trained)
        if set(RUNTIMES) & set(runtimes):
            export_for_runtimes(trained)


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

    warn_about_features(parts.feature_differences)
    contents = {name: to_onnx(graph) for name, graph in parts.graphs.items()}
    for path, files, int8 in float_and_int8(arguments.output_dir, "offline", contents):
        trained.accept(f"{path}/{', '.join(files)}", parts.compare(files), int8=int8)
        write_folder(path, files, parts.tokens, trained.weights_id)

    print(f"only for sherpa-onnx, without streaming: {parts.no_wenet}; {parts.no_chunks}")


def export_ctc_for_sherpa(trained: Trained, parts: CtcExport) -> None:
    """Export, check and write OUTPUT_DIR/offline and, of a model that can stream, streaming; float
    and int8.

    Raises:
        ValueError: the options ask for another runtime or for chunks, or a model differs by more
            than the limits.
    """
    arguments, model = trained.arguments, trained.hybrid
    if "sherpa" not in arguments.runtimes or not model.ctc_weight:
        raise ValueError(parts.limit)

    warn_about_features(feature_differences(trained.config.dataset_conf))
    tokens = tokens_file(trained.tokenizer, model.blank)
    streaming, reason = chunks_to_stream(trained, parts.check_chunks)
    folders = {"offline": OFFLINE}
    if streaming is not None:
        folders["streaming"] = streaming

    for folder, chunks in folders.items():
        content = to_onnx(parts.graph(model, trained.config.feature_dim, chunks))
        for path, files, int8 in float_and_int8(
            arguments.output_dir, folder, {"model.onnx": content}
        ):
            agreement = parts.compare(
                files["model.onnx"], model, trained.examples(), arguments.num_check, chunks
            )
            trained.accept(f"{path}/model.onnx", agreement, int8=int8)
            write_folder(path, files, tokens, trained.weights_id)

    print(f"only for sherpa-onnx{f'; no streaming model: {reason}' if reason else ''}")


def export_for_runtimes(trained: Trained) -> None:
    """Export, check and write the folders of a model for WeNet's runtime and sherpa-onnx.

    Raises:
        ValueError: as `export_all`.
    """
    if "sherpa" in trained.arguments.runtimes:
        warn_about_features(feature_differences(trained.config.dataset_conf))

    chunks, reason = chunks_to_stream(trained, check_onnx_chunks)
    export_in_chunks(trained, OFFLINE, "offline")
    if chunks is not None:
        export_in_chunks(trained, chunks, "streaming")
    elif reason:
        print(f"no streaming model: {reason}")


def export_in_chunks(trained: Trained, chunks: Chunks, folder: str) -> None:
    """Export, check and write OUTPUT_DIR/FOLDER and OUTPUT_DIR/FOLDER_int8."""
    model, arguments = trained.hybrid, trained.arguments
    feature_dim = trained.config.feature_dim
    graphs = wenet_graphs(model, feature_dim, chunks) if "wenet" in arguments.runtimes else {}
    tokens = None
    if "sherpa" in arguments.runtimes:
        graphs["model.onnx"] = sherpa_graph(model, feature_dim, chunks)
        tokens = tokens_file(trained.tokenizer, model.blank)

    contents = {name: to_onnx(graph) for name, graph in graphs.items()}
    options = DecodeOptions(decoding_chunk_size=chunks.size, num_decoding_left_chunks=chunks.left)
    references = trained.references(options)

    for path, files, int8 in float_and_int8(arguments.output_dir, folder, contents):
        check(trained, files, references, options, path, int8)
        write_folder(path, files, tokens, trained.weights_id)


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
    ways = [in_chunks] if model.encoder.traits.static_chunk_size else [DecodeOptions(), in_chunks]
    references = [(options, trained.references(options)) for options in ways]

    for path, files, int8 in float_and_int8(arguments.output_dir, STREAMS, contents):
        for options, utterances in references:
            check(trained, files, utterances, options, path, int8)
        write_folder(path, files, None, trained.weights_id)


def float_and_int8(
    output_dir: str, folder: str, contents: dict[str, bytes]
) -> Iterator[tuple[Path, dict[str, bytes], bool]]:
    """Yield OUTPUT_DIR/FOLDER with its files, then FOLDER_int8 with the quantised ones, and whether
    they are int8.
    """
    yield Path(output_dir, folder), contents, False
    quantised = {name: to_int8(content) for name, content in contents.items()}
    yield Path(output_dir, f"{folder}_int8"), quantised, True


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
    model = trained.hybrid
    if FOR_WENET[0] in contents:
        runtime = WenetOnnx(contents)
        exported = ExportedModel(runtime, model, runtime.chunk_size())
        agreement = compare(exported, references, options)
        trained.accept(f"{path}/{', '.join(FOR_WENET)}", agreement, int8=int8)

    if FOR_STREAMS[0] in contents:
        agreement = compare(StreamsExport(contents, model), references, options)
        trained.accept(f"{path}/{', '.join(FOR_STREAMS)}", agreement, int8=int8)

    if "model.onnx" in contents:
        sherpa = SherpaOnnx(contents["model.onnx"], model)
        agreement = compare(sherpa, references, options, modes=(GREEDY,))
        trained.accept(f"{path}/model.onnx", agreement, int8=int8)


def warn_about_features(differences: list[str]) -> None:
    """Name the feature settings of the model that are not those of sherpa-onnx."""
    for difference in differences:
        print(
            f"warning: the features differ from those of sherpa-onnx: {difference}", file=sys.stderr
        )


def chunks_to_stream(
    trained: Trained, check_size: Callable[[ASRModel, Chunks], None]
) -> tuple[Chunks | None, str]:
    """Return the chunks of the streaming model; without a streaming model None and the reason.

    Args:
        check_size: raises a ValueError for chunks that a runtime does not support.

    Raises:
        ValueError: the options ask for chunks that the model or a runtime does not support.
    """
    arguments = trained.arguments
    if arguments.chunk_size is not None and arguments.chunk_size <= 0:
        return None, ""

    left_chunks = arguments.num_decoding_left_chunks
    chunks, reason = streaming_chunks(trained.hybrid, arguments.chunk_size, left_chunks, check_size)
    if chunks is not None and left_chunks < 0 and "sherpa" in arguments.runtimes:
        raise ValueError(
            f"--num_decoding_left_chunks {left_chunks}: sherpa-onnx needs 0 or more; for all chunks (-1) "
            "use --runtimes wenet"
        )

    return chunks, reason
