"""Rapthor runs: read a parset, and write an HTCondor job that runs Rapthor."""
