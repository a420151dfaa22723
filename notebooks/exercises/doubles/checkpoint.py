"""A checkpoint from a device that this machine does not have."""

import io
import zipfile

import torch


def saved_on(place: str, contents) -> io.BytesIO:
    """A file in memory, as torch.save writes it for `contents` whose tensors were on
    `place`, such as "cuda:7".

    contents: what torch.save takes, with its tensors on the CPU. torch.load looks for
    `place` unless it gets a map_location. The archive's pickle names the place of each
    storage as a text with its length in front, in four bytes: only
    those are changed (and any other text that is just "cpu").
    """
    plain, file = io.BytesIO(), io.BytesIO()
    torch.save(contents, plain)
    name = place.encode()
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(file, "w") as new:
        for entry in old.namelist():
            content = old.read(entry)
            if entry.endswith("/data.pkl"):
                tag = len(name).to_bytes(4, "little") + name
                content = content.replace(b"X\x03\0\0\0cpu", b"X" + tag)
            new.writestr(entry, content)
    file.seek(0)
    return file
