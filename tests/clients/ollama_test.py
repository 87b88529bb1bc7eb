"""ollama (Python): chat, generate, and what it asks of the library."""

import ollama

from kit import *

client = ollama.Client(host=URL)
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}}
FEW = {"num_predict": 40}


def ask(text):
    return [{"role": "user", "content": text}]


def plain():
    reply = client.chat(model=MODEL, messages=ask(ASK), options=FEW)
    said(reply.message.content)
    assert reply.done and reply.eval_count > 0
    said(client.generate(model=MODEL, prompt=ASK, options=FEW).response)
    same(client.list().models[0].model, MODEL)
    same(client.ps().models[0].model, MODEL)
    assert "tools" in client.show(MODEL).capabilities


def streamed():
    parts = list(client.chat(model=MODEL, messages=ask(ASK), options=FEW, stream=True))
    said("".join(part.message.content or "" for part in parts))
    assert parts[-1].done and parts[-1].done_reason in ("stop", "length")
    said("".join(part.response for part in client.generate(model=MODEL, prompt=ASK, options=FEW, stream=True)))


def tools():
    messages = ask(ASK_WEATHER)
    made = client.chat(model=MODEL, messages=messages, tools=[TOOL]).message
    call = made.tool_calls[0].function
    same((call.name, dict(call.arguments)), ("get_weather", {"city": "Paris"}))
    messages += [made, {"role": "tool", "content": RESULT, "tool_name": call.name}]
    parts = client.chat(model=MODEL, messages=messages, tools=[TOOL], stream=True)
    said("".join(part.message.content or "" for part in parts), WEATHER)


def thinking():
    reply = client.chat(model=MODEL, messages=ask(ASK_THINK), think=True).message
    same((reply.thinking, reply.content), (THOUGHT, FOUR))
    parts = list(client.chat(model=MODEL, messages=ask(ASK_THINK), think="low", stream=True))
    same("".join(part.message.thinking or "" for part in parts), THOUGHT)
    same("".join(part.message.content or "" for part in parts), FOUR)


def abort():
    before = cancelled_before()
    stream = client.chat(model=MODEL, messages=ask(ASK_ENDLESS), stream=True)
    for _ in range(5):
        next(stream)
    stream.close()
    is_cancelled(before)
    plain()


def error():
    try:
        client.chat(model=MODEL, messages=ask(ASK), options={"num_ctx": 1 << 30})
    except ollama.ResponseError as refusal:
        same(refusal.status_code, 400)
        assert "`options.num_ctx`" in refusal.error, refusal.error
    else:
        raise AssertionError("nothing was raised")
    try:
        for _ in client.chat(model=MODEL, messages=ask("Please fail midway."), stream=True):
            pass
    except ollama.ResponseError as refusal:
        assert "the script says so" in refusal.error, refusal.error
    else:
        raise AssertionError("a stream that failed ended well")


run("ollama (Python)", dict(plain=plain, streamed=streamed, tools=tools, thinking=thinking, abort=abort, error=error))
