"""Files of other packages are read without running their code; damaged ones are one-line errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from tests.support.fuzz import damaged
from wenet_uio.models.converted import (
    DTYPES,
    read_checkpoint,
    read_folder_weights,
    read_json,
    read_safetensors,
)

TENSORS = {
    "empty": torch.zeros(0, 3),
    "number": torch.tensor(2.5),
    **{name: (torch.arange(6).view(2, 3) % 2).to(dtype) for name, dtype in DTYPES.items()},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_file(TENSORS, tmp_path / "model.safetensors", {"format": "pt"})
    return tmp_path / "model.safetensors"


def test_all_types_are_read_as_the_package_safetensors_writes_them(path: Path) -> None:
    found = read_safetensors(path)
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name


def test_a_file_that_ends_early_is_an_error_at_every_length(path: Path) -> None:
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(
            ValueError, match=rf"^{path}: (not a file of safetensors|damaged or incomplete)"
        ):
            read_safetensors(path)


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{{{",
        b'{"a": 3}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-8, -4]}}',
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F4", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}}',
    ],
)
def test_a_wrong_header_is_an_error_with_the_path(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(ValueError, match=rf"^{path}: damaged or incomplete"):
        read_safetensors(path)


def tensors_at(*places: tuple[int, int], size: int = 8) -> bytes:
    """A file of bytes with tensors at these places."""
    entries = {
        str(number): {"dtype": "U8", "shape": [last - first], "data_offsets": [first, last]}
        for number, (first, last) in enumerate(places)
    }
    header = json.dumps(entries).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


PLACES = [
    ((0, 8),),
    ((0, 4), (4, 8)),
    ((4, 8), (0, 4)),
    ((0, 0), (0, 8), (8, 8)),
    ((0, 4), (4, 4), (4, 8)),
    ((0, 4),),
    ((4, 8),),
    ((0, 3), (4, 8)),
    ((0, 5), (4, 8)),
    ((0, 8), (0, 8)),
    ((0, 8), (2, 4)),
    ((0, 4), (4, 12)),
    ((0, 8), (3, 3)),
    (),
]


@pytest.mark.parametrize("places", PLACES)
def test_overlaps_and_gaps_are_refused_as_safetensors_does(
    places: tuple[tuple[int, int], ...], tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(tensors_at(*places))
    try:
        expected = load_file(path)
    except SafetensorError:
        with pytest.raises(ValueError, match=rf"^{path}: damaged or incomplete"):
            read_safetensors(path)
    else:
        assert read_safetensors(path).keys() == expected.keys()


def check_damaged(path: Path, times: int) -> int:
    """Damage files of weights; returns how many are read nevertheless."""
    torch.save(TENSORS, path.parent / "model.bin")
    read = 0
    for file, load in ((path, read_safetensors), (path.parent / "model.bin", read_checkpoint)):
        for name, data in damaged({file.name: file.read_bytes()}, times):
            file.write_bytes(data)
            try:
                load(file)
                read += 1
            except ValueError as error:
                assert str(error).startswith(f"{file}: ")
                assert "\n" not in str(error)
            except Exception as error:
                raise AssertionError(f"{name}: {error!r}") from error
    return read


def test_damaged_files_of_weights_are_read_or_refused_by_name(path: Path) -> None:
    assert check_damaged(path, 200) < 200


@pytest.mark.all
def test_many_damaged_files_of_weights_are_read_or_refused_by_name(path: Path) -> None:
    assert check_damaged(path, 1000) < 1000


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple:
        return (Path.touch, (Path("ran"),))


def test_a_pickle_with_code_is_refused_and_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"dims": Evil()}, "evil.pt")
    with pytest.raises(ValueError, match=r"^evil.pt: no checkpoint that is safe to load") as caught:
        read_checkpoint(Path("evil.pt"))
    assert "\n" not in str(caught.value)
    assert not Path("ran").exists()


def write_index(folder: Path, parts: object) -> None:
    (folder / "pytorch_model.bin.index.json").write_text(
        json.dumps({"weight_map": parts}), encoding="utf-8"
    )


def test_an_index_names_parts_in_its_folder_that_have_all_weights(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "one.bin")
    torch.save({"b": torch.zeros(2)}, tmp_path / "two.bin")
    write_index(tmp_path, {"a": "one.bin", "b": "two.bin"})
    assert {name: value.tolist() for name, value in read_folder_weights(tmp_path).items()} == {
        "a": [1, 1],
        "b": [0, 0],
    }
    write_index(tmp_path, {"a": "one.bin", "c": "two.bin"})
    with pytest.raises(ValueError, match=r"its parts lack c; download the model again$"):
        read_folder_weights(tmp_path)
    write_index(tmp_path, {"a": "three.bin"})
    with pytest.raises(FileNotFoundError, match=r"three.bin"):
        read_folder_weights(tmp_path)
    for wrong in ({"a": "../one.bin"}, {"a": 3}, ["one.bin"]):
        write_index(tmp_path, wrong)
        with pytest.raises(
            ValueError, match=r"expected a weight_map with names of files in this folder$"
        ):
            read_folder_weights(tmp_path)


def test_a_folder_without_weights_names_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"expected model.safetensors or pytorch_model.bin, or an index"
    ):
        read_folder_weights(tmp_path)
    torch.save([1, 2], tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"expected a state dict, found list$"):
        read_folder_weights(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"), [("{", "no JSON"), ("[1]", "expected a JSON object, found list")]
)
def test_other_json_is_an_error(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_json(tmp_path / "config.json")
