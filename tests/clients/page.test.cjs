// The chat page in a browser: against the server in `TANDEM_URL`, and against one that answers as a test says.

"use strict";

const assert = require("node:assert/strict");
const { after, afterEach, before, beforeEach, test } = require("node:test");
const puppeteer = require("puppeteer-core");
const { fails, goesOn, refuses, says, scripted } = require("./scripted.cjs");

const live = process.env.TANDEM_URL, keyed = process.env.TANDEM_KEYED_URL;
let browser, server, context, page, complaints;

before(async () => {
  // In a container there is often no room for its sandbox, and little shared memory; the page is our own.
  browser = await puppeteer.launch({
    executablePath: process.env.TANDEM_BROWSER ?? "/usr/bin/chromium-headless-shell",
    headless: "shell",
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
  server = await scripted(live);
});

after(async () => {
  await browser?.close();
  server?.close();
});

beforeEach(async () => {
  context = await browser.createBrowserContext();
  page = await context.newPage();
  complaints = [];
  // What the policy forbids and what fails in scripts; refusals that a test asks for are no complaint.
  page.on("console", (message) => /Policy|Trusted/.test(message.text()) && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => {
    const { protocol, origin } = new URL(request.url());
    if (protocol !== "data:" && ![live, keyed, server.url].includes(origin)) complaints.push(`asked elsewhere: ${request.url()}`);
  });
  server.requests.length = 0;
});

afterEach(async () => {
  await context.close();
  assert.deepEqual(complaints, []);
});

const visit = async (url = server.url) => {
  await page.goto(url);
  await page.waitForFunction(() => document.getElementById("model").value !== "");
};
const text = (selector) => page.$eval(selector, (node) => node.innerText);
const markup = (selector = ".reply:last-child .prose:not(.reasoning *)") => page.$eval(selector, (node) => node.innerHTML);
const shows = (selector, wanted) => page.waitForFunction(
  (selector, wanted) => document.querySelector(selector)?.textContent.includes(wanted), {}, selector, wanted);
/** Sends a message and waits for the whole answer. */
const say = async (message) => {
  await page.type("#prompt", message);
  await page.keyboard.press("Enter");
  await ended();
};
const ended = () => page.waitForFunction(() => !document.getElementById("send").hidden && document.querySelector(".reply"));
const told = async (reply) => {
  server.will(reply);
  await say("Go.");
};

test("an answer of the server itself comes, with its tokens and their pace", async () => {
  // The likeliest tokens of this model go on for long.
  await page.evaluateOnNewDocument(() => localStorage.setItem("tandem.settings", '{"temperature": 0}'));
  await visit(live);
  assert.equal(await page.$eval("#model", (node) => node.value), "tiny");
  await page.type("#prompt", "Tell me about owls.");
  await page.keyboard.press("Enter");
  assert.equal(await text(".question"), "Tell me about owls.");
  await page.waitForFunction(() => /^\d+ tokens · [\d.]+ per second$/.test(document.querySelector(".reply .note").textContent));
  assert.ok((await text(".reply .prose:not(.reasoning *)")).length > 0);
  await page.keyboard.press("Escape");
  await ended();
  assert.match(await text(".reply .note"), /^\d+ tokens · [\d.]+ per second( · stopped)?$/);
  assert.equal(await page.$eval(".reply .error", (node) => node.hidden), true);
  const idle = async () => /tandem_requests_running(\{.*\})? 0(\.0)?\n/.test(await (await fetch(`${live}/metrics`)).text());
  for (let tries = 0; !(await idle()); tries += 1) {
    assert.ok(tries < 500, "the row runs on");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
});

test("the page is one response with a strict policy", async () => {
  const response = await fetch(live);
  const policy = response.headers.get("content-security-policy");
  assert.match(policy, /^default-src 'none'; script-src 'sha256-[^']+'; style-src 'sha256-[^']+'; connect-src 'self'; img-src data:;/);
  assert.doesNotMatch(policy, /unsafe|\*/);
  assert.equal(response.headers.get("x-content-type-options"), "nosniff");
  const html = await response.text();
  assert.doesNotMatch(html, /(?:src|href)="(?!#|data:)/);
  assert.doesNotMatch(html, /innerHTML|insertAdjacentHTML|document\.write/);
});

test("text streams in, and Escape stops it where it is", async () => {
  const endless = goesOn("The first words");
  await visit();
  server.will(endless);
  await page.type("#prompt", "Go on.");
  await page.keyboard.press("Enter");
  await shows(".reply", "The first words");
  assert.equal(await page.$eval("#stop", (node) => node.hidden), false);
  await page.keyboard.press("Escape");
  await endless.left;
  await ended();
  assert.match(await text(".reply .note"), /stopped$/);
  // What was said goes on as the conversation does.
  await say("And then?");
  assert.deepEqual(server.requests[1].body.messages.map(({ role, content }) => [role, content]), [
    ["user", "Go on."], ["assistant", "The first words"], ["user", "And then?"],
  ]);
});

test("the button stops too", async () => {
  const endless = goesOn("The first words");
  await visit();
  server.will(endless);
  await page.type("#prompt", "Go on.");
  await page.click("#send");
  await shows(".reply", "The first words");
  await page.click("#stop");
  await endless.left;
});

test("a reload keeps the chats and the open one", async () => {
  await visit();
  await say("First.");
  await page.click("#new-chat");
  await say("Second.");
  await page.reload();
  assert.equal(await text(".question"), "Second.");
  assert.equal(await text(".reply .prose:not(.reasoning *)"), "Hello.");
  assert.equal(await page.title(), "Second. – Tandem");
  await page.click("#chats li:nth-child(2) .title");
  assert.equal(await text(".question"), "First.");
});

test("a reload in the middle of an answer keeps what had come", async () => {
  await visit();
  server.will(goesOn("The first words"));
  await page.type("#prompt", "Go on.");
  await page.keyboard.press("Enter");
  await shows(".reply", "The first words");
  await page.reload();
  assert.equal(await text(".reply .prose:not(.reasoning *)"), "The first words");
});

test("two tabs do not lose each other's chats", async () => {
  await visit();
  await say("First.");
  const other = await context.newPage();
  await other.goto(server.url);
  assert.equal(await other.$eval("#welcome", (node) => node.hidden), false);
  await other.type("#prompt", "Second.");
  await other.keyboard.press("Enter");
  await other.waitForFunction(() => document.querySelector(".reply .note")?.textContent.includes("tokens"));
  await page.bringToFront();
  await say("Third.");
  await page.reload();
  const titles = await page.$$eval("#chats .title", (nodes) => nodes.map((node) => node.textContent).sort());
  assert.deepEqual(titles, ["First.", "Second."]);
  assert.equal((await page.$$(".question")).length, 2);
});

test("a chat is deleted, and comes back if asked to", async () => {
  await visit();
  await say("First.");
  await page.click("#chats .icon");
  assert.equal((await page.$$("#chats li")).length, 0);
  assert.equal(await page.$eval("#welcome", (node) => node.hidden), false);
  await page.click("#toast button");
  await page.click("#chats .title");
  assert.equal(await text(".question"), "First.");
  await page.click("#chats .icon");
  await page.reload();
  assert.equal((await page.$$("#chats li")).length, 0);
});

test("what a model writes never becomes markup", async () => {
  const hostile = [
    "<img src=x onerror=\"document.title='hit'\">", "<script>document.title='hit'</script>",
    "[a](javascript:document.title='hit')", "[b](java\nscript:alert(1))", "[c](data:text/html,<script>alert(1)</script>)",
    "[d](vbscript:x)", "<javascript:alert(1)>", "[e](\u0001javascript:alert(1))", "![f](http://127.0.0.1:9/pixel.png)",
    "[g](//127.0.0.1:9/x)", "[h](file:///etc/passwd)", "<a href=\"javascript:alert(1)\">i</a>", "`<b>j</b>`",
    "[k](https://example.org/\" onmouseover=\"alert(1))", "<iframe src=javascript:alert(1)></iframe>", "# <svg onload=alert(1)>",
    "| <img src=x onerror=alert(1)> | b |\n|---|---|\n| <b>c</b> | d |",
  ];
  await visit();
  await told(says(hostile.join("\n\n")));
  const found = await page.$eval("#transcript", (node) => ({
    forbidden: node.querySelectorAll("img, script, iframe, svg:not(.icon), object, embed, style, form, b").length,
    handlers: [...node.querySelectorAll("*")].flatMap((one) => one.getAttributeNames()).filter((name) => name.startsWith("on")),
    links: [...node.querySelectorAll("a")].map((link) => [link.textContent, link.href, link.rel]),
    shown: node.innerText,
  }));
  assert.equal(found.forbidden, 0);
  assert.deepEqual(found.handlers, []);
  const rel = "noopener noreferrer";
  assert.deepEqual(found.links, [["f", "http://127.0.0.1:9/pixel.png", rel], ["https://example.org/", "https://example.org/", rel]]);
  for (const shown of ["<img src=x onerror=", "<script>document", "[a](javascript:", "<b>j</b>", "<svg onload=alert(1)>"]) {
    assert.ok(found.shown.includes(shown), shown);
  }
  assert.doesNotMatch(await page.title(), /hit/);
});

test("Markdown becomes what it means", async () => {
  const cases = [
    ["Plain *em* **strong** ***both*** _em_ __strong__ ~~gone~~", "<p>Plain <em>em</em> <strong>strong</strong> <strong><em>both</em></strong> <em>em</em> <strong>strong</strong> <del>gone</del></p>"],
    ["snake_case_name, 2 * 3 * 4, **open, \\*escaped\\*", "<p>snake_case_name, 2 * 3 * 4, **open, *escaped*</p>"],
    ["one\ntwo\n\nthree", "<p>one<br>two</p><p>three</p>"],
    ["# One\n## Two #\nText", "<h2>One</h2><h3>Two</h3><p>Text</p>"],
    ["`a*b*` and ``x`y``", "<p><code>a*b*</code> and <code>x`y</code></p>"],
    ["- a\n- b\n  - c\n  - d\n- e", "<ul><li>a</li><li>b<ul><li>c</li><li>d</li></ul></li><li>e</li></ul>"],
    ["Steps:\n1. a\n2. b\n\nEnd", "<p>Steps:</p><ol><li>a</li><li>b</li></ol><p>End</p>"],
    ["3) a\n4) b", "<ol start=\"3\"><li>a</li><li>b</li></ol>"],
    ["- a\n\n- b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>"],
    ["1. a\n   more\n\n   ```\n   x\n   ```\n2. b", null, ["li > figure pre", "li + li"]],
    ["- [x] done\n- [ ] open", null, ["li.task > input:checked", "li.task > input:not(:checked)"]],
    ["> quoted\n> > twice\n\nafter", "<blockquote><p>quoted</p><blockquote><p>twice</p></blockquote></blockquote><p>after</p>"],
    ["a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"],
    ["| a | b |\n|:--|--:|\n| 1 | `x\\|y` |\n| 3 |", "<div class=\"table\"><table><thead><tr><th class=\"\">a</th><th class=\"right\">b</th></tr></thead><tbody><tr><td class=\"\">1</td><td class=\"right\"><code>x|y</code></td></tr><tr><td class=\"\">3</td><td class=\"right\"></td></tr></tbody></table></div>"],
    ["See [this *one*](https://example.org/a_(b)) or https://example.org/x_y.", null, ["a[href='https://example.org/a_(b)']", "a[href='https://example.org/x_y']"]],
    ["```py\nprint('<b>')\n", null, ["figure.code pre"]],
  ];
  await visit();
  for (const [source, expected, selectors] of cases) {
    await page.click("#new-chat");
    await told(says(source));
    if (expected !== null) assert.equal((await markup()).replaceAll(" tabindex=\"0\"", ""), expected, source);
    for (const selector of selectors ?? []) assert.ok(await page.$(`.reply ${selector}`), `${source}: ${selector}`);
  }
});

test("no text takes long to draw", async () => {
  const bombs = ["*a_b".repeat(5000), "[".repeat(10000), "`".repeat(9999) + "a", "> ".repeat(5000), "- ".repeat(5000), "**a ".repeat(5000), "|".repeat(10000)];
  // Where a reader tried every way to part such a run, a line of this length would take minutes.
  const long = 200_000, gap = " ".repeat(long);
  bombs.push(`# ${gap}\u2028`, `\`\`\`${gap}\``, `~~~${"~".repeat(long)}\``, `\` ${"a".repeat(long)}\``);
  bombs.push(`- ${gap}\u2028`, `a|b\n-|-${gap}c`, `a${gap}b`);
  await visit();
  for (const bomb of bombs) {
    await page.click("#new-chat");
    const start = Date.now();
    await told(says(bomb));
    assert.ok(Date.now() - start < 8000, `${bomb.slice(0, 4)}: ${Date.now() - start} ms`);
  }
});

test("code is copied by its button", async () => {
  await context.overridePermissions(server.url, ["clipboard-read", "clipboard-write", "clipboard-sanitized-write"]);
  await visit();
  await told(says("Here:\n\n```rust\nfn main() {\n    let x = 1 < 2;\n}\n```\n\nDone."));
  assert.equal(await text(".code figcaption span"), "rust");
  await page.click(".code button");
  await shows(".code button", "Copied");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "fn main() {\n    let x = 1 < 2;\n}");
});

test("reasoning lies folded beside the answer, and stays with the page", async () => {
  await visit();
  await told(says({ reasoning_content: "First I **think**." }, "Then I speak."));
  const details = await page.$eval(".reasoning", (node) => ({ open: node.open, hidden: node.hidden, text: node.textContent }));
  assert.deepEqual(details, { open: false, hidden: false, text: "ReasoningFirst I think." });
  assert.equal(await text(".reply > .prose"), "Then I speak.");
  await page.click(".reasoning summary");
  assert.equal(await page.$eval(".reasoning", (node) => node.open), true);
  await say("Go on.");
  assert.deepEqual(server.requests[1].body.messages[1], { role: "assistant", content: "Then I speak." });
});

test("errors are shown, and what failed is tried again", async () => {
  await visit();
  await told(refuses(400, "temperature: at most 2, got: 9"));
  assert.equal(await text(".reply .error"), "temperature: at most 2, got: 9");
  server.will(fails("It began", "the model failed"));
  await page.click(".again");
  await shows(".reply .error", "the model failed");
  assert.equal(await text(".reply .prose:not(.reasoning *)"), "It began");
  await page.click(".again");
  await shows(".reply", "Hello.");
  assert.equal((await page.$$(".reply")).length, 1);
  assert.deepEqual(server.requests[2].body.messages, [{ role: "user", content: "Go." }]);
});

test("a server that asks for a key gets it", async () => {
  await visit();
  server.will(refuses(401, "a key is needed"));
  await page.type("#prompt", "Go.");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#key[open]");
  await page.type("#key input", "secret");
  await page.keyboard.press("Enter");
  await shows(".reply", "Hello.");
  assert.equal(server.requests[1].headers.authorization, "Bearer secret");
  assert.equal(await page.evaluate(() => JSON.stringify({ ...localStorage }).includes("secret")), false);
});

test("the server itself asks for its key before anything else", async () => {
  await page.goto(keyed);
  await page.waitForSelector("#key[open]");
  await page.type("#key input", process.env.TANDEM_KEY);
  await page.click("#key .primary");
  await page.waitForFunction(() => document.getElementById("model").value === "tiny");
  await say("Go.");
  assert.equal(await page.$eval(".reply .error", (node) => node.hidden), true);
});

test("settings go with requests, and stay", async () => {
  await visit();
  await page.click("#open-settings");
  await page.type("[name=system]", "Be short.");
  await page.type("[name=temperature]", "0.5");
  await page.type("[name=max_tokens]", "64");
  await page.keyboard.press("Escape");
  await page.select("#model", "another");
  await page.reload();
  await page.waitForFunction(() => document.getElementById("model").value === "another");
  await say("Go.");
  const { body } = server.requests[0];
  assert.deepEqual(body.messages[0], { role: "system", content: "Be short." });
  assert.deepEqual([body.model, body.temperature, body.max_tokens, "top_p" in body], ["another", 0.5, 64, false]);
  await page.click("#open-settings");
  await page.click("#reset");
  await page.click("#settings .primary");
  await say("Go.");
  assert.equal("temperature" in server.requests[1].body, false);
});

test("dark and light follow the system, or the switch", async () => {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
  await visit();
  const dark = await ground();
  await page.click("#theme");
  const light = await ground();
  assert.notEqual(light, dark);
  await page.reload();
  assert.equal(await ground(), light);
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
  await page.click("#theme");
  assert.equal(await ground(), dark);
});

test("the keyboard is enough", async () => {
  await visit();
  assert.equal(await page.evaluate(() => document.activeElement.id), "prompt");
  await page.type("#prompt", "one");
  await page.keyboard.down("Shift");
  await page.keyboard.press("Enter");
  await page.keyboard.up("Shift");
  await page.type("#prompt", "two");
  await page.keyboard.press("Enter");
  await ended();
  assert.equal(server.requests[0].body.messages[0].content, "one\ntwo");
  // Every stop of the Tab key is visible and has a name.
  const seen = new Set();
  for (let stop = 0; stop < 25; stop += 1) {
    await page.keyboard.press("Tab");
    const found = await page.evaluate(() => {
      const node = document.activeElement;
      const name = node.getAttribute("aria-label") || node.textContent || node.labels?.[0]?.textContent || "";
      return { id: node.id || node.className || node.tagName, name: name.trim(), outline: getComputedStyle(node).outlineStyle };
    });
    if (found.id === "BODY") continue;
    seen.add(found.id);
    assert.ok(found.name, `no name: ${found.id}`);
    if (found.id !== "prompt") assert.notEqual(found.outline, "none", found.id);
  }
  for (const id of ["new-chat", "open-settings", "theme", "prompt"]) assert.ok(seen.has(id), id);
});

test("a phone's width is enough", async () => {
  await page.setViewport({ width: 375, height: 667, isMobile: true, hasTouch: true });
  await visit();
  await page.$eval("#model option:checked", (node) => { node.textContent = "a model of a long name ".repeat(4); });
  await told(says(`${"wide".repeat(60)}\n\n\`\`\`\n${"wide ".repeat(60)}\n\`\`\`\n\n| ${"wide | ".repeat(20)}\n|${"--|".repeat(20)}\n| ${"x | ".repeat(20)}`));
  const width = await page.evaluate(() => Math.max(document.documentElement.scrollWidth, document.getElementById("scroller").scrollWidth));
  assert.ok(width <= 375, `${width} pixels`);
  // What runs over is cut off, so that no width tells of it.
  const right = await page.$$eval("#open-settings, #composer, #send, .reply .code", (nodes) =>
    Math.max(...nodes.map((node) => node.getBoundingClientRect().right)));
  assert.ok(right <= 375, `up to ${right} pixels`);
  const inSight = () => page.$eval("#sidebar", (node) => !node.inert && node.getBoundingClientRect().right > 0);
  assert.equal(await inSight(), false);
  await page.click("#open-sidebar");
  await page.waitForFunction(() => document.getElementById("sidebar").getBoundingClientRect().left === 0);
  assert.equal(await inSight(), true);
  await page.keyboard.press("Escape");
  assert.equal(await page.$eval("#sidebar", (node) => node.inert), true);
});

test("a person who scrolls up is left there", async () => {
  await visit();
  await told(says("line\n\n".repeat(200)));
  const place = () => page.$eval("#scroller", (node) => [node.scrollTop, node.scrollHeight - node.clientHeight]);
  const [atEnd, most] = await place();
  assert.ok(most - atEnd < 40);
  const endless = goesOn("more\n\n".repeat(200));
  server.will(endless);
  await page.type("#prompt", "Go on.");
  await page.$eval("#scroller", (node) => node.scrollTo(0, 0));
  await page.waitForFunction(() => !document.getElementById("latest").hidden);
  await page.click("#latest");
  await page.waitForFunction(() => document.getElementById("latest").hidden);
  await page.keyboard.press("Escape");
});
