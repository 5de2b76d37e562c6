"""Test kit for authors of catalogue plugins."""

import pytest

pytest.register_assert_rewrite(f"{__name__}.catalogue_contract")
