"""Runs every client's tests, and the snippets of docs/clients.md, against running servers.

usage: main.py PROGRAM PREPARED   (scripts/test-clients.sh prepares and calls it)
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import codex
import snippets
from server import Server

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NAME = "qwen3.8-flash-next:4bit"
CLIENTS = ["openai_test.py", "anthropic_test.py", "ollama_test.py", "litellm_test.py", "webui_test.py",
           "openai_test.mjs", "ollama_test.mjs", "ai_sdk_test.mjs"]


def command(prepared, file):
    if file.endswith(".py"):
        return [prepared / "venv/bin/python", HERE / file]
    # Modules are found beside the file that asks for them.
    for script in HERE.glob("*.mjs"):
        (prepared / "node" / script.name).write_bytes(script.read_bytes())
    return ["node", prepared / "node" / file]


def client(server, prepared, file, **more):
    """Runs a client's tests; whether they passed, and no field was left out of account in them."""
    before = server.counter("ss_ignored_fields_total")
    environment = {**os.environ, "SS_URL": server.url, "SS_MODEL_NAME": NAME, "NO_PROXY": "*",
                   "LITELLM_LOCAL_MODEL_COST_MAP": "True", "AI_SDK_LOG_WARNINGS": "false", **more}
    try:
        passed = subprocess.run(command(prepared, file), env=environment, timeout=180).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"FAIL  {file}: not done after 180 s")
        passed = False
    ignored = server.counter("ss_ignored_fields_total") - before
    if ignored:
        print(f"FAIL  {file}: {ignored:.0f} fields were left out of account; the server's log at level debug names them")
    if not server.settles(5):
        print(f"FAIL  {file}: something still runs")
        return False
    return passed and not ignored


def main():
    program, prepared = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    passed = True
    with tempfile.NamedTemporaryFile(prefix="ss-clients-", suffix=".log", delete=False) as log:
        print(f"servers' log: {log.name}")
        flags = ["--name", NAME, "--log-level", "debug"]
        with Server(program, [*flags, "--script", HERE / "script.json"], log) as server:
            for file in CLIENTS:
                passed &= client(server, prepared, file, SS_SCRIPTED="1")
            passed &= snippets.run(server, prepared, ROOT / "docs/clients.md")
        passed &= codex.run(program, prepared, ROOT, log)
        print("the same clients, with the small model's own words:")
        with Server(program, [*flags, "--backend", "reference"], log) as server:
            for file in CLIENTS:
                passed &= client(server, prepared, file, SS_CASES="plain streamed")
    print("every client passed" if passed else "some clients failed")
    sys.exit(0 if passed else 1)


main()
