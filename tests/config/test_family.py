"""The records of model families."""

from __future__ import annotations

import pytest

from wenet_uio.config.decode_modes import CTC_MODES
from wenet_uio.config.family import DecodingRules, Family, TrainingRules, families
from wenet_uio.config.model import CtcAttentionConf, ModelKeys
from wenet_uio.config.named_code import Loaded


@pytest.mark.parametrize("family", list(families()), ids=lambda family: family.name)
def test_modes_that_a_record_names_are_modes_of_the_family(family):
    usual = (family.decoding.usual_mode, family.decoding.usual_scored_mode)
    assert {*family.decoding.recipe_modes, *usual} <= set(family.decoding.modes_by_name)


def test_a_family_without_recipe_modes_is_decoded_with_all_its_modes():
    toy = Family(
        name="toy",
        section=CtcAttentionConf,
        build=Loaded("a:b"),
        decoding=DecodingRules(modes=CTC_MODES),
    )
    names = ["ctc_greedy_search", "ctc_prefix_beam_search"]
    assert toy.decoding.modes_of_recipes(CtcAttentionConf()) == names
    assert toy.decoding.modes_of_recipes(CtcAttentionConf(ctc_weight=0)) == []


class BareConf(ModelKeys):
    """A section that follows the types of ModelKeys alone."""

    ctc_weight: float = 0.5


def test_a_section_without_the_keys_of_every_model_is_refused_by_name():
    problem = "family toy: its section BareConf has no ignore_id and no lsm_weight and no length"
    with pytest.raises(ValueError, match=f"{problem}.*derive it from CtcAttentionConf or HybridC"):
        Family(
            name="toy",
            section=BareConf,
            build=Loaded("a:b"),
            decoding=DecodingRules(modes=CTC_MODES),
        )


def test_a_family_that_only_decodes_needs_the_weight_of_ctc_alone():
    family = Family(
        name="toy",
        section=BareConf,
        build=Loaded("a:b"),
        training=TrainingRules(obstacle="it only decodes"),
        decoding=DecodingRules(modes=CTC_MODES),
    )
    assert family.decoding.modes_of_recipes(BareConf()) == [
        "ctc_greedy_search",
        "ctc_prefix_beam_search",
    ]


def test_recipe_modes_that_are_no_modes_of_the_family_are_refused_by_name():
    problem = "family toy: recipe_modes has attention, its modes are ctc_greedy_search, ctc_prefix"
    with pytest.raises(ValueError, match=problem):
        Family(
            name="toy",
            section=CtcAttentionConf,
            build=Loaded("a:b"),
            decoding=DecodingRules(
                modes=CTC_MODES, recipe_modes=("ctc_greedy_search", "attention")
            ),
        )
