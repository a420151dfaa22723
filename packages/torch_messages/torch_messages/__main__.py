"""What a message means: python -m torch_messages "CUDA out of memory"

Or from what a program says: python train.py 2>&1 | python -m torch_messages
"""

import sys

from torch_messages import look_up


def main():
    """Look up the words behind the command, or what standard input has."""
    words = sys.argv[1:]
    if words in (["-h"], ["--help"]) or (not words and sys.stdin.isatty()):
        print(__doc__.strip())
        return
    sys.stdout.reconfigure(errors="replace")  # a terminal may lack “ and …
    look_up(" ".join(words) or sys.stdin.read())


if __name__ == "__main__":
    main()
