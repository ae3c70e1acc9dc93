"""Models small enough for tests."""

from tests.support.models.small_models import causal_conf, make_encoder_model, make_model

__all__ = ("causal_conf", "make_encoder_model", "make_model")
