"""Vocabulary: the model, the ports, the errors, and all else that adapters may import."""
