"""Lost indentation: what comes back is what was there, and what cannot come back is left alone."""

import re
import textwrap

import pytest

from utils.indentation import restored

LISTINGS = {  # with their indentation; each is flattened and must come back as it was
    "training loop": """
        for epoch in range(10):
            optimizer.zero_grad()
            output = model(x)
            loss = criterion(output, y)
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch}, loss {loss.item()}")
    """,
    "training loop with blank lines, and what follows": """
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
                inputs, labels = inputs.to(device), labels.to(device)
                optimizer.zero_grad()
                loss = criterion(model(inputs), labels)
                loss.backward()
                optimizer.step()
                total += loss.item()

            print(epoch, total)
    """,
    "class": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc1 = nn.Linear(10, 20)
                self.fc2 = nn.Linear(20, 1)

            def forward(self, x):
                x = torch.relu(self.fc1(x))
                return self.fc2(x)

        model = Net().to(device)
        print(model)
    """,
    "class, function, program": """
        import torch

        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, i):
                return torch.ones(2) * i

        def train(rank, world_size):
            model = nn.Linear(2, 1)
            model(torch.ones(1, 2))

        if __name__ == "__main__":
            train(0, 1)
    """,
    "if and else": """
        if torch.cuda.is_available():
            device = torch.device("cuda")
            print("GPU")
        else:
            device = torch.device("cpu")
            print("CPU")
        x = torch.ones(3, device=device)
    """,
    "if, elif, else in a function": """
        def get_device():
            if torch.cuda.is_available():
                return torch.device("cuda")
            elif torch.backends.mps.is_available():
                return torch.device("mps")
            else:
                return torch.device("cpu")

        device = get_device()
    """,
    "early return": """
        def to_device(data, device):
            if isinstance(data, (list, tuple)):
                return [to_device(x, device) for x in data]
            return data.to(device, non_blocking=True)
    """,
    "autocast": """
        scaler = torch.cuda.amp.GradScaler()
        for data, target in loader:
            optimizer.zero_grad()
            with torch.cuda.amp.autocast():
                output = model(data)
                loss = criterion(output, target)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    """,
    "no_grad in a function": """
        def evaluate(model, loader):
            model.eval()
            correct = 0
            with torch.no_grad():
                for x, y in loader:
                    correct += (model(x).argmax(1) == y).sum().item()
            return correct
    """,
    "try": """
        try:
            import torch_xla
            import torch_xla.core.xla_model as xm
            device = xm.xla_device()
        except ImportError:
            device = torch.device("cpu")
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
    "profiler": """
        with profile(
            activities=[ProfilerActivity.CPU],
            record_shapes=True,
        ) as prof:
            with record_function("inference"):
                model(x)
        print(prof.key_averages().table(row_limit=5))
    """,
    "streams": """
        s = torch.cuda.Stream()
        with torch.cuda.stream(s):
            y = x + 1
            z = y * 2
        torch.cuda.synchronize()
    """,
    "condition inside a loop": """
        for i, batch in enumerate(loader):
            loss = model(batch).mean() / 4
            loss.backward()
            if (i + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
    """,
    "several GPUs": """
        model = Net()
        if torch.cuda.device_count() > 1:
            model = nn.DataParallel(model)
        net.to(device)
    """,
    "docstring and brackets": '''
        def ensure(*tensors):
            """All on one device.

            The first decides.
            """
            device = tensors[0].device
            return [
                tensor.to(device)
                for tensor in tensors
            ]
    ''',
    "main": """
        def main():
            world_size = torch.cuda.device_count()
            mp.spawn(train, args=(world_size,), nprocs=world_size)

        if __name__ == "__main__":
            main()
    """,
}


def flat(source):
    """Without any indentation; what goes on inside brackets and docstrings has none either."""
    return re.sub(r"^[ \t]+", "", source, flags=re.M)


@pytest.mark.parametrize("name", LISTINGS)
def test_it_comes_back(name):
    source = textwrap.dedent(LISTINGS[name]).strip()
    assert flat(restored(flat(source))) == flat(source)  # nothing but indentation has changed
    assert compile(restored(flat(source)), name, "exec").co_code == compile(source, name, "exec").co_code
    lines = [line for line in restored(flat(source)).split("\n") if re.match(r"\s*(\w|@)", line)]
    code = [line for line in source.split("\n") if re.match(r"\s*(\w|@)", line)]
    if name not in ("docstring and brackets", "profiler"):  # what stands in brackets may stand anywhere
        assert lines == code


def test_a_listing_that_is_all_indented():
    assert restored("    x = 1\n    if x:\n        x = 2\n") == "x = 1\nif x:\n    x = 2"


@pytest.mark.parametrize(
    "source",
    [
        "pip install torch",
        "for x in y:\n    a = 1\nb = 2\nif x:\nc = 3",  # some of it is there: what the rest was, nobody knows
        "print((1, 2)",
        "else:\nx = 1",
        "if x:",
        'text = """never closed',
        "while True print(1)",
    ],
)
def test_what_cannot_come_back_is_left_alone(source):
    assert restored(source) is None
