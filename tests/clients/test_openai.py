"""A tour of OpenAI's client for Python, which checks every answer against its own types."""

import json

import openai
import pytest

from tandem import KEY

ASKED = [{"role": "user", "content": "Tell me about owls."}]
GREEDY = {"model": "tiny", "messages": ASKED, "temperature": 0, "max_tokens": 24}

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}, "today": {"type": "boolean"}},
            "required": ["city", "today"],
            "additionalProperties": False,
        },
    },
}
TIME = {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def client(url):
    with openai.OpenAI(
        base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60, _strict_response_validation=True
    ) as client:
        yield client


def test_models(client):
    (model,) = client.models.list().data
    assert model.id == "tiny"
    assert client.models.retrieve("tiny") == model
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("gpt-17")
    assert error.value.code == "model_not_found"


def test_a_chat(client):
    answer = client.chat.completions.create(**GREEDY)
    (choice,) = answer.choices
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens
    assert usage.completion_tokens_details.reasoning_tokens == 0


def test_a_stream_says_what_a_whole_answer_says(client):
    whole = client.chat.completions.create(**GREEDY)
    chunks = list(client.chat.completions.create(**GREEDY, stream=True, stream_options={"include_usage": True}))
    *parts, last = chunks
    assert last.choices == [] and last.usage.completion_tokens == whole.usage.completion_tokens
    assert parts[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in parts)
    assert text == whole.choices[0].message.content
    reasons = [chunk.choices[0].finish_reason for chunk in parts if chunk.choices[0].finish_reason]
    assert reasons == [whole.choices[0].finish_reason]
    assert len({chunk.id for chunk in chunks}) == 1 and all(chunk.usage is None for chunk in parts)


def test_the_clients_own_accumulator_understands_the_stream(client):
    # The accumulator raises an error of its own where an answer ends for its length, so this one ends at a stop.
    stop = client.chat.completions.create(**GREEDY).choices[0].message.content[12:15]
    whole = client.chat.completions.create(**GREEDY, stop=[stop])
    with client.chat.completions.stream(**GREEDY, stop=[stop]) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.choices[0].finish_reason == "stop"


def test_several_answers_and_stops(client):
    answer = client.chat.completions.create(**{**GREEDY, "temperature": 1}, n=3, seed=1)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    whole = client.chat.completions.create(**GREEDY).choices[0].message.content
    stop = whole[5:8]
    cut = client.chat.completions.create(**GREEDY, stop=[stop]).choices[0]
    assert cut.message.content == whole[: whole.index(stop)] and cut.finish_reason == "stop"


@pytest.mark.parametrize("streamed", [False, True])
def test_log_probabilities(client, streamed):
    asked = {**GREEDY, "logprobs": True, "top_logprobs": 3, "stream": streamed}
    answer = client.chat.completions.create(**asked)
    choices = [chunk.choices[0] for chunk in answer] if streamed else answer.choices
    scores = [score for choice in choices if choice.logprobs for score in choice.logprobs.content]
    assert len(scores) == GREEDY["max_tokens"]
    for score in scores:
        # At temperature 0 the token is the likeliest of those listed.
        assert len(score.top_logprobs) == 3 and score.logprob == score.top_logprobs[0].logprob <= 0
        assert [top.logprob for top in score.top_logprobs] == sorted(
            (top.logprob for top in score.top_logprobs), reverse=True
        )


def calls_of_stream(stream):
    """Names and arguments of the calls that a stream builds up, and its reason to end."""
    calls, reason = {}, None
    for chunk in stream:
        (choice,) = chunk.choices
        reason = choice.finish_reason or reason
        for piece in choice.delta.tool_calls or []:
            call = calls.setdefault(piece.index, {"id": "", "name": "", "arguments": ""})
            call["id"] += piece.id or ""
            call["name"] += piece.function.name or ""
            call["arguments"] += piece.function.arguments or ""
    return list(calls.values()), reason


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_tools_that_must_be_called(client, choice):
    asked = {**GREEDY, "max_tokens": 200, "tools": [WEATHER], "tool_choice": choice}
    answer = client.chat.completions.create(**asked).choices[0]
    (call,) = answer.message.tool_calls
    assert answer.finish_reason == "tool_calls" and answer.message.content is None
    arguments = json.loads(call.function.arguments)
    assert call.function.name == "weather" and arguments["city"] in ("Oslo", "Rome")
    assert isinstance(arguments["today"], bool)

    (streamed,), reason = calls_of_stream(client.chat.completions.create(**asked, stream=True))
    assert reason == "tool_calls" and streamed["id"]
    assert (streamed["name"], streamed["arguments"]) == ("weather", call.function.arguments)

    # What the function found goes back in the next turn.
    told = [*ASKED, answer.message, {"role": "tool", "tool_call_id": call.id, "content": "Sunny."}]
    after = client.chat.completions.create(**{**asked, "messages": told, "tool_choice": "none"})
    assert after.choices[0].message.tool_calls is None and after.choices[0].message.content


def test_tools_that_may_be_called(client):
    answer = client.chat.completions.create(**GREEDY, tools=[WEATHER, TIME], tool_choice="auto").choices[0]
    assert answer.message.content or answer.message.tool_calls


def test_forms(client):
    schema = WEATHER["function"]["parameters"]
    form = {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": schema}}
    answer = client.chat.completions.create(**{**GREEDY, "max_tokens": 200}, response_format=form)
    assert set(json.loads(answer.choices[0].message.content)) == {"city", "today"}


def test_errors_have_the_clients_types(client):
    def fails(kind, **fields):
        with pytest.raises(kind) as error:
            client.chat.completions.create(**{**GREEDY, **fields})
        return error.value

    assert fails(openai.BadRequestError, temperature=9).param == "temperature"
    assert fails(openai.BadRequestError, messages="owls").param == "messages"
    assert fails(openai.NotFoundError, model="gpt-17").code == "model_not_found"
    long = [{"role": "user", "content": "a" * 5000}]
    assert fails(openai.BadRequestError, messages=long).code == "context_length_exceeded"
    assert client.chat.completions.create(**GREEDY).choices


def test_a_key_that_is_asked_for(keyed_url):
    for key in ["sk-wrong", KEY]:
        with openai.OpenAI(base_url=f"{keyed_url}/v1", api_key=key, max_retries=0) as client:
            if key == KEY:
                assert client.chat.completions.create(**GREEDY).choices
            else:
                with pytest.raises(openai.AuthenticationError):
                    client.chat.completions.create(**GREEDY)


def test_a_stream_that_is_closed_midway_ends_its_row(client, falls_idle):
    endless = {**GREEDY, "max_tokens": 4000, "extra_body": {"ignore_eos": True}}
    with client.chat.completions.create(**endless, stream=True) as stream:
        for _ in zip(range(3), stream):
            pass
    falls_idle()


def test_completions(client):
    asked = {"model": "tiny", "prompt": "Owls are", "temperature": 0, "max_tokens": 12}
    whole = client.completions.create(**asked, logprobs=2)
    (choice,) = whole.choices
    assert len(choice.logprobs.tokens) == len(choice.logprobs.token_logprobs) == whole.usage.completion_tokens
    two = client.completions.create(**{**asked, "prompt": ["Owls are", "Crows are"]})
    assert [choice.index for choice in two.choices] == [0, 1] and two.choices[0].text == choice.text


def test_completions_that_the_clients_types_do_not_tell(url):
    """Its types know no null: neither for the reason of a chunk on the way nor for the first token of an echo. OpenAI's
    own server sends both."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        asked = {"model": "tiny", "prompt": "Owls are", "temperature": 0, "max_tokens": 12}
        (choice,) = client.completions.create(**asked).choices
        chunks = [chunk.choices[0] for chunk in client.completions.create(**asked, stream=True)]
        echoed = client.completions.create(**{**asked, "max_tokens": 0}, echo=True, logprobs=0).choices[0]
    assert "".join(chunk.text for chunk in chunks) == choice.text
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == [choice.finish_reason]
    assert echoed.text == "Owls are" and echoed.logprobs.token_logprobs[0] is None
    assert all(score < 0 for score in echoed.logprobs.token_logprobs[1:])


RESPONSE = {"model": "tiny", "input": "Tell me about owls.", "temperature": 0, "max_output_tokens": 24}


def test_a_response_and_the_next_turn(client):
    first = client.responses.create(**RESPONSE)
    assert first.output_text and first.status in ("completed", "incomplete")
    assert first.usage.total_tokens == first.usage.input_tokens + first.usage.output_tokens
    second = client.responses.create(**RESPONSE, previous_response_id=first.id)
    # The second turn reads the first one's words too.
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
    with pytest.raises(openai.NotFoundError):
        client.responses.create(**RESPONSE, previous_response_id="resp_unknown")


def test_a_streamed_response_says_what_a_whole_one_says(client):
    whole = client.responses.create(**RESPONSE)
    events = list(client.responses.create(**RESPONSE, stream=True))
    assert events[0].type == "response.created"
    assert events[-1].type in ("response.completed", "response.incomplete")
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_functions_of_a_response(client):
    tool = {"type": "function", "strict": True, **WEATHER["function"]}
    asked = {**RESPONSE, "max_output_tokens": 200, "tools": [tool], "tool_choice": "required"}
    (call,) = [item for item in client.responses.create(**asked).output if item.type == "function_call"]
    assert call.name == "weather" and json.loads(call.arguments)["city"] in ("Oslo", "Rome")
    streamed = list(client.responses.create(**asked, stream=True))
    arguments = "".join(event.delta for event in streamed if event.type == "response.function_call_arguments.delta")
    assert arguments == call.arguments


def test_a_streamed_response_that_is_closed_midway_ends_its_row(client, falls_idle):
    with client.responses.create(**{**RESPONSE, "max_output_tokens": 4000}, stream=True) as stream:
        for _ in zip(range(6), stream):
            pass
    falls_idle()
