"""Lost indentation: what comes back is what was there, and what cannot come back is
left alone.
"""

import re
import textwrap

import pytest

from tests.today.listings import LISTINGS
from utils.today.indentation import is_python, restored

RULES = {  # what the listings of the paste cell do not show; with their indentation
    "a loop with blank lines, and what follows": """
        for epoch in range(10):
            # forward
            output = model(x)
            loss = criterion(output, y)

            # backward
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            if (epoch + 1) % 2 == 0:
                print(f"epoch {epoch}, loss {loss.item()}")

        print("done")
    """,
    "two loops": """
        for epoch in range(2):
            total = 0.0
            for inputs, labels in loader:
                optimizer.step()
                total += loss.item()

            print(epoch, total)
    """,
    "an early return, and blank lines in a function": """
        def to_device(data, device):
            if isinstance(data, (list, tuple)):
                return [to_device(x, device) for x in data]

            return data.to(device)
    """,
    "what follows a loop in a function": """
        def evaluate(model, loader):
            with torch.no_grad():
                for x, y in loader:
                    correct += (model(x).argmax(1) == y).sum().item()
            return correct
    """,
    "an else as long as its if": """
        if torch.cuda.is_available():
            device = torch.device("cuda")
            print("GPU")
        else:
            device = torch.device("cpu")
            print("CPU")
        x = torch.ones(3, device=device)
    """,
    "try in a loop": """
        for size in sizes:
            try:
                x = torch.empty(size, device=device)
                print(size)
            except RuntimeError as error:
                print(error)
                torch.cuda.empty_cache()
    """,
    "an else that is not that of the first": """
        if torch.cuda.is_available():
            print("GPU")

        if x.ndim == 2:
            y = x
        else:
            y = x[None]
    """,
    "an else behind a function": """
        if torch.cuda.is_available():
            print("GPU")

        def first(loader):
            for x in loader:
                return x
            else:
                raise ValueError
    """,
    "what follows a with": """
        with torch.no_grad():
            y = net(x)

        z = y + 1
    """,
}
BRACKETS = '''
def ensure(*tensors):
    """All on one device.

    The first decides.
    """
    device = tensors[0].device
    return [
        tensor.to(device)
        for tensor in tensors
    ]
'''
OLD = {name: listing.source for name, listing in LISTINGS.items()}
OWN = {name: textwrap.dedent(source).strip("\n") for name, source in RULES.items()}


def flat(source):
    """Without any indentation; what goes on inside brackets and docstrings has none
    either.
    """
    return re.sub(r"(?m)^[ \t]+", "", source)


LOST = {
    name: code
    for name, code in {**OLD, **OWN}.items()
    if is_python(code) and not is_python(flat(code))
}


# there a print is taken into the if before it
@pytest.mark.parametrize("name", sorted(LOST.keys() - {"S3 check"}))
def test_it_comes_back(name):
    assert restored(flat(LOST[name])) == LOST[name]


def test_what_stands_in_brackets_stays_as_it_was():
    back = restored(flat(BRACKETS))
    assert (
        flat(back) == flat(BRACKETS).strip()
        and "\n    device =" in back
        and "\ntensor.to(device)\n" in back
    )


def test_a_listing_that_is_all_indented():
    assert (
        restored("    x = 1\n    if x:\n        x = 2\n") == "x = 1\nif x:\n    x = 2"
    )


@pytest.mark.parametrize(
    "source",
    [
        "pip install torch",
        # some of it is there: what the rest was, nobody knows
        "for x in y:\n    a = 1\nb = 2\nif x:\nc = 3",
        "print((1, 2)",
        "else:\nx = 1",
        "if x:",
        'text = """never closed',
        "while True print(1)",
    ],
)
def test_what_cannot_come_back_is_left_alone(source):
    assert restored(source) is None
