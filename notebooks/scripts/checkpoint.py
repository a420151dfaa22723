"""Checkpoints of train.py and train_ddp.py, whole at any moment: a file to take along
with either of them.
"""

import contextlib
import os

import torch


class Problem(Exception):
    """Something the user can put right: scripts show it as one line, exit code 2."""


def save_checkpoint(checkpoint, path):
    """Write a temporary file, then rename it: at any moment `path` is the whole old
    checkpoint or the whole new one.

    checkpoint: a dict of what torch.load reads with weights_only=True. Its "settings"
    are what must not change.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            # the content must be on the disk before the name points to it
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (
        OSError,
        RuntimeError,
    ) as error:  # torch.save says RuntimeError when the disk is full
        with contextlib.suppress(OSError):  # there may be none, nor a folder for it
            temporary.unlink()
        reason = str(error).splitlines()[0]
        raise Problem(
            f"cannot write {path} ({reason}). What it held before is untouched."
        ) from None
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        # some network drives cannot, and the file is whole there, too
        with contextlib.suppress(OSError):
            os.fsync(folder)  # and now the name
        os.close(folder)


def read_checkpoint(path, settings):
    """The checkpoint, its tensors on the CPU; None if there is none. Problem if it is
    damaged or of other settings.
    """
    if not path or not path.exists():
        return None
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        saved = {name: checkpoint["settings"][name] for name in settings}
    except Exception as error:
        broken = (
            f"{path} is damaged, or no checkpoint of this script"
            f" ({type(error).__name__})"
        )
        raise Problem(f"{broken}. Delete it, or use another --checkpoint.") from None
    for name, now in settings.items():
        if saved[name] != now:
            raise Problem(
                f"{path} was written with {name} {saved[name]}, now it is {now}. Use"
                " another --checkpoint."
            )
    return checkpoint
