"""python -m torch_messages: as torch-messages, where that is not on the path."""

import sys

from torch_messages.command import main

if __name__ == "__main__":
    sys.exit(main())
