"use strict";
// Sorts and filters the tables of the report, tells values of its figures, copies its commands, and unfolds it for the printer. It fetches nothing and
// writes text alone, never markup. The page's policy names this file's SHA-256, so that no other script can run.

const LEAST_FILTERED_ROWS = 8;
const MANY_ROWS = 1000;
const PAUSE_MS = 150;
const MISSING = ["", "\u2013"];
const words = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function element(name, look, text) {
  const made = document.createElement(name);
  made.className = look;
  made.textContent = text;
  return made;
}

// The first number of a cell: 1,800 and [−0.69, −0.43] and 42.1 ± 0.8; what is less than .001 comes before it.
function numberIn(text) {
  const plain = text.replace(/\u2212/g, "-").replace(/(\d),(?=\d{3}(?!\d))/g, "$1");
  const found = plain.match(/[-+]?(?:\d+\.?\d*|\.\d+)/);
  if (!found) return NaN;
  const value = Number(found[0]);
  const before = plain.slice(0, found.index);
  const beside = Math.abs(value) * 1e-6;
  return before.includes("<") ? value - beside : before.includes(">") ? value + beside : value;
}

// Equal cells keep the order they had; gaps come last, whichever way it goes.
function sorted(rows, column, isNumeric, way) {
  const keyed = rows.map((row) => {
    const text = row.cells[column].textContent.trim();
    const key = isNumeric ? numberIn(text) : text;
    return { row, key, gap: MISSING.includes(text) || Number.isNaN(key) };
  });
  keyed.sort((one, other) => {
    if (one.gap || other.gap) return one.gap - other.gap;
    return way * (isNumeric ? one.key - other.key : words.compare(one.key, other.key));
  });
  return keyed.map((one) => one.row);
}

function searched(text) {
  return text.replace(/\u2212/g, "-").toLowerCase();
}

function equip(table) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const original = [...body.rows];
  if (original.length < 2) return;
  const box = table.parentElement;
  let ordered = original;
  let texts = null;

  const tools = element("div", "tools", "");
  const field = element("input", "", "");
  const status = element("span", "status", "");
  if (original.length >= LEAST_FILTERED_ROWS) {
    const label = element("label", "", "Filter rows ");
    field.type = "search";
    field.autocomplete = "off";
    field.spellcheck = false;
    field.setAttribute("aria-label", "Filter rows. " + box.getAttribute("aria-label"));
    status.setAttribute("role", "status");
    label.append(field);
    tools.append(label, status);
    box.before(tools);
  }

  function show() {
    const terms = searched(field.value).split(/\s+/).filter(Boolean);
    let rows = ordered;
    if (terms.length) {
      texts = texts || new Map(original.map((row) => [row, searched(row.textContent)]));
      rows = ordered.filter((row) => terms.every((term) => texts.get(row).includes(term)));
    }
    const all = document.createDocumentFragment();
    for (const row of rows) all.append(row);
    body.replaceChildren(all);
    const counts = rows.length.toLocaleString("en") + " of " + original.length.toLocaleString("en") + " rows";
    status.textContent = terms.length ? counts + " with \u201c" + field.value.trim() + "\u201d" : "";
  }

  let waiting = 0;
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    if (original.length < MANY_ROWS) show();
    else waiting = setTimeout(show, PAUSE_MS);
  });

  heads.forEach((head, column) => {
    const button = element("button", "sort", "");
    button.type = "button";
    button.append(...head.childNodes);
    if (!button.textContent.trim()) button.setAttribute("aria-label", "column " + (column + 1));
    head.append(button);
    button.addEventListener("click", () => {
      // Up, down, as it was.
      const before = head.getAttribute("aria-sort");
      for (const other of heads) other.removeAttribute("aria-sort");
      if (before === "descending") {
        ordered = original;
      } else {
        head.setAttribute("aria-sort", before ? "descending" : "ascending");
        ordered = sorted(original, column, head.classList.contains("number"), before ? -1 : 1);
      }
      show();
    });
  });
}

function offerCopy(block) {
  const button = element("button", "copy", "Copy");
  const said = element("span", "status", "");
  button.type = "button";
  said.setAttribute("role", "status");
  const tools = element("div", "tools", "");
  tools.append(button, said);
  block.before(tools);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(block.textContent);
      said.textContent = "Copied.";
    } catch {
      // A browser may keep pages that were opened from disk away from the clipboard.
      const range = document.createRange();
      range.selectNodeContents(block);
      const selection = window.getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      said.textContent = "Selected: copy it with Ctrl-C or \u2318C.";
    }
    setTimeout(() => { said.textContent = ""; }, 4000);
  });
}

for (const table of document.querySelectorAll("table.data")) equip(table);
for (const block of document.querySelectorAll("#repeat pre")) offerCopy(block);

// The title of a point at once, beside the pointer or the finger, in place of the browser's slow one.
const tip = element("div", "", "");
tip.id = "tip";
tip.hidden = true;
document.body.append(tip);
for (const title of document.querySelectorAll(".hover title")) {
  const point = title.parentElement;
  point.dataset.title = title.textContent;
  title.remove();
}
function showTip(event) {
  const said = event.target.dataset ? event.target.dataset.title : "";
  tip.hidden = !said;
  if (!said) return;
  tip.textContent = said;
  const left = Math.min(event.pageX + 12, scrollX + document.documentElement.clientWidth - tip.offsetWidth - 4);
  tip.style.left = Math.max(left, 4) + "px";
  tip.style.top = event.pageY - tip.offsetHeight - 10 + "px";
}
for (const name of ["pointerover", "pointerdown"]) document.addEventListener(name, showTip);

// On paper nothing can be opened: findings, and what they rest on, always are; tables and examples as the reader left them.
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...document.querySelectorAll(".basis:not([open]), .more:not([open])")];
  for (const one of unfolded) one.open = true;
});
addEventListener("afterprint", () => {
  for (const one of unfolded) one.open = false;
  unfolded = [];
});
