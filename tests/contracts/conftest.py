from tests.rucio_fixtures import rucio_server

__all__ = ["rucio_server"]
