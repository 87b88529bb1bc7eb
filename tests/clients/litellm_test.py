"""litellm: the same model by all three of its APIs."""

import json

import litellm

from kit import *

litellm.telemetry = False
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}}
WAYS = {
    "openai": dict(model=f"openai/{MODEL}", api_base=f"{URL}/v1", api_key="unused"),
    "anthropic": dict(model=f"anthropic/{MODEL}", api_base=URL, api_key="unused"),
    "ollama": dict(model=f"ollama_chat/{MODEL}", api_base=URL),
}


def ask(way, text, max_tokens=40, **more):
    messages = more.pop("messages", [{"role": "user", "content": text}])
    return litellm.completion(messages=messages, max_tokens=max_tokens, num_retries=0, max_retries=0, **WAYS[way], **more)


def plain():
    for way in WAYS:
        said(ask(way, ASK).choices[0].message.content)


def streamed():
    for way in WAYS:
        said("".join(chunk.choices[0].delta.content or "" for chunk in ask(way, ASK, stream=True)))


def tools():
    for way in WAYS:
        messages = [{"role": "user", "content": ASK_WEATHER}]
        made = ask(way, "", 1000, messages=messages, tools=[TOOL]).choices[0].message
        call = made.tool_calls[0]
        same((way, call.function.name, json.loads(call.function.arguments)), (way, "get_weather", {"city": "Paris"}))
        messages += [made.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": RESULT}]
        said(ask(way, "", 1000, messages=messages, tools=[TOOL]).choices[0].message.content, WEATHER)


def thinking():
    effort = {"reasoning_effort": "low"}
    asked = {"openai": {**effort, "allowed_openai_params": ["reasoning_effort"]}, "ollama": effort,
             "anthropic": {"thinking": {"type": "enabled", "budget_tokens": 1024}, "allowed_openai_params": ["thinking"]}}
    for way in WAYS:
        message = ask(way, ASK_THINK, 3000, **asked[way]).choices[0].message
        same((way, message.reasoning_content, message.content), (way, THOUGHT, FOUR))


def abort():
    for way in WAYS:
        before = cancelled_before()
        stream = ask(way, ASK_ENDLESS, 3000, stream=True)
        for _ in range(5):
            next(stream)
        # What a program does when it has enough: nothing more is read, and the stream is let go of.
        close = getattr(stream.completion_stream, "close", None) or getattr(stream.completion_stream, "response", stream).close
        close()
        del stream
        is_cancelled(before)
    plain()


def error():
    for way in WAYS:
        try:
            ask(way, ASK, temperature=1e300)
        except litellm.BadRequestError as refusal:
            assert "temperature` must be a number" in str(refusal), (way, refusal)
        except litellm.APIConnectionError as refusal:
            # For Ollama's API it has no finer class.
            assert way == "ollama" and "temperature` must be a number" in str(refusal), (way, refusal)
        else:
            raise AssertionError(f"{way}: nothing was raised")


run("litellm (Python)", dict(plain=plain, streamed=streamed, tools=tools, thinking=thinking, abort=abort, error=error))
