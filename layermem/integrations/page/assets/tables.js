"use strict";
// Tables that sort by a click on a heading, and show more rows on demand.

const ROWS = 40; // that a table shows at first

// columns: {label, value(row), text(row), number, share(row) from 0 to 1 for a bar, action(row)}.
function table(columns, rows, { caption, sortBy = null, filter = null } = {}) {
  let shown = ROWS, order = rows.slice(), sorted = null, down = true, words = "";
  const head = element("tr"), body = element("tbody");
  const more = button("Show all", () => { shown = Infinity; paint(); }, { class: "more" });
  const box = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {}, element("caption", { class: "hidden" }, caption), element("thead", {}, head), body));

  function paint() {
    head.replaceChildren(...columns.map((column, i) => element("th", {
      scope: "col", class: column.number ? "number" : null,
      "aria-sort": sorted === i ? (down ? "descending" : "ascending") : null,
    }, column.value ? button(column.label, () => sort(i)) : column.label)));
    const matching = words ? order.filter((row) => filter(row).toLowerCase().includes(words)) : order;
    body.replaceChildren(...matching.slice(0, shown).map(rowOf));
    more.textContent = `Show all ${matching.length.toLocaleString("en")} rows`;
    more.hidden = matching.length <= shown;
  }

  function rowOf(row) {
    return element("tr", { class: row.chosen ? "chosen" : null }, columns.map((column, i) => {
      const text = column.text ? column.text(row) : String(column.value(row));
      const share = column.share ? column.share(row) : null;
      const content = column.action ? button(text, () => column.action(row), { class: "link" }) : text;
      const cell = element(i ? "td" : "th", { scope: i ? null : "row", class: column.number ? "number" : null }, content);
      if (column.title) cell.title = column.title(row);
      if (share) {
        cell.classList.add("share");
        cell.style.setProperty("--share", `${(100 * Math.min(share, 1)).toFixed(1)}%`);
      }
      return cell;
    }));
  }

  function sort(i) {
    down = sorted === i ? !down : Boolean(columns[i].number);
    sorted = i;
    const value = columns[i].value, sign = down ? -1 : 1;
    order.sort((a, b) => {
      const left = value(a), right = value(b);
      if (left === right) return 0;
      if (left === null) return 1; // what is not known comes last
      if (right === null) return -1;
      return left < right ? -sign : sign;
    });
    paint();
  }

  if (sortBy === null) paint();
  else sort(sortBy);
  const search = filter && rows.length > ROWS ? element("input", {
    type: "search", placeholder: "Filter by name", "aria-label": `Filter: ${caption}`,
    oninput: (event) => { words = event.target.value.toLowerCase(); paint(); },
  }) : null;
  return element("div", { class: "table" }, search, box, more);
}

// Labels beside texts.
function facts(pairs) {
  return element("dl", { class: "facts" }, pairs.filter(([, text]) => text !== "" && text !== null && text !== undefined)
    .map(([label, text]) => [element("dt", {}, label), element("dd", {}, unbroken(String(text).replace(/(\d) us\b/g, "$1 µs")))]));
}
