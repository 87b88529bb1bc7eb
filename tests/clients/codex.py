"""Codex: a task in a directory of its own, set up as docs/clients.md says, with nothing but the server to talk to."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import snippets
from server import Server

NOTE = "slotstream left this note\n"
# Its own instructions take more tokens than the small model has positions.
POSITIONS = 131072


def wide_model(root, into):
    """The small model's words with a wide window; a script needs no more of it."""
    small = root / "models/flash-next-nano"
    for file in small.iterdir():
        (into / file.name).symlink_to(file)
    config = json.loads((small / "config.json").read_text())
    for part in (config, config.get("text_config", {})):
        if "max_position_embeddings" in part:
            part["max_position_embeddings"] = POSITIONS
    (into / "config.json").unlink()
    (into / "config.json").write_text(json.dumps(config))


def run(program, prepared, root, log):
    codex = prepared / "codex/node_modules/.bin/codex"
    name = f"{'codex (npm)':<28}"
    if not codex.exists():
        print(f"FAIL  {name} is not installed")
        return False
    with tempfile.TemporaryDirectory() as folder:
        home, work, model = (pathlib.Path(folder) / part for part in ("home", "work", "model"))
        for part in (home, work, model):
            part.mkdir()
        wide_model(root, model)
        (work / "note.txt").write_text(NOTE)
        flags = ["--model", model, "--name", "qwen3.8-flash-next:4bit", "--log-level", "debug"]
        with Server(program, [*flags, "--script", root / "tests/clients/script.json"], log) as server:
            config = next(code for *_, code in snippets.blocks(root / "docs/clients.md", {"codex"}))
            (home / "config.toml").write_text(config.replace(snippets.ADDRESS, server.url))
            start = time.monotonic()
            # No proxy, no key, and no way out but the loopback.
            environment = {"HOME": str(home), "CODEX_HOME": str(home), "PATH": os.environ["PATH"], "NO_PROXY": "127.0.0.1",
                           "HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
            command = [codex, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json",
                       "Please read note.txt and tell me what it says."]
            try:
                done = subprocess.run(command, cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                                      text=True, timeout=120)
                told, code = done.stdout + done.stderr, done.returncode
            except subprocess.TimeoutExpired as error:
                told, code = f"{error.stdout}{error.stderr}", "not at all"
            ignored = server.counter("ss_ignored_fields_total")
            requests = [request["ended"] for request in server.status()["requests"]]
    good = code == 0 and "The note was left by slotstream." in told and "slotstream left this note" in told
    good = good and requests == ["stop", "stop"]
    took = (time.monotonic() - start) * 1000
    print(f"{'ok   ' if good and not ignored else 'FAIL '} {name} {'a task':<10} {took:6.0f} ms", flush=True)
    if not good:
        print(f"it ended with {code}; the server's requests ended with {requests}\n{told[-4000:]}")
    if ignored:
        print(f"FAIL  codex: {ignored:.0f} fields were left out of account; the server's log names them")
    return good and not ignored
