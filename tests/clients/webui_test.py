"""Open WebUI: too large to install for a test; its requests are sent as its source (backend/open_webui/routers/ollama.py,
routers/openai.py) makes them."""

import json
import urllib.request

from kit import *

HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer unused", "Accept": "*/*"}


def send(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(URL + path, data, HEADERS), timeout=30) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def chat(text, **more):
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}


def plain():
    assert json.loads(send("/api/version")[1])["version"]
    for path in ["/api/tags", "/api/ps"]:
        model = json.loads(send(path)[1])["models"][0]
        same((model["name"], model["model"]), (MODEL, MODEL))
    same(json.loads(send("/v1/models")[1])["data"][0]["id"], MODEL)
    # Titles and tags of a conversation are asked for in one piece.
    reply = send("/api/chat", chat(ASK, stream=False, options={"num_predict": 40}))[1]
    said(json.loads(reply)["message"]["content"])


def streamed():
    kind, lines = send("/api/chat", chat(ASK, stream=True, options={"num_predict": 40, "temperature": 0.5, "num_ctx": 2048}))
    same(kind, "application/x-ndjson")
    parts = [json.loads(line) for line in lines.splitlines()]
    said("".join(part["message"]["content"] for part in parts))
    kind, events = send("/v1/chat/completions", chat(ASK, stream=True, max_tokens=40, stream_options={"include_usage": True}))
    assert kind.startswith("text/event-stream"), kind
    assert events.endswith("data: [DONE]\n\n"), events[-100:]
    parts = [json.loads(event[6:]) for event in events.split("\n\n") if event.startswith("data: {")]
    said("".join(part["choices"][0]["delta"].get("content") or "" for part in parts if part["choices"]))


run("Open WebUI (its requests)", dict(plain=plain, streamed=streamed))
