"""Answers to the exercises of lesson 00."""

from tests.exercises.answers import Answers

ANSWERS = {}

ANSWERS["00.1"] = Answers(
    right=[
        """
def device_type(x):
    return str(x.device).split(':')[0]
""",
        """
from operator import attrgetter
device_type = attrgetter('device.type')
""",
    ],
    wrong={
        """
def device_type(x):
    return x.device
""": "its type alone is asked",
        """
def device_type(x):
    return str(x.device)
""": "you returned 'cuda:1', expected 'cuda'",
        """
def device_type(x):
    return 'cuda' if x.is_cuda else 'cpu'
""": "expected 'meta'",
        """
def device_type(x):
    return str(x.device)[:4]
""": "for a tensor on xpu:0 you returned 'xpu:'",
    },
)
