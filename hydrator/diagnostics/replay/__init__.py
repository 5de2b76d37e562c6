"""Replay: a model of a pool in virtual time, which shows the effect of a policy on jobs of the past."""
