"""Publisher contract for ad files."""

from pathlib import Path

import pytest

from adapters.files.ad_files import AdFilePublisher
from hydrator.wiring import system_clock
from tests.contracts.publisher import PublisherContract


class TestAdFilePublisher(PublisherContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def publisher(self) -> AdFilePublisher:
        return AdFilePublisher(self.folder / "ads", system_clock)

    def unreachable(self) -> AdFilePublisher:
        (self.folder / "occupied").write_text("this is no folder")
        return AdFilePublisher(self.folder / "occupied", system_clock)
