"""The numbers, words and expressions by which a text is compared with the table. They
stand in rules.json, for programs in other languages: the course's website reads them in
JavaScript.
"""

import json
import re
from pathlib import Path

RULES = json.loads(Path(__file__).with_name("rules.json").read_text(encoding="utf-8"))

# Numbers
GAP = RULES["GAP"]  # characters that … stands for, at most
MOST = RULES["MOST"]  # entries that a name or a listing leads to
LIKE = RULES["LIKE"]  # share that a wording and a part of a text have in common
MORE = RULES["MORE"]  # words that this part may have more than the wording
LEAST = RULES["LEAST"]  # weight that the two have in common at least
ASKED = RULES["ASKED"]  # twice what they have in common, over the sum of both
MOST_OF = RULES["MOST_OF"]  # of a question, where that is
MUCH = RULES["MUCH"]  # at least
PART = RULES["PART"]  # of a wording, at least, that a part of it says
LONG = RULES["LONG"]  # words, from which on a text is a paste and no question
CLOSE = RULES["CLOSE"]  # of the best: as good as it

# How texts become words
QUOTES = {ord(each): to for to, some in RULES["QUOTES"].items() for each in some}
ASKING = set(RULES["ASKING"].split())  # of a question, and say nothing of it
ENDING = re.compile(RULES["ENDING"])
WORD = re.compile(RULES["WORD"])
SPACE = re.compile(RULES["SPACE"])
COLORS = re.compile(RULES["COLORS"])
# [rank0]: or [rank0]:[W825 13:09:39.967659278 ProcessGroupNCCL.cpp:1538], and frames
PREFIX = re.compile(RULES["PREFIX"], re.M | re.I)

# What stands around a message
FRAME = re.compile(RULES["FRAME"], re.M)
BEFORE = re.compile(RULES["BEFORE"])  # the cause is above these lines, below the last
ORIGINAL = RULES["ORIGINAL"]  # the cause is below it
HEADS = re.compile(RULES["HEADS"])
NAME = re.compile(RULES["NAME"])  # the whole of a name
