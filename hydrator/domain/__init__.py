"""Domain: the model, the ports, the errors, and everything else that adapters may import."""
