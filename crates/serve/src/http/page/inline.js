// Markdown within a line: code, emphasis, links. The result is nodes; what is no Markdown stays text.

/** Emphasis within emphasis stays text beyond this depth. */
const DEEPEST = 8;

/** Marks, longest first, and their elements. */
const EMPHASIS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

const isSpace = (letter) => letter === undefined || /\s/.test(letter);
const isWord = (letter) => letter !== undefined && /[\p{L}\p{N}]/u.test(letter);

/** The address, if it is of a kind that may be followed: never a script, never a file. */
function safeAddress(text) {
  if (!URL.canParse(text)) return null;
  return ["http:", "https:", "mailto:"].includes(new URL(text).protocol) ? text : null;
}

function link(address, ...children) {
  return element("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

/** Readers of what may stand at a position: each gives a node and where it ends, or nothing. */
const READERS = [escape, code, linkOrImage, address, emphasis];

/** The nodes of a line of Markdown, or of several. */
function inline(text, depth = 0) {
  const parent = document.createDocumentFragment();
  // Marks that were looked for in vain: they are not looked for again, so that no text takes long.
  const missing = new Set();
  let from = 0, position = 0;
  const flush = (end) => end > from && parent.append(...lines(text.slice(from, end)));
  while (position < text.length) {
    if (!/[\\`!\[<h*_~]/.test(text[position])) { position += 1; continue; }
    let found = null;
    for (const reader of READERS) if ((found = reader(text, position, depth, missing))) break;
    if (!found) { position += 1; continue; }
    flush(position);
    parent.append(found.node);
    from = position = found.end;
  }
  flush(text.length);
  return parent;
}

/** Text with its line breaks. */
function lines(text) {
  const nodes = [];
  text.split("\n").forEach((line, index, all) => {
    if (index > 0) nodes.push(element("br"));
    const shown = index + 1 < all.length ? line.trimEnd() : line;
    if (shown) nodes.push(shown);
  });
  return nodes;
}

function escape(text, position) {
  if (text[position] !== "\\") return null;
  if (text[position + 1] === "\n") return { node: element("br"), end: position + 2 };
  if (!/[!-\/:-@\[-`{-~]/.test(text[position + 1] ?? "")) return null;
  return { node: document.createTextNode(text[position + 1]), end: position + 2 };
}

function code(text, position, _depth, missing) {
  if (text[position] !== "`" || text[position - 1] === "`") return null;
  const fence = /^`+/.exec(text.slice(position, position + 40))[0];
  if (missing.has(fence)) return null;
  for (let close = position + fence.length; (close = text.indexOf(fence, close)) >= 0; ) {
    let end = close;
    while (text[end] === "`") end += 1;
    if (end - close === fence.length) {
      const inner = text.slice(position + fence.length, close).replaceAll("\n", " ");
      const padded = inner.startsWith(" ") && inner.endsWith(" ") && /[^ ]/.test(inner);
      const trimmed = padded ? inner.slice(1, -1) : inner;
      return { node: element("code", {}, trimmed), end };
    }
    close = end;
  }
  missing.add(fence);
  return null;
}

/** `[text](address)`. An image is a link too: nothing is fetched that nobody asked for. */
function linkOrImage(text, position, depth) {
  const open = text[position] === "!" ? position + 1 : position;
  if (text[open] !== "[" || depth >= DEEPEST) return null;
  const close = closing(text, open, "[", "]", 1000);
  if (close < 0 || text[close + 1] !== "(") return null;
  const end = closing(text, close + 1, "(", ")", 2000);
  if (end < 0) return null;
  const target = /^\s*<?([^\s<>]*)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*$/.exec(text.slice(close + 2, end));
  const followed = target && safeAddress(target[1]);
  if (!followed) return null;
  const shown = text.slice(open + 1, close) || followed;
  return { node: link(followed, inline(shown, DEEPEST)), end: end + 1 };
}

/** Where the bracket at `open` is closed, looked for within a bounded distance. */
function closing(text, open, opens, closes, distance) {
  let depth = 0;
  for (let index = open; index < Math.min(text.length, open + distance); index += 1) {
    if (text[index] === "\\") index += 1;
    else if (text[index] === opens) depth += 1;
    else if (text[index] === closes && --depth === 0) return index;
  }
  return -1;
}

/** An address that stands for itself, bare or in angle brackets. */
function address(text, position, depth) {
  if (depth >= DEEPEST || !/[<h]/.test(text[position]) || isWord(text[position - 1])) return null;
  const rest = text.slice(position, position + 2000);
  const bracketed = /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/.exec(rest);
  if (bracketed) {
    return safeAddress(bracketed[1]) && { node: link(bracketed[1], bracketed[1]), end: position + bracketed[0].length };
  }
  const bare = /^https?:\/\/[^\s<>"`]+/.exec(rest);
  if (!bare) return null;
  // The end of a sentence is no part of an address, nor a bracket that was opened before it.
  let shown = bare[0].replace(/[.,:;!?'"*_~]+$/, "");
  while (shown.endsWith(")") && shown.split("(").length < shown.split(")").length) shown = shown.slice(0, -1);
  return safeAddress(shown) && { node: link(shown, shown), end: position + shown.length };
}

function emphasis(text, position, depth, missing) {
  if (depth >= DEEPEST) return null;
  for (const [mark, name] of EMPHASIS) {
    if (!text.startsWith(mark, position) || missing.has(mark)) continue;
    const start = position + mark.length;
    if (isSpace(text[start]) || (mark[0] === "_" && isWord(text[position - 1]))) return null;
    const end = endOfEmphasis(text, start, mark);
    if (end < 0) { missing.add(mark); continue; }
    return { node: element(name, {}, inline(text.slice(start, end), depth + 1)), end: end + mark.length };
  }
  return null;
}

/** Where emphasis ends: at its mark behind a letter, not within code and not at half of a longer mark. */
function endOfEmphasis(text, start, mark) {
  for (let index = start; index < text.length; index += 1) {
    if (text[index] === "\\") { index += 1; continue; }
    if (text[index] === "`") {
      const close = text.indexOf("`", index + 1);
      if (close > 0) index = close;
      continue;
    }
    if (!text.startsWith(mark, index) || index === start || isSpace(text[index - 1])) continue;
    if (mark.length === 1 && text[index + 1] === mark) { index += 1; continue; }
    // Of a longer run of marks the last ones end what began first.
    if (mark.length === 2 && text[index + 2] === mark[0]) continue;
    if (mark[0] === "_" && isWord(text[index + mark.length])) continue;
    return index;
  }
  return -1;
}
