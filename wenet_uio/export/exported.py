"""Exported models in the place of trained ones, and the names of their files.

The searches call an exported model as its runtime does: on the CPU, one utterance at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad

from wenet_uio.models.asr_model import ASRModel
from wenet_uio.models.ctc import apply_blank_penalty
from wenet_uio.models.encoder_traits import check_decoding_chunk
from wenet_uio.models.subsampling import Subsampling

if TYPE_CHECKING:
    from typing_extensions import Self

TORCHSCRIPT = "final.zip"
FOLDERS = ("streams", "offline", "streaming", "streams_int8", "offline_int8", "streaming_int8")
"""Folders that one ONNX export may write, in the order in which a model is searched."""
FOR_WENET = ("encoder.onnx", "ctc.onnx", "decoder.onnx")
FOR_STREAMS = ("streams.onnx", "ctc.onnx", "decoder.onnx")
FOR_SHERPA = ("model.onnx", "whisper-encoder.onnx")
"""First file of folders that are exported for sherpa-onnx alone."""
ONNX_FILES = {*FOR_WENET, *FOR_STREAMS, *FOR_SHERPA, "whisper-decoder.onnx"}
TOKENS = "tokens.txt"
FOLDER_FILES = {*ONNX_FILES, TOKENS}
"""Files that ONNX exports write to a folder. Others in it are the user's."""
LEVELS_ABOVE = 3
_NOTHING = torch.zeros(0, 0, 0, 0)


def has_onnx(folder: Path) -> bool:
    """Tell whether a folder is one of an ONNX export."""
    return any((folder / name).is_file() for name in (FOR_WENET[0], FOR_STREAMS[0], *FOR_SHERPA))


def folders_above(export: Path) -> tuple[Path, ...]:
    """Return the folders above an export in which its run is looked for, nearest first."""
    # The cache of a hub has links to files in another folder, and a user may link an export.
    above = export.absolute().parents[:LEVELS_ABOVE]
    return (*above, *export.resolve().parents[:LEVELS_ABOVE])


class Exported(ABC):
    """An exported model. What its files lack comes from an untrained model of the same config."""

    takes_streams = False
    """Whether `encoder` encodes chunks of streams with the weights of the export."""
    leading_frames = 0
    masks_padding = False  # an exported model knows no lengths
    device = torch.device("cpu")

    def __init__(self, model: ASRModel) -> None:
        """Take the frame rate, the family and the weights of the losses of `model`."""
        self.encoder = model.encoder
        self.ctc_weight, self.attention_weight = model.ctc_weight, model.attention_weight
        self.family = model.family
        self.vocab_size, self.blank = model.vocab_size, model.blank
        self.sos, self.eos, self.reverse_weight = model.sos, model.eos, model.reverse_weight
        self.prompt_languages, self.prompt_tasks = model.prompt_languages, model.prompt_tasks

    @abstractmethod
    def encode(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        decoding_chunk_size: int = -1,
        num_decoding_left_chunks: int = -1,
        simulate_streaming: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Encode one utterance (1, T, F) -> what `ctc_log_probs` takes (1, T', D), lengths (1,).

        Features that are shorter than the window of the input layer have length 0.
        """

    @abstractmethod
    def ctc_log_probs(self, encoder_out: torch.Tensor, blank_penalty: float = 0.0) -> torch.Tensor:
        """Compute CTC log-probabilities (1, T', V) of the output of `encode`."""

    def to(self, device: torch.device | str) -> Self:
        """Stay on the CPU.

        Raises:
            ValueError: another device.
        """
        if torch.device(device).type != "cpu":
            raise ValueError(
                f"device {device}: exported models run on the CPU; load the checkpoint instead"
            )
        return self

    def eval(self) -> Self:
        """Do nothing: exported models are always in evaluation mode."""
        return self


class ExportedModel(Exported):
    """An export with the methods of WeNet's C++ runtime, such as `final.zip`."""

    def __init__(self, runtime: Any, model: ASRModel, fixed_chunk_size: int = -1) -> None:
        """`runtime` has the methods of RuntimeModel, and `model` what it lacks.

        Args:
            fixed_chunk_size: encoder frames of a chunk that the export fixes; below 0: any size.
        """
        super().__init__(model)
        self.runtime = runtime
        self.decoder = ExportedDecoder(runtime)
        self.sos, self.eos = runtime.sos_symbol(), runtime.eos_symbol()
        self.fixed_chunk_size = fixed_chunk_size

    def encode(
        self,
        feats: torch.Tensor,
        feats_lengths: torch.Tensor,
        decoding_chunk_size: int = -1,
        num_decoding_left_chunks: int = -1,
        simulate_streaming: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Encode one utterance (1, T, F) -> encoder frames (1, T', D), lengths (1,).

        `fixed_chunk_size` replaces the size of a chunk.

        Raises:
            ValueError: the checkpoint was trained with full context only, or the size is 0.
        """
        check_decoding_chunk(self.encoder.traits, decoding_chunk_size)
        runtime, embed = self.runtime, self.encoder.embed
        chunk_size = self.fixed_chunk_size if self.fixed_chunk_size > 0 else decoding_chunk_size
        att_cache = cnn_cache = _NOTHING
        outputs: list[torch.Tensor] = []
        offset = 0
        keep = chunk_size * num_decoding_left_chunks if chunk_size > 0 else -1

        rate, right_context = runtime.subsampling_rate(), runtime.right_context()
        for window in cut_windows(fill_to_window(feats, embed), chunk_size, rate, right_context):
            output, att_cache, cnn_cache = runtime.forward_encoder_chunk(
                window, offset, keep, att_cache, cnn_cache
            )
            outputs.append(output)
            offset += output.size(1)

        return torch.cat(outputs, dim=1), frame_count(offset, feats, embed)

    def ctc_log_probs(self, encoder_out: torch.Tensor, blank_penalty: float = 0.0) -> torch.Tensor:
        """Compute CTC log-probabilities (1, T', V) of encoder frames (1, T', D)."""
        return apply_blank_penalty(
            self.runtime.ctc_activation(encoder_out), self.blank, blank_penalty
        )

    def decoder_frames(
        self, encoder_out: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return all frames, as in the runtimes; see ASRModel.decoder_frames."""
        return encoder_out, lengths


class ExportedDecoder:
    """Calls the runtime's `forward_attention_decoder` with the signature of a model's decoder."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self.bidirectional = runtime.is_bidirectional_decoder()

    def __call__(
        self,
        memory: torch.Tensor,
        memory_mask: torch.Tensor,
        ys_in_pad: torch.Tensor,
        ys_in_lens: torch.Tensor,
        r_ys_in_pad: torch.Tensor,
        reverse_weight: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Score the next token after each given token (B, U) -> log-probabilities (B, U, V), twice.

        The runtime computes mask and reversed tokens itself.
        """
        return self.runtime.forward_attention_decoder(
            ys_in_pad, ys_in_lens, memory[:1], reverse_weight
        )


def cut_windows(
    feats: torch.Tensor, chunk_size: int, rate: int, right_context: int
) -> Iterator[torch.Tensor]:
    """Cut features (1, T, F) as runtimes do: each window gives `chunk_size` encoder frames, the
    last window fewer.

    Args:
        chunk_size: 0 or less: one window with all frames.
        rate: feature frames from one encoder frame to the next.
        right_context: feature frames that an encoder frame needs after its first one.
    """
    if chunk_size <= 0:
        yield feats
        return

    window = (chunk_size - 1) * rate + 1 + right_context
    for start in range(0, max(1, feats.size(1) - right_context), rate * chunk_size):
        yield feats[:, start : start + window]


def is_too_short(feats: torch.Tensor, embed: Subsampling) -> bool:
    """Tell whether features (1, T, F) have no encoder frame: the window of the input layer is
    longer.
    """
    length = torch.tensor([feats.size(1)])
    return int(embed.output_lengths(length, feats.size(1), feats.size(1))) == 0


def fill_to_window(feats: torch.Tensor, embed: Subsampling) -> torch.Tensor:
    """Return features (1, T, F) that the input layer can take: too short ones get zeros behind."""
    if not is_too_short(feats, embed):
        return feats
    return pad(feats, (0, 0, 0, embed.right_context + 1 - feats.size(1)))


def frame_count(count: int, feats: torch.Tensor, embed: Subsampling) -> torch.Tensor:
    """Return the number (1,) of encoder frames of features (1, T, F): `count`, or 0."""
    return torch.tensor([0 if is_too_short(feats, embed) else count])
