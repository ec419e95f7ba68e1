"""Measuring: what a pass costs, by a model of the machine and by the clock."""
