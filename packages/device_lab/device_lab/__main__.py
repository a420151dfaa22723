"""python -m device_lab train.py: the command device-lab."""

import sys

from ._command.cli import main

if __name__ == "__main__":
    sys.exit(main())
