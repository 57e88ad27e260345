// What outlives a reload: chats, settings and theme in this browser, the key and which chat is open in this tab.

/** At most this many chats are kept, the newest. */
const MOST_CHATS = 200;

const store = {
  read(name, otherwise) {
    try {
      return JSON.parse(localStorage.getItem(`tandem.${name}`)) ?? otherwise;
    } catch {
      return otherwise;
    }
  },

  /** Whether it could be kept. */
  write(name, value) {
    try {
      localStorage.setItem(`tandem.${name}`, JSON.stringify(value));
      return true;
    } catch {
      return false;
    }
  },

  get key() {
    return sessionStorage.getItem("tandem.key") ?? "";
  },

  set key(value) {
    sessionStorage.setItem("tandem.key", value);
  },

  get open() {
    return sessionStorage.getItem("tandem.open") ?? "";
  },

  set open(id) {
    sessionStorage.setItem("tandem.open", id);
  },
};

/** The chats that are stored, whoever has written them. */
const storedChats = () => store.read("chats", []).filter((chat) => chat?.id && Array.isArray(chat.messages));

/** Chats, newest first; each has messages of a role and a content. */
const chats = {
  all: storedChats(),
  current: null,

  open(id) {
    this.current = this.all.find((chat) => chat.id === id) ?? null;
    store.open = id ?? "";
  },

  /** The open chat, which begins with its first message. */
  begun(text) {
    if (this.current) return this.current;
    const title = text.trim().split("\n")[0].slice(0, 80);
    const chat = { id: `${Date.now()}-${Math.random().toString(36).slice(2)}`, title, messages: [] };
    this.all.unshift(chat);
    this.open(chat.id);
    return chat;
  },

  remove(id) {
    const index = this.all.findIndex((chat) => chat.id === id);
    const [chat] = this.all.splice(index, 1);
    if (this.current === chat) this.open(null);
    this.save();
    return () => {
      this.all.splice(index, 0, chat);
      this.save();
    };
  },

  /** Takes over what another tab has written; the chat that is open here stays as it is here. */
  adopt() {
    const { current } = this;
    this.all = storedChats().map((chat) => (chat.id === current?.id ? current : chat));
    if (current && !this.all.includes(current)) this.all.unshift(current);
  },

  /** Where there is no room for all, the oldest go. */
  save() {
    this.all.length = Math.min(this.all.length, MOST_CHATS);
    while (!store.write("chats", this.all) && this.all.length > 1) this.all.pop();
  },
};

/** What requests carry besides the conversation. */
const settings = store.read("settings", {});

/** The settings that are numbers, as a request has them. */
function sampling() {
  const names = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "max_tokens"];
  const typed = names.filter((name) => (settings[name] ?? "") !== "" && Number.isFinite(Number(settings[name])));
  return Object.fromEntries(typed.map((name) => [name, Number(settings[name])]));
}
