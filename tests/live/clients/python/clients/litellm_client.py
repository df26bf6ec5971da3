"""LiteLLM, with its provider for Ollama's own routes: `ollama_chat/` for chats, `ollama/` for the rest."""

import asyncio
import json
import os

# Read while the library is imported: prices of models come from its own file and not from the internet.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
import openai

import same

litellm.telemetry = False
litellm.suppress_debug_info = True
litellm.num_retries = 0


def settings(url, model):
    # After an answer the library asks what the model costs, and looks for an Ollama here and not at `api_base`.
    os.environ["OLLAMA_API_BASE"] = url
    return {"model": f"ollama_chat/{model}", "api_base": url, "timeout": same.TIMEOUT_SECONDS, "max_retries": 0}


def create(url, model, messages, **request):
    return litellm.completion(messages=messages, **settings(url, model), **request)


def deltas(stream):
    return [choice.delta for chunk in stream for choice in chunk.choices]


def chat(url, job):
    model = job["models"]["say"]
    first = create(url, model, same.conversation())
    text = first.choices[0].message.content
    second = create(url, model, same.conversation() + same.second_turn(text))
    choice, prompt_tokens = second.choices[0], [first.usage.prompt_tokens, second.usage.prompt_tokens]
    return same.saw_chat(text, choice.message.content, choice.finish_reason, prompt_tokens)


def streaming(url, job):
    chunks = create(url, job["models"]["say"], same.conversation(), stream=True)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    (reason,) = [choice.finish_reason for choice in choices if choice.finish_reason]
    return same.saw_streaming([choice.delta.content for choice in choices], reason)


def tools(url, job):
    model, messages, offered = job["models"]["call"], same.user(same.TOOL_QUESTION), [same.function_tool()]
    asked = create(url, model, messages, tools=offered).choices[0].message
    (made,) = asked.tool_calls
    result = {"role": "tool", "tool_call_id": made.id, "name": made.function.name, "content": same.TOOL_RESULT}
    answer = create(url, model, [*messages, asked, result], tools=offered).choices[0].message.content
    chunks = list(create(url, model, messages, tools=offered, stream=True))
    (streamed,) = litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message.tool_calls
    return same.saw_tools(told(made), answer, told(streamed))


def told(made):
    return made.function.name, json.loads(made.function.arguments)


def structured(url, job):
    messages = same.user(same.FREIGHT_QUESTION)
    answer = create(url, job["models"]["free"], messages, response_format=same.Freight, temperature=0)
    return same.saw_structured(same.Freight.model_validate_json(answer.choices[0].message.content))


def thinking(url, job):
    model, messages = job["models"]["think"], same.user(same.THINKING_QUESTION)
    plain = create(url, model, messages, reasoning_effort="low").choices[0].message
    parts = deltas(create(url, model, messages, reasoning_effort="low", stream=True))
    streamed = ["".join(map(thoughts, parts)), "".join(part.content or "" for part in parts)]
    return same.saw_thinking(thoughts(plain), plain.content, *streamed)


def thoughts(message):
    """The library leaves the field out where there is nothing in it."""
    return getattr(message, "reasoning_content", None) or ""


def images(url, job):
    picture = {"type": "image_url", "image_url": {"url": same.data_url(job["image"])}}
    content = [{"type": "text", "text": same.IMAGE_QUESTION}, picture]
    return same.saw_images(create(url, job["models"]["sight"], same.user(content)).choices[0].message.content)


def embeddings(url, job):
    model = f"ollama/{job['models']['say']}"
    made = litellm.embedding(model=model, input=same.EMBEDDED, api_base=url, timeout=same.TIMEOUT_SECONDS)
    return same.saw_embeddings([item["embedding"] for item in made.data])


def list_models(url, job):
    names = litellm.get_valid_models(check_provider_endpoint=True, custom_llm_provider="ollama", api_base=url)
    assert f"ollama/{job['models']['say']}" in [name.removesuffix(":latest") for name in names], names
    return sorted(names)


def show(url, job):
    """The library asks about a model, and hands on two things of the answer.

    One is the window, which Loadline tells as it really is (`context.tell_window`) and Ollama as it was trained.
    """
    info = litellm.get_model_info(f"ollama_chat/{job['models']['say']}", api_base=url)
    assert info["max_tokens"], "the library did not get an answer"
    return {"supports_function_calling": info["supports_function_calling"]}


def tell(error):
    return {"status": error.status_code, "message": error.message}


def thrown_by(url, model, messages, **request):
    """Its errors are descendants of OpenAI's."""
    return same.thrown(lambda: create(url, model, messages, **request), openai.APIStatusError, tell)


def unknown_model(url, job):
    return thrown_by(url, same.UNKNOWN_MODEL, same.conversation())


def bad_request(url, job):
    return thrown_by(url, job["models"]["say"], same.conversation(), temperature="hot")


def refused(url, job):
    return same.names_count_and_limit(thrown_by(url, job["models"]["small"], same.user(job["giant"])))


def cancel(url, job):
    return asyncio.run(walk_away(url, job["models"]["endless"]))


async def walk_away(url, model):
    """Only the asynchronous stream of the library can be closed."""
    stream = await litellm.acompletion(messages=same.user(same.CANCEL_QUESTION), stream=True, **settings(url, model))
    read = 0
    async for chunk in stream:
        read += bool(chunk.choices[0].delta.content)
        if read == same.PIECES_BEFORE_LEAVING:
            break
    await stream.aclose()
    return {"pieces": read}


def ladder(url, job):
    model = job["models"]["small"]

    def plain(history):
        return create(url, model, history).choices[0].message.content

    def streamed(history):
        return "".join(part.content or "" for part in deltas(create(url, model, history, stream=True)))

    return same.climb(job["ladder"], plain, streamed)


ABSENT = {"pull": "LiteLLM has no such call"}

FEATURES = {
    "chat": chat,
    "streaming": streaming,
    "tools": tools,
    "structured": structured,
    "thinking": thinking,
    "images": images,
    "embeddings": embeddings,
    "list": list_models,
    "show": show,
    "unknown model": unknown_model,
    "bad request": bad_request,
    "refused": refused,
    "cancel": cancel,
    "ladder": ladder,
}
