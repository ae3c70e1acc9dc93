"""Stored frames of a frozen encoder: losses and gradients stay, and the encoder runs once."""

from __future__ import annotations

import json
import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.support import preloaded
from tests.support.train.tiny import CPU, small_config
from tests.support.train.training_corpus import CONFIG, write_corpus
from tests.train.test_objective import is_close, random_batch, without_draws
from tests.train.test_start import all_configs
from wenet_uio.config import Config
from wenet_uio.dataset.types import Batch
from wenet_uio.models.build import build_trainable
from wenet_uio.models.trainable_model import TrainableModel
from wenet_uio.train.engines import build_engine
from wenet_uio.train.objective import Objective
from wenet_uio.train.stored_frames import FrameStore, StoredFrames

WIDTH = 3
LENGTHS = {"a": 4, "b": 0, "c": 1}


def store_of(folder: Path, rank: int, epoch: int, dtype: torch.dtype = torch.float32) -> FrameStore:
    store = FrameStore(folder, rank, WIDTH, dtype)
    store.begin_epoch(epoch)
    return store


def frames(value: float) -> dict[str, torch.Tensor]:
    return {digest: torch.full((length, WIDTH), value) for digest, length in LENGTHS.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_frames_are_found_as_they_were_stored_by_this_process_and_a_later_one(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    first = store_of(tmp_path, 0, 0, dtype)
    first.add({"x": torch.rand(5, WIDTH)})
    stored = {digest: value.to(dtype) for digest, value in frames(0.3).items()}
    first.add(stored)
    for store in (first, store_of(tmp_path, 0, 0, dtype), store_of(tmp_path, 1, 7, dtype)):
        for digest, expected in stored.items():
            found = store.find(digest)
            assert found is not None
            assert found.dtype == dtype
            assert torch.equal(found, expected), digest
        assert store.find("y") is None


def test_a_rank_finds_its_own_frames_at_once_and_those_of_others_from_the_next_epoch_on(
    tmp_path: Path,
) -> None:
    ranks = [store_of(tmp_path, rank, 2) for rank in range(3)]
    ranks[1].add(frames(1.0))
    assert ranks[1].find("a") is not None
    for rank in (0, 2):
        assert ranks[rank].find("a") is None
        assert store_of(tmp_path, rank, 2).find("a") is None, "started again within the epoch"
        ranks[rank].begin_epoch(3)
        assert ranks[rank].find("a") is not None


def test_of_frames_that_several_ranks_stored_all_take_those_of_the_lowest(tmp_path: Path) -> None:
    for rank in (2, 1):
        store_of(tmp_path, rank, 0).add(frames(float(rank)))
    for rank in range(12):
        found = store_of(tmp_path, rank, 1).find("a")
        assert found is not None
        assert found.eq(1.0).all()


def test_an_unfinished_write_is_written_again(tmp_path: Path) -> None:
    store_of(tmp_path, 0, 0).add(frames(1.0))
    data, index = tmp_path / "rank_0.bin", tmp_path / "rank_0.jsonl"
    with open(data, "ab") as file:
        file.write(b"\1" * 7)  # killed between the frames and their line
    with open(index, "ab") as file:
        file.write(b'{"epoch": 0, "off')  # or within the line
    store = store_of(tmp_path, 0, 0)
    store.add({"d": torch.full((2, WIDTH), 4.0)})
    for again in (store, store_of(tmp_path, 0, 0)):
        for digest, expected in {"d": torch.full((2, WIDTH), 4.0), **frames(1.0)}.items():
            found = again.find(digest)
            assert found is not None
            assert torch.equal(found, expected)


@pytest.mark.parametrize("damage", ["other bytes", "cut"])
def test_damaged_frames_are_one_line_with_their_file(tmp_path: Path, damage: str) -> None:
    store_of(tmp_path, 0, 0).add(frames(1.0))
    data = tmp_path / "rank_0.bin"
    content = data.read_bytes()
    data.write_bytes(content[:5] if damage == "cut" else b"\0" * len(content))
    with pytest.raises(ValueError, match=r"rank_0\.bin: damaged at byte 0; remove the folder"):
        store_of(tmp_path, 1, 1).find("a")


def test_a_full_disk_is_an_error_with_the_name_of_the_file(tmp_path: Path) -> None:
    class Full(FrameStore):
        def _data_path(self, rank: int) -> Path:
            return Path("/dev/full")

    store = Full(tmp_path, 0, WIDTH, torch.float32)
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        store.add(frames(1.0))


ROOT = Path(__file__).parents[2]
PLAIN = {"spec_aug": False}
FROZEN: dict[str, Any] = {
    "store_frames": True,
    "freeze_modules": ["encoder"],
    "dataset_conf": PLAIN,
}


def frozen_model(config: Config) -> TrainableModel:
    """Return a model in training mode without dropout, with a frozen encoder."""
    torch.manual_seed(0)
    model = without_draws(build_trainable(config)).train()
    model.encoder.requires_grad_(False)
    if hasattr(model, "embed"):  # queries of SenseVoice
        model.embed.requires_grad_(False)
    return model


def without_randomness(config: Config) -> Config:
    encoder = config.encoder_conf
    if getattr(encoder, "use_dynamic_chunk", False):
        encoder = encoder.model_copy(update={"use_dynamic_chunk": False})
    dataset = config.dataset_conf.model_copy(update={"spec_aug": False})
    return config.model_copy(
        update={
            "encoder_conf": encoder,
            "dataset_conf": dataset,
            "interctc_layer_idx": None,
            "interctc_conditioning": False,
            "cr_loss_scale": 0.0,
        }
    )


def results(
    model: TrainableModel, batch: Batch, dtype: str = "fp32"
) -> tuple[dict[str, torch.Tensor], ...]:
    """Return losses and gradients of a pass in training."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(1)
    losses = Objective(model, CPU.device, dtype)(batch)
    losses["loss"].backward()
    gradients = {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }
    return {name: loss.detach() for name, loss in losses.items() if loss is not None}, gradients


def test_losses_and_gradients_of_every_family_stay_and_the_encoder_runs_once(
    tmp_path: Path,
) -> None:
    """With and without the store, in the first pass and later ones, also those of other batches."""
    for name, untouched in all_configs(tmp_path).items():
        config = without_randomness(untouched)
        model = frozen_model(config)
        batch = random_batch(config, model)
        plain = deepcopy(model)
        plain.encoder.eval()
        expected = results(plain, batch)

        stored = StoredFrames(model, config)
        stored.open(tmp_path / "frames" / name, 0, 0)
        model.training_encoder = stored
        first, second = results(model, batch), results(model, batch)
        assert (stored.num_computed, stored.num_found) == (len(batch), len(batch)), name
        for with_store in (first, second):
            for known, found in zip(expected, with_store, strict=True):
                unlike = [key for key, value in known.items() if not is_close(found[key], value)]
                assert not unlike, (name, unlike)
        for one, other in zip(first, second, strict=True):
            assert all(torch.equal(one[key], other[key]) for key in one), name


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_pass_with_stored_frames_has_the_bits_of_the_pass_that_computed_them(
    tmp_path: Path, dtype: str
) -> None:
    config = small_config(**FROZEN, dtype=dtype)
    model = frozen_model(config)
    batch = random_batch(config, model)
    stored = StoredFrames(model, config)
    stored.open(tmp_path, 0, 0)
    model.training_encoder = stored
    passes = [results(model, batch, dtype) for _ in range(3)]
    for again in passes[1:]:
        for first, later in zip(passes[0], again, strict=True):
            assert all(torch.equal(first[name], later[name]) for name in first)
    (data,) = tmp_path.rglob("*.bin")
    values = sum(stored(batch.feats, batch.feats_lengths)[1].tolist()) * 16
    assert data.stat().st_size == values * (2 if dtype == "bf16" else 4)


def test_frames_of_an_utterance_have_the_same_bits_in_every_batch(tmp_path: Path) -> None:
    config = small_config(**FROZEN)
    stored = StoredFrames(frozen_model(config), config)
    stored.open(tmp_path, 0, 0)
    torch.manual_seed(2)
    feats, lengths = torch.randn(4, 90, 8), torch.tensor([90, 71, 40, 8])
    together, together_lengths = stored(feats, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone, (alone_length,) = stored(feats[row : row + 1, :length], lengths[row : row + 1])
        assert alone_length == together_lengths[row]
        assert torch.equal(alone[0, :alone_length], together[row, :alone_length])
        assert together[row, alone_length:].eq(0).all()
    twice, _ = stored(feats[[1, 1, 0]], lengths[[1, 1, 0]])
    assert torch.equal(twice[0], twice[1])
    assert (stored.num_computed, stored.num_found) == (4, 4 + 3)


def test_other_audio_and_another_encoder_have_other_frames(tmp_path: Path) -> None:
    config = small_config(**FROZEN)
    model = frozen_model(config)
    feats, lengths = torch.randn(1, 90, 8), torch.tensor([90])
    stored = StoredFrames(model, config)
    stored.open(tmp_path, 0, 0)
    stored(feats, lengths)
    feats[0, 89, 7] += 1e-6
    stored(feats, lengths)
    stored(feats[:, :89], torch.tensor([89]))
    assert stored.num_computed == 3

    next(iter(model.encoder.parameters())).data.add_(1e-3)
    again = StoredFrames(model, config)
    again.open(tmp_path, 0, 1)
    again(feats, lengths)
    assert again.num_computed == 1

    for keys in ({"dtype": "bf16"}, {"encoder_conf": {**conf(config), "attention_heads": 1}}):
        other = small_config(**{**FROZEN, **keys})
        again = StoredFrames(model, other)
        again.open(tmp_path, 0, 1)
        again(feats, lengths)
        assert again.num_computed == 1
    assert len(list(tmp_path.iterdir())) == 4


def test_frames_are_those_of_evaluation_and_the_mode_of_the_model_does_not_matter(
    tmp_path: Path,
) -> None:
    config = small_config(**FROZEN)
    torch.manual_seed(0)
    model = build_trainable(config)
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.5
    model.encoder.requires_grad_(False)
    feats, lengths = torch.randn(2, 90, 8), torch.tensor([90, 60])
    stored = StoredFrames(model, config)
    in_training, _ = stored(feats, lengths)
    frames, _ = model.eval().encode(feats, lengths)
    assert torch.equal(in_training[:, : frames.size(1)], frames)


AUGMENTED = {"speed_perturb": True, "noise_conf": {"made": ["pink"]}, "fbank_conf": {"dither": 1.0}}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"freeze_modules": []}, "the encoder is trained: set freeze_modules: [encoder]"),
        ({"freeze_modules": ["encoder.embed"]}, "the encoder is trained"),
        (
            {"use_lora": True, "freeze_modules": ["decoder"], "only_optimize_lora": True},
            "is trained",
        ),
        ({"dataset_conf": {}}, "set dataset_conf.spec_aug=false"),
        (
            {"dataset_conf": {**PLAIN, **AUGMENTED}},
            "set dataset_conf.speed_perturb=false dataset_conf.noise_conf=null "
            "dataset_conf.fbank_conf.dither=0",
        ),
        ({"interctc_layer_idx": [1]}, "set interctc_layer_idx=null"),
        ({"mask_padding": False}, "set mask_padding=true"),
        ({"train_engine": "torch_fsdp"}, "set train_engine=torch_ddp"),
    ],
)
def test_frames_that_change_are_refused_in_one_line_that_says_how_to_mend(
    keys: dict[str, Any], message: str
) -> None:
    config = small_config(**{**FROZEN, **keys})
    with pytest.raises(ValueError, match="store_frames: ") as error:
        build_engine(build_trainable(config), config, CPU, 0)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def conf(config: Config) -> dict[str, Any]:
    """Keys of the encoder."""
    return config.encoder_conf.model_dump()


def test_drawn_chunks_are_refused() -> None:
    config = small_config(**FROZEN)
    encoder = {**conf(config), "use_dynamic_chunk": True}
    config = small_config(**FROZEN, encoder_conf=encoder)
    with pytest.raises(ValueError, match="set encoder_conf.use_dynamic_chunk=false"):
        build_engine(build_trainable(config), config, CPU, 0)


def test_a_trained_module_before_the_encoder_is_refused(tmp_path: Path) -> None:
    config = small_config(**FROZEN)
    stored = StoredFrames(frozen_model(config), config)
    with pytest.raises(ValueError, match="a module before the encoder is trained"):
        stored(torch.zeros(1, 90, 8, requires_grad=True), torch.tensor([90]))


def trained(folder: Path, kills: list[list[object]]) -> dict[str, torch.Tensor]:
    """Weights of a run of two ranks whose encoder is frozen and stored, after kills."""
    folder.mkdir()
    dataset = {**CONFIG["dataset_conf"], **PLAIN}
    write_corpus(folder, **{**FROZEN, "dataset_conf": dataset}, max_epoch=3, save_interval=1)
    (folder / "kills.json").write_text(json.dumps(kills))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = ["-m", "tests.support.train.killed_run", "kills.json"]
    done = preloaded.run(command, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    (folder / "said").write_text(done.stderr)
    return torch.load(folder / "exp/final.pt", weights_only=True)


KILLS = [
    [1, "forward", 2],
    [0, "backward", 2],
    [1, "validation", 1],
    [0, "write", 3],
    [0, "forward", 4],
]


@pytest.mark.all
def test_kills_do_not_change_the_weights_and_later_epochs_compute_nothing(tmp_path: Path) -> None:
    """Training and validation have utterances in common, and the ranks exchange theirs each epoch."""
    undisturbed = trained(tmp_path / "undisturbed", [])
    killed = trained(tmp_path / "killed", KILLS)
    assert all(torch.equal(undisturbed[name], killed[name]) for name in undisturbed)
    said = (tmp_path / "undisturbed/said").read_text()
    shares = [
        line.partition("frames of ")[2].split()[:3:2]
        for line in said.splitlines()
        if "store_frames: " in line
    ]
    assert len(shares) == 2, said
    assert int(shares[0][0]) < int(shares[0][1])
    assert shares[1][0] == shares[1][1]
    first, last = (
        torch.load(tmp_path / f"undisturbed/exp/{name}.pt", weights_only=True)
        for name in ("init", "final")
    )
    assert all(torch.equal(first[name], last[name]) for name in first if "encoder." in name)
    record = yaml.safe_load((tmp_path / "undisturbed/exp/epoch_2.yaml").read_text())
    assert record["samples"]["read"] == 22
