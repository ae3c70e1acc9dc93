"""How the reader runs the samples of a batch through the operators on batches."""

from dataclasses import dataclass, field, replace

import pytest

from wenet_uio.dataset.reader import outcomes_of
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


def sample(key, text, *operators):
    """Read one sample as the reader does; an operator None raises SkipSample."""
    example = Example(key, text, None, 16000, 0)
    for operator in operators:
        if operator is None:
            raise SkipSample("early", key)
        example = yield operator, example
    return example, 1.5


def texts(outcomes):
    return [
        outcome.reason if isinstance(outcome, SkipSample) else outcome[0].text
        for outcome in outcomes
    ]


def test_an_operator_gets_all_examples_that_come_to_it_at_once():
    first, second = Shout(), Shout()
    outcomes = outcomes_of(
        [
            sample("a", "one", first, second),
            sample("b", "two"),
            sample("c", "bad", first, second),
            sample("d", "three", second),
            sample("e", "four", None, first),
            sample("f", "five", first, None),
            sample("g", "six", first, second),
        ]
    )
    assert texts(outcomes) == ["ONE", "two", "bad", "THREE", "early", "early", "SIX"]
    assert first.calls == [["a", "c", "f", "g"]]
    assert sorted(key for call in second.calls for key in call) == ["a", "d", "g"]


def test_no_samples_have_no_outcome():
    assert outcomes_of([]) == []


def test_an_error_of_an_operator_is_not_a_bad_sample():
    class Broken(BatchOperator):
        def apply_to_all(self, examples):
            raise ValueError("bug")

    with pytest.raises(ValueError, match="bug"):
        outcomes_of([sample("a", "one", Broken())])


def test_one_example_is_a_batch_of_one():
    assert Shout()(Example("a", "one", None, 16000, 0)).text == "ONE"
    with pytest.raises(SkipSample, match="bad"):
        Shout()(Example("a", "bad", None, 16000, 0))
