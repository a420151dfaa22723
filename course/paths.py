"""Where the course lies."""

import pathlib

# The directory that holds notebooks and utils: a clone, or what a lesson that travels
# as one file has unpacked.
COURSE = pathlib.Path(__file__).resolve().parent.parent
