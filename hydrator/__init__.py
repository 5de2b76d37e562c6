"""Give HTCondor pools the knowledge where data is."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("classad-hydrator")
except PackageNotFoundError:  # run from a checkout that was not installed
    __version__ = "0+unknown"
