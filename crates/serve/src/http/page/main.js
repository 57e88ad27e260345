// The page at work: what the person does, and one answer at a time.

/** The answer that is coming: what stops it, and in which chat. */
let running = null;

const prompt = at("prompt");

function fit() {
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight}px`;
  at("send").disabled = running !== null || prompt.value.trim() === "";
}

function show() {
  showTranscript(again);
  showChats({ open, remove });
  scrolling.toEnd();
}

function open(id) {
  running?.stop.abort();
  chats.open(id);
  show();
  slide(false);
  prompt.focus();
}

function remove(id) {
  if (chats.current?.id === id) running?.stop.abort();
  const restore = chats.remove(id);
  show();
  at("new-chat").focus();
  toast("Chat deleted.", () => { restore(); show(); });
}

/** The messages of a chat as requests have them: reasoning and failures are the page's own. */
function conversation(chat) {
  const said = chat.messages.filter(({ role, content, error }) => role === "user" || (content && !error));
  const messages = said.map(({ role, content }) => ({ role, content }));
  if (settings.system?.trim()) messages.unshift({ role: "system", content: settings.system });
  return { model: at("model").value || "default_model", messages, ...sampling() };
}

async function send(text) {
  const chat = chats.begun(text);
  chat.messages.push({ role: "user", content: text });
  show();
  await respond(chat);
}

/** Asks for the last answer once more. */
function again() {
  const chat = chats.current;
  if (running || !chat) return;
  while (chat.messages.at(-1)?.role === "assistant") chat.messages.pop();
  show();
  respond(chat);
}

async function respond(chat) {
  const request = conversation(chat);
  const message = { role: "assistant", content: "" };
  chat.messages.push(message);
  const shown = reply(message, again);
  at("transcript").append(shown.node);
  begin(chat);
  shown.draw(true);
  scrolling.toEnd();
  // Once in a frame at most, whatever comes.
  let due = false;
  const changed = () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      shown.draw(running?.message === message);
      scrolling.afterChange();
      saveSoon();
    });
  };
  running.message = message;
  await answer(message, request, running.stop.signal, changed);
  end(message, shown);
  if (message.status === 401 && (await askForKey())) {
    loadModels();
    again();
  }
}

function begin(chat) {
  running = { stop: new AbortController(), chat };
  at("send").hidden = true;
  at("stop").hidden = false;
  at("transcript").setAttribute("aria-busy", "true");
  at("status").textContent = "The answer is being written.";
}

function end(message, shown) {
  running = null;
  at("send").hidden = false;
  at("stop").hidden = true;
  at("transcript").removeAttribute("aria-busy");
  at("status").textContent = message.error ? "" : "The answer has ended.";
  shown.draw(false);
  scrolling.afterChange();
  chats.save();
  fit();
}

let saving = null;

/** A reload in the middle of an answer keeps what was there a moment before. */
function saveSoon() {
  saving ??= setTimeout(() => { saving = null; chats.save(); }, 500);
}

async function loadModels() {
  const select = at("model");
  try {
    const names = await modelNames();
    select.replaceChildren(...names.map((name) => element("option", {}, name)));
    if (names.includes(settings.model)) select.value = settings.model;
    select.disabled = names.length < 2;
  } catch (error) {
    if (error.status === 401 && !store.key && !at("key").open && (await askForKey())) return loadModels();
  }
}

prompt.addEventListener("input", fit);
prompt.addEventListener("keydown", (event) => {
  // While a word is composed, Enter belongs to the input method.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at("composer").requestSubmit();
});
at("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = prompt.value.trim();
  if (!text || running) return;
  prompt.value = "";
  fit();
  send(text);
});
at("stop").addEventListener("click", () => { running?.stop.abort(); prompt.focus(); });
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (running) running.stop.abort();
  else slide(false);
});
at("new-chat").addEventListener("click", () => open(null));
at("model").addEventListener("change", () => { settings.model = at("model").value; store.write("settings", settings); });
addEventListener("storage", ({ key }) => {
  if (key !== "tandem.chats") return;
  chats.adopt();
  showChats({ open, remove });
});
addEventListener("pagehide", () => running && chats.save());

watchSidebar();
watchTheme();
watchSettings();
scrolling.watch();
chats.open(store.open);
show();
fit();
loadModels();
