"""The loader in loops that are not those of this package."""

import re
import shutil
import warnings
from collections import Counter
from pathlib import Path

import pytest
import torch

import wenet_uio.dataset
from wenet_uio.config import parse_config
from wenet_uio.dataset import Batch, LoaderOptions, build_loader

README = Path(wenet_uio.dataset.__file__).with_name("README.md")
LIGHTNING = Path(__file__).parents[2] / "docs/how-to/lightning.md"
BATCHES = {
    "batch_conf": {"batch_type": "static", "batch_size": 4},
    "fbank_conf": {"num_mel_bins": 10},
}
CONFIG = parse_config({"dataset_conf": BATCHES}, "test")


@pytest.fixture
def data(make_lists, tmp_path, monkeypatch):
    """train.list and dev.list with 14 utterances each."""
    monkeypatch.chdir(tmp_path)
    path = make_lists(14)["raw"]
    for name in ("train.list", "dev.list"):
        shutil.copy(path, name)
    return "train.list"


def collated(examples):
    return [(example.key, len(example.feats), example.labels) for example in examples]


def examples_of(page):
    return re.findall(
        r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


def test_the_example_of_the_readme_runs(data):
    (example,) = examples_of(README)
    assert len([line for line in example.splitlines() if line]) <= 15
    names = {}
    exec(compile(example, str(README), "exec"), names)
    assert names["train"].epoch == 3


@pytest.mark.parametrize("by_len", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_every_utterance_is_read_in_each_of_three_epochs(data, training, by_len):
    loader = build_loader(data, "raw", CONFIG, None, training=training)
    for epoch in range(3):
        keys = Counter()
        if by_len:
            batches = iter(loader)
            for _ in range(len(loader)):
                keys.update(next(batches).keys)
        else:
            for batch in loader:
                keys.update(batch.keys)
        assert (len(keys), set(keys.values())) == (14, {1})
        assert loader.epoch == epoch + 1


def test_lightning_reads_every_utterance_in_each_of_three_epochs(data):
    pytest.importorskip("pytorch_lightning")
    start, *_, plain = examples_of(LIGHTNING)
    model, loop = re.split(r"^(?=trainer = )", plain, flags=re.MULTILINE)
    model = start.partition("batches = ")[0] + "import torch\n" + model
    model = re.sub(r"^(train|validation) = .*\n", "", model, flags=re.MULTILINE)
    batches = {"batch_type": "dynamic", "max_frames_in_batch": 200}  # 7, 8 and 7 steps
    config = parse_config({"dataset_conf": {"batch_conf": batches, "speed_perturb": True}}, "test")
    train, validation = (
        build_loader(data, "raw", config, None, training=training) for training in (True, False)
    )
    lengths = [len(train)]
    names = {"train": train, "validation": validation, "config": config}
    exec(compile(model, str(LIGHTNING), "exec"), names)
    found = [Counter() for _ in range(3)]
    validated = Counter()

    class Counting(names["Plain"]):
        def training_step(self, batch, number):
            if self.trainer.training:  # the example calls it in validation too
                found[self.current_epoch].update(batch.keys)
            return super().training_step(batch, number)

        def validation_step(self, batch, number):
            if not self.trainer.sanity_checking:
                validated.update(batch.keys)
            super().validation_step(batch, number)

        def on_train_epoch_end(self):
            lengths.append(len(train))

    names["Plain"] = Counting
    exec(compile(loop, str(LIGHTNING), "exec"), names)
    assert len(set(lengths[:3])) > 1
    assert [(len(keys), set(keys.values())) for keys in found] == [(14, {1})] * 3
    assert (len(validated), set(validated.values())) == (14, {3})
    assert train.epoch == 3


def test_lightning_resumes_after_any_step_of_epochs_of_different_lengths(data):
    pytest.importorskip("pytorch_lightning")
    blocks = examples_of(LIGHTNING)
    # 7, 8 and 7 steps: a longer and a shorter epoch
    batches = {
        "batch_type": "dynamic",
        "max_frames_in_batch": 200,
    }
    names = {}
    exec(compile(blocks[0] + blocks[1].partition("first = ")[0], str(LIGHTNING), "exec"), names)
    names["config"] = parse_config(
        {"dataset_conf": {"batch_conf": batches, "speed_perturb": True}}, "test"
    )

    class Listing(names["Model"]):
        def training_step(self, batch, number):
            self.steps = [*getattr(self, "steps", ()), (self.current_epoch, number, batch.keys)]
            return super().training_step(batch, number)

    undisturbed = Listing()
    names["fit"](3, undisturbed)
    steps = Counter(epoch for epoch, *_ in undisturbed.steps)
    assert len(set(steps.values())) > 1
    for step in (3, steps[0], steps[0] + steps[1] - 1, steps[0] + steps[1]):
        resumed = Listing()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            names["fit"](3, resumed, f"exp/lightning/step={step}.ckpt")
        assert not [each for each in warned if "not resumable" in str(each.message)]
        assert resumed.steps == undisturbed.steps[step:]


def test_features_alone_need_neither_units_nor_texts(data):
    text = Path(data).read_text()
    Path(data).write_text(re.sub(r'"txt": "[^"]*"', '"txt": ""', text))
    batches = list(build_loader(data, "raw", CONFIG, None, training=True))
    assert sum(map(len, batches)) == 14
    assert all(batch.feats.shape[2] == 10 and not batch.target.numel() for batch in batches)


def test_any_function_is_a_tokenizer(data):
    def letters(text):
        return (ord(letter) for letter in text)

    batches = list(build_loader(data, "raw", CONFIG, letters, training=True))
    assert sum(map(len, batches)) == 14
    for batch in batches:
        for text, labels, length in zip(
            batch.texts, batch.target, batch.target_lengths, strict=True
        ):
            assert labels[:length].tolist() == [ord(letter) for letter in text]
    counting = parse_config({"dataset_conf": BATCHES | {"filter_conf": {"max_tps": 100}}}, "test")
    with pytest.raises(ValueError, match="counts tokens before planning .* needs a Tokenizer"):
        build_loader(data, "raw", counting, letters, training=True)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_collate_function_makes_what_the_loader_yields(data, workers):
    plain = list(build_loader(data, "raw", CONFIG, None, training=False))
    options = LoaderOptions(collate=collated, num_workers=workers)
    loader = build_loader(data, "raw", CONFIG, None, training=False, options=options)
    found = list(loader)
    assert sum(map(len, found)) == 14
    assert len(found) == 4
    assert all(frames > 0 and labels == () for batch in found for _, frames, labels in batch)
    assert all(type(batch) is Batch for batch in plain)
    with pytest.raises(ValueError, match="collate needs features that the data workers compute"):
        LoaderOptions(collate=collated, defer_features=True)


def test_a_break_in_validation_begins_again_and_in_training_continues(data):
    for training in (False, True):
        loader = build_loader(data, "raw", CONFIG, None, training=training)
        first = next(iter(loader)).keys
        batches = list(loader)
        assert (batches[0].keys == first) is not training
        assert len(batches) == 3 + (not training)
        assert loader.epoch == 1
        assert torch.is_tensor(next(iter(loader)).feats)


def test_the_length_of_a_loader_is_the_number_of_steps_of_the_next_loop(data):
    for training in (False, True):
        loader = build_loader(data, "raw", CONFIG, None, training=training)
        assert len(loader) == 4
        next(iter(loader))
        assert len(loader) == (3 if training else 4)
        assert len(list(zip(range(len(loader)), loader, strict=False))) == (3 if training else 4)
        assert len(loader) == 4


def test_validation_continues_from_a_loaded_state(data):
    loader = build_loader(data, "raw", CONFIG, None, training=False)
    next(iter(loader))
    state = loader.state_dict()
    other = build_loader(data, "raw", CONFIG, None, training=False)
    other.load_state_dict(state)
    assert len(other) == 3
    assert len(list(other)) == 3
    assert len(other) == 4


class Wrapped(torch.utils.data.IterableDataset):
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        yield from self.loader


def test_a_loader_in_the_workers_of_another_loader_is_refused(data):
    loader = build_loader(data, "raw", CONFIG, None, training=True)
    outer = torch.utils.data.DataLoader(Wrapped(loader), batch_size=None, num_workers=2)
    with pytest.raises(
        RuntimeError, match=r"each of the 2 workers .* LoaderOptions\(num_workers=2"
    ):
        list(outer)
    itself = torch.utils.data.DataLoader(Wrapped(loader), batch_size=None)
    assert sum(map(len, itself)) == 14


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ("tokenizer", "units.txt", "build_tokenizer"),
        ("tokenizer", ["a", "b"], "build_tokenizer"),
        ("config", {"dataset_conf": {}}, "parse_config"),
        ("config", "train.yaml", "load_config"),
        ("data_list", ["a.wav"], "the path of a data list"),
        ("options", {"rank": 0}, "LoaderOptions"),
        ("data_type", "tar", "expected raw or shard"),
    ],
)
def test_arguments_of_other_types_are_refused_in_one_line(data, argument, value, expected):
    arguments = {"data_list": data, "data_type": "raw", "config": CONFIG, "tokenizer": None}
    with pytest.raises(ValueError, match=f"{argument}.*{expected}") as refusal:
        build_loader(**arguments | {argument: value}, training=True)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("labels", ["abc", [0.5], None, {"input_ids": [1]}])
def test_a_tokenizer_function_returns_whole_numbers(data, labels):
    loader = build_loader(data, "raw", CONFIG, lambda text: labels, training=True)
    with pytest.raises(ValueError, match="expected label ids"):
        list(loader)


def test_a_path_object_names_a_list(data):
    assert len(build_loader(Path(data), "raw", CONFIG, None, training=True)) == 4
