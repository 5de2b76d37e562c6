"""Vocabulary: the model, the ports and the errors, and what else adapters may import."""
