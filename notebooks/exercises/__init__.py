"""Exercises of the lessons, one module a lesson, which course/exercises.py loads."""
