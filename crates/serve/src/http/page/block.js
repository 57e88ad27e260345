// Markdown's blocks: paragraphs, headings, lists, quotes, fenced code, tables, rules.

/** Quotes and lists within each other stay text beyond this depth. */
const DEEPEST_BLOCK = 12;

// None of these takes longer than a line is long: no two neighbours in them match the same letters.
const FENCE = /^( {0,3})(`{3,}|~{3,})/;
const HEADING = /^ {0,3}(#{1,6})[ \t]/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:([ \t]+)([^]*)|[ \t]*)$/;
const DIVIDER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*(?:\|[ \t]*)?$/;

const isBlank = (line) => /^\s*$/.test(line);

/** Readers of the block that begins at a line: each gives where it ends and how it is drawn, or nothing. */
const BLOCKS = [fence, heading, rule, quote, list, table, paragraph];

/** The blocks of a text: the source of each, and what draws it. A text that grows changes only its last ones. */
function blocks(text, depth = 0) {
  const lines = text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n");
  const found = [];
  for (let at = 0; at < lines.length; ) {
    if (isBlank(lines[at])) { at += 1; continue; }
    let block = null;
    for (const reader of BLOCKS) if ((block = reader(lines, at, depth))) break;
    found.push({ source: lines.slice(at, block.end).join("\n"), draw: block.draw });
    at = block.end;
  }
  return found;
}

/** All blocks of a text as nodes. */
const drawn = (text, depth) => blocks(text, depth).map((block) => block.draw());

/** The indent and mark of a line that opens a fence, and the language behind them. */
function fenceIn(line) {
  const found = FENCE.exec(line);
  const rest = found && line.slice(found[0].length);
  // With its mark once more it is code within a line.
  return found && !rest.includes("`") ? [found[1], found[2], rest.trim().split(/\s/, 1)[0]] : null;
}

function fence(lines, at) {
  const open = fenceIn(lines[at]);
  if (!open) return null;
  const [indent, mark, language] = open;
  const close = new RegExp(`^ {0,3}${mark[0]}{${mark.length},}[ \\t]*$`);
  let end = at + 1;
  while (end < lines.length && !close.test(lines[end])) end += 1;
  const inner = lines.slice(at + 1, end).map((line) => line.replace(new RegExp(`^ {0,${indent.length}}`), ""));
  return { end: Math.min(end + 1, lines.length), draw: () => codeBlock(inner.join("\n"), language) };
}

function codeBlock(text, language) {
  const caption = element("figcaption", {}, element("span", {}, language || "text"), copyButton(() => text));
  // Focusable, so that the keyboard scrolls what is wider than the page.
  return element("figure", { class: "code" }, caption, element("pre", { tabIndex: 0 }, element("code", {}, text)));
}

function heading(lines, at) {
  const found = HEADING.exec(lines[at]);
  if (!found) return null;
  const text = lines[at].slice(found[0].length).trim();
  // Hashes at the end behind a space close it.
  let end = text.length;
  while (text[end - 1] === "#") end -= 1;
  const shown = text[end - 1] === " " ? text.slice(0, end).trimEnd() : text;
  // The page has a heading of its own.
  return { end: at + 1, draw: () => element(`h${Math.min(found[1].length + 1, 6)}`, {}, inline(shown)) };
}

function rule(lines, at) {
  return RULE.test(lines[at]) ? { end: at + 1, draw: () => element("hr") } : null;
}

function quote(lines, at, depth) {
  if (!QUOTE.test(lines[at]) || depth >= DEEPEST_BLOCK) return null;
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && (QUOTE.test(lines[end]) || !begins(lines[end]))) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, "")).join("\n");
  return { end, draw: () => element("blockquote", {}, ...drawn(inner, depth + 1)) };
}

/** Whether a line begins a block even where a paragraph stands before it. */
function begins(line) {
  const item = ITEM.exec(line);
  return fenceIn(line) !== null || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)
    || (item !== null && item[4] !== undefined && (/^[-*+]$/.test(item[2]) || /^1[.)]$/.test(item[2])));
}

function list(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  if (!first || depth >= DEEPEST_BLOCK) return null;
  const kind = first[2].at(-1);
  const items = [];
  let end = at, loose = false, wasBlank = false;
  for (let item = first; item && item[2].at(-1) === kind && !RULE.test(lines[end]); item = ITEM.exec(lines[end] ?? "")) {
    if (wasBlank) loose = true;
    const inside = item[1].length + item[2].length + Math.min(item[3]?.length ?? 1, 4);
    const inner = [item[4] ?? ""];
    wasBlank = false;
    for (end += 1; end < lines.length; end += 1) {
      const indent = /^ */.exec(lines[end])[0].length;
      if (isBlank(lines[end])) {
        wasBlank = true;
        inner.push("");
      } else if (indent >= inside || (!wasBlank && !begins(lines[end]) && !ITEM.test(lines[end]))) {
        if (wasBlank && indent >= inside) loose ||= !ITEM.test(lines[end].slice(inside));
        wasBlank = false;
        inner.push(lines[end].slice(Math.min(indent, inside)));
      } else break;
    }
    items.push(inner.join("\n").trimEnd());
  }
  const ordered = /\d/.test(first[2]);
  const draw = () => {
    const node = element(ordered ? "ol" : "ul", {}, ...items.map((item) => listItem(item, loose, depth + 1)));
    if (ordered && parseInt(first[2], 10) !== 1) node.start = parseInt(first[2], 10);
    return node;
  };
  return { end, draw };
}

function listItem(text, loose, depth) {
  const task = /^\[([ xX])\] /.exec(text);
  const nodes = drawn(task ? text.slice(4) : text, depth);
  const flat = loose ? nodes : nodes.flatMap((node) => (node.tagName === "P" ? [...node.childNodes] : [node]));
  if (!task) return element("li", {}, ...flat);
  const box = element("input", { type: "checkbox", disabled: true, checked: task[1] !== " " });
  return element("li", { class: "task" }, box, " ", ...flat);
}

/** The cells of a row; a bar behind a backslash is part of its cell. */
function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function table(lines, at) {
  const divider = lines[at + 1] ?? "";
  if (!lines[at].includes("|") || !DIVIDER.test(divider)) return null;
  const [head, sides] = [cells(lines[at]), cells(divider)];
  if (head.length !== sides.length) return null;
  let end = at + 2;
  while (end < lines.length && !isBlank(lines[end]) && lines[end].includes("|")) end += 1;
  const rows = lines.slice(at + 2, end).map(cells);
  const side = sides.map((cell) => (/:$/.test(cell) ? (/^:/.test(cell) ? "center" : "right") : ""));
  const row = (name, texts) => element("tr", {}, ...side.map((where, column) =>
    element(name, { class: where }, inline(texts[column] ?? ""))));
  const draw = () => element("div", { class: "table", tabIndex: 0 }, element("table", {},
    element("thead", {}, row("th", head)),
    element("tbody", {}, ...rows.map((texts) => row("td", texts)))));
  return { end, draw };
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && !begins(lines[end]) && !table(lines, end)) end += 1;
  const text = lines.slice(at, end).map((line) => line.replace(/^ +/, "")).join("\n").trimEnd();
  return { end, draw: () => element("p", {}, inline(text)) };
}

/** Draws a text into a node, and keeps the nodes of blocks that have not changed since. */
function redraw(node, text) {
  const fresh = blocks(text);
  const kept = node.sources ?? [];
  let same = 0;
  while (same < kept.length && same < fresh.length && kept[same] === fresh[same].source) same += 1;
  while (node.childNodes.length > same) node.lastChild.remove();
  node.append(...fresh.slice(same).map((block) => block.draw()));
  node.sources = fresh.map((block) => block.source);
}
