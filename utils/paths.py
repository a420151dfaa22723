"""Where the course lies."""

import pathlib

COURSE = pathlib.Path(__file__).resolve().parent.parent  # the directory that holds notebooks and utils
