"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const ROWS = data.at_once;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const make = (tag, words = "", attributes = {}) => {
    const made = document.createElement(tag);
    made.textContent = words;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const count = (number) => number.toLocaleString("en");
  // What people read, as a number to sort by: a real minus sign, commas, and a unit behind it.
  const value = (text) => {
    const found = /^[+\u2212]?[0-9][0-9,.]*/.exec(text);
    return found ? Number(found[0].replaceAll(",", "").replace("\u2212", "-")) : NaN;
  };
  const tone = (text) => {
    const found = /^([+\u2212])[0-9.,]+\u00a0%$/.exec(text);
    return !found ? "" : found[1] === "+" ? "larger" : "smaller";
  };
  // A cell with a name keeps its symbol, which is what it is known by here.
  const known = (cell) => cell.querySelector("[data-symbol]")?.dataset.symbol ?? cell.textContent;
  const rowsOf = (table, place) =>
    data.rows[place] ?? [...table.tBodies[0].rows].map((row) => [...row.cells].map(known));

  let mangled = false;
  const shown = (symbol) => (mangled ? symbol : data.names[symbol] ?? symbol);
  const named = (symbol) => {
    const made = make("span", shown(symbol), { class: "name" });
    if (symbol in data.names) {
      made.dataset.symbol = symbol;
      made.title = mangled ? data.names[symbol] : symbol;
    }
    return made;
  };
  const reading = () => {
    if (!Object.keys(data.names).length) return;
    const place = document.getElementById("reading");
    const [label, box] = [make("label"), make("input", "", { type: "checkbox" })];
    label.append(box, " Symbols in place of names");
    place.append(label);
    place.hidden = false;
    box.addEventListener("change", () => {
      mangled = box.checked;
      document.querySelectorAll("[data-symbol]").forEach((one) => one.replaceWith(named(one.dataset.symbol)));
    });
  };

  const compare = (column, words, sign, read) => (one, other) => {
    if (column < words) {
      const [left, right] = [read(one[column], column), read(other[column], column)];
      return sign * (left < right ? -1 : left > right ? 1 : 0);
    }
    const [left, right] = [value(one[column]), value(other[column])];
    // What has no number is last in both directions.
    if (isNaN(left) || isNaN(right)) return isNaN(left) - isNaN(right);
    return sign * (left - right);
  };

  const enliven = (table) => {
    const place = table.id.slice("table-".length);
    const words = Number(table.dataset.words);
    const all = rowsOf(table, place);
    const heads = [...table.tHead.rows[0].cells];
    if (all.length < 2 || heads.length === words) return;
    const symbols = "symbols" in table.dataset;
    const read = (text, column) => (symbols && column === 0 ? shown(text) : text);
    let chosen = all, sorted = all, first = 0;
    const status = make("span", "", { role: "status" });
    const [back, on] = [make("button", "Previous", { type: "button" }), make("button", "Next", { type: "button" })];
    const draw = () => {
      const body = document.createDocumentFragment();
      for (const cells of chosen.slice(first, first + ROWS)) {
        const row = document.createElement("tr");
        cells.forEach((text, column) => {
          const cell = column ? make("td", text) : make("th", symbols ? "" : text, { scope: "row" });
          if (symbols && !column) cell.append(named(text));
          if (column) cell.className = column < words ? "words" : tone(text);
          if (column < words && text.length > 24) cell.classList.add("wide");
          row.append(cell);
        });
        body.append(row);
      }
      table.tBodies[0].replaceChildren(body);
      const last = Math.min(first + ROWS, chosen.length);
      status.textContent = chosen.length ? `${count(first + 1)} to ${count(last)} of ${count(chosen.length)}` : "none";
      back.disabled = first === 0;
      on.disabled = last >= chosen.length;
    };
    const filter = (wanted) => {
      const needle = wanted.toLowerCase();
      chosen = needle ? sorted.filter((row) => row.slice(0, words).some((text, column) => `${text}\n${read(text, column)}`.toLowerCase().includes(needle))) : sorted;
      first = 0;
      draw();
    };
    const search = make("input", "", { type: "search" });
    heads.forEach((head, column) => {
      const button = make("button", head.textContent, { type: "button" });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const falling = head.getAttribute("aria-sort") !== "descending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", falling ? "descending" : "ascending");
        sorted = [...all].sort(compare(column, words, falling ? -1 : 1, read));
        filter(search.value);
      });
    });
    if (all.length <= ROWS) return;
    const tools = document.getElementById("tools-" + place);
    const label = make("label", "Find ");
    label.append(search);
    tools.append(label, back, on, status);
    tools.hidden = false;
    search.addEventListener("input", () => filter(search.value));
    back.addEventListener("click", () => { first = Math.max(0, first - ROWS); draw(); });
    on.addEventListener("click", () => { first += ROWS; draw(); });
    draw();
  };

  // Linear near zero and logarithmic beyond: changes of a tenth of a per cent and of a thousand are both seen.
  const bent = (change) => Math.asinh(100 * change);
  const EDGE = { left: 62, right: 12, top: 12, bottom: 44 };

  const plot = (figure) => {
    const [before, after] = data.points[figure.id.slice("scatter-".length)];
    const rows = rowsOf(document.getElementById("table-" + figure.dataset.table), figure.dataset.table);
    const points = before
      .map((old, row) => ({ row, old, change: old && after[row] !== null ? after[row] / old - 1 : NaN }))
      .filter((point) => Number.isFinite(point.change))
      .sort((one, other) => one.change - other.change);
    const canvas = figure.querySelector("canvas");
    const [slider, output] = [figure.querySelector("input"), figure.querySelector("output")];
    if (!points.length) return figure.remove();
    slider.max = points.length - 1;
    const sizes = points.map((point) => point.old);
    const [least, most] = [Math.log10(sizes.reduce((a, b) => Math.min(a, b))), Math.log10(sizes.reduce((a, b) => Math.max(a, b)))];
    const [low, high] = [Math.min(-0.02, points[0].change), Math.max(0.02, points[points.length - 1].change)];
    let places = [], marked = -1, asked = false;
    const draw = () => {
      asked = false;
      const { width, height } = canvas.getBoundingClientRect();
      const scale = devicePixelRatio || 1;
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      const pen = canvas.getContext("2d");
      pen.scale(scale, scale);
      const across = (size) => EDGE.left + (width - EDGE.left - EDGE.right) * (Math.log10(size) - least + 0.05) / (most - least + 0.1);
      const down = (change) => EDGE.top + (height - EDGE.top - EDGE.bottom) * (bent(high) - bent(change)) / (bent(high) - bent(low));
      pen.font = `13px ${getComputedStyle(document.body).fontFamily}`;
      pen.fillStyle = colour("text");
      pen.lineWidth = 1;
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      for (const change of [-0.9, -0.5, -0.1, -0.03, -0.01, 0, 0.01, 0.03, 0.1, 1, 10, 100]) {
        if (change < low || change > high) continue;
        pen.strokeStyle = colour(change ? "grid" : "zero");
        pen.beginPath();
        pen.moveTo(EDGE.left, down(change));
        pen.lineTo(width - EDGE.right, down(change));
        pen.stroke();
        const sign = change < 0 ? "\u2212" : change > 0 ? "+" : "";
        pen.fillText(`${sign}${count(Math.abs(Math.round(100 * change)))}\u00a0%`, EDGE.left - 6, down(change));
      }
      pen.textAlign = "center";
      for (let power = Math.ceil(least); power <= most; power++) pen.fillText(count(10 ** power), across(10 ** power), height - EDGE.bottom + 14);
      pen.fillText(`${figure.dataset.unit} before`, EDGE.left + (width - EDGE.left - EDGE.right) / 2, height - 10);
      places = points.map((point) => [across(point.old), down(point.change)]);
      const radius = points.length > 2000 ? 2 : 4;
      pen.globalAlpha = points.length > 2000 ? 0.55 : 0.85;
      const shapes = [
        ["saved", (change) => change < 0, (x, y) => { pen.moveTo(x + radius, y); pen.arc(x, y, radius, 0, 7); }],
        ["quiet", (change) => change === 0, (x, y) => pen.rect(x - radius / 2, y - radius / 2, radius, radius)],
        ["grown", (change) => change > 0, (x, y) => { pen.moveTo(x, y - 1.5 * radius); pen.lineTo(x + 1.5 * radius, y + radius); pen.lineTo(x - 1.5 * radius, y + radius); pen.closePath(); }],
      ];
      for (const [name, wanted, shape] of shapes) {
        pen.fillStyle = colour(name);
        pen.beginPath();
        points.forEach((point, index) => { if (wanted(point.change)) shape(...places[index]); });
        pen.fill();
      }
      pen.globalAlpha = 1;
      if (marked >= 0) {
        pen.strokeStyle = colour("text");
        pen.lineWidth = 2.5;
        pen.beginPath();
        pen.arc(...places[marked], 8, 0, 7);
        pen.stroke();
      }
    };
    const redraw = () => { if (!asked) { asked = true; requestAnimationFrame(draw); } };
    const mark = (index) => {
      const { row, old, change } = points[index];
      marked = index;
      slider.value = index;
      const words = Number(document.getElementById("table-" + figure.dataset.table).dataset.words);
      const sign = change < 0 ? "\u2212" : change > 0 ? "+" : "";
      const percent = `${sign}${Math.abs(100 * change).toFixed(2)}\u00a0%`;
      const told = `${rows[row].slice(0, words).join(", ")}: ${count(old)} \u2192 ${count(after[row])} ${figure.dataset.unit} (${percent})`;
      output.textContent = told;
      slider.setAttribute("aria-valuetext", told);
      redraw();
    };
    slider.addEventListener("input", () => mark(Number(slider.value)));
    canvas.addEventListener("pointermove", (event) => {
      let [nearest, distance] = [-1, 400];
      places.forEach(([x, y], index) => {
        const away = (x - event.offsetX) ** 2 + (y - event.offsetY) ** 2;
        if (away < distance) [nearest, distance] = [index, away];
      });
      if (nearest >= 0 && nearest !== marked) mark(nearest);
    });
    new ResizeObserver(redraw).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    draw();
  };

  // A squarified treemap: each row takes tiles as long as that makes its worst tile squarer.
  const squarify = (tiles, box) => {
    const places = [];
    let { x, y, width, height } = box, from = 0;
    let left = tiles.reduce((sum, tile) => sum + tile[1], 0);
    while (from < tiles.length && left > 0 && width > 0 && height > 0) {
      const side = Math.min(width, height), scale = (width * height) / left;
      let sum = 0, to = from, worst = Infinity;
      for (; to < tiles.length; to++) {
        const next = sum + tiles[to][1], depth = (next * scale) / side;
        const ratio = Math.max(...[tiles[from], tiles[to]].map((tile) => {
          const length = (tile[1] * scale) / depth;
          return Math.max(length / depth, depth / length);
        }));
        if (ratio > worst) break;
        [sum, worst] = [next, ratio];
      }
      const depth = (sum * scale) / side;
      let along = 0;
      for (let index = from; index < to; index++) {
        const length = (tiles[index][1] * scale) / depth;
        places.push(width >= height ? { x, y: y + along, width: depth, height: length } : { x: x + along, y, width: length, height: depth });
        along += length;
      }
      if (width >= height) [x, width] = [x + depth, width - depth];
      else [y, height] = [y + depth, height - depth];
      [left, from] = [left - sum, to];
    }
    return places;
  };
  const TILES = 300, INNER_TILES = 40;

  const map = (figure) => {
    const unit = figure.dataset.unit;
    const tiles = data.tiles[figure.id.slice("treemap-".length)];
    const whole = ["all", tiles.reduce((sum, tile) => sum + tile[1], 0), tiles];
    const [list, path, status] = [figure.querySelector(".tiles"), figure.querySelector(".path"), figure.querySelector("[role=status]")];
    const search = figure.querySelector("input");
    let opened = [whole];
    // How many of a tile's bytes are found: all of it, or what is inside.
    const found = (tile) => (tile[0].toLowerCase().includes(search.value.toLowerCase()) ? tile[1] : (tile[2] ?? []).reduce((sum, one) => sum + found(one), 0));
    const share = (size) => `${((100 * size) / (whole[1] || 1)).toFixed(1)}\u00a0%`;
    const told = (tile) => `${tile[0]}: ${count(tile[1])} ${unit}, ${share(tile[1])}`;
    const open = (way, focus) => { opened = way; draw(); if (focus !== undefined) list.querySelectorAll("button")[Math.max(0, focus)]?.focus(); };
    const up = () => {
      if (opened.length < 2) return;
      const last = opened[opened.length - 1], outer = opened.slice(0, -1);
      open(outer, outer[outer.length - 1][2].indexOf(last));
    };
    // The largest, and one tile for the others.
    const cut = (tiles, most) => {
      const shown = tiles.slice(0, most);
      const hidden = tiles.slice(most).reduce((sum, tile) => sum + tile[1], 0);
      if (hidden) shown.push([`${count(tiles.length - most)} smaller`, hidden]);
      return shown.sort((one, other) => other[1] - one[1]);
    };
    // What is inside of a tile, only to be seen: it is opened by its tile.
    const within = (tile, width, height) => {
      const inner = cut(tile[2] ?? [], INNER_TILES);
      return squarify(inner, { x: 5, y: 44, width, height }).map(({ x, y, width, height }, index) => {
        const area = make("i", width > 50 && height > 18 ? inner[index][0] : "", { "aria-hidden": "true" });
        Object.assign(area.style, { left: `${x}px`, top: `${y}px`, width: `${width - 1}px`, height: `${height - 1}px` });
        if (search.value && !found(inner[index])) area.className = "other";
        return area;
      });
    };
    const draw = () => {
      const here = opened[opened.length - 1];
      const box = list.getBoundingClientRect();
      const shown = cut(here[2], TILES);
      const places = squarify(shown, { x: 0, y: 0, width: box.width, height: box.height });
      list.replaceChildren(...shown.slice(0, places.length).map((tile, index) => {
        const item = make("li");
        const button = make("button", "", { type: "button", title: told(tile), "aria-label": told(tile) });
        const { x, y, width, height } = places[index];
        Object.assign(item.style, { left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` });
        button.className = `tone-${index % 4}${tile[2] ? " opens" : ""}`;
        if (search.value && !found(tile)) button.classList.add("other");
        if (width > 44 && height > 20) button.append(make("span", tile[0]), make("small", count(tile[1])));
        if (width > 90 && height > 90) button.append(...within(tile, width - 12, height - 50));
        button.addEventListener("click", () => { if (tile[2]) open([...opened, tile], 0); });
        item.append(button);
        return item;
      }));
      list.querySelectorAll("button").forEach((button, index) => { button.tabIndex = index ? -1 : 0; });
      path.replaceChildren(...opened.map((tile, depth) => {
        const step = make("button", tile[0], { type: "button" });
        if (depth === opened.length - 1) step.setAttribute("aria-current", "true");
        step.addEventListener("click", () => open(opened.slice(0, depth + 1), 0));
        return step;
      }));
      const bytes = search.value ? found(here) : here[1];
      status.textContent = `${search.value ? "found " : ""}${count(bytes)} ${unit}, ${share(bytes)}`;
    };
    list.addEventListener("keydown", (event) => {
      const buttons = [...list.querySelectorAll("button")], at = buttons.indexOf(document.activeElement);
      const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
      if (event.key === "Escape" || event.key === "Backspace") up();
      else if (to !== undefined) buttons[Math.min(buttons.length - 1, Math.max(0, to))].focus();
      else return;
      event.preventDefault();
    });
    list.addEventListener("focusin", (event) => list.querySelectorAll("button").forEach((button) => { button.tabIndex = button === event.target ? 0 : -1; }));
    search.addEventListener("input", draw);
    let width = 0;
    new ResizeObserver(() => { if (list.clientWidth !== width) { width = list.clientWidth; draw(); } }).observe(list);
  };

  // The table that a plot names is read before its rows are sorted.
  document.querySelectorAll(".scatter").forEach(plot);
  document.querySelectorAll(".treemap").forEach(map);
  document.querySelectorAll("main table[id]").forEach(enliven);
  reading();
})();
