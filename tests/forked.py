"""Processes for tests of scripts: one server imports the script, with torch, and forks a process for each start.

Importing torch takes longer than all that these tests train. The processes are real ones: they have their own
environment and output, and die of kill -9. Without os.fork each start is a new Python.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SERVER = """
import importlib.util, json, os, select, sys
path = sys.argv[1]
sys.path.insert(0, os.path.dirname(path))
spec = importlib.util.spec_from_file_location("__script__", path)
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
running = {}

def run(words, env, folder):
    os.setsid()
    os.chdir(env.pop("PWD"))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [path, *words]
    sys.exit(script.main())

while True:
    readable, _, _ = select.select([sys.stdin], [], [], 0.01)
    line = sys.stdin.readline() if readable else None
    if line == "":
        break
    if line:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            run(**job)
        running[child] = job["folder"]
        print(child, flush=True)
    for child in list(running):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            with open(running[child] + "/ended", "w") as file:
                file.write(f"{os.waitstatus_to_exitcode(status)}\\n")
            del running[child]
"""


class Server:
    """start(*words, **environment) starts `script` with these arguments. env: of all processes."""

    def __init__(self, script, env):
        self.script, self.env, self.started = str(script), env, []
        self.server = None
        if hasattr(os, "fork"):
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
            self.server = subprocess.Popen([sys.executable, "-c", SERVER, self.script], env=env, **pipes)

    def start(self, *words, **more):
        words, env = list(map(str, words)), self.env | {key: str(value) for key, value in more.items()}
        if self.server is None:
            command = [sys.executable, self.script, *words]
            process = subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        else:
            folder = tempfile.mkdtemp(prefix="forked-")
            job = {"words": words, "env": env | {"PWD": os.getcwd()}, "folder": folder}
            self.server.stdin.write(json.dumps(job) + "\n")
            process = Forked(int(self.server.stdout.readline()), pathlib.Path(folder))
        self.started.append(process)
        return process

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=20)
            shutil.rmtree(getattr(process, "folder", ""), ignore_errors=True)
        if self.server:
            self.server.stdin.close()
            self.server.wait(20)


class Forked:
    """What subprocess.Popen offers, for a process that the server started."""

    def __init__(self, pid, folder):
        self.pid, self.folder = pid, folder

    @property
    def returncode(self):
        return self.poll()

    def poll(self):
        text = (self.folder / "ended").read_text() if (self.folder / "ended").exists() else ""
        return int(text) if text.endswith("\n") else None

    def send_signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def wait(self):
        self.communicate(60)
        return self.returncode

    def communicate(self, timeout):
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(0.005)
        return (self.folder / "out").read_text(), (self.folder / "err").read_text()
