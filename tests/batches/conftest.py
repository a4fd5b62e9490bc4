"""The fixture that tests of batches share."""

from pathlib import Path

import pytest
from batch_tables import make_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path)
