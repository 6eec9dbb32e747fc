// "Needs attention": incidents, most urgent first, each with a link to its story and one to its subject.
// Every text is set as textContent, since titles and names come from outside.

// The share of the list's height for entries in full; the rest is for one-line entries.
const FULL_SHARE = 0.7;
// The most info incidents on a narrow screen, where the list stands before the map.
const MOST_NOTES = 3;

function element(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}

function link(name, text, href) {
  const made = element("a", name, text);
  made.href = href;
  return made;
}

function row(item) {
  const entry = element("li", item.severity), line = element("div", "line");
  entry.dataset.incident = item.id;
  line.append(element("span", `severity ${item.severity}`, item.severity));
  if (item.simulated) line.append(element("span", "simulated", "simulated"));
  line.append(link("title", item.title, item.page), link("where", item.label, item.place));
  const told = element("div", "told"), impact = element("div", "sub");
  for (const [text, href] of item.impact) impact.append(href ? link("", text, href) : text);
  for (const text of item.told) told.append(element("div", "", text));
  entry.append(line, impact, element("div", "action", item.action), told);
  return entry;
}

class Attention {
  constructor(root) {
    this.root = root;
    this.list = root.querySelector("ol");
    this.more = root.querySelector(".more");
    this.fit = () => requestAnimationFrame(() => this.room());
  }

  watch() {
    window.addEventListener("resize", this.fit);
  }

  end() {
    window.removeEventListener("resize", this.fit);
  }

  update(data) {
    const { items, left, page, wall } = data, said = JSON.stringify(data);
    // Most refreshes have the same data and the same room.
    if (said === this.said && this.most() === this.height && this.list.scrollHeight === this.tall) return;
    this.said = said;
    this.left = left;
    this.page = page;
    this.root.classList.toggle("wall", wall);
    const kept = new Map([...this.list.children].map((entry) => [entry.dataset.incident, entry]));
    const fresh = items.map((item) => {
      const said = JSON.stringify(item), old = kept.get(item.id);
      // An entry with unchanged text stays as it is, with its focus and selected text.
      if (old?.said === said) return old;
      const made = row(item);
      made.said = said;
      made.count = item.count;
      // A rebuilt entry, such as one with a new duration, keeps the focus of its link.
      const at = old ? [...old.querySelectorAll("a")].indexOf(this.list.getRootNode().activeElement) : -1;
      made.focusAt = at;
      return made;
    });
    this.list.replaceChildren(...fresh);
    for (const entry of fresh) {
      if (entry.focusAt >= 0) entry.querySelectorAll("a")[entry.focusAt].focus();
      entry.focusAt = -1;
    }
    this.room();
  }

  // Returns how high the list may be in pixels; unlimited on a narrow screen, where it stands before the map.
  most() {
    const style = getComputedStyle(this.root);
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize) || 16;
    const below = parseFloat(style.getPropertyValue("--list-below"));
    const scrolled = document.querySelector(".stMain")?.scrollTop ?? 0;
    const top = this.list.getBoundingClientRect().top + scrolled;
    return Number.isNaN(below) ? Infinity : Math.max(window.innerHeight - top - below * rem, 200);
  }

  // Returns the height up to the end of the last entry that fits as a whole: none is cut through a line.
  whole(entries, most) {
    const start = entries[0].getBoundingClientRect().top;
    const ends = entries.map((entry) => entry.getBoundingClientRect().bottom - start);
    return ends.filter((end) => end <= most).at(-1) ?? most;
  }

  // Shows as many entries in full as fit beside the map, the others in one line each, and lets the list
  // scroll. On a wall nobody scrolls or clicks, so entries that do not fit are only counted. On a narrow
  // screen info incidents beyond the first few are only counted, too.
  room() {
    const most = (this.height = this.most());
    const entries = [...this.list.children], wall = this.root.classList.contains("wall"), at = this.list.scrollTop;
    for (const entry of entries) {
      entry.hidden = false;
      entry.classList.remove("brief");
    }
    // Read all positions before hiding anything, so that there is one layout however many entries there are.
    const start = this.list.getBoundingClientRect().top - this.list.scrollTop;
    const ends = entries.map((entry) => entry.getBoundingClientRect().bottom - start);
    const all = ends.length === 0 || ends.at(-1) <= most;
    const room = all || wall ? most : most * FULL_SHARE;
    const full = Math.max(ends.filter((end) => end <= room).length, Math.min(entries.length, 1));
    entries.slice(full).forEach((entry) => (wall ? (entry.hidden = true) : entry.classList.add("brief")));
    this.list.classList.toggle("scrolls", !all && !wall);
    this.list.style.maxHeight = all || wall ? "" : `${this.whole(entries, most)}px`;
    this.list.scrollTop = at;
    const notes = most === Infinity && !wall ? entries.filter((entry) => entry.classList.contains("info")) : [];
    notes.forEach((entry, place) => {
      entry.classList.add("brief");
      entry.hidden = place >= MOST_NOTES;
    });
    this.tall = this.list.scrollHeight;
    const hidden = entries.filter((entry) => entry.hidden);
    const rest = hidden.reduce((sum, entry) => sum + entry.count, this.left);
    this.more.hidden = rest === 0;
    this.more.replaceChildren(link("", `and ${rest.toLocaleString("en")} more`, this.page));
  }
}

export default function (component) {
  const root = component.parentElement.querySelector(".attention");
  root.attention ??= new Attention(root);
  root.attention.watch();
  root.attention.update(component.data);
  return () => root.attention.end();
}
