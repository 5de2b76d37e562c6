"""The route that answers where datasets are, for schedulers of any kind: POST /v1/locality."""
