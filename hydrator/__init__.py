"""Give HTCondor pools the knowledge where data is."""


def __getattr__(name: str) -> str:
    """Return ``__version__``, which is read when it is first needed: the read takes a tenth of a second."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("classad-hydrator")
    except PackageNotFoundError:  # run from a checkout that was not installed
        return "0+unknown"
