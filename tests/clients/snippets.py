"""Runs the snippets of a page of the documentation that are marked `<!-- run: KIND; says: WORDS -->`."""

import os
import re
import subprocess

BLOCK = re.compile(r"<!-- run: (?P<kind>\w+)(?:; says: (?P<says>[^>]*?))? -->\n```\w*\n(?P<code>.*?)```", re.S)
# Where the page says that the server listens.
ADDRESS = "http://127.0.0.1:11434"


def blocks(page, kinds):
    """The marked blocks of these kinds, with the line that each begins at."""
    text = page.read_text()
    for found in BLOCK.finditer(text):
        if found["kind"] in kinds:
            yield text.count("\n", 0, found.start()) + 1, found["kind"], found["says"], found["code"]


def run(server, prepared, page):
    passed, count = True, 0
    before = server.counter("ss_ignored_fields_total")
    for line, kind, says, code in blocks(page, {"python", "node", "sh"}):
        code = code.replace(ADDRESS, server.url)
        file = prepared / "node" / f"snippet{line}.{'mjs' if kind == 'node' else 'txt'}"
        file.write_text(code)
        command = {"python": [prepared / "venv/bin/python", file], "node": ["node", file],
                   "sh": ["bash", "-euo", "pipefail", file]}[kind]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "NO_PROXY": "*"})
        good = done.returncode == 0 and (says or "") in done.stdout
        print(f"{'ok   ' if good else 'FAIL '} {page.name} line {line:<4} {kind}", flush=True)
        if not good:
            print(f"it must end well and say `{says}`; it ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        passed &= good
        count += 1
    if server.counter("ss_ignored_fields_total") != before:
        print(f"FAIL  {page.name}: fields were left out of account")
        passed = False
    return passed and count > 0
