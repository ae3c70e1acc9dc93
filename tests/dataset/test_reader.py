"""How the reader runs the samples of a batch through their chains."""

from dataclasses import dataclass, field, replace

import pytest

from wenet_uio.dataset.reader import Sample, run_chains
from wenet_uio.dataset.types import BatchOperator, Example, SkipSample


@dataclass(frozen=True)
class Shout(BatchOperator):
    """Changes texts to capitals and leaves out those with `bad`; keeps what it got."""

    calls: list = field(default_factory=list)

    def apply_to_all(self, examples):
        self.calls.append([example.key for example in examples])
        return [
            SkipSample("bad", example.key)
            if "bad" in example.text
            else replace(example, text=example.text.upper())
            for example in examples
        ]


def early(example):
    """Leave every sample out."""
    raise SkipSample("early", example.key)


def twice(example):
    return replace(example, text=2 * example.text)


def sample(key, text, *operators):
    return Sample(Example(key, text, None, 16000, 0), operators)


def texts(samples):
    return [
        result.reason if isinstance(result := sample.result, SkipSample) else result.text
        for sample in samples
    ]


def test_an_operator_gets_all_examples_that_come_to_it_at_once():
    first, second = Shout(), Shout()
    samples = [
        sample("a", "one", first, second),
        sample("b", "two"),
        sample("c", "bad", first, second),
        sample("d", "three", second),
        sample("e", "four", early, first),
        sample("f", "five", first, early),
        sample("g", "six", twice, twice, first, second),
    ]
    run_chains(samples)
    assert texts(samples) == ["ONE", "two", "bad", "THREE", "early", "early", 4 * "SIX"]
    assert first.calls == [["a", "c", "f", "g"]]
    assert sorted(key for call in second.calls for key in call) == ["a", "d", "g"]
    assert not any(sample.operators for sample in samples)


def test_no_samples_run_through_no_chain():
    run_chains([])
    samples = [Sample(SkipSample("unreadable"))]
    run_chains(samples)
    assert texts(samples) == ["unreadable"]


def test_an_error_of_an_operator_is_not_a_bad_sample():
    class Broken(BatchOperator):
        def apply_to_all(self, examples):
            raise ValueError("bug")

    with pytest.raises(ValueError, match="bug"):
        run_chains([sample("a", "one", Broken())])


def test_one_example_is_a_batch_of_one():
    assert Shout()(Example("a", "one", None, 16000, 0)).text == "ONE"
    with pytest.raises(SkipSample, match="bad"):
        Shout()(Example("a", "bad", None, 16000, 0))
