// A tour of OpenAI's client for Node; `TANDEM_URL` says where the server is.

"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");
const OpenAI = require("openai");

const url = process.env.TANDEM_URL;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0, timeout: 60_000 });

const asked = [{ role: "user", content: "Tell me about owls." }];
const greedy = { model: "tiny", messages: asked, temperature: 0, max_tokens: 24 };

const weather = {
  type: "function",
  function: {
    name: "weather",
    description: "The weather in a city.",
    parameters: {
      type: "object",
      properties: { city: { type: "string", enum: ["Oslo", "Rome"] }, today: { type: "boolean" } },
      required: ["city", "today"],
      additionalProperties: false,
    },
  },
};

/** Waits until no row runs and no request waits; fails after ten seconds. */
async function fallsIdle() {
  const deadline = Date.now() + 10_000;
  for (;;) {
    const text = await (await fetch(`${url}/metrics`)).text();
    const counts = [...text.matchAll(/^tandem_requests_(?:running|waiting)(?:\{.*\})? (\S+)$/gm)];
    assert.equal(counts.length, 2);
    if (counts.every(([, count]) => Number(count) === 0)) return;
    assert.ok(Date.now() < deadline, "requests run on");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

test("models are listed and shown", async () => {
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  assert.deepEqual(models, ["tiny"]);
  assert.equal((await client.models.retrieve("tiny")).id, "tiny");
  await assert.rejects(client.models.retrieve("gpt-17"), OpenAI.NotFoundError);
});

test("a stream says what a whole answer says", async () => {
  const whole = await client.chat.completions.create(greedy);
  const stream = await client.chat.completions.create({
    ...greedy, stream: true, stream_options: { include_usage: true },
  });
  let text = "", usage, reasons = [];
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? "";
    if (chunk.choices[0]?.finish_reason) reasons.push(chunk.choices[0].finish_reason);
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.deepEqual(reasons, [whole.choices[0].finish_reason]);
  assert.equal(usage.total_tokens, whole.usage.total_tokens);
});

test("the client's own accumulator understands the stream", async () => {
  const whole = await client.chat.completions.create(greedy);
  const final = await client.chat.completions.stream(greedy).finalChatCompletion();
  assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
});

test("log-probabilities, whole and streamed", async () => {
  const scored = { ...greedy, logprobs: true, top_logprobs: 2 };
  const whole = (await client.chat.completions.create(scored)).choices[0].logprobs.content;
  const streamed = [];
  for await (const chunk of await client.chat.completions.create({ ...scored, stream: true })) {
    streamed.push(...(chunk.choices[0].logprobs?.content ?? []));
  }
  assert.equal(whole.length, greedy.max_tokens);
  assert.deepEqual(streamed, whole);
});

for (const choice of ["required", { type: "function", function: { name: "weather" } }]) {
  test(`tools that must be called: ${JSON.stringify(choice)}`, async () => {
    const tools = { ...greedy, max_tokens: 200, tools: [weather], tool_choice: choice };
    const { message, finish_reason: reason } = (await client.chat.completions.create(tools)).choices[0];
    assert.equal(reason, "tool_calls");
    const [call] = message.tool_calls;
    assert.equal(call.function.name, "weather");
    assert.equal(typeof JSON.parse(call.function.arguments).today, "boolean");

    const final = await client.chat.completions.stream(tools).finalChatCompletion();
    assert.equal(final.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);

    const told = [...asked, message, { role: "tool", tool_call_id: call.id, content: "Sunny." }];
    const after = await client.chat.completions.create({ ...tools, messages: told, tool_choice: "none" });
    assert.ok(after.choices[0].message.content);
  });
}

test("the client's runner calls the function and goes on", async () => {
  let called;
  const runner = client.chat.completions.runTools(
    {
      ...greedy,
      max_tokens: 200,
      tool_choice: { type: "function", function: { name: "weather" } },
      tools: [{ type: "function", function: { ...weather.function, parse: JSON.parse, function: (found) => { called = found; return "Sunny."; } } }],
    },
    { maxChatCompletions: 2 },
  );
  await runner.done();
  assert.equal(typeof called.today, "boolean");
});

test("errors have the client's types", async () => {
  const refused = (fields) => client.chat.completions.create({ ...greedy, ...fields });
  await assert.rejects(refused({ temperature: 9 }), (error) =>
    error instanceof OpenAI.BadRequestError && error.param === "temperature");
  await assert.rejects(refused({ model: "gpt-17" }), (error) =>
    error instanceof OpenAI.NotFoundError && error.code === "model_not_found");
  await assert.rejects(refused({ messages: [{ role: "user", content: "a".repeat(5000) }] }), (error) =>
    error instanceof OpenAI.BadRequestError && error.code === "context_length_exceeded");
  assert.ok((await refused({})).choices.length);
});

test("a stream that is aborted midway ends its row", async () => {
  const stream = await client.chat.completions.create({ ...greedy, max_tokens: 4000, ignore_eos: true, stream: true });
  let chunks = 0;
  for await (const _ of stream) if (++chunks === 3) stream.controller.abort();
  await fallsIdle();
});

test("completions", async () => {
  const prompt = { model: "tiny", prompt: "Owls are", temperature: 0, max_tokens: 12 };
  const whole = await client.completions.create(prompt);
  let text = "";
  for await (const chunk of await client.completions.create({ ...prompt, stream: true })) text += chunk.choices[0].text;
  assert.equal(text, whole.choices[0].text);
});

test("responses, whole and streamed, and their next turns", async () => {
  const spoken = { model: "tiny", input: "Tell me about owls.", temperature: 0, max_output_tokens: 24 };
  const whole = await client.responses.create(spoken);
  const final = await client.responses.stream(spoken).finalResponse();
  assert.ok(whole.output_text);
  assert.equal(final.output_text, whole.output_text);
  const next = await client.responses.create({ ...spoken, previous_response_id: whole.id });
  assert.ok(next.usage.input_tokens > whole.usage.total_tokens);
  await assert.rejects(client.responses.create({ ...spoken, previous_response_id: "resp_unknown" }), OpenAI.NotFoundError);
});
