"""Reading state dicts and copying them into models."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from wenet_uio.models.weights import (
    fill_weights,
    first_sentence,
    load_checked,
    load_parts,
    load_weights,
    read_weights,
)


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def saved(weights: object, path: Path) -> Path:
    torch.save(weights, path)
    return path


def test_all_weights_are_copied(tmp_path: Path) -> None:
    source, target = model(), model()
    load_weights(target, saved(source.state_dict(), tmp_path / "weights.pt"))
    assert all(
        torch.equal(weight, target.state_dict()[name])
        for name, weight in source.state_dict().items()
    )


def test_weights_of_another_model_are_refused_by_name_and_shape(tmp_path: Path) -> None:
    weights = model().state_dict()
    weights["0.weight"] = weights["0.weight"][:, :2]
    weights["extra"] = weights.pop("1.bias")
    path = saved(weights, tmp_path / "weights.pt")
    with pytest.raises(
        ValueError,
        match=r"weights.pt: not the weights of this model: 1.bias is missing; extra is not in the "
        r"model; "
        r"0.weight is \(4, 2\), the model has \(4, 3\)$",
    ):
        load_weights(model(), path)


def test_refused_weights_leave_the_model_unchanged() -> None:
    target = model()
    before = {name: weight.clone() for name, weight in target.state_dict().items()}
    with pytest.raises(ValueError, match="1.bias is missing"):
        fill_weights(target, {"0.weight": torch.zeros(4, 3)}, "test")
    assert all(torch.equal(weight, before[name]) for name, weight in target.state_dict().items())


def test_more_than_three_differences_are_counted() -> None:
    with pytest.raises(
        ValueError, match="^test: .*0.weight is missing; .*; 1.weight is missing and 1 more$"
    ):
        fill_weights(model(), {}, "test")


def test_files_that_are_not_a_state_dict_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.pt").write_text("text")
    with pytest.raises(ValueError, match="text.pt: not the weights of a model"):
        read_weights(tmp_path / "text.pt")
    with pytest.raises(ValueError, match="list.pt: expected a plain state dict, found list"):
        read_weights(saved([1, 2], tmp_path / "list.pt"))
    with pytest.raises(ValueError, match="nested.pt: expected a plain state dict, found dict"):
        read_weights(saved({"model": {}}, tmp_path / "nested.pt"))
    with pytest.raises(FileNotFoundError):
        read_weights(tmp_path / "absent.pt")


def test_a_flipped_bit_anywhere_is_refused_or_changes_no_weight(tmp_path: Path) -> None:
    weights = model().state_dict()
    whole = saved(weights, tmp_path / "whole.pt").read_bytes()
    path, refused = tmp_path / "weights.pt", 0
    for place in range(0, len(whole), 7):
        path.write_bytes(
            whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
        )
        try:
            found = read_weights(path)
        except ValueError as error:
            refused += 1
            assert str(error).startswith(f"{path}: ")
        else:
            assert all(torch.equal(found[name], weight) for name, weight in weights.items())
    assert refused > len(whole) / 7 / 5  # the rest are padding and dates


def test_a_damaged_weight_is_named_as_such(tmp_path: Path) -> None:
    path = saved({"weight": torch.arange(1000)}, tmp_path / "avg.pt")
    whole = bytearray(path.read_bytes())
    whole[whole.index(torch.arange(1000).numpy().tobytes()) + 4000] ^= 1
    path.write_bytes(whole)
    assert torch.load(path)["weight"].tolist() != list(range(1000))  # torch does not notice
    with pytest.raises(
        ValueError,
        match=r"avg.pt: damaged: the checksum of its part .*data/0 does not match; restore",
    ):
        read_weights(path)


def test_files_without_checksums_are_read(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(3)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert read_weights(tmp_path / "old.pt")["weight"].tolist() == [1, 1, 1]


def test_only_the_weights_of_the_given_modules_are_copied(tmp_path: Path) -> None:
    source, target = model(), model()
    old = target[0].weight.clone()
    path = saved(source.state_dict(), tmp_path / "weights.pt")
    assert load_parts(target, path, ["1"]) == 2
    assert torch.equal(target[1].weight, source[1].weight)
    assert torch.equal(target[0].weight, old)


def test_modules_that_the_file_does_not_have_are_refused(tmp_path: Path) -> None:
    path = saved(model().state_dict(), tmp_path / "weights.pt")
    with pytest.raises(ValueError, match="weights.pt: no weights of 'encoder'; the file has 0, 1"):
        load_parts(model(), path, ["encoder"])


def test_the_first_sentence_of_a_long_message_is_kept() -> None:
    assert (
        first_sentence(RuntimeError("File is damaged. Load it again.\nMore advice."))
        == "File is damaged"
    )
    assert first_sentence(EOFError()) == "EOFError"


def test_a_checkpoint_may_lack_the_tables_of_positions(make_model, tmp_path):
    model = make_model("conformer", "transformer", model_conf={"reverse_weight": 0.0})
    state = model.state_dict()
    tables = [name for name in state if name.endswith(".pe")]
    assert len(tables) == 2
    torch.save(
        {name: value for name, value in state.items() if name not in tables}, tmp_path / "old.pt"
    )
    other = make_model("conformer", "transformer", model_conf={"reverse_weight": 0.0})
    torch.nn.init.zeros_(other.ctc.ctc_lo.weight)
    load_weights(other, tmp_path / "old.pt")
    assert all(torch.equal(value, state[name]) for name, value in other.state_dict().items())


def test_weights_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    weights = {"a": torch.ones(3), "b": torch.tensor([1.0, math.nan]), "steps": torch.tensor(4)}
    torch.save(weights, tmp_path / "epoch_1.pt")
    with pytest.raises(ValueError, match=r"epoch_1\.pt: values of b are no numbers \(NaN\)"):
        read_weights(tmp_path / "epoch_1.pt")


@pytest.mark.parametrize("read", [read_weights, load_checked])
def test_weights_that_the_disk_does_not_give_are_not_told_to_be_damaged(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    path = tmp_path / "epoch_3.pt"
    # The first page of a process cannot be read, as a block of a disk that fails.
    path.symlink_to("/proc/self/mem")
    with pytest.raises(OSError, match="Input/output error") as raised:
        read(path)
    assert raised.value.filename == str(path)
