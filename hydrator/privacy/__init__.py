"""Privacy: replace the names of private datasets by pseudonyms."""
