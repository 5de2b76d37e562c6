"""Jobs that look up a whole set of datasets by its key: the values in slot ads, and the reasons."""
