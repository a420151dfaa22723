"""What happened to the lessons of the course in a run: kept for the last line of `make
test` (tools/tally.py) and for who looks into a run of CI, one file a lesson and
environment, build/status/<environment>/<lesson>.json.
"""

import datetime
import json
import os
import platform
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from tools.lessons.edition import content_hash
from utils.devices import name_of

ROOT = Path(__file__).resolve().parents[2]
STATUS = ROOT / "build" / "status"


def installed():
    """Versions of what decides how a lesson runs, by name."""
    return {
        name: metadata.version(name)
        for name in ("torch", "torch_xla", "IPython")
        if find_spec(name)
    }


def machine(options):
    """Where lessons run, and how: whether a missed claim stops one (strict), whether
    times are judged (timed).
    """
    versions = installed()
    if gpu := os.environ.get("EMULATOR_GPU"):  # "Tesla T4,7.5"
        environment = f"emulated {gpu.partition(',')[0]}"
    elif options.findings:
        environment = "newest"
    elif "torch_xla" in versions:
        environment = "XLA"
    else:
        environment = "Colab-like" if versions["IPython"].startswith("7.") else "main"
    return {
        "environment": environment,
        "date": datetime.date.today().isoformat(),
        "versions": {"Python": platform.python_version(), **versions},
        "system": platform.system(),
        "cpu": name_of("cpu"),
        "strict": os.environ.get("LAB_STRICT") == "1",
        "timed": os.environ.get("LAB_UNTIMED") != "1",
    }


def keep(lessons, options, attempt):
    """Store what happened to the lessons (tools.lessons.plugin.Lesson) of the course. A
    file each: runs at the same time do not meet.
    """
    ours = [
        each for each in lessons if each.path.resolve().parent == ROOT / "notebooks"
    ]
    facts = machine(options) if ours else {}
    for lesson in ours:
        stored = json.loads(lesson.path.read_text(encoding="utf-8"))
        kept = {
            **facts,
            "lesson": lesson.path.stem,
            "content_hash": content_hash(stored),
            "attempt": attempt,
            "twice": options.twice,
            "problems": list(lesson.problems(options)),
            "counts": dict(lesson.counts),
            "findings": len(lesson.findings),
            "claims": lesson.claims,
            "kernel_mib": round(lesson.kernel_mib),
            "family_mib": round(lesson.family_mib),
        }
        folder = STATUS / facts["environment"].lower().replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{lesson.path.stem}.json"
        part = path.with_suffix(f".{os.getpid()}")
        content = json.dumps(kept, indent=1, ensure_ascii=False)
        part.write_text(content, encoding="utf-8")
        part.replace(path)
