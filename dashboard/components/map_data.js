// Reads the fleet map's data and places its cells. For the format see dashboard/data/map_frame.py and fleet_map.py.

const [FREE, ACTIVE, IDLE, DEGRADED, FAILED, UNKNOWN, OUT] = [0, 1, 2, 3, 4, 5, 6];
const NO_BYTE = 0xff, NO_SHORT = 0xffff;
const LABEL = 17, SIDE = 64, LARGEST_CELL = 72, DOT_BELOW = 6;

function header(bytes, at) {
  const length = new DataView(bytes.buffer).getUint32(at, true);
  const text = new TextDecoder().decode(bytes.subarray(at + 4, at + 4 + length));
  return [JSON.parse(text), at + 4 + length];
}

function read(data) {
  const bytes = data.slice();
  const view = new DataView(bytes.buffer);
  const [frame, start] = header(bytes, 0);
  const [map, cells] = header(bytes, start);
  const nodes = map.blocks.flatMap(([, nodes]) => nodes);
  const count = nodes.reduce((sum, [, gpus]) => sum + gpus, 0);
  let at = cells;
  const bytesOf = () => bytes.slice(at, (at += count));
  const shorts = () => {
    const first = at;
    at += 2 * count;
    return Uint16Array.from({ length: count }, (_, i) => view.getUint16(first + 2 * i, true));
  };
  return {
    ...map, frame, count,
    look: bytesOf(), util: bytesOf(), index: bytesOf(), temp: bytesOf(),
    reason: shorts(), holder: shorts(), power: shorts(),
    node: nodes.flatMap(([name, gpus]) => Array(gpus).fill(name)),
  };
}

// The metrics that the map can show: `of` returns a cell's value or -1, `ends` the ends of the scale.
// A fixed scale gives the same colours tomorrow; for power no fixed scale fits every model.
const METRICS = {
  state: { name: "State" },
  utilization: { name: "Utilisation", unit: "%", of: (f, i) => (f.util[i] === NO_BYTE ? -1 : f.util[i]), ends: () => [0, 100] },
  temperature: { name: "Temperature", unit: "°C", of: (f, i) => (f.temp[i] === NO_BYTE ? -1 : f.temp[i]), ends: () => [20, 90] },
  power: {
    name: "Power", unit: "W", of: (f, i) => (f.power[i] === NO_SHORT ? -1 : f.power[i]),
    ends: (f) => [0, Math.max(100, Math.ceil(f.power.reduce((most, w) => (w === NO_SHORT ? most : Math.max(most, w)), 0) / 100) * 100)],
  },
};

// Shapes blocks as rows of cells: a single node may fold into two rows, a rack has a row per node.
function folded(blocks, fold) {
  let start = 0;
  const shaped = blocks.map(([label, nodes, rack]) => {
    const rows = [];
    for (const [name, gpus] of nodes) {
      const wide = nodes.length === 1 ? Math.ceil(gpus / fold) : Math.min(gpus, 16);
      for (let i = 0; i < gpus; i += wide) rows.push([start + i, Math.min(wide, gpus - i), i ? "" : name]);
      start += gpus;
    }
    return { label, rows, rack, several: nodes.length > 1 };
  });
  const most = (size) => shaped.reduce((max, block) => Math.max(max, size(block)), 1);
  return { shaped, several: shaped.some((b) => b.several), wide: most((b) => Math.max(...b.rows.map(([, n]) => n))), high: most((b) => b.rows.length) };
}

// Finds the largest cells with which everything fits into the height; they are wider than high if there
// is room. Slightly smaller cells are accepted for names beside the rows.
function layout(blocks, width, height, scale) {
  let best = null;
  for (const fold of [1, 2]) {
    const shape = folded(blocks, fold);
    for (const named of shape.several ? [true, false] : [false]) {
      const found = fitting(shape, named, width, height, scale);
      if (found && (!best || found.worth > best.worth)) best = found;
    }
  }
  return best;
}

function fitting({ shaped, wide, high }, named, width, height, scale) {
  const least = named ? 14 * scale : 1;
  for (let cell = LARGEST_CELL * scale; cell >= least; cell -= cell > 8 ? 1 : 0.5) {
    const label = wide * cell >= 52 * scale ? LABEL * scale : 0;
    const gap = cell >= DOT_BELOW ? 10 : 2;
    const side = named ? SIDE * scale : 0;
    const columns = Math.min(Math.floor((width + gap) / (side + wide * cell + gap)), shaped.length);
    const lines = Math.ceil(shaped.length / Math.max(columns, 1));
    const total = lines * (high * cell + label + gap) - gap;
    if (columns < 1 || (total > height && cell > 1)) continue;
    const broad = Math.min(((width + gap) / columns - gap - side) / wide, cell * 2.2);
    // Cells that the width keeps small may be higher than wide.
    const tall = Math.max(cell, Math.floor(Math.min(((height + gap) / lines - gap - label) / high, cell * 1.5)));
    const whole = lines * (high * tall + label + gap) - gap;
    return { shaped, wide, high, cell: tall, broad, label, side, gap, columns, total: whole, worth: tall * broad * (named ? 1.4 : 1) };
  }
  return null;
}

// The colour tokens for the canvas; `light-dark()` is resolved by elements that have these colours.
const WORN = [
  "bg", "text", "muted", "link", "line", "failed", "failed-edge", "failed-mark", "degraded", "degraded-edge",
  "degraded-mark", "idle", "idle-mark", "busy-low", "busy-high", "busy-low-mark", "busy-high-mark", "ramp-low",
  "ramp-high", "ramp-low-mark", "ramp-high-mark", "free", "unknown", "unknown-line", "out", "out-mark",
];

class Palette {
  constructor(root) {
    this.probes = WORN.map((name) => {
      const probe = document.createElement("i");
      probe.hidden = true;
      probe.style.color = `var(--gv-${name})`;
      root.append(probe);
      return [name, probe];
    });
  }

  // Reads the colours again only if the scheme changed between dark and light.
  renew() {
    const now = getComputedStyle(this.probes[0][1]).color;
    if (now === this.of) return;
    this.of = now;
    for (const [name, probe] of this.probes) this[name] = getComputedStyle(probe).color;
    this.busy = this.ramp("busy");
    this.scale = this.ramp("ramp");
    this.hatch = null;
  }

  ramp(name) {
    const [low, high] = ["low", "high"].map((end) => this[`${name}-${end}`].match(/[\d.]+/g).map(Number));
    const mix = (part, p) => Math.round(low[part] + ((high[part] - low[part]) * p) / 100);
    return Array.from({ length: 101 }, (_, p) => `rgb(${mix(0, p)},${mix(1, p)},${mix(2, p)})`);
  }

  // Returns the stripes for cells that are not measured, which are no colour of a scale.
  hatched(pen) {
    if (this.hatch) return this.hatch;
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const stripes = tile.getContext("2d");
    stripes.fillStyle = this.bg;
    stripes.fillRect(0, 0, 8, 8);
    stripes.strokeStyle = this["unknown-line"];
    stripes.lineWidth = 1.5;
    for (const from of [-8, 0, 8]) {
      stripes.moveTo(from - 1, 9);
      stripes.lineTo(from + 9, -1);
    }
    stripes.stroke();
    return (this.hatch = pen.createPattern(tile, "repeat"));
  }
}
