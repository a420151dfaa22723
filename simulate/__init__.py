"""Devices that are not there: simulators that are pure functions, toys made of threads
that let a reader without a GPU experiment, and doubles that note what an answer to an
exercise does (streams, ranks, clocks, AMP steps, files).
"""
