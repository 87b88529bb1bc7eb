"""What the tests of every client need: where the server is, what it tells of itself, and a line a case.

A case fails by an exception. Against the scripted server answers are compared letter by letter; against a model that makes
its own words (SS_SCRIPTED unset) only their presence.
"""

import json
import os
import sys
import time
import traceback
import urllib.request

URL = os.environ["SS_URL"]
MODEL = os.environ["SS_MODEL_NAME"]
SCRIPTED = os.environ.get("SS_SCRIPTED") == "1"
CASES = os.environ.get("SS_CASES", "").split()

HELLO = "Hello from slotstream: \U0001f469‍\U0001f469‍\U0001f467, é and \U0001f1eb\U0001f1f7."
WEATHER = "It is 17 degrees in Paris. \U0001f469‍\U0001f469‍\U0001f467 é"
RESULT = "17 degrees"
ASK = "Tell me a story about a fox."
ASK_WEATHER = "What is the weather in Paris?"
ASK_THINK = "What is 2 + 2? Please think about it."
ASK_ENDLESS = "Please count without end."
THOUGHT, FOUR = "Two and two make four.", "It is 4."
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
# A field that is wrong, and what the server says of it.
WRONG = "max_tokens"


def get(path):
    with urllib.request.urlopen(URL + path, timeout=10) as answer:
        return answer.read().decode()


def status():
    return json.loads(get("/ss/status"))


def same(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


def said(text, expected=HELLO):
    """A reply's text."""
    if SCRIPTED:
        same(text, expected)
    else:
        assert text and text.strip(), "the reply is empty"


def cancelled_before():
    return status()["totals"]["cancelled"]


def is_cancelled(before):
    """The server must notice within a second that its client is gone."""
    until = time.monotonic() + 1
    while time.monotonic() < until:
        now = status()
        if now["totals"]["cancelled"] > before and now["active_requests"] == 0:
            return
        time.sleep(0.02)
    raise AssertionError("a second after the client left its request was not cancelled")


def run(client, cases):
    failed = 0
    for name, case in cases.items():
        if CASES and name not in CASES:
            continue
        start = time.monotonic()
        try:
            case()
            print(f"ok    {client:<28} {name:<10} {(time.monotonic() - start) * 1000:6.0f} ms", flush=True)
        except Exception as error:  # noqa: BLE001: whatever a client throws is a failed case
            failed += 1
            traceback.print_exc()
            print(f"FAIL  {client:<28} {name:<10} {type(error).__name__}: {error}", flush=True)
    sys.exit(1 if failed else 0)
