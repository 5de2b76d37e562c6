"""Staging: pin the data that jobs need, and request data that no site has, within the operator's limits.

The data flow: the jobs' needs and the last snapshot become candidates; with the catalogue's rules, sizes and
space they become a plan. The catalogue's rules are the truth; a small table remembers what was asked.
"""
