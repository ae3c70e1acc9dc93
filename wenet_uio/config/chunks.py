"""Keys of `encoder_conf` for streaming. Keys and defaults are WeNet's."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from wenet_uio.config.base import Section

NotNegative = Annotated[int, Field(ge=0)]


class ChunkConf(Section):
    """Keys of streaming: the sizes of the chunks that attention is limited to."""

    static_chunk_size: NotNegative = 0
    """Encoder frames of a chunk in training and decoding; 0: no fixed chunks."""
    use_dynamic_chunk: bool = False
    """Draw a chunk size for each training batch."""
    use_dynamic_left_chunk: bool = False
    """Draw the number of left chunks for each training batch."""

    @field_validator("static_chunk_size", mode="before")
    @classmethod
    def _none_if_negative(cls, size: Any) -> Any:
        return 0 if size == -1 else size  # some configs of WeNet say -1

    @model_validator(mode="after")
    def _chunks_agree(self) -> ChunkConf:
        if self.use_dynamic_chunk and self.static_chunk_size:
            raise ValueError("use_dynamic_chunk and static_chunk_size exclude each other")
        if self.use_dynamic_left_chunk and not self.use_dynamic_chunk:
            raise ValueError("use_dynamic_left_chunk needs use_dynamic_chunk")
        return self
