// The fleet map: one cell per GPU on a canvas, its legend and what it shows. Follows map_data.js.
// Labels come from strangers: they are only ever drawn or set as textContent, never as HTML.

const NAMES = ["free", "busy", "allocated but idle", "degraded", "UNAVAILABLE", "unknown", "out of service"];
const LEGEND = [
  [FAILED, "unavailable or failing"], [DEGRADED, "degraded"], [IDLE, "allocated but idle"], [ACTIVE, "busy 0 to 100 %"],
  [FREE, "free"], [OUT, "out of service"], [UNKNOWN, "unknown"],
];
const ALWAYS = [FAILED, DEGRADED, UNKNOWN];
const MARKS = { [IDLE]: "0", [DEGRADED]: "!", [FAILED]: "✕", [UNKNOWN]: "?", [OUT]: "–" };
const KINDS = { [FREE]: "free", [ACTIVE]: "active", [IDLE]: "idle", [DEGRADED]: "degraded", [FAILED]: "failed", [UNKNOWN]: "unknown", [OUT]: "out" };
// Before the name of a rack among the names on the map; no node's name has it.
const RACK = "\n";
// Up to so many exceptions are painted around, and not all of the map anew.
const FEW = 100, DOT = 5;
const FONT = '"Source Sans", system-ui, sans-serif';

function element(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}

// A browser works out its styles anew whenever a font is set, be it the same: a thousand times a picture.
function write(pen, font) {
  if (pen.written !== font) pen.font = pen.written = font;
}

class FleetMap {
  constructor(root) {
    this.root = root;
    this.canvas = root.querySelector("canvas");
    this.tip = root.querySelector(".tip");
    this.live = root.querySelector(".live");
    this.legend = root.querySelector(".legend");
    this.palette = new Palette(root);
    this.current = -1;
    this.focused = false;
    this.metric = "state";
    this.switch(root.querySelector(".metrics"));
    const canvas = this.canvas;
    canvas.addEventListener("mousemove", (e) => this.point(this.at(e.offsetX, e.offsetY), false, this.nodeAt(e.offsetX, e.offsetY)));
    canvas.addEventListener("mouseleave", () => this.point(-1));
    canvas.addEventListener("click", (e) => this.choose(this.at(e.offsetX, e.offsetY), this.nodeAt(e.offsetX, e.offsetY)));
    canvas.addEventListener("keydown", (e) => this.key(e));
    canvas.addEventListener("focus", () => {
      this.focused = canvas.matches(":focus-visible");
      if (this.focused) this.point(this.current >= 0 ? this.current : 0, true);
    });
    canvas.addEventListener("blur", () => { this.focused = false; this.point(-1); });
  }

  watch() {
    if (this.sizes) return;
    this.redraw = () => requestAnimationFrame(() => this.draw());
    this.sizes = new ResizeObserver(this.redraw);
    this.sizes.observe(this.root);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.scheme.addEventListener("change", this.redraw);
    window.addEventListener("resize", this.redraw);
  }

  end() {
    this.sizes?.disconnect();
    this.sizes = null;
    this.scheme.removeEventListener("change", this.redraw);
    window.removeEventListener("resize", this.redraw);
  }

  switch(group) {
    for (const [key, { name }] of Object.entries(METRICS)) {
      const label = element("label", "", name), choice = element("input");
      Object.assign(choice, { type: "radio", name: "metric", value: key });
      choice.addEventListener("change", () => this.change(key));
      label.prepend(choice);
      group.append(label);
    }
    this.choices = [...group.querySelectorAll("input")];
  }

  change(metric) {
    this.asked = metric;
    this.show(metric);
    this.draw();
    this.tell(metric);
  }

  show(metric) {
    this.metric = metric in METRICS ? metric : "state";
    for (const choice of this.choices) choice.checked = choice.value === this.metric;
  }

  update(data) {
    const before = this.fleet?.look[this.current];
    this.fleet = read(data);
    this.root.classList.toggle("wall", this.fleet.frame.wall);
    const said = this.fleet.frame.metric;
    // An answer that was on its way when a person chose still has the metric from before.
    if (this.asked === undefined || this.asked === said) {
      this.asked = undefined;
      this.show(said);
    }
    if (this.current >= this.fleet.count) this.current = -1;
    this.draw();
    // Who listens hears of a change of state, not of every number that moves.
    if (this.current >= 0)
      this.describe(this.current, this.focused && before !== this.fleet.look[this.current]);
  }

  // What is left of the window below the map's upper edge, less what stands under it.
  space() {
    const page = document.querySelector(".stMain"), style = getComputedStyle(this.root);
    const top = this.canvas.getBoundingClientRect().top + (page?.scrollTop ?? 0);
    const below = parseFloat(style.getPropertyValue("--map-below")) || 0;
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize) || 16;
    return Math.max(240, window.innerHeight - top - below * rem);
  }

  draw() {
    const { fleet, canvas } = this;
    if (!fleet || !this.root.clientWidth) return;
    this.palette.renew();
    this.count();
    const pen = canvas.getContext("2d"), whole = this.moved();
    if (whole) this.prepare(pen);
    this.paint(pen, whole);
    canvas.dataset.cells = fleet.count;
    canvas.setAttribute("aria-label", this.summary());
  }

  // Whether anything but the numbers of cells is other than when all was painted last.
  moved() {
    const { fleet } = this, ringed = this.focused && this.current >= 0 ? this.current : -1;
    this.large = fleet.frame.wall ? 1.3 : 1;
    this.odd = [...fleet.look.keys()].filter((i) => fleet.look[i] === FAILED || fleet.look[i] === DEGRADED);
    const ground = JSON.stringify([
      this.root.clientWidth, this.space(), window.devicePixelRatio, this.large, this.palette.of, this.metric, this.ends,
      this.over, ringed, this.odd.map((i) => [i, fleet.look[i]]), fleet.blocks,
    ]);
    if (ground === this.ground && this.odd.length <= FEW) return false;
    this.ground = ground;
    this.ringed = ringed;
    return true;
  }

  // An empty canvas with the names of what it will show.
  prepare(pen) {
    const { fleet, canvas } = this, width = this.root.clientWidth;
    const plan = layout(fleet.blocks, width, this.space(), this.large);
    const height = Math.max(plan.total, 20), ratio = window.devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    pen.written = "";
    pen.scale(ratio, ratio);
    this.painted = new Int32Array(fleet.count).fill(-1);
    this.place(plan, pen, (at) => Math.round(at * ratio) / ratio);
  }

  // The legend: what the colours and marks mean now, and how many there are of each.
  count() {
    const { fleet, metric } = this, counts = Array(NAMES.length).fill(0);
    for (const look of fleet.look) counts[look]++;
    this.counts = counts;
    const { unit, of, ends } = METRICS[metric];
    const shown = LEGEND.filter(([look]) => (!of || ALWAYS.includes(look) || look === OUT) && (look !== OUT || counts[OUT]));
    // Of GPUs of which nothing is known none can be counted, nor free ones where nobody says who holds any.
    const none = fleet.count && counts[UNKNOWN] === fleet.count ? NAMES.keys() : fleet.frame.holders_known ? [] : [FREE, IDLE];
    const unsaid = new Set(none);
    unsaid.delete(UNKNOWN);
    const items = shown.map(([look, text]) => [KINDS[look], MARKS[look] ?? "", text, unsaid.has(look) ? "–" : counts[look]]);
    if (of) {
      this.ends = ends(fleet);
      let missing = 0;
      for (let i = 0; i < fleet.count; i++) missing += of(fleet, i) < 0 && fleet.look[i] !== UNKNOWN;
      items.unshift(["ramp", "", this.ends.map((end) => `${end} ${unit}`)]);
      items.push(["hatched", "", "not measured", missing]);
    }
    const said = JSON.stringify([metric, items]);
    if (said === this.said) return;
    this.said = said;
    this.legend.replaceChildren(...items.map(([kind, mark, text, count]) => {
      const item = element("li"), swatch = element("i", `swatch ${kind}`, kind === "idle" ? "" : mark);
      swatch.setAttribute("aria-hidden", "true");
      if (kind === "ramp") item.append(fleet.frame.wall ? element("b", "", METRICS[metric].name) : "", text[0], swatch, text[1]);
      else item.append(swatch, `${text} `, element("b", "", count.toLocaleString("en")));
      return item;
    }));
  }

  // Every cell on whole pixels: it can be painted again without touching those beside it.
  place(plan, pen, whole) {
    const { shaped, wide, high, cell, broad, label, side, gap, columns } = plan;
    const many = this.fleet.count;
    [this.x, this.y, this.wide, this.high] = [1, 2, 3, 4].map(() => new Float32Array(many));
    this.size = [broad, cell];
    this.line = cell >= 14 ? 2 : cell >= DOT_BELOW ? 1 : 0;
    this.rows = [];
    this.names = [];
    pen.textBaseline = "alphabetic";
    shaped.forEach((block, number) => {
      const left = (number % columns) * (side + wide * broad + gap) + side;
      const top = Math.floor(number / columns) * (high * cell + label + gap) + label;
      if (label) this.title(pen, block, left, top, wide * broad, label);
      block.rows.forEach(([start, count, name], row) => {
        if (side && name) this.name(pen, name, left, top + row * cell, side, cell);
        this.rows.push([left, top + row * cell, start, count]);
        const y = whole(top + row * cell), { line } = this;
        for (let i = 0; i < count; i++) {
          const x = (this.x[start + i] = whole(left + i * broad));
          this.y[start + i] = y;
          this.wide[start + i] = whole(left + (i + 1) * broad) - x - line;
          this.high[start + i] = whole(top + (row + 1) * cell) - y - line;
        }
      });
    });
  }

  title(pen, block, left, top, width, height) {
    const place = block.rack ? RACK + block.rack : block.several ? null : block.rows[0]?.[2];
    if (place) this.names.push([left, top - height, Math.min(width, SIDE * 2), height, place]);
    write(pen, `${Math.round(12 * this.large)}px ${FONT}`);
    pen.fillStyle = place && place === this.over ? this.palette.link : this.palette.muted;
    pen.fillText(block.label, left, top - 5, width);
  }

  name(pen, text, right, top, width, height) {
    this.names.push([right - width, top, width, height, text]);
    write(pen, `${Math.round(12 * this.large)}px ${FONT}`);
    pen.fillStyle = text === this.over ? this.palette.link : this.palette.muted;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    pen.fillText(text, right - 6, top + height / 2, width - 6);
    pen.textAlign = "start";
    pen.textBaseline = "alphabetic";
  }

  // All cells, or those that are no longer as they were painted.
  paint(pen, whole) {
    const { fleet, palette, odd } = this, [broad, cell] = this.size, least = Math.min(broad, cell);
    const thick = cell >= 14 ? 2 : 1;
    const over = [...(least < 8 ? odd : []), ...(this.ringed >= 0 ? [this.ringed] : [])];
    this.lift(whole, over);
    for (let i = 0; i < fleet.count; i++) {
      const look = fleet.look[i], said = this.shownBy(i, look);
      if (said === this.painted[i]) continue;
      this.painted[i] = said;
      const x = this.x[i], y = this.y[i], w = this.wide[i], h = this.high[i];
      const [fill, edge, level] = this.colour(pen, i, look);
      if (!whole) pen.clearRect(x, y, w + this.line, h + this.line);
      pen.fillStyle = fill;
      pen.fillRect(x, y, w, h);
      if (edge && cell >= DOT_BELOW) this.outline(pen, x, y, w, h, edge, 1);
      // What needs a person is marked as long as a mark can be read; colour alone says nothing.
      if (least >= (ALWAYS.includes(look) ? 9 : 14)) this.mark(pen, i, look, level, x + w / 2, y + h / 2);
      if (least < 8) continue;
      if (look === FAILED) this.outline(pen, x, y, w, h, palette["failed-edge"], thick);
      else if (look === DEGRADED && this.metric !== "state") this.outline(pen, x, y, w, h, palette.degraded, thick + 1);
    }
    // Exceptions last, so that nothing covers them; as dots where a cell is too small to be seen.
    if (least < 8) for (const i of odd) this.dot(pen, i, fleet.look[i]);
    if (this.ringed >= 0) this.ring(pen, this.ringed);
  }

  // Takes dots and the ring off: the cells below them are painted anew.
  lift(whole, over) {
    const { x, y } = this, [broad, cell] = this.size;
    if (whole) {
      const near = (i) => (o) => Math.abs(x[i] - x[o]) < DOT + broad + 1 && Math.abs(y[i] - y[o]) < DOT + cell + 1;
      this.below = over.length > FEW ? [] : [...x.keys()].filter((i) => over.some(near(i)));
      return;
    }
    for (const i of this.below) this.painted[i] = -1;
  }

  // All that a cell shows, as one number.
  shownBy(i, look) {
    const { of } = METRICS[this.metric];
    return look * 0x100000 + (of ? of(this.fleet, i) + 1 : look === ACTIVE ? this.fleet.util[i] : 0);
  }

  // Its fill, its outline, and how far up its scale it is (0 to 100); -1 where it has no number.
  colour(pen, i, look) {
    const { fleet, palette, metric } = this;
    if (look === UNKNOWN) return [palette.unknown, palette["unknown-line"], -1];
    if (look === FAILED) return [palette.failed, "", -1];
    if (look === OUT) return [palette.out, "", -1];
    const { of } = METRICS[metric];
    if (!of && look !== ACTIVE) return [palette[KINDS[look]], "", -1];
    if (!of) {
      const used = Math.min(fleet.util[i], 100);
      return [palette.busy[used], "", fleet.util[i] === NO_BYTE ? -1 : used];
    }
    const value = of(fleet, i), [low, high] = this.ends;
    if (value < 0) return [palette.hatched(pen), palette["unknown-line"], -1];
    const level = Math.round(Math.min(Math.max((100 * (value - low)) / (high - low), 0), 100));
    return [palette.scale[level], "", level];
  }

  mark(pen, i, look, level, x, y) {
    const { metric, palette } = this, { of } = METRICS[metric];
    const size = this.size[1], roomy = size >= 20 && this.size[0] >= 26;
    let text = MARKS[look], ink = palette.text;
    if (look === FAILED) ink = palette["failed-mark"];
    else if (look === OUT) ink = palette["out-mark"];
    else if (level >= 0 && (look !== DEGRADED || of)) {
      text = roomy ? String(of ? of(this.fleet, i) : level) : look === DEGRADED ? "!" : "";
      ink = palette[`${of ? "ramp" : "busy"}-${level > 55 ? "high" : "low"}-mark`];
    } else if (of && look !== UNKNOWN) text = look === DEGRADED ? "!" : "";
    else if (look === DEGRADED || look === IDLE) ink = palette[`${KINDS[look]}-mark`];
    if (!text) return;
    const bold = look === FAILED || text === "!" || text === "?";
    const height = Math.round(Math.min(Math.min(...this.size) * (bold ? 0.8 : 0.62), (bold ? 15 : 12) * this.large * (size >= 40 ? 1.15 : 1)));
    write(pen, `${bold ? "bold " : ""}${height}px ${FONT}`);
    pen.fillStyle = ink;
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
    pen.arc(this.x[i] + this.size[0] / 2, this.y[i] + this.size[1] / 2, look === FAILED ? 4 : 3, 0, 7);
    pen.fillStyle = this.palette[KINDS[look]];
    pen.fill();
    if (look !== FAILED) return;
    pen.strokeStyle = this.palette["failed-edge"];
    pen.lineWidth = 1;
    pen.stroke();
  }

  ring(pen, i) {
    // Its outer edge is on whole pixels, as the cells are.
    const [x, y] = [this.x[i] - 1.5, this.y[i] - 1.5];
    const size = [Math.max(this.wide[i], 2) + 3, Math.max(this.high[i], 2) + 3];
    pen.lineWidth = 5;
    pen.strokeStyle = this.palette.bg;
    pen.strokeRect(x, y, ...size);
    pen.lineWidth = 2.5;
    pen.strokeStyle = this.palette.link;
    pen.strokeRect(x, y, ...size);
  }

  at(x, y) {
    const [broad, cell] = this.size ?? [1, 1];
    for (const [left, top, start, count] of this.rows ?? [])
      if (y >= top && y < top + cell && x >= left && x < left + count * broad)
        return start + Math.floor((x - left) / broad);
    return -1;
  }

  nodeAt(x, y) {
    const inside = ([left, top, w, h]) => x >= left && x < left + w && y >= top && y < top + h;
    return (this.names ?? []).find(inside)?.[4];
  }

  // The rack of a node as a name on the map; undefined without one.
  rackOf(node) {
    const rack = this.fleet.blocks.find(([, nodes]) => nodes.some(([name]) => name === node))?.[2];
    return rack && RACK + rack;
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
      holder ? `allocated to ${holder}` : ""].filter(Boolean);
  }

  summary() {
    const said = this.counts.map((n, look) => n && `${n} ${NAMES[look]}`).filter(Boolean).join(", ");
    const shows = this.metric === "state" ? "" : ` Cells show ${METRICS[this.metric].name.toLowerCase()}.`;
    return `Fleet map of ${this.fleet.count} GPUs: ${said}.${shows} Arrow keys move, Enter opens a GPU, N its node, R its rack.`;
  }

  point(i, aloud = false, node = undefined) {
    const turned = this.over !== node;
    this.current = i;
    this.over = node;
    this.canvas.style.cursor = i >= 0 || node ? "pointer" : "default";
    if (i < 0) this.tip.hidden = true;
    else this.describe(i, aloud);
    if (aloud || this.focused || turned) this.draw();
  }

  describe(i, aloud) {
    const lines = this.lines(i);
    this.tip.replaceChildren(...lines.map((text) => element("div", "", text)));
    this.tip.dataset.look = this.fleet.look[i];
    this.tip.hidden = false;
    if (aloud) this.live.textContent = lines.join(", ");
    const [w, h] = this.size, below = this.y[i] + h + 6;
    const left = Math.min(this.x[i] + w / 2, this.root.clientWidth - this.tip.offsetWidth - 4);
    const over = below + this.tip.offsetHeight > this.canvas.clientHeight + 40;
    this.tip.style.left = `${Math.max(left, 0)}px`;
    this.tip.style.top = `${over ? this.y[i] - this.tip.offsetHeight - 6 : below}px`;
  }

  // A GPU's, a node's or a rack's page, with the window that makes the link show the same tomorrow.
  choose(i, node) {
    const { cluster, from, to } = this.fleet.frame;
    const go = (path, place) =>
      document.dispatchEvent(new CustomEvent("gv:go", { detail: `${path}?${new URLSearchParams({ cluster, ...place, from, to })}` }));
    if (node?.startsWith(RACK)) return go("/hardware", { rack: node.slice(RACK.length) });
    if (node) return go("/node", { node });
    if (i < 0) return undefined;
    const index = this.fleet.index[i];
    const gpu = index === NO_BYTE ? this.fleet.unnumbered[i] : String(index);
    return go("/gpu", { node: this.fleet.node[i], gpu });
  }

  key(event) {
    const i = Math.max(this.current, 0), last = this.fleet.count - 1;
    const moves = {
      ArrowRight: () => Math.min(i + 1, last), ArrowLeft: () => Math.max(i - 1, 0),
      ArrowDown: () => this.beside(i, 1), ArrowUp: () => this.beside(i, -1),
      Home: () => 0, End: () => last,
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") this.choose(this.current);
    else if (event.key.toLowerCase() === "n") this.choose(-1, this.fleet.node[i]);
    else if (event.key.toLowerCase() === "r") this.choose(-1, this.rackOf(this.fleet.node[i]));
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
  root.fleetMap.tell = (metric) => component.setTriggerValue("metric", metric);
  root.fleetMap.watch();
  root.fleetMap.update(component.data);
  return () => root.fleetMap.end();
}
