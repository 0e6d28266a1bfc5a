// A table whose rows stay where they are while their text changes, so that the keyboard focus and
// a selection survive each update.

import { element, setAttribute, setText } from "./dom.js";

// A column is { title, text(row), detail?(row), tone?(row), hint?(row), numeric?, button? }; a
// button is { label(row), name(row), press(row) }.
export class Table {
  constructor(container, columns, { caption, empty }) {
    this.columns = columns;
    this.rows = new Map(); // a Map, because a row may be called __proto__
    const titles = columns.map(({ title, numeric }) =>
      element("th", { scope: "col", class: numeric ? "numeric" : "" }, title),
    );
    this.body = element("tbody");
    this.empty = element("p", { class: "quiet" }, empty);
    this.table = element(
      "table",
      {},
      element("caption", { class: "unseen" }, caption),
      element("thead", {}, element("tr", {}, ...titles)),
      this.body,
    );
    container.replaceChildren(this.table, this.empty);
  }

  // `rows` have a `key` of their own each.
  update(rows) {
    this.table.hidden = rows.length === 0;
    this.empty.hidden = rows.length > 0;
    const keys = new Set(rows.map((row) => row.key));
    for (const [key, known] of this.rows) {
      if (!keys.has(key)) {
        known.node.remove();
        this.rows.delete(key);
      }
    }
    rows.forEach((row, index) => {
      const known = this.rows.get(row.key) ?? this.add(row);
      known.row = row;
      if (this.body.children[index] !== known.node) {
        this.body.insertBefore(known.node, this.body.children[index] ?? null);
      }
      known.cells.forEach((cell) => cell(row));
    });
  }

  add(row) {
    const known = { row, node: element("tr"), cells: [] };
    this.columns.forEach((column, index) => {
      const cell = element(index === 0 ? "th" : "td", index === 0 ? { scope: "row" } : {});
      if (column.numeric) cell.className = "numeric";
      known.node.append(cell);
      known.cells.push(column.button ? button(cell, column, known) : text(cell, column));
    });
    this.rows.set(row.key, known);
    return known;
  }
}

function text(cell, column) {
  const main = element("span");
  const detail = element("small");
  cell.append(main, detail);
  return (row) => {
    setText(main, column.text(row));
    setText(detail, column.detail?.(row) ?? "");
    setAttribute(main, "class", column.tone?.(row) ?? null);
    setAttribute(cell, "title", column.hint?.(row) ?? null);
  };
}

function button(cell, column, known) {
  const made = element("button", { type: "button" });
  made.addEventListener("click", () => column.button.press(known.row));
  cell.append(made);
  return (row) => {
    setText(made, column.button.label(row));
    setAttribute(made, "aria-label", `${column.button.label(row)} ${column.button.name(row)}`);
  };
}
