// What stands around the conversation: the list of chats on narrow screens, settings, the key, the theme.

const narrow = matchMedia("(max-width: 760px)");

/** Shows or hides the list of chats where it lies over the page. */
function slide(shown) {
  const over = shown && narrow.matches;
  at("sidebar").classList.toggle("shown", over);
  at("sidebar").inert = narrow.matches && !over;
  at("backdrop").hidden = !over;
  if (over) at("close-sidebar").focus();
}

function watchSidebar() {
  at("open-sidebar").addEventListener("click", () => slide(true));
  at("close-sidebar").addEventListener("click", () => { slide(false); at("open-sidebar").focus(); });
  at("backdrop").addEventListener("click", () => slide(false));
  narrow.addEventListener("change", () => slide(false));
  slide(false);
}

/** Puts the caret into the message field. A dialog that is closed by a click gives back the focus, but not the caret. */
function toPrompt() {
  at("prompt").blur();
  at("prompt").focus();
}

const THEMES = { system: "as the system has it", light: "light", dark: "dark" };

/** Light or dark, or as the system has it. */
function watchTheme() {
  const names = Object.keys(THEMES);
  const show = (theme) => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    at("theme").setAttribute("aria-label", `Theme: ${THEMES[theme]}`);
    at("theme").title = `Theme: ${THEMES[theme]}`;
  };
  let theme = store.read("theme", "system");
  if (!names.includes(theme)) theme = "system";
  show(theme);
  at("theme").addEventListener("click", () => {
    theme = names[(names.indexOf(theme) + 1) % names.length];
    store.write("theme", theme);
    show(theme);
  });
}

/** The settings' form, which is what requests carry. */
function watchSettings() {
  const dialog = at("settings");
  const fields = [...dialog.querySelectorAll("input, textarea")];
  const fill = () => fields.forEach((field) => (field.value = field.name === "key" ? store.key : settings[field.name] ?? ""));
  at("open-settings").addEventListener("click", () => { fill(); dialog.showModal(); });
  dialog.addEventListener("input", ({ target }) => {
    if (target.name === "key") store.key = target.value.trim();
    else settings[target.name] = target.validity.valid ? target.value : "";
    store.write("settings", settings);
  });
  at("reset").addEventListener("click", () => {
    fields.forEach((field) => delete settings[field.name]);
    store.key = "";
    store.write("settings", settings);
    fill();
  });
  // A click beside the form closes it.
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", toPrompt);
}

/** Asks the person for a key; true if there is one to try. */
function askForKey() {
  const dialog = at("key");
  const field = dialog.querySelector("input");
  field.value = store.key;
  dialog.returnValue = "";
  at("no-key").onclick = () => dialog.close();
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    const used = dialog.returnValue === "use";
    if (used) store.key = field.value.trim();
    toPrompt();
    resolve(used);
  }, { once: true }));
}

/** Says what was done, and takes it back if asked to in time. */
function toast(text, undo) {
  const node = at("toast");
  clearTimeout(node.timer);
  node.firstElementChild.textContent = text;
  node.lastElementChild.onclick = () => { node.hidden = true; undo(); };
  node.hidden = false;
  node.timer = setTimeout(() => (node.hidden = true), 6000);
}
