"""Where the course lies."""

import pathlib

# The directory that holds notebooks and utils.
COURSE = pathlib.Path(__file__).resolve().parent.parent
