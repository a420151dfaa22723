"""Devices that are not there: simulators that are pure functions, and toys made of
threads that let a reader without a GPU experiment.
"""
