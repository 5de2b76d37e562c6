"""Staging with Rucio: rules of ours that pin and bring datasets, and the rules of everybody else."""
