"""Charts of the pages: values in pixels, and a text that says the same in words."""
