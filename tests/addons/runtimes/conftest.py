"""The small models of the tests of export."""

from tests.export.conftest import examples, make_model  # noqa: F401 - fixtures
