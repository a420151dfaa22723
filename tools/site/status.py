"""The status page: what the last run of each lesson's cells said, in each environment.

tests/lessons/plugin.py writes build/status/, which this page is made from.
"""

from tools.site.course import md, table

ENVIRONMENTS = {  # of the status page → what makes its files
    "main": "the versions of requirements.txt: `make test`, `make lesson`",
    "XLA": (
        "the oldest PyTorch, with torch_xla on XLA's own CPU device: `make test`, `make"
        " test-tpu`"
    ),
    "Colab-like": (
        "the versions and the front end of Colab's GPU runtime: `make test-colab`"
    ),
    "newest": "the newest PyTorch, as a reader: `make test-next`",
    "emulated Tesla T4": (
        "CUDA's own code on a GPU that does not exist, each cell twice: `make"
        " test-cuda`"
    ),
    "emulated NVIDIA H200": "the same as another GPU: `make test-cuda`",
}


def status_page(lessons, status):
    """The status page: lesson × environment, then each environment."""
    rows = []
    for lesson in lessons:
        ran = [
            _verdict(status.get((environment, lesson.stem)), lesson)
            for environment in ENVIRONMENTS
        ]
        rows.append([f"[{lesson.stem[:2]}]({lesson.link()})", *ran])
    parts = [
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
            " table.\n"
        )
    parts += [
        (
            "✓: every cell ran to its end, and every claim that was judged held. ✗:"
            " something failed. –: no run. changed: the lesson has changed since.\n"
        ),
        table(["lesson", *ENVIRONMENTS], rows),
    ]
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
    return sign if kept.get("content_hash") == lesson.content_hash else f"{sign} changed"


def _environment(environment, kept):
    """The section of an environment, if anything ran there. kept: [(Lesson, content of
    its file)].
    """
    if not kept:
        return
    machines = {}
    for lesson, content in kept:
        versions = ", ".join(
            f"{name} {version}" for name, version in content["versions"].items()
        )
        machines.setdefault(
            f"{versions} · {content['system']}, {content['cpu']}", []
        ).append(lesson.stem[:2])
    made = ENVIRONMENTS[environment]
    yield f"## {environment[0].upper()}{environment[1:]}\n"
    yield f"{made[0].upper()}{made[1:]}.\n"
    for machine, numbers in machines.items():
        yield f"- {md(machine)}" + (
            f" (lessons {' '.join(numbers)})" if len(machines) > 1 else ""
        )
    rows = []
    for lesson, content in kept:
        n = content["counts"]
        ran = (
            f"{n.get('done', 0)} of {n['cells']}{', twice' if content['twice'] else ''}"
        )
        live = f"{n.get('done', 0) - n.get('not live', 0)} live"
        judged = f"{n.get('held', 0)} held, {n.get('unjudged', 0)} not judged"
        took = f"{n.get('seconds', 0):.0f} s, {content['kernel_mib']:,} MiB"
        if content["family_mib"] > content["kernel_mib"]:
            took += f", {content['family_mib']:,} with its processes"
        notes = [content["date"]]
        notes += (
            [] if content["strict"] else ["as a reader: a missed claim stops nothing"]
        )
        notes += [] if content["timed"] else ["times not judged"]
        notes += [f"{content['findings']} findings"] if content["findings"] else []
        notes += (
            ["second run, after missed claims about time"]
            if content["attempt"] > 1
            else []
        )
        notes += (
            ["the lesson has changed since"]
            if content.get("content_hash") != lesson.content_hash
            else []
        )
        notes += [f"✗ {md(problem)}" for problem in content["problems"]]
        rows.append(
            [
                f"[{lesson.stem[:2]}]({lesson.link()})",
                f"{ran}, {live}",
                judged,
                took,
                "; ".join(notes),
            ]
        )
    yield ""
    yield table(["lesson", "cells", "claims", "took", "run"], rows)
