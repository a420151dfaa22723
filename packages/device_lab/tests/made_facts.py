"""Facts of scripts that nobody ran: what the report is made of, by hand."""

import copy


def line(where, code, **more):
    file, _, number = where.partition(":")
    path = f"/home/reader/{file}"
    return {"where": where, "path": path, "line": int(number), "code": code, **more}


def timed(where, code, seconds, inside="", part=""):
    return line(where, code, seconds=seconds, inside=inside, part=part)


def wait(where, code, operation="item", **more):
    row = {
        "inside": "",
        "operation": operation,
        "kind": "value",
        "why": "a value is read",
        "cure": "keep it on the device, read it every n steps",
        "times": 1.0,
        "steps": 7,
        "each": True,
        "every": 1,
        "assumed": False,
        "branch": None,
    }
    return line(where, code, **{**row, **more})


def loader(where="train.py:12", **more):
    row = {
        "dataset": "Pictures",
        "batch_size": 64,
        "workers": 0,
        "pinned": False,
        "persistent": False,
        "batches": 30,
        "made": line(where, "loader = DataLoader(data, batch_size=64, shuffle=True)"),
        "evaluation": False,
    }
    return {**row, **more}


OPTIMIZER = {
    "class": "Adam",
    "fused": False,
    "could_be_fused": True,
    "made": line("train.py:16", "optimizer = torch.optim.Adam(model.parameters())"),
}
COPY = {
    "kind": "to the device",
    "why": "blocking copy",
    "cure": "pin it, non_blocking=True; or make it there",
}

EMPTY = {
    "schema": 1,
    "device_lab": "0.1.0",
    "script": "train.py",
    "python": "3.11.4",
    "torch": "2.13.0",
    "system": "Linux",
    "device": "cpu",
    "device_name": None,
    "ended": "",
    "step": None,
    "watched": {"warm": 0, "pace": 0, "waits": 0, "memory": 0},
    "seconds": 0.0,
    "own_seconds": 0.0,
    "pace": None,
    "waits": None,
    "memory": None,
    "left_behind": [],
    "seen": {
        "models": [],
        "optimizers": [],
        "loaders": [],
        "batch": None,
        "autocast": [],
        "scaler": None,
        "compiled": None,
        "matmul_precision": "highest",
        "threads": 1,
        "world": 1,
    },
    "branches": [],
    "notes": [],
}

MEMORY = {
    "device": "cpu",
    "counted": "PyTorch's calls",
    "highest": 41_200_000,
    "phase": "the backward pass",
    "kinds": {
        "parameters": 4_300_000,
        "gradients": 4_300_000,
        "optimizer state": 8_600_000,
        "activations": 21_000_000,
        "temporaries": 2_000_000,
        "inputs and other": 1_000_000,
    },
    "before": 13_900_000,
    "grows": 0,
    "keeper": None,
    "largest": {"bytes": 8_388_608, "where": "conv in model.py:12: x = self.conv(x)"},
    "lower": {},
}

USUAL = {
    **EMPTY,
    "script": "train.py --lr 0.1",
    "step": {
        "by": "optimizer",
        "at": line("train.py:30", "optimizer.step()"),
        "optimizers": 1,
        "backwards": 1,
        "batches": 1,
        "cycle": None,
    },
    "watched": {"warm": 2, "pace": 9, "waits": 7, "memory": 3},
    "seconds": 3.1,
    "own_seconds": 0.4,
    "pace": {
        "step": 0.0400,
        "median": 0.0398,
        "lowest": 0.0371,
        "highest": 0.0434,
        "timed": 9,
        "all": 0.0,
        "parts": {
            "loader": 0.0160,
            "copy": 0.00001,
            "forward and Python": 0.0090,
            "backward": 0.0110,
            "optimizer": 0.00399,
        },
        "device_parts": None,
        "busy": None,
        "lines": [
            timed("train.py:20", "for x, y in loader:", 0.0160, "data.py:31", "loader"),
            timed("train.py:29", "loss.backward()", 0.0110, "", "backward"),
            timed(
                "model.py:12",
                "x = self.conv(x)",
                0.0060,
                "torch/nn/modules/conv.py:548",
            ),
            timed("train.py:30", "optimizer.step()", 0.0040, "", "optimizer"),
            timed("train.py:33", "print(loss)", 0.0001),
        ],
        "long": None,
        "evaluation": None,
    },
    "waits": {
        "device": "cpu",
        "steps": 7,
        "each": 3.0,
        "rows": [
            wait("train.py:21", "x, y = x.to(device), y.to(device)", "to", times=2.0)
            | COPY,
            wait("train.py:31", "total += loss.item()"),
            wait(
                "train.py:35", "print(loss)", "print", steps=1, each=False, every=None
            ),
        ],
    },
    "memory": MEMORY,
    "seen": {
        **EMPTY["seen"],
        "models": [
            {
                "class": "Net",
                "parameters": 1_075_000,
                "trained": 1_075_000,
                "dtypes": {"float32": 1_075_000},
                "training": True,
            }
        ],
        "optimizers": [OPTIMIZER],
        "loaders": [loader()],
        "batch": "[64, 3, 32, 32] float32, [64] int64",
        "threads": 2,
    },
    "branches": ["train.py:9"],
}


def changed(facts, **more):
    """A copy. pace__busy=0.9 sets facts["pace"]["busy"]."""
    facts = copy.deepcopy(facts)
    for name, value in more.items():
        *path, last = name.split("__")
        inner = facts
        for key in path:
            inner = inner[key]
        inner[last] = value
    return facts


PPO = changed(
    USUAL,
    script="ppo.py",
    step__cycle=16,
    step__batches=0,
    watched={"warm": 16, "pace": 34, "waits": 9, "memory": 3},
    pace__parts={
        "forward and Python": 0.0009,
        "backward": 0.0011,
        "optimizer": 0.0006,
    },
    pace__step=0.0026,
    pace__lowest=0.0022,
    pace__highest=0.0031,
    pace__timed=32,
    pace__lines=[timed("ppo.py:280", "loss.backward()", 0.0011, "", "backward")],
    pace__long={
        "count": 2,
        "of": 34,
        "seconds": 0.31,
        "every": 16,
        "share": 0.88,
        "why": "lines",
        "lines": [
            timed(
                "ppo.py:213",
                "next_obs, reward, ends = envs.step(action.cpu().numpy())",
                0.17,
                "gymnasium/vector/sync_vector_env.py:142",
            ),
            timed(
                "ppo.py:207",
                "action, logprob, _, value = agent.act(next_obs)",
                0.09,
                "torch/distributions/categorical.py:70",
            ),
        ],
    },
    waits={
        "device": "cpu",
        "steps": 9,
        "each": 1.0,
        "rows": [
            wait("ppo.py:266", "clipfracs += [(r > c).float().mean().item()]", steps=9),
            wait(
                "ppo.py:213",
                "next_obs, reward, ends = envs.step(action.cpu().numpy())",
                "to",
                kind="to the host",
                why="copied to the host",
                cure="collect there, copy once; what is needed now has to wait",
                times=128.0,
                steps=1,
                each=False,
                every=16,
            ),
        ],
    },
    seen__loaders=[],
    seen__batch=None,
    branches=[],
)

INFERENCE = changed(
    USUAL,
    script="predict.py",
    step__by="batch",
    step__at=None,
    step__optimizers=0,
    step__backwards=0,
    pace__parts={"loader": 0.0010, "copy": 0.0, "forward and Python": 0.0390},
    pace__lines=[],
    waits={"device": "cpu", "steps": 7, "each": 0.0, "rows": []},
    memory__phase="the forward pass",
    memory__kinds={"parameters": 40_000_000, "temporaries": 1_200_000},
    seen__optimizers=[],
    branches=[],
)
INFERENCE["seen"]["models"][0] |= {"trained": 0, "training": False}

GPU = changed(
    USUAL,
    device="cuda:0",
    device_name="NVIDIA H200",
    pace__busy=0.83,
    pace__device_parts={
        "copy": 0.001,
        "forward and Python": 0.010,
        "backward": 0.018,
        "optimizer": 0.0042,
    },
    pace__parts={
        "loader": 0.001,
        "copy": 0.002,
        "forward and Python": 0.015,
        "backward": 0.012,
        "optimizer": 0.010,
    },
    waits__device="cuda",
    memory__device="cuda:0",
    memory__counted="torch.accelerator",
    memory__highest=8 * 2**30,
    memory__before=2 * 2**30,
    memory__kinds={
        "parameters": 2**29,
        "gradients": 2**29,
        "optimizer state": 2**30,
        "activations": 5 * 2**30,
        "temporaries": 2**30,
    },
    memory__lower={"half of the batch (about)": 5 * 2**30},
)

HUGE = changed(
    USUAL,
    script="train.py " + "--very-long-option=value " * 60,
    ended="the script ended in its step 9, by KeyError: " + "no such key " * 40,
    step__cycle=1000,
    step__optimizers=2,
    step__backwards=16,
    pace__lines=[
        timed(f"train.py:{n}", "x = f(x)  # " + "long " * 60, 0.002, "lib/a.py:1" * 30)
        for n in range(100)
    ],
    pace__long={
        **PPO["pace"]["long"],
        "lines": [timed(f"t.py:{n}", "y = " + "g(" * 90, 0.01) for n in range(50)],
    },
    pace__evaluation={"count": 3, "seconds": 123456.0, "batches": 10**9},
    waits__rows=[
        wait(f"train.py:{n}", "loss.item()" * 30, inside="lib/b.py:9" * 20)
        for n in range(99)
    ],
    memory__kinds={f"kind {n}": 10**12 for n in range(60)},
    memory__lower={f"way {n}": 10**11 for n in range(60)},
    left_behind=[
        {"path": f"Net.{n}.mask" * 19, "count": 10**9, "bytes": 10**15, "why": "w"}
        for n in range(50)
    ],
    seen__models=USUAL["seen"]["models"] * 20,
    seen__optimizers=[OPTIMIZER] * 20,
    seen__loaders=[loader()] * 20,
    branches=[f"train.py:{n}" for n in range(900)],
    notes=["A sentence of the watcher that goes on and on and on and on." * 9] * 30,
)

NASTY = "<script>alert('x')</script>\x1b[31m\n</td>\t\r\x07\u202e 数据加载器代码" * 9


def spoilt(facts):
    """The same facts with all free texts nasty."""
    kept = {"by", "why", "kind", "device", "part"}  # words that the report looks up
    if isinstance(facts, dict):
        return {k: v if k in kept else spoilt(v) for k, v in facts.items()}
    if isinstance(facts, list):
        return [spoilt(x) for x in facts]
    return NASTY if isinstance(facts, str) else facts


ALL = {
    "empty": EMPTY,
    "usual": USUAL,
    "ppo": PPO,
    "inference": INFERENCE,
    "gpu": GPU,
    "huge": HUGE,
    "nasty": spoilt(GPU),
    "nasty and huge": spoilt(HUGE),
}
