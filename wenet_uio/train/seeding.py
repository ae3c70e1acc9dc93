"""Seeds of the random numbers of a step."""

from __future__ import annotations

import hashlib
import random

import torch


def seed_everything(seed: int, step: int, rank: int) -> None:
    """Seed the generators from seed, step and rank.

    So dropout and chunk sizes of a step do not depend on the steps before, and states need no
    generator state.
    """
    digest = hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=8).digest()
    step_seed = int.from_bytes(digest, "little")
    random.seed(step_seed)
    torch.manual_seed(step_seed)
