"""openai (Python): chat completions, and responses where the two differ."""

import json

import openai

from kit import *

client = openai.OpenAI(base_url=f"{URL}/v1", api_key="unused", max_retries=0)
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}


def ask(text, **more):
    return client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": text}], **more)


def plain():
    reply = ask(ASK, max_tokens=40)
    said(reply.choices[0].message.content)
    assert reply.usage.completion_tokens > 0
    reply = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=40)
    said(reply.choices[0].text)
    said(client.responses.create(model=MODEL, input=ASK, max_output_tokens=40).output_text)
    same(client.models.list().data[0].id, MODEL)


def streamed():
    chunks = list(ask(ASK, max_tokens=40, stream=True, stream_options={"include_usage": True}))
    said("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices))
    assert chunks[-1].usage.completion_tokens > 0
    # Of a reply that the limit cut, this client gathers nothing by itself: the last event tells it.
    text = ""
    for event in client.responses.create(model=MODEL, input=ASK, max_output_tokens=40, stream=True):
        if event.type == "response.output_text.delta":
            text += event.delta
    assert event.type in ("response.completed", "response.incomplete"), event
    same(event.response.output_text, text)
    said(text)


def tools():
    messages = [{"role": "user", "content": ASK_WEATHER}]
    made = client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL]).choices[0]
    same(made.finish_reason, "tool_calls")
    call = made.message.tool_calls[0]
    same((call.function.name, json.loads(call.function.arguments)), ("get_weather", {"city": "Paris"}))
    messages += [made.message, {"role": "tool", "tool_call_id": call.id, "content": RESULT}]
    said(client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL]).choices[0].message.content, WEATHER)
    # The same, streamed, through the other endpoint.
    tool = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}
    items = [{"role": "user", "content": ASK_WEATHER}]
    with client.responses.stream(model=MODEL, input=items, tools=[tool]) as stream:
        output = stream.get_final_response().output
    call = next(item for item in output if item.type == "function_call")
    same((call.name, json.loads(call.arguments)), ("get_weather", {"city": "Paris"}))
    items += [item.to_dict() for item in output]
    items += [{"type": "function_call_output", "call_id": call.call_id, "output": RESULT}]
    said(client.responses.create(model=MODEL, input=items, tools=[tool]).output_text, WEATHER)


def thinking():
    message = ask(ASK_THINK, reasoning_effort="low").choices[0].message
    same((message.reasoning_content, message.content), (THOUGHT, FOUR))
    deltas = [chunk.choices[0].delta for chunk in ask(ASK_THINK, reasoning_effort="low", stream=True)]
    same("".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas), THOUGHT)
    same("".join(delta.content or "" for delta in deltas), FOUR)
    reply = client.responses.create(model=MODEL, input=ASK_THINK, reasoning={"effort": "low", "summary": "auto"})
    same((reply.output[0].summary[0].text, reply.output_text), (THOUGHT, FOUR))


def abort():
    before = cancelled_before()
    stream = ask(ASK_ENDLESS, stream=True)
    for _ in range(5):
        next(stream)
    stream.close()
    is_cancelled(before)
    plain()


def error():
    try:
        ask(ASK, max_tokens=0)
    except openai.BadRequestError as refusal:
        same((refusal.param, refusal.code), ("max_tokens", "invalid_request_error"))
        assert "`max_tokens` must be" in refusal.message, refusal.message
    else:
        raise AssertionError("nothing was raised")
    try:
        for _ in ask("Please fail midway.", stream=True):
            pass
    except openai.APIError as refusal:
        assert "the script says so" in refusal.message, refusal.message
    else:
        raise AssertionError("a stream that failed ended well")


run("openai (Python)", dict(plain=plain, streamed=streamed, tools=tools, thinking=thinking, abort=abort, error=error))
