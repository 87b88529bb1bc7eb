"""anthropic (Python): messages."""

import anthropic

from kit import *

client = anthropic.Anthropic(base_url=URL, api_key="unused", max_retries=0)
TOOL = {"name": "get_weather", "input_schema": SCHEMA}


def ask(text, max_tokens=40, **more):
    return dict(model=MODEL, max_tokens=max_tokens, messages=[{"role": "user", "content": text}], **more)


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def plain():
    message = client.messages.create(**ask(ASK))
    said(text_of(message))
    assert message.usage.output_tokens > 0
    counted = client.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": ASK}])
    same(counted.input_tokens, message.usage.input_tokens)
    same(client.models.list().data[0].id, MODEL)


def streamed():
    with client.messages.stream(**ask(ASK)) as stream:
        text = "".join(stream.text_stream)
        same(text_of(stream.get_final_message()), text)
    said(text)


def tools():
    messages = [{"role": "user", "content": ASK_WEATHER}]
    settings = dict(model=MODEL, max_tokens=1000, tools=[TOOL])
    made = client.messages.create(messages=messages, **settings)
    same(made.stop_reason, "tool_use")
    call = next(block for block in made.content if block.type == "tool_use")
    same((call.name, call.input), ("get_weather", {"city": "Paris"}))
    result = {"type": "tool_result", "tool_use_id": call.id, "content": RESULT}
    messages += [{"role": "assistant", "content": made.content}, {"role": "user", "content": [result]}]
    with client.messages.stream(messages=messages, **settings) as stream:
        said(text_of(stream.get_final_message()), WEATHER)


def thinking():
    asked = ask(ASK_THINK, max_tokens=2000, thinking={"type": "enabled", "budget_tokens": 1024})
    message = client.messages.create(**asked)
    same((message.content[0].thinking, text_of(message)), (THOUGHT, FOUR))
    with client.messages.stream(**asked) as stream:
        message = stream.get_final_message()
    same((message.content[0].thinking, text_of(message)), (THOUGHT, FOUR))
    # Thoughts go back with their signature.
    asked["messages"] += [{"role": "assistant", "content": message.content}, {"role": "user", "content": "Thank you."}]
    assert client.messages.create(**asked).content


def abort():
    before = cancelled_before()
    with client.messages.stream(**ask(ASK_ENDLESS, max_tokens=100000)) as stream:
        for number, _ in enumerate(stream.text_stream):
            if number == 5:
                break
    is_cancelled(before)
    plain()


def error():
    try:
        client.messages.create(**ask(ASK, max_tokens=0))
    except anthropic.BadRequestError as refusal:
        same(refusal.body["error"]["type"], "invalid_request_error")
        assert "`max_tokens` must be" in refusal.body["error"]["message"], refusal.body
    else:
        raise AssertionError("nothing was raised")
    try:
        client.messages.create(**{**ask(ASK), "model": "other"})
    except anthropic.NotFoundError as refusal:
        assert MODEL in refusal.body["error"]["message"], refusal.body
    else:
        raise AssertionError("nothing was raised")
    try:
        with client.messages.stream(**ask("Please fail midway.")) as stream:
            stream.get_final_message()
    except anthropic.APIError as refusal:
        assert "the script says so" in str(refusal), refusal
    else:
        raise AssertionError("a stream that failed ended well")


run("anthropic (Python)", dict(plain=plain, streamed=streamed, tools=tools, thinking=thinking, abort=abort, error=error))
