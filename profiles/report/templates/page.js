// A click on the heading of a column sorts the table; a button copies a command. The page says the same without both.
"use strict";
const UNITS = {
  ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600,
  B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12,
};

function value(cell) {
  const text = cell ? cell.textContent.trim() : "";
  const number = text.match(/^([-+\u2212]?[\d,]*\.?\d+)\s*([a-zA-Z]*)/);
  if (!number) return { text: text, size: text === "" || text === "-" ? null : NaN };
  const size = parseFloat(number[1].replace(/,/g, "").replace("\u2212", "-"));
  return { text: text, size: size * (UNITS[number[2]] || 1) };
}

function order(a, b, way) {
  if (a.size === null || b.size === null) return (a.size === null) - (b.size === null);
  if (isNaN(a.size) || isNaN(b.size)) return way * a.text.localeCompare(b.text, undefined, { numeric: true });
  return way * (a.size - b.size);
}

function sort(heading, column) {
  const body = heading.closest("table").tBodies[0];
  const way = heading.getAttribute("aria-sort") === "descending" ? 1 : -1;
  for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", way === 1 ? "ascending" : "descending");
  const rows = Array.from(body.rows, (row) => [value(row.cells[column]), row]);
  rows.sort((a, b) => order(a[0], b[0], way));
  for (const row of rows) body.append(row[1]);
}

for (const head of document.querySelectorAll("table > thead")) {
  const table = head.parentElement;
  const plain = head.rows.length === 1 && table.tBodies.length === 1 && !table.querySelector("[colspan], [rowspan]");
  if (!plain || table.tBodies[0].rows.length < 2) continue;
  Array.from(head.rows[0].cells).forEach((heading, column) => {
    if (!heading.textContent.trim()) return;
    heading.tabIndex = 0;
    heading.classList.add("sorts");
    heading.title = "Sort by this column";
    heading.addEventListener("click", () => sort(heading, column));
    heading.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sort(heading, column);
    });
  });
}

for (const code of document.querySelectorAll("pre.paste")) {
  const text = code.textContent;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Press Ctrl-C";
    }
  });
  const frame = document.createElement("div");
  frame.className = "copy";
  code.replaceWith(frame);
  frame.append(code, button);
}
