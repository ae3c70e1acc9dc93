"""Two augmented views of each utterance, for losses that compare them (CR-CTC)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wenet_uio.dataset.types import Example, Operator, feats_of


@dataclass(frozen=True)
class TwoViews:
    """Runs the operators that augment features twice, with other draws.

    Spec_aug and spec_sub draw from `Example.random` and `Example.view`. Operators of the user that
    draw from `Example.random` alone make the same draws for both views.
    """

    operators: tuple[Operator, ...]

    def __call__(self, example: Example) -> Example:
        """Change `feats` to the first view and set `other_feats` to the second.

        Raises:
            ValueError: an operator gives the views different lengths.
        """
        first, second = self._view(example, 0), self._view(example, 1)
        lengths = len(feats_of(first)), len(feats_of(second))
        if lengths[0] != lengths[1]:
            raise ValueError(
                f"{example.key}: its two views have {lengths[0]} and {lengths[1]} frames; an "
                "operator after spec_aug that changes the length must not depend on Example.view "
                "or on the features"
            )

        return replace(first, other_feats=feats_of(second))

    def _view(self, example: Example, view: int) -> Example:
        example = replace(example, view=view)
        for operator in self.operators:
            example = operator(example)
        return example
