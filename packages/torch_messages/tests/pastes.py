"""What people paste: a message and what stands around it; long texts."""

import html
import random

SCRIPT = """\
import torch
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.DataParallel(Net()).cuda()
for x, y in DataLoader(train, batch_size=64, num_workers=16):
    with torch.cuda.amp.autocast():
        loss = criterion(model(x.to(device)), y.to(device))
    total_loss += loss
"""
TRACE = """\
Traceback (most recent call last):
  File "{}", line 9, in <module>
    loss = criterion(model(x.to(device)), y.to(device))
RuntimeError: {}
"""
LOG = "".join(
    f"2026-03-1{n % 9} 12:00:{n % 60:02d} INFO train: step {n} loss {1 / (n + 1):.4f}\n"
    for n in range(500)
)
RAISED = """\
Traceback (most recent call last):
  File "/site-packages/torch/odd.py", line 9, in odd
    raise RuntimeError("{0}")
RuntimeError: {0}
"""
AROUND = {
    "bare": str,
    "raised in Python": RAISED.format,
    "code in front": lambda said: SCRIPT + TRACE.format("train.py", said),
    "a log": lambda said: f"{LOG}[rank1]: RuntimeError: {said}\n{LOG}",
    "HTML": lambda said: f"<pre>{html.escape(TRACE.format('a.py', said))}</pre>",
    "Windows": lambda said: TRACE.format(r"C:\me\a.py", said).replace("\n", "\r\n"),
    "colors": lambda said: f"\x1b[31mRuntimeError\x1b[0m: {said}\x1b[K",
}
LONG = {
    "words": lambda size: " ".join(
        random.Random(0).choices("tensor rank error of memory x12".split(), k=size // 6)
    ),
    "a log": lambda size: LOG * (size // len(LOG)),
    "errors": lambda size: "RuntimeError: odd things\n" * (size // 25),
    "quotes": lambda size: "'" * size,
    "brackets": lambda size: "(" * size,
    "code": lambda size: SCRIPT * (size // len(SCRIPT)),
    "comments": lambda size: "\n#" * (size // 2),
}
