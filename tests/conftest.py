"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("house", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real networks and data sets named by RELUSCOPE_DATA; the test is skipped without it."""
    folder = os.environ.get("RELUSCOPE_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("RELUSCOPE_DATA does not name a folder")
    return Path(folder)
