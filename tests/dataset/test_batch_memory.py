import pickle

import torch

from wenet_uio.dataset.batch_memory import copied, empty_tensors, from_buffers, to_buffers

SHAPES = {
    "a": ((2, 3), torch.float32),
    "b": ((5,), torch.int16),
    "none": ((0, 4), torch.int64),
    "c": ((2,), torch.int64),
}


def filled():
    tensors = empty_tensors(SHAPES)
    for name in ("a", "b", "c"):
        tensors[name].copy_(torch.arange(tensors[name].numel()).view(tensors[name].shape))
    return tensors


def test_tensors_of_one_buffer_do_not_overlap():
    tensors = filled()
    assert {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()} == SHAPES
    assert tensors["a"].flatten().tolist() == list(range(6))
    assert tensors["b"].tolist() == list(range(5))
    assert tensors["c"].tolist() == [0, 1]
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors.values()}) == 1


def test_tensors_survive_pickling_and_a_shared_buffer_is_pickled_once():
    tensors = filled()
    strange = {"turned": tensors["a"].T, "part": tensors["b"][1:4], "apart": torch.ones(3)}
    buffers, places = pickle.loads(pickle.dumps(to_buffers({**tensors, **strange})))
    assert len(buffers) == 2
    found = from_buffers(buffers, places)
    assert found.keys() == {**tensors, **strange}.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in {**tensors, **strange}.items())


def test_a_batch_is_copied_at_once_and_a_few_of_its_rows_alone():
    tensors = filled()
    tensors |= {"turned": tensors["a"].T, "apart": torch.ones(3), "also none": torch.ones(0, 2)}
    sizes = []

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        sizes.append(tensor.nbytes)
        return tensor.clone()

    found = copied(tensors, copy)
    assert sizes[:2] == [3 * 64, 12]  # the buffer of `filled`, in cache lines, and `apart`
    assert sum(sizes[2:]) == 0
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor)
        assert found[name].dtype == tensor.dtype
    shared = {found[name].untyped_storage().data_ptr() for name in ("a", "b", "c", "turned")}
    assert len(shared) == 1
    assert shared.isdisjoint(tensor.untyped_storage().data_ptr() for tensor in tensors.values())

    large, sizes[:] = torch.arange(1000).view(10, 100), []
    few = copied({"row": large[3], "lengths": torch.ones(2)}, copy)
    assert sizes == [800, 8]
    assert torch.equal(few["row"], large[3])
