"""Each package stands alone: its wheel is built and installed into an empty folder, and
its own tests pass there, with nothing of the course on the path.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="makes links"),
]

# package → the installed distributions that it may use, beside what those need
NEEDS = {
    "device_lab": ["torch", "numpy"],
    "torch_messages": [],
    "emulated_cuda": ["torch"],
}
# what must not be there
COURSE = ("utils", "course", "simulate", "tools", "matplotlib", "IPython")
PACKAGES = [name for name in NEEDS if (ROOT / "packages" / name).exists()]


def with_theirs(names):
    """These distributions that are installed here, and all that they need."""
    found, waiting = {}, list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another system, or an extra
        requires = found[name].requires or []
        needed = [each for each in requires if "extra ==" not in each]
        waiting += [re.match(r"[\w.-]+", each)[0] for each in needed]
    return found.values()


def link(distributions, folder):
    """Make a folder that has these distributions, and no others."""
    folder.mkdir()
    for distribution in distributions:
        tops = {file.parts[0] for file in distribution.files if ".." not in file.parts}
        for top in tops - {"__pycache__"}:
            place = folder / top
            if not place.exists():
                place.symlink_to(distribution.locate_file(top))
    return folder


def run(*arguments, **options):
    """What a Python prints. With -S it has no site-packages, where the course is."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        **options,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module", params=PACKAGES)
def installed(request, tmp_path_factory):
    """(name of a package, the folder with its wheel unpacked)."""
    name, place = request.param, tmp_path_factory.mktemp(request.param)
    source = place / "source"
    unwanted = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "packages" / name, source, ignore=unwanted)
    offline = ["--no-deps", "--no-index", "--disable-pip-version-check"]
    wheels = ["--no-build-isolation", "--wheel-dir", place]
    run("-m", "pip", "wheel", "-q", *offline, *wheels, source)
    (wheel,) = place.glob("*.whl")
    target = place / "site"
    run("-m", "pip", "install", "-q", *offline, "--target", target, wheel)
    return name, target


def alone(target, libraries):
    """The variables of a Python that sees these folders and its own library."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (target, libraries)))}


def test_a_package_is_imported_where_nothing_else_is(installed, tmp_path):
    name, target = installed
    env = alone(target, link(with_theirs(NEEDS[name]), tmp_path / "libraries"))
    code = f"""if True:
        import importlib.util
        import {name}
        there = [each for each in {COURSE!r} if importlib.util.find_spec(each)]
        print({name}.__file__, {name}.__version__, there, sep="\\n")
    """
    shown = run("-S", "-c", code, env=env, cwd=tmp_path).splitlines()
    assert shown == [str(target / name / "__init__.py"), "0.1.0", "[]"]
    assert (target / name / "py.typed").exists()


def test_its_own_tests_pass_there(installed, tmp_path):
    name, target = installed
    libraries = link(with_theirs([*NEEDS[name], "pytest"]), tmp_path / "libraries")
    env = alone(target, libraries)
    place = tmp_path / "package"  # all of it but what is installed
    without = shutil.ignore_patterns(name, "__pycache__")
    shutil.copytree(ROOT / "packages" / name, place, ignore=without)
    quick = ["-p", "no:cacheprovider", "-m", "not slow and not timed"]
    shown = run("-S", "-m", "pytest", *quick, env=env, cwd=place)
    assert re.search(r"\d passed", shown)
