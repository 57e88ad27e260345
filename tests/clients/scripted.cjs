// A server that answers as a test says, behind the page of the real one: for what no model can be made to say.

"use strict";

const http = require("node:http");

/** Starts one; `behind` is the address of the server whose page it hands on. */
async function scripted(behind) {
  const requests = [], replies = [];
  const server = http.createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += piece;
    if (request.url === "/") return handOn(`${behind}/`, response);
    if (request.url === "/v1/models") {
      response.setHeader("Content-Type", "application/json");
      return response.end(JSON.stringify({ data: [{ id: "scripted" }, { id: "another" }] }));
    }
    if (request.url !== "/v1/chat/completions") return response.writeHead(404).end();
    requests.push({ body: JSON.parse(body), headers: request.headers });
    const reply = replies.shift() ?? says("Hello.");
    await reply(response);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    requests,
    /** What the next requests are answered with, in this order. */
    will: (...next) => replies.push(...next),
    close: () => { server.closeAllConnections(); server.close(); },
  };
}

async function handOn(url, response) {
  const page = await fetch(url);
  const headers = Object.fromEntries(page.headers);
  delete headers["content-length"];
  delete headers["transfer-encoding"];
  response.writeHead(page.status, headers).end(await page.text());
}

const chunk = (fields) => `data: ${JSON.stringify({ id: "x", object: "chat.completion.chunk", choices: [], ...fields })}\n\n`;
const delta = (delta, reason = null) => chunk({ choices: [{ index: 0, delta, finish_reason: reason }] });

/** A stream of these pieces: texts, or other deltas; cut in the middle of lines and characters. */
function says(...pieces) {
  return async (response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    const texts = pieces.map((piece) => delta(typeof piece === "string" ? { content: piece } : piece));
    const stream = [delta({ role: "assistant" }), ": keep-alive\n\n", ...texts, delta({}, "stop"),
      chunk({ usage: { prompt_tokens: 5, completion_tokens: 1234, total_tokens: 1239 } }), "data: [DONE]\n\n"];
    const bytes = Buffer.from(stream.join(""));
    for (let from = 0; from < bytes.length; from += 501) {
      response.write(bytes.subarray(from, from + 501));
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    response.end();
  };
}

/** A stream that begins and does not end; `left` resolves when the client has left. */
function goesOn(text) {
  let leave;
  const left = new Promise((resolve) => (leave = resolve));
  const reply = async (response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(delta({ content: text }));
    response.on("close", leave);
  };
  return Object.assign(reply, { left });
}

/** A stream that fails after this text. */
function fails(text, message) {
  return async (response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(delta({ content: text }));
    response.end(chunk({ error: { message, type: "server_error" } }));
  };
}

/** A refusal. */
function refuses(status, message) {
  return async (response) => {
    response.writeHead(status, { "Content-Type": "application/json" });
    response.end(JSON.stringify({ error: { message, type: "invalid_request_error", param: null, code: null } }));
  };
}

module.exports = { scripted, says, goesOn, fails, refuses };
