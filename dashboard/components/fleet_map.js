// The fleet map: one cell per GPU on a canvas. Data: dashboard/fleet_map.py.
// Labels come from strangers: they are only ever drawn or set as textContent, never as HTML.

const NAMES = ["free", "busy", "held, idle now", "degraded", "FAILED", "no data"];
const [FREE, ACTIVE, IDLE, DEGRADED, FAILED, UNKNOWN] = [0, 1, 2, 3, 4, 5];
const MARKS = { [IDLE]: "0", [DEGRADED]: "!", [FAILED]: "✕", [UNKNOWN]: "?" };
const FILLS = { [FREE]: "#242c37", [IDLE]: "#b07cf0", [DEGRADED]: "#f0a048", [FAILED]: "#e5484d" };
const NO_BYTE = 0xff, NO_SHORT = 0xffff, NO_CELL = 0xffffffff;
const FONT = '"Source Sans", system-ui, sans-serif';
const LABEL = 17, SIDE = 64, LARGEST_CELL = 72, DOT_BELOW = 6;

// Busy is calm: dark to muted teal, so that only what needs a person is bright.
const RAMP = Array.from({ length: 101 }, (_, p) => {
  const mix = (a, b) => Math.round(a + ((b - a) * p) / 100);
  return `rgb(${mix(18, 38)},${mix(62, 140)},${mix(66, 124)})`;
});

function read(data) {
  const bytes = data.slice();
  const view = new DataView(bytes.buffer);
  const length = view.getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  const nodes = header.blocks.flatMap(([, nodes]) => nodes);
  const count = nodes.reduce((sum, [, gpus]) => sum + gpus, 0);
  let at = 8 + length;
  const take = (width) => bytes.buffer.slice(at, (at += width * count));
  const short = () => {
    const raw = new DataView(take(2));
    return Uint16Array.from({ length: count }, (_, i) => raw.getUint16(2 * i, true));
  };
  const fleet = {
    ...header, count, selected: view.getUint32(0, true),
    look: new Uint8Array(take(1)), util: new Uint8Array(take(1)),
    index: new Uint8Array(take(1)), temp: new Uint8Array(take(1)),
    reason: short(), holder: short(), power: short(),
  };
  fleet.node = nodes.flatMap(([name, gpus]) => Array(gpus).fill(name));
  return fleet;
}

// Blocks as rows of cells: a node of its own may fold into two rows, a rack has a row per node.
function folded(blocks, fold) {
  let start = 0;
  const shaped = blocks.map(([label, nodes]) => {
    const rows = [];
    for (const [name, gpus] of nodes) {
      const wide = nodes.length === 1 ? Math.ceil(gpus / fold) : Math.min(gpus, 16);
      for (let i = 0; i < gpus; i += wide) rows.push([start + i, Math.min(wide, gpus - i), i ? "" : name]);
      start += gpus;
    }
    return { label, rows, several: nodes.length > 1 };
  });
  const most = (size) => shaped.reduce((max, block) => Math.max(max, size(block)), 1);
  return { shaped, several: shaped.some((b) => b.several), wide: most((b) => Math.max(...b.rows.map(([, n]) => n))), high: most((b) => b.rows.length) };
}

// The largest cells with which everything fits into the height; wider than high where there is room.
function layout(blocks, width, height) {
  let best = null;
  for (const fold of [1, 2]) {
    const { shaped, several, wide, high } = folded(blocks, fold);
    for (let cell = LARGEST_CELL; cell >= 1; cell -= cell > 8 ? 1 : 0.5) {
      const label = wide * cell >= 40 ? LABEL : 0;
      const gap = cell >= DOT_BELOW ? 10 : 2;
      const side = several && cell >= 14 ? SIDE : 0;
      const columns = Math.min(Math.floor((width + gap) / (side + wide * cell + gap)), shaped.length);
      const lines = Math.ceil(shaped.length / Math.max(columns, 1));
      const total = lines * (high * cell + label + gap) - gap;
      if (columns < 1 || (total > height && cell > 1)) continue;
      const stretched = Math.min(((width + gap) / columns - gap - side) / wide, cell * 1.7);
      if (!best || cell * stretched > best.cell * best.broad)
        best = { shaped, wide, high, cell, broad: stretched, label, side, gap, columns, total };
      break;
    }
  }
  return best;
}

class FleetMap {
  constructor(root) {
    this.root = root;
    this.canvas = root.querySelector("canvas");
    this.tip = root.querySelector(".tip");
    this.live = root.querySelector(".live");
    this.current = -1;
    this.focused = false;
    new ResizeObserver(() => this.draw()).observe(root);
    const canvas = this.canvas;
    canvas.addEventListener("mousemove", (e) => this.point(this.at(e.offsetX, e.offsetY)));
    canvas.addEventListener("mouseleave", () => this.point(-1));
    canvas.addEventListener("click", (e) => this.choose(this.at(e.offsetX, e.offsetY)));
    canvas.addEventListener("keydown", (e) => this.key(e));
    canvas.addEventListener("focus", () => {
      this.focused = canvas.matches(":focus-visible");
      if (this.focused) this.point(this.current >= 0 ? this.current : 0, true);
    });
    canvas.addEventListener("blur", () => { this.focused = false; this.point(-1); });
  }

  update(data) {
    const before = this.fleet?.look[this.current];
    this.fleet = read(data);
    if (this.current >= this.fleet.count) this.current = -1;
    this.draw();
    // Who listens hears of a change of state, not of every number that moves.
    if (this.current >= 0)
      this.show(this.current, this.focused && before !== this.fleet.look[this.current]);
  }

  draw() {
    const { fleet, canvas, root } = this;
    const width = root.clientWidth;
    if (!fleet || !width) return;
    const space = Math.max(260, Math.min(window.innerHeight * 0.6, window.innerHeight - 330));
    const plan = layout(fleet.blocks, width, space);
    const height = Math.max(plan.total, 20), ratio = window.devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    this.place(plan, pen);
    this.paint(plan, pen);
    canvas.dataset.cells = fleet.count;
    canvas.setAttribute("aria-label", this.summary());
  }

  place(plan, pen) {
    const { shaped, wide, high, cell, broad, label, side, gap, columns } = plan;
    const many = this.fleet.count;
    [this.x, this.y] = [new Float32Array(many), new Float32Array(many)];
    this.size = [broad, cell];
    this.rows = [];
    pen.font = `12px ${FONT}`;
    pen.textBaseline = "alphabetic";
    shaped.forEach((block, number) => {
      const left = (number % columns) * (side + wide * broad + gap) + side;
      const top = Math.floor(number / columns) * (high * cell + label + gap) + label;
      if (label) {
        pen.fillStyle = "#93a1b0";
        pen.fillText(block.label, left, top - 5, wide * broad);
      }
      block.rows.forEach(([start, count, name], row) => {
        if (side) this.name(pen, name, left, top + (row + 0.5) * cell);
        this.rows.push([left, top + row * cell, start, count]);
        for (let i = 0; i < count; i++) {
          this.x[start + i] = left + i * broad;
          this.y[start + i] = top + row * cell;
        }
      });
    });
  }

  name(pen, text, right, middle) {
    pen.fillStyle = "#93a1b0";
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    pen.fillText(text, right - 6, middle, SIDE - 6);
    pen.textAlign = "start";
    pen.textBaseline = "alphabetic";
  }

  paint(plan, pen) {
    const { fleet } = this, [broad, cell] = this.size;
    const line = cell >= 14 ? 2 : cell >= DOT_BELOW ? 1 : 0;
    for (let i = 0; i < fleet.count; i++) {
      const look = fleet.look[i], x = this.x[i], y = this.y[i];
      const [w, h] = [broad - line, cell - line];
      if (look === UNKNOWN) {
        pen.fillStyle = "#000";
        pen.fillRect(x, y, w, h);
        if (cell >= DOT_BELOW) this.outline(pen, x, y, w, h, "#8391a1", 1);
      } else {
        pen.fillStyle = look === ACTIVE ? RAMP[Math.min(fleet.util[i], 100)] : FILLS[look];
        pen.fillRect(x, y, w, h);
      }
      if (cell >= 16) this.mark(pen, i, look, x + w / 2, y + h / 2);
    }
    // Exceptions last, so that nothing covers them; as dots where a cell is too small to be seen.
    for (let i = 0; i < fleet.count; i++) {
      const look = fleet.look[i];
      if (look !== FAILED && look !== DEGRADED) continue;
      if (cell < DOT_BELOW) this.dot(pen, i, look);
      else if (look === FAILED)
        this.outline(pen, this.x[i], this.y[i], broad - line, cell - line, "#fff", cell >= 14 ? 2 : 1);
    }
    if (fleet.selected !== NO_CELL && fleet.selected < fleet.count) this.ring(pen, fleet.selected, "#58d5c4");
    if (this.focused && this.current >= 0) this.ring(pen, this.current, "#fff");
  }

  mark(pen, i, look, x, y) {
    const busy = look === ACTIVE && this.size[1] >= 24 && this.fleet.util[i] !== NO_BYTE;
    const text = busy ? String(this.fleet.util[i]) : MARKS[look];
    if (!text) return;
    pen.font = busy ? `12px ${FONT}` : look === IDLE ? `13px ${FONT}` : `bold 15px ${FONT}`;
    pen.fillStyle = busy ? "rgba(230,237,243,.62)" : look === DEGRADED || look === IDLE ? "#10151c" : "#fff";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(text, x, y + 1);
    pen.textAlign = "start";
  }

  outline(pen, x, y, w, h, colour, thick) {
    pen.strokeStyle = colour;
    pen.lineWidth = thick;
    pen.strokeRect(x + thick / 2, y + thick / 2, w - thick, h - thick);
  }

  dot(pen, i, look) {
    pen.beginPath();
    pen.arc(this.x[i] + this.size[0] / 2, this.y[i] + this.size[1] / 2, 3.5, 0, 7);
    pen.fillStyle = FILLS[look];
    pen.fill();
    if (look === FAILED) { pen.strokeStyle = "#fff"; pen.lineWidth = 1; pen.stroke(); }
  }

  ring(pen, i, colour) {
    const [w, h] = this.size;
    pen.strokeStyle = colour;
    pen.lineWidth = 2;
    pen.strokeRect(this.x[i] - 1, this.y[i] - 1, Math.max(w, 4), Math.max(h, 4));
  }

  at(x, y) {
    const [broad, cell] = this.size ?? [1, 1];
    for (const [left, top, start, count] of this.rows ?? [])
      if (y >= top && y < top + cell && x >= left && x < left + count * broad)
        return start + Math.floor((x - left) / broad);
    return -1;
  }

  gpu(i) {
    const index = this.fleet.index[i];
    return index === NO_BYTE ? this.fleet.unnumbered[i] : String(index);
  }

  lines(i) {
    const f = this.fleet, number = f.index[i] === NO_BYTE ? f.unnumbered[i] : `GPU ${f.index[i]}`;
    const numbers = [
      f.util[i] !== NO_BYTE && `${f.util[i]} % used`,
      f.temp[i] !== NO_BYTE && `${f.temp[i]} °C`,
      f.power[i] !== NO_SHORT && `${f.power[i]} W`,
    ].filter(Boolean);
    const reason = f.texts[f.reason[i]], holder = f.texts[f.holder[i]];
    const state = NAMES[f.look[i]] + (reason && f.look[i] !== ACTIVE ? `: ${reason}` : "");
    return [`${f.node[i]} · ${number}`, state, numbers.join(" · ") || "no numbers",
      holder ? `held by ${holder}` : ""].filter(Boolean);
  }

  summary() {
    const counts = Array(NAMES.length).fill(0);
    for (const look of this.fleet.look) counts[look]++;
    const said = counts.map((n, look) => n && `${n} ${NAMES[look]}`).filter(Boolean).join(", ");
    return `Fleet map of ${this.fleet.count} GPUs: ${said}. Arrow keys move, Enter opens a GPU.`;
  }

  point(i, aloud = false) {
    this.current = i;
    this.canvas.style.cursor = i >= 0 ? "pointer" : "default";
    if (i < 0) this.tip.hidden = true;
    else this.show(i, aloud);
    if (aloud || this.focused) this.draw();
  }

  show(i, aloud) {
    const lines = this.lines(i);
    this.tip.replaceChildren(...lines.map((text) => {
      const row = document.createElement("div");
      row.textContent = text;
      return row;
    }));
    this.tip.dataset.look = this.fleet.look[i];
    this.tip.hidden = false;
    if (aloud) this.live.textContent = lines.join(", ");
    const [w, h] = this.size, below = this.y[i] + h + 6;
    const left = Math.min(this.x[i] + w / 2, this.root.clientWidth - this.tip.offsetWidth - 4);
    const over = below + this.tip.offsetHeight > this.canvas.clientHeight + 40;
    this.tip.style.left = `${Math.max(left, 0)}px`;
    this.tip.style.top = `${over ? this.y[i] - this.tip.offsetHeight - 6 : below}px`;
  }

  choose(i) {
    if (i < 0) return;
    this.pick({ node: this.fleet.node[i], gpu: this.gpu(i) });
    this.reveal(`${this.fleet.node[i]} · `, 20);
  }

  // The details come with the next answer, below the map and perhaps below the screen.
  reveal(title, tries) {
    const details = document.querySelector(".gv-details");
    if (details?.textContent.startsWith(title)) details.scrollIntoView({ block: "nearest", behavior: "smooth" });
    else if (tries > 0) setTimeout(() => this.reveal(title, tries - 1), 100);
  }

  key(event) {
    const i = Math.max(this.current, 0), last = this.fleet.count - 1;
    const moves = {
      ArrowRight: () => Math.min(i + 1, last), ArrowLeft: () => Math.max(i - 1, 0),
      ArrowDown: () => this.beside(i, 1), ArrowUp: () => this.beside(i, -1),
      Home: () => 0, End: () => last,
    };
    if (event.key === "Enter" || event.key === " ") this.choose(this.current);
    else if (event.key === "Escape") this.tip.hidden = true;
    else if (event.key in moves) { this.focused = true; this.point(moves[event.key](), true); }
    else return;
    event.preventDefault();
  }

  // The nearest cell in the next line above or below.
  beside(from, direction) {
    let best = from, least = Infinity;
    for (let i = 0; i < this.fleet.count; i++) {
      const down = (this.y[i] - this.y[from]) * direction;
      if (down < this.size[1] / 2) continue;
      const distance = down * 1000 + Math.abs(this.x[i] - this.x[from]);
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  }
}

export default function (component) {
  const root = component.parentElement.querySelector(".map");
  root.fleetMap ??= new FleetMap(root);
  root.fleetMap.pick = (gpu) => component.setTriggerValue("pick", gpu);
  root.fleetMap.update(component.data);
}
