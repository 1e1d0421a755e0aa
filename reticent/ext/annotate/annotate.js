"use strict";
// Spans are held in the characters of JavaScript (UTF-16); files hold Unicode characters, as Python counts them.
// Nothing is kept in the browser: what is not saved to a file is gone when the page is closed, and the page says so.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const region = byId("text");
const keys = "1234567890abcdefghijklmnopqstuvwxyz"; // r says that a document is reviewed
const hues = ["#d1495b", "#2e86ab", "#c17c00", "#3a7d44", "#8e5bb5", "#00838f", "#b5530c", "#5c6bc0", "#7a8b00", "#ad1457"];
const hue = (label) => hues[Math.max(0, data.labels.indexOf(label)) % hues.length];

// ------------------------------------------------------------------------------------------------- characters

/** Offsets in UTF-16 of each Unicode character of a text, and of its end. */
function unitsOf(text) {
  const units = [];
  let at = 0;
  for (const character of text) { units.push(at); at += character.length; }
  units.push(at);
  return units;
}
/** Number of the Unicode character at an offset in UTF-16; inside of one, that one. */
function characterAt(units, at) {
  let low = 0, high = units.length - 1;
  while (low < high) { const middle = (low + high + 1) >> 1; if (units[middle] <= at) low = middle; else high = middle - 1; }
  return low;
}
const pages = data.documents.map((each) => {
  const units = unitsOf(each.text);
  const spans = each.spans.map(({ start, end, label }) => ({ start: units[start], end: units[end], label }));
  return { ...each, units, spans, reviewed: false, undo: [] };
});
let current = 0, label = data.labels[0], changed = false;

// ---------------------------------------------------------------------------------------------------- changes

function say(words) { byId("said").textContent = words; }
function remember(page) { page.undo.push(page.spans.map((span) => ({ ...span }))); changed = true; }
/** Make a span of the current document; those that it overlaps go. */
function mark(start, end, name) {
  const page = pages[current];
  while (start < end && /\s/.test(page.text[start])) start++;
  while (end > start && /\s/.test(page.text[end - 1])) end--;
  start = page.units[characterAt(page.units, start)];
  const last = characterAt(page.units, end);
  end = page.units[last] === end ? end : page.units[last + 1];
  if (start >= end) { say("Nothing is selected."); return; }
  remember(page);
  page.spans = page.spans.filter((span) => span.end <= start || span.start >= end);
  page.spans.push({ start, end, label: name });
  page.spans.sort((a, b) => a.start - b.start);
  show(end);
  say(`Marked as ${name}: ${page.text.slice(start, end)}`);
}
function remove(span) {
  const page = pages[current];
  remember(page);
  page.spans = page.spans.filter((other) => other !== span);
  show(span.start);
  say(`Mark removed: ${page.text.slice(span.start, span.end)}`);
}
function undo() {
  const page = pages[current];
  if (!page.undo.length) { say("Nothing to undo."); return; }
  page.spans = page.undo.pop();
  show(selection().start);
  say("Undone.");
}
function markSelection(name) {
  const page = pages[current];
  let { start, end } = selection();
  if (start === end) {
    const inside = spanAt(start);
    if (inside) ({ start, end } = inside);
    else {
      const word = /[\p{L}\p{M}\p{N}_]/u;
      while (start > 0 && word.test(page.text[start - 1])) start--;
      while (end < page.text.length && word.test(page.text[end])) end++;
    }
  }
  choose(name);
  mark(start, end, name);
}
const spanAt = (at) => pages[current].spans.find((span) => span.start <= at && at <= span.end);
function choose(name) {
  label = name;
  for (const button of byId("labels").querySelectorAll("button"))
    button.setAttribute("aria-pressed", String(button.dataset.label === name));
}
function review(done) { pages[current].reviewed = done; changed = true; list(); }
function go(number) {
  if (number < 0 || number >= pages.length) { say("There is no further document."); return; }
  current = number;
  show();
  region.scrollTop = 0;
  region.focus();
  caret(0, 0);
  say(`Document ${pages[current].name}, ${pages[current].spans.length} marks.`);
}

// -------------------------------------------------------------------------------------------------- selection

/** Start and end of the selection in the text of the document; it begins where there is none. */
function selection() {
  const chosen = window.getSelection();
  if (!chosen.rangeCount || !region.contains(chosen.anchorNode) || !region.contains(chosen.focusNode))
    return { start: 0, end: 0 };
  const range = chosen.getRangeAt(0), before = document.createRange();
  before.selectNodeContents(region);
  before.setEnd(range.startContainer, range.startOffset);
  const start = before.toString().length;
  return { start, end: start + range.toString().length };
}
function caret(start, end) {
  const place = (at) => {
    const walker = document.createTreeWalker(region, NodeFilter.SHOW_TEXT);
    let node = walker.nextNode(), last = region;
    while (node) { if (at <= node.length) return [node, at]; at -= node.length; last = node; node = walker.nextNode(); }
    return [last, last.length ?? 0];
  };
  window.getSelection().setBaseAndExtent(...place(start), ...place(end));
}

// ------------------------------------------------------------------------------------------------------- page

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value); else made.setAttribute(key, value);
  made.append(...children);
  return made;
}
/** Draw the current document again, with the cursor at a place of its text. */
function show(at) {
  const page = pages[current], parts = [];
  let done = 0;
  for (const span of page.spans) {
    parts.push(page.text.slice(done, span.start));
    const marked = element("mark", { "data-label": span.label, title: span.label }, page.text.slice(span.start, span.end));
    marked.style.setProperty("--hue", hue(span.label));
    parts.push(marked);
    done = span.end;
  }
  const top = region.scrollTop;
  region.replaceChildren(...parts, page.text.slice(done));
  region.scrollTop = top;
  if (at !== undefined) caret(at, at);
  byId("title").textContent = `Document ${page.name}`;
  byId("marks").replaceChildren(...page.spans.map(row));
  list();
}
function row(span) {
  const text = pages[current].text.slice(span.start, span.end);
  const select = element("select", { "aria-label": `Category of ${text}`, onchange: () => mark(span.start, span.end, select.value) });
  select.append(...data.labels.map((name) => element("option", name === span.label ? { selected: "" } : {}, name)));
  const button = element("button", { type: "button", "aria-label": `Remove the mark of ${text}`, onclick: () => remove(span) }, "×");
  return element("tr", {}, element("td", {}, text), element("td", {}, select), element("td", {}, button));
}
function list() {
  byId("reviewed").checked = pages[current].reviewed;
  const done = pages.filter((page) => page.reviewed).length;
  byId("progress").textContent = `${done} of ${pages.length} documents reviewed`;
  const buttons = byId("documents").querySelectorAll("button");
  pages.forEach((page, number) => {
    const button = buttons[number];
    button.textContent = `${page.reviewed ? "✓" : "○"} ${page.name}`;
    button.setAttribute("aria-label", `Document ${page.name}, ${page.reviewed ? "reviewed" : "to do"}`);
    if (number === current) button.setAttribute("aria-current", "true"); else button.removeAttribute("aria-current");
  });
}

// ------------------------------------------------------------------------------------------------------- file

function save() {
  const { documents, labels, ...head } = data;
  const content = {
    ...head,
    annotator: byId("annotator").value.trim(),
    documents: pages.map(({ name, row, stratum, sha256, spans, units, reviewed }) => ({
      name, row, stratum, sha256, reviewed,
      spans: spans.map(({ start, end, label }) => ({ start: characterAt(units, start), end: characterAt(units, end), label })),
    })),
  };
  const url = URL.createObjectURL(new Blob([JSON.stringify(content, null, 1)], { type: "application/json" }));
  const name = content.annotator.replace(/[^\p{L}\p{N}_-]+/gu, "-");
  element("a", { href: url, download: name ? `annotation-${name}.json` : "annotation.json" }).click();
  URL.revokeObjectURL(url);
  changed = false;
  say("Saved.");
}
async function open(file) {
  let content;
  try { content = JSON.parse(await file.text()); } catch { say("This file is no JSON."); window.alert("This file is no JSON."); return; }
  const found = new Map((content.documents ?? []).map((each) => [each.name, each]));
  if (content.corpus !== data.corpus || pages.some((page) => found.get(page.name)?.sha256 !== page.sha256)) {
    say("This file is of other documents.");
    window.alert("This file is of other documents.");
    return;
  }
  for (const page of pages) {
    const { spans, reviewed } = found.get(page.name);
    page.spans = spans.map(({ start, end, label }) => ({ start: page.units[start], end: page.units[end], label }));
    page.reviewed = reviewed === true;
    page.undo = [];
  }
  byId("annotator").value = content.annotator ?? "";
  changed = false;
  show();
  say("Opened.");
}

// ------------------------------------------------------------------------------------------------------ events

// An editable text that refuses every edit: it has the browser's own cursor, selection and keys.
region.contentEditable = "true";
region.addEventListener("beforeinput", (event) => event.preventDefault());
region.addEventListener("input", () => show(selection().start));
for (const event of ["drop", "paste", "cut"]) region.addEventListener(event, (each) => each.preventDefault());
region.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") { event.preventDefault(); undo(); return; }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const number = keys.indexOf(event.key.toLowerCase());
  if (number >= 0 && number < data.labels.length) { event.preventDefault(); markSelection(data.labels[number]); return; }
  const acts = {
    Enter: () => markSelection(label),
    Delete: () => { const span = spanAt(selection().start); if (span) remove(span); else say("No mark here."); },
    r: () => { review(!pages[current].reviewed); say(pages[current].reviewed ? "Reviewed." : "Not reviewed."); },
    "[": () => go(current - 1),
    "]": () => go(current + 1),
  };
  acts.Backspace = acts.Delete;
  const act = acts[event.key];
  if (act) { event.preventDefault(); act(); }
});
byId("labels").append(...data.labels.map((name, number) => {
  const button = element("button", { type: "button", "data-label": name, "aria-pressed": String(name === label) }, `${name} `);
  if (keys[number]) button.append(element("kbd", {}, keys[number]));
  button.style.setProperty("--hue", hue(name));
  // Before the button takes the focus, and with it the selection.
  button.addEventListener("mousedown", (event) => event.preventDefault());
  button.addEventListener("click", () => markSelection(name));
  return button;
}));
byId("documents").append(...pages.map((_, number) =>
  element("li", {}, element("button", { type: "button", onclick: () => go(number) }))));
byId("previous").addEventListener("click", () => go(current - 1));
byId("next").addEventListener("click", () => go(current + 1));
byId("reviewed").addEventListener("change", (event) => review(event.target.checked));
byId("save").addEventListener("click", save);
byId("open").addEventListener("change", (event) => { if (event.target.files[0]) open(event.target.files[0]); event.target.value = ""; });
window.addEventListener("beforeunload", (event) => { if (changed) event.preventDefault(); });
show();
