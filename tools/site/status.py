"""The status page: what the last run of each lesson's cells said, in each environment.

tools/lessons/status.py writes build/status/, which this page is made from.
"""

from tools.site.course import md, table

ENVIRONMENTS = {  # of the status page → what makes its files
    "main": "the versions of requirements.txt: `make test`, `make check`",
    "XLA": (
        "the oldest PyTorch, with torch_xla on XLA's own CPU device: `make test-tpu`"
    ),
    "Colab-like": (
        "the versions and the front end of Colab's GPU runtime: `make test-colab`"
    ),
    "newest": "the newest PyTorch, as a reader: `make test-next`",
    "emulated Tesla T4": (
        "CUDA's own code on a GPU that does not exist: `make test-cuda`"
    ),
    "emulated NVIDIA H200": "the same as another GPU: `make test-cuda`",
}


def status_page(lessons, status):
    """The status page: lesson × environment, then each environment."""
    # a column of dashes says less than one sentence
    there = {environment for environment, _ in status}
    ran_in = [environment for environment in ENVIRONMENTS if environment in there]
    not_run = [environment for environment in ENVIRONMENTS if environment not in there]
    rows = []
    for lesson in lessons:
        ran = [
            _verdict(status.get((environment, lesson.stem)), lesson)
            for environment in ran_in
        ]
        rows.append([f"[{lesson.stem[:2]}]({lesson.link()})", *ran])
    parts = [
        "---\nnosearch: true\n---\n",
        "# Status of the tests\n",
        (
            "What the last run of each lesson's cells said, in each environment: `make"
            " test` and its sisters write it, and this page is made from what they left"
            " on the machine that built this site.\n"
        ),
    ]
    if not status:
        parts.append(
            "Nothing has run on this machine: after `make test`, `make site` fills this"
            " page.\n"
        )
        return "\n".join(parts)
    parts.append(
        "✓: every cell ran to its end, and every claim that was judged held. ✗:"
        " something failed. –: no run. changed: the lesson has changed since.\n"
    )
    if not_run:
        parts.append(f"Not run on this machine: {', '.join(not_run)}.\n")
    parts.append(table(["lesson", *ran_in], rows))
    for environment in ENVIRONMENTS:
        ran = [(lesson, status.get((environment, lesson.stem))) for lesson in lessons]
        parts += _environment(
            environment, [(lesson, kept) for lesson, kept in ran if kept]
        )
    return "\n".join(parts)


def _verdict(kept, lesson):
    if kept is None:
        return "–"
    sign = "✗" if kept["problems"] else "✓"
    return sign if _is_of(kept, lesson) else f"{sign} changed"


def _environment(environment, kept):
    """The section of an environment, if anything ran there. kept: [(Lesson, content of
    its file)].
    """
    if not kept:
        return
    machines = {}
    for lesson, content in kept:
        versions = ", ".join(map(" ".join, content["versions"].items()))
        machine = f"{versions} · {content['system']}, {content['cpu']}"
        machines.setdefault(machine, []).append(lesson.stem[:2])
    made = ENVIRONMENTS[environment]
    yield f"## {environment[0].upper()}{environment[1:]}\n"
    yield f"{made[0].upper()}{made[1:]}.\n"
    for machine, numbers in machines.items():
        lessons = f" (lessons {' '.join(numbers)})" if len(machines) > 1 else ""
        yield f"- {md(machine)}{lessons}"
    yield ""
    rows = [_row(lesson, content) for lesson, content in kept]
    yield table(["lesson", "cells", "claims", "took", "run"], rows)


def _row(lesson, content):
    """What became of a lesson in an environment."""
    n = {"done": 0, "not live": 0, "held": 0, "unjudged": 0, "seconds": 0}
    n |= content["counts"]
    ran = f"{n['done']} of {n['cells']}{', twice' if content['twice'] else ''}"
    live = f"{n['done'] - n['not live']} live"
    judged = f"{n['held']} held, {n['unjudged']} not judged"
    took = f"{n['seconds']:.0f} s, {content['kernel_mib']:,} MiB"
    if content["family_mib"] > content["kernel_mib"]:
        took += f", {content['family_mib']:,} with its processes"
    notes = [content["date"]]
    if not content["strict"]:
        notes.append("as a reader: a missed claim stops nothing")
    if not content["timed"]:
        notes.append("times not judged")
    if content["findings"]:
        notes.append(f"{content['findings']} findings")
    if content["attempt"] > 1:
        notes.append("second run, after missed claims about time")
    if not _is_of(content, lesson):
        notes.append("the lesson has changed since")
    notes += [f"✗ {md(problem)}" for problem in content["problems"]]
    link = f"[{lesson.stem[:2]}]({lesson.link()})"
    return [link, f"{ran}, {live}", judged, took, "; ".join(notes)]


def _is_of(content, lesson):
    """Whether what a run left is about the lesson as it is now."""
    return content.get("content_hash") == lesson.content_hash
