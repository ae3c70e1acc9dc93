"""ONNX files of an export, called as their runtimes do: one utterance at a time, with the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import torch

from wenet_uio.addons.runtimes.onnx_files import EXPORT_ID, open_session, require_onnx
from wenet_uio.addons.runtimes.onnx_graphs import CTC_FOR_SHERPA
from wenet_uio.export.exported import (
    FOR_SHERPA,
    FOR_STREAMS,
    FOR_WENET,
    Exported,
    ExportedModel,
    cut_windows,
    fill_to_window,
    frame_count,
)
from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.caches import Caches, join_chunks
from wenet_uio.models.ctc import apply_blank_penalty
from wenet_uio.models.encoder import Encoder


def load_onnx(folder: Path, run: Path, untrained: Callable[[], ASRModel]) -> Exported:
    """Load the model of an exported folder; the names of its files say for which runtime they are.

    Args:
        run: folder of its run, for messages.
        untrained: builds a model of the config of the run. It is called after the files are opened,
            which may be refused.

    Raises:
        ValueError: a file is damaged, sherpa-onnx alone can run the model, or a package is missing.
    """
    require_onnx()
    if (folder / FOR_WENET[0]).is_file():
        runtime = WenetOnnx(_read_contents(folder, FOR_WENET))
        return ExportedModel(runtime, untrained(), runtime.chunk_size())
    if (folder / FOR_STREAMS[0]).is_file():
        return StreamsExport(_read_contents(folder, FOR_STREAMS), untrained())

    path = next(folder / name for name in FOR_SHERPA if (folder / name).is_file())
    content = path.read_bytes()
    model_type = OnnxModel(content).metadata.get("model_type", "unknown")
    if model_type != CTC_FOR_SHERPA:
        raise ValueError(
            f"{path}: sherpa-onnx runs models of this type ({model_type}), this package does not; "
            f"load the run: {run}"
        )
    return SherpaOnnx(content, untrained())


def _read_contents(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names}


class OnnxModel:
    """One ONNX file: named tensors as inputs, a list of tensors as output, and the metadata of the
    file.
    """

    def __init__(self, content: bytes, name: str = "model.onnx") -> None:
        """Open a file; `name` and errors as those of `open_session`."""
        self.session = open_session(content, name)
        self.metadata: dict[str, str] = self.session.get_modelmeta().custom_metadata_map
        self.inputs = [node.name for node in self.session.get_inputs()]

    def __call__(self, **inputs: torch.Tensor) -> list[torch.Tensor]:
        """Run the model. Inputs that the file does not have are ignored; outputs are in the order
        of the file.
        """
        arrays = {name: inputs[name].numpy() for name in self.inputs}
        return [torch.from_numpy(output) for output in self.session.run(None, arrays)]

    def start(self) -> tuple[int, torch.Tensor, torch.Tensor]:
        """Return the size and content of the caches at the start of an utterance, as C++ runtimes
        create them from the metadata.

        Returns:
            Encoder frames of the attention cache, attention cache, convolution cache.
        """
        chunk_frames = int(self.metadata["chunk_size"])
        left_chunks = int(self.metadata["left_chunks"])  # below 0: the cache grows from 0 frames
        blocks, heads = int(self.metadata["num_blocks"]), int(self.metadata["head"])
        width, kernel = int(self.metadata["output_size"]), int(self.metadata["cnn_module_kernel"])

        cache_frames = chunk_frames * max(left_chunks, 0)
        # Keys and values of a frame lie side by side.
        att_cache = torch.zeros(blocks, heads, cache_frames, 2 * width // heads)
        cnn_cache = torch.zeros(blocks, 1, width, kernel - 1)
        return cache_frames, att_cache, cnn_cache

    def attention_mask(self, offset: int, cache_frames: int) -> torch.Tensor:
        """Return the mask (1, 1, cache + chunk) of the chunk after `offset` frames: False for
        entries of the cache that hold no frame yet, which come first.
        """
        chunk_frames = max(int(self.metadata["chunk_size"]), 0)
        empty_entries = max(cache_frames - offset, 0)
        mask = torch.ones(1, 1, cache_frames + chunk_frames, dtype=torch.bool)
        mask[:, :, :empty_entries] = False
        return mask


class WenetOnnx:
    """encoder.onnx, ctc.onnx and decoder.onnx with the methods of final.zip; calls them as WeNet's
    C++ runtime does.
    """

    names = FOR_WENET

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        """Open the three files.

        Raises:
            ValueError: a file is damaged, or they come from different exports.
        """
        models = [OnnxModel(contents[name], name) for name in self.names]
        _require_one_export(models, self.names)
        self.encoder, self.ctc, self.decoder = models

    def _metadata_number(self, name: str) -> int:
        return int(self.encoder.metadata[name])

    def chunk_size(self) -> int:
        """Return the encoder frames of a chunk of a streaming graph; below 0: full context."""
        return self._metadata_number("chunk_size")

    def subsampling_rate(self) -> int:
        """Return the feature frames per encoder frame."""
        return self._metadata_number("subsampling_rate")

    def right_context(self) -> int:
        """Return the feature frames that an encoder frame depends on after its first."""
        return self._metadata_number("right_context")

    def sos_symbol(self) -> int:
        """Return the label that starts every hypothesis."""
        return self._metadata_number("sos_symbol")

    def eos_symbol(self) -> int:
        """Return the label that ends every hypothesis."""
        return self._metadata_number("eos_symbol")

    def is_bidirectional_decoder(self) -> bool:
        """Tell whether `forward_attention_decoder` can score right to left."""
        return bool(self._metadata_number("is_bidirectional_decoder"))

    def forward_encoder_chunk(
        self,
        xs: torch.Tensor,
        offset: int,
        required_cache_size: int,
        att_cache: torch.Tensor,
        cnn_cache: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Encode features `xs` (1, T, F) of a chunk -> encoder frames (1, T', D), and both caches.

        The metadata of the export defines the size of the cache, and not `required_cache_size`.
        """
        cache, att_start, cnn_start = self.encoder.start()
        if offset == 0:
            att_cache, cnn_cache = att_start, cnn_start
        output, att_cache, cnn_cache = self.encoder(
            chunk=xs,
            offset=torch.tensor(cache + offset),
            required_cache_size=torch.tensor(cache),
            att_cache=att_cache,
            cnn_cache=cnn_cache,
            att_mask=self.encoder.attention_mask(offset, cache),
        )
        return output, att_cache, cnn_cache

    def ctc_activation(self, xs: torch.Tensor) -> torch.Tensor:
        """Compute CTC log-probabilities (1, T', V) of encoder frames (1, T', D)."""
        return self.ctc(hidden=xs)[0]

    def forward_attention_decoder(
        self,
        hyps: torch.Tensor,
        hyps_lens: torch.Tensor,
        encoder_out: torch.Tensor,
        reverse_weight: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the log-probabilities of hypotheses (N, L) by both decoders, left to right and
        right to left; the caller combines their scores with `reverse_weight`.
        """
        score, r_score = self.decoder(hyps=hyps, hyps_lens=hyps_lens, encoder_out=encoder_out)
        return score, r_score


class ExportedEncoder(Encoder):
    """The encoder of an export for streams: chunks of several streams are one call."""

    def __init__(self, encoder: Encoder, graph: OnnxModel) -> None:
        """Take the input layer, which knows positions and rates, and traits of `encoder`; its
        weights are not used.
        """
        super().__init__(encoder.embed, encoder.traits, None)
        self._graph = graph

    def forward_chunk(
        self,
        xs: torch.Tensor,
        offset: int,
        required_cache_size: int,
        att_cache: torch.Tensor,
        cnn_cache: torch.Tensor,
        att_mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Encode a chunk (1, T, F) of one stream -> encoder frames (1, T', D), and both caches.

        Caches have no fixed size, so there is no mask.
        """
        assert att_mask is None, "a mask is for runtimes with caches of a fixed size"
        frames, caches = self.forward_chunks(
            xs, [offset], [(att_cache, cnn_cache)], [required_cache_size]
        )
        return frames, *caches[0]

    def forward_chunks(
        self,
        xs: torch.Tensor,
        offsets: Sequence[int],
        caches: Sequence[Caches],
        keep: Sequence[int],
    ) -> tuple[torch.Tensor, list[Caches]]:
        """Encode a chunk of each of B streams (B, T, F) in one call.

        Args:
            offsets: encoder frames before the chunk, of each stream.
            caches: attention and convolution cache of each stream.
            keep: frames of the attention cache of each stream that are kept; below 0: all.

        Returns:
            encoder frames (B, T', D), and the caches of each stream for its next chunk.
        """
        first_window = self.embed.right_context + 1
        encoder_frames = (xs.size(1) - first_window) // self.embed.subsampling_rate + 1
        shape = xs.new_empty(xs.size(0), encoder_frames)
        joined = join_chunks(self.embed, self.traits, shape, offsets, caches)
        bias = joined.bias
        if bias is None:
            bias = xs.new_zeros(len(xs), 1, 1, joined.pos_emb.size(1))
        frames, att_pasts, cnn_pasts = self._graph(
            chunk=xs,
            bias=bias,
            pos_emb=joined.pos_emb,
            att_cache=joined.att_cache,
            cnn_cache=joined.cnn_cache,
        )
        return frames, joined.part(att_pasts, cnn_pasts, keep)


class StreamsOnnx(WenetOnnx):
    """streams.onnx, ctc.onnx and decoder.onnx with the methods of final.zip."""

    names = FOR_STREAMS

    def __init__(self, contents: Mapping[str, bytes], encoder: Encoder) -> None:
        """Open the three files; `encoder` as in ExportedEncoder.

        Raises:
            ValueError: as WenetOnnx, or `encoder` has other sizes than the export.
        """
        super().__init__(contents)
        self._require_equal_sizes(encoder)
        self.streams = ExportedEncoder(encoder, self.encoder)

    def _require_equal_sizes(self, encoder: Encoder) -> None:
        """Refuse an encoder whose input shapes differ from those of the file. Letters in a shape are
        names of sizes that may vary.
        """
        traits, embed = encoder.traits, encoder.embed
        heads, width = traits.att_cache_shape
        position = embed.position_encoding(0, 1, torch.zeros(1, 1, traits.width))
        sizes_of_encoder: dict[str, object] = {
            "pos_emb": ["B", "K", *position.shape[2:]],
            "att_cache": [traits.layers, "B", heads, "C", width],
            "cnn_cache": [traits.layers, "B", *traits.cnn_cache_shape],
            "subsampling_rate": embed.subsampling_rate,
            "right_context": embed.right_context,
        }
        sizes_of_file: dict[str, object] = {
            node.name: node.shape for node in self.encoder.session.get_inputs()
        }
        sizes_of_file["subsampling_rate"] = self.subsampling_rate()
        sizes_of_file["right_context"] = self.right_context()

        for name, size in sizes_of_encoder.items():
            if sizes_of_file[name] != size:
                raise ValueError(
                    f"{self.names[0]}: {name} {sizes_of_file[name]}, but that of train.yaml is {size}: "
                    "they are of different models; put the train.yaml of its run beside the export"
                )

    def forward_encoder_chunk(
        self,
        xs: torch.Tensor,
        offset: int,
        required_cache_size: int,
        att_cache: torch.Tensor,
        cnn_cache: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Encode features `xs` (1, T, F) of a chunk -> encoder frames (1, T', D), and both caches."""
        return self.streams.forward_chunk(xs, offset, required_cache_size, att_cache, cnn_cache)


def _require_one_export(models: Sequence[OnnxModel], names: Sequence[str]) -> None:
    """Check that models come from one export.

    Raises:
        ValueError: they do not, so that they would decode nonsense together.
    """
    ids = [model.metadata.get(EXPORT_ID, "none") for model in models]
    if len(set(ids)) > 1:
        exports_of_files = ", ".join(
            f"{name} {export}" for name, export in zip(names, ids, strict=True)
        )
        raise ValueError(
            f"files of different exports ({EXPORT_ID}: {exports_of_files}), such as float and int8: "
            "take all files from one of them, or export again"
        )


class StreamsExport(ExportedModel):
    """An export for streams, in the place of a trained model."""

    takes_streams = True

    def __init__(self, contents: Mapping[str, bytes], model: ASRModel) -> None:
        """Open the files; see StreamsOnnx."""
        runtime = StreamsOnnx(contents, model.encoder)
        super().__init__(runtime, model)
        self.encoder = runtime.streams


class SherpaOnnx(Exported):
    """A model.onnx with CTC for sherpa-onnx, which has no decoder. Its outputs are log-probabilities
    instead of encoder frames.
    """

    def __init__(self, content: bytes, model: ASRModel) -> None:
        super().__init__(model)
        self.attention_weight = self.reverse_weight = 0.0
        self.graph = OnnxModel(content)
        is_streaming = "offset" in self.graph.inputs
        self.fixed_chunk_size = int(self.graph.metadata["chunk_size"]) if is_streaming else -1
        """Encoder frames of a chunk of a streaming graph; below 0: the graph takes utterances."""

    def encode(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        decoding_chunk_size: int = -1,
        num_decoding_left_chunks: int = -1,
        simulate_streaming: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute log-probabilities (1, T', V) and lengths (1,) of one utterance (1, T, F); see
        Exported.encode.
        """
        embed = self.encoder.embed
        frames = fill_to_window(feats, embed)
        if self.fixed_chunk_size <= 0:
            log_probs, lengths = self.graph(x=frames, x_lens=torch.tensor([frames.size(1)]))
            count = int(lengths[0])
            return log_probs[:, :count], frame_count(count, feats, embed)

        cache, att_cache, cnn_cache = self.graph.start()
        outputs: list[torch.Tensor] = []
        offset = 0

        rate, right_context = embed.subsampling_rate, embed.right_context
        for window in cut_windows(frames, self.fixed_chunk_size, rate, right_context):
            output, att_cache, cnn_cache = self.graph(
                x=window,
                offset=torch.tensor([cache + offset]),
                required_cache_size=torch.tensor([cache]),
                attn_cache=att_cache,
                conv_cache=cnn_cache,
                attn_mask=self.graph.attention_mask(offset, cache),
            )
            outputs.append(output)
            offset += output.size(1)

        return torch.cat(outputs, dim=1), frame_count(offset, feats, embed)

    def ctc_log_probs(self, encoder_out: torch.Tensor, blank_penalty: float = 0.0) -> torch.Tensor:
        """Return the input (1, T', V), which has log-probabilities already, with the penalty."""
        return apply_blank_penalty(encoder_out, self.blank, blank_penalty)
