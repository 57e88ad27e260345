// The conversation on the page.

/** What stands below an answer. */
function footnote({ stats, end }) {
  const parts = [];
  if (stats) {
    parts.push(`${stats.tokens} ${stats.tokens === 1 ? "token" : "tokens"}`);
    if (stats.speed) parts.push(`${stats.speed.toFixed(stats.speed < 100 ? 1 : 0)} per second`);
  }
  if (end === "length") parts.push("cut off at the limit of tokens");
  if (end === "stopped") parts.push("stopped");
  return parts.join(" · ");
}

/** A message of the person. */
function question(message) {
  return element("article", { class: "question", "aria-label": "You" }, message.content);
}

/** A message of the model, and the function that draws its present state. */
function reply(message, again) {
  const thought = element("div", { class: "prose" });
  const reasoning = element("details", { class: "reasoning", hidden: true }, element("summary", {}, "Reasoning"), thought);
  const prose = element("div", { class: "prose" });
  const waiting = element("p", { class: "waiting", "aria-hidden": "true" }, element("i"), element("i"), element("i"));
  const error = element("p", { class: "error", role: "alert", hidden: true });
  const note = element("span", { class: "note" });
  const retry = element("button", { type: "button", class: "quiet again" }, "Try again");
  retry.addEventListener("click", again);
  const foot = element("footer", { hidden: true }, copyButton(() => message.content), retry, note);
  const node = element("article", { class: "reply", "aria-label": "Answer" }, reasoning, waiting, prose, error, foot);
  const draw = (running) => {
    reasoning.hidden = !message.reasoning;
    reasoning.firstChild.textContent = running && !message.content ? "Reasoning…" : "Reasoning";
    redraw(thought, message.reasoning ?? "");
    redraw(prose, message.content);
    waiting.hidden = !running || message.content !== "" || Boolean(message.reasoning);
    node.classList.toggle("running", running);
    error.hidden = !message.error;
    error.textContent = message.error ?? "";
    foot.hidden = running && !message.stats;
    foot.firstChild.hidden = running || !message.content;
    retry.hidden = running;
    note.textContent = footnote(message);
  };
  draw(false);
  return { node, draw };
}

/** Shows the open chat. */
function showTranscript(again) {
  const messages = chats.current?.messages ?? [];
  at("transcript").replaceChildren(...messages.map((message) =>
    message.role === "user" ? question(message) : reply(message, again).node));
  at("welcome").hidden = messages.length > 0;
  document.title = chats.current ? `${chats.current.title} – Tandem` : "Tandem";
}

/** Shows the list of chats. */
function showChats({ open, remove }) {
  at("chats").replaceChildren(...chats.all.map((chat) => {
    const title = element("button", { type: "button", class: "title" }, chat.title || "Chat");
    if (chat === chats.current) title.setAttribute("aria-current", "page");
    title.addEventListener("click", () => open(chat.id));
    const bin = element("button", { type: "button", class: "icon", "aria-label": `Delete: ${chat.title}` }, icon("bin"));
    bin.addEventListener("click", () => remove(chat.id));
    return element("li", {}, title, bin);
  }));
}

/** Keeps the end in sight while text comes, unless the person has scrolled away from it. */
const scrolling = {
  follows: true,

  toEnd() {
    this.follows = true;
    at("scroller").scrollTop = at("scroller").scrollHeight;
    at("latest").hidden = true;
  },

  afterChange() {
    if (this.follows) this.toEnd();
    else at("latest").hidden = false;
  },

  watch() {
    const scroller = at("scroller");
    scroller.addEventListener("scroll", () => {
      this.follows = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 40;
      if (this.follows) at("latest").hidden = true;
      else at("latest").hidden = false;
    }, { passive: true });
    at("latest").addEventListener("click", () => this.toEnd());
  },
};
