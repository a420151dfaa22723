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
SENTENCE = re.compile(RULES["SENTENCE"])  # where one ends
SENTENCES = RULES["SENTENCES"]  # that are tried
FEW = RULES["FEW"]  # words that one has at least
LONG = RULES["LONG"]  # words, from which on a text is a paste and no question
CUT_ENTRIES = RULES["CUT_ENTRIES"]  # that may begin with the same words
CUT_WITHIN = RULES["CUT_WITHIN"]  # of a wording, with whose beginning a text ends
CUT_BETWEEN = RULES["CUT_BETWEEN"]  # if it ends between words
HEAD = RULES["HEAD"]  # letters of it that are looked for
BEFORE_HEAD = RULES["BEFORE_HEAD"]  # letters behind which a message begins
CLOSE = RULES["CLOSE"]  # of the best: as good as it

# How texts become words
QUOTES = {ord(each): to for to, some in RULES["QUOTES"].items() for each in some}
ASKING = set(RULES["ASKING"].split())  # of a question, and say nothing of it
ENDING = re.compile(RULES["ENDING"])
WORD = re.compile(RULES["WORD"])
SPACE = re.compile(RULES["SPACE"])
LETTER = re.compile(RULES["LETTER"])  # a letter of a name
GOES_ON = re.compile(RULES["GOES_ON"])  # what follows where one has not ended
COLORS = re.compile(RULES["COLORS"])
# [rank0]: or [rank0]:[W825 13:09:39.967659278 ProcessGroupNCCL.cpp:1538], and frames
HAN = re.compile(RULES["HAN"])  # Chinese
BETWEEN_HAN = re.compile(RULES["BETWEEN_HAN"])  # a space that says nothing
PREFIX = re.compile(RULES["PREFIX"], re.M | re.I)

# What stands in a paste
WHOLE = RULES["WHOLE"]  # letters of a text that is read as a whole
PLACES = RULES["PLACES"]  # of a wording that are looked at
SHORT = RULES["SHORT"]  # letters of a text that may be like one of the table
AROUND = RULES["AROUND"]  # letters around a sign of a longer one that are
SIGN = re.compile(RULES["SIGN"])
ENTITY = re.compile(RULES["ENTITY"])  # whether a text is HTML
ENTITIES = RULES["ENTITIES"]
TAG = re.compile(RULES["TAG"])
KINDS = {kind: re.compile(sign) for kind, sign in RULES["KINDS"].items()}  # of a line
LOGGED = re.compile(RULES["LOGGED"])  # a date, a level before a message
COMMENT = re.compile(RULES["COMMENT"])
BEFORE = re.compile(RULES["BEFORE"])  # the cause is above these lines, below the last
ORIGINAL = RULES["ORIGINAL"]  # the cause is below it
HEADS = re.compile(RULES["HEADS"], re.I)
NAME = re.compile(RULES["NAME"])  # the whole of a name

CHOSEN = RULES["CHOSEN"]  # rule of numbers.json → entry that it chooses

# Listings
DEPTH = RULES["DEPTH"]  # of brackets that are read
TOKEN = re.compile(RULES["TOKEN"])
PIECE = re.compile(RULES["PIECE"])  # a token of what an entry wants
BEGINS = re.compile(RULES["BEGINS"])  # a line that is a statement of its own
OPERAND = re.compile(RULES["OPERAND"])  # how names, numbers, strings begin
OPERATORS = set(RULES["OPERATORS"].split())  # words that are none
LEADING = set(RULES["LEADING"].split())  # those that begin a statement
JOINING = set(RULES["JOINING"].split())  # those between two others
BLOCKS = set(RULES["BLOCKS"].split())
ALONE = set(RULES["ALONE"].split())  # statements of one word
ASSIGN = set(RULES["ASSIGN"].split())
NO_CODE = re.compile(RULES["NO_CODE"])  # tokens that Python does not have
NO_FIRST = re.compile(RULES["NO_FIRST"])  # or not at the beginning
USUAL = RULES["USUAL"]  # what listings use under these names, if they show no import
