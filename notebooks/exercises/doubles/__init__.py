"""Doubles that only checks of exercises use: devices, ranks, clocks and files that are
not there, and notes of what an answer does.
"""
