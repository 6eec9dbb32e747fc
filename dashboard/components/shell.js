// The line over every page: where one can go, the search, and the choice of dark or light. It also
// turns every link between our pages into a change of page without a reload; anything else a browser
// can do with a link stays. Other components go somewhere with
// `dispatchEvent(new CustomEvent("gv:go", { detail: href }))` on the document.

// What Streamlit (theme version 2) reads when a page is loaded, per path.
const THEMES = { auto: "System", dark: "Dark", light: "Light" };
const CHOSEN = "gpuvigil-theme", TRIED = "gpuvigil-theme-tried";
const themeKey = (path) => `stActiveTheme-${path}-v2`;

function here(href, pages) {
  const url = new URL(href, location.href);
  return url.origin === location.origin && pages.includes(url.pathname) ? url.pathname + url.search : null;
}

// One in a drawing, too, whose `href` is no text.
function linkOf(event) {
  return event.composedPath().find((node) => node.localName === "a" && node.hasAttribute("href"));
}

// Streamlit changes the path and the query in two steps of history, and the one between them is a page with
// another page's query: later steps replace the first. A run of the old page may also overtake the change of
// page, or undo it: if the new page has not come after a while, it is loaded.
const PATIENCE_MS = 4000, ACTS = ["popstate", "pointerdown", "keydown"];
let forget = () => {};

function oneStep(to) {
  forget();
  const wanted = new URL(to, location.href);
  // Of a GPU that is asked for by its index the server makes its UUID.
  const indexed = /^\d+$/.test(wanted.searchParams.get("gpu") ?? "");
  const plain = (url) => {
    const query = new URLSearchParams(url.search);
    if (indexed && query.has("gpu")) query.set("gpu", "");
    query.sort();
    return `${url.pathname}?${query}`;
  };
  const thereNow = () => plain(location) === plain(wanted);
  if (thereNow()) return;
  let steps = 0, there = false;
  const step = (...entry) => {
    if (steps++) history.replaceState(...entry);
    else History.prototype.pushState.apply(history, entry);
    there ||= thereNow();
    if (there) delete history.pushState;
  };
  // Going back cancels the change of page; any other action on the new page shows that it has come.
  const act = (event) => event.isTrusted && (there || event.type === "popstate") && forget();
  const late = setTimeout(() => {
    forget();
    if (!there || location.pathname !== wanted.pathname) location.assign(to);
  }, PATIENCE_MS);
  forget = () => {
    clearTimeout(late);
    for (const kind of ACTS) removeEventListener(kind, act, true);
    delete history.pushState;
  };
  for (const kind of ACTS) addEventListener(kind, act, true);
  history.pushState = step;
}

// The same text typed twice is two searches.
const numbered = () => String(performance.timeOrigin + performance.now());
// The search whose page was gone to.
let left = null;

// The moment of the past that is looked at goes along on every way but the one back to now.
const withMoment = (to, at) => {
  const url = new URL(to, location.href);
  if (at && !url.searchParams.has("at")) url.searchParams.set("at", at);
  return url.pathname + url.search;
};
const withoutMoment = () => {
  const query = new URLSearchParams(location.search);
  query.delete("at");
  return location.pathname + (query.size ? `?${query}` : "");
};
const MINUTE = 60_000, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const STEPS = [["15 min ago", 15 * MINUTE], ["1 h ago", HOUR], ["6 h ago", 6 * HOUR], ["Yesterday", DAY], ["A week ago", 7 * DAY]];
const ago = (ms) => {
  const minutes = Math.floor(ms / MINUTE), hours = Math.floor(ms / HOUR), days = Math.floor(ms / DAY);
  return minutes < 2 ? `${Math.floor(ms / 1000)} s` : minutes < 120 ? `${minutes} min` : hours < 48 ? `${hours} h` : `${days} days`;
};
const inUtc = (at) => at.toISOString().slice(0, 19);
const stamp = (at) => `${inUtc(at)}Z`;
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
const said = (at) => `${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]} ${at.toISOString().slice(11, at.getUTCSeconds() ? 19 : 16)} UTC`;

class Shell {
  constructor(root) {
    this.root = root;
    this.links = root.querySelector(".links");
    this.form = root.querySelector("form[role=search]");
    this.choices(root.querySelector(".when"));
    this.menu = root.querySelector(".menu");
    this.menu.addEventListener("click", () => this.unfold(this.menu.getAttribute("aria-expanded") !== "true"));
    this.theme = root.querySelector("select");
    this.lost = root.querySelector(".lost");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.look(this.form.elements.text.value.trim());
    });
    this.theme.addEventListener("change", () => this.choose(this.theme.value));
    root.querySelector(".skip").addEventListener("click", () => this.skip());
    this.click = (event) => this.follow(event);
    this.event = (event) => this.go(event.detail);
    document.addEventListener("click", this.click);
    document.addEventListener("gv:go", this.event);
    this.over = (event) => this.local(event);
    document.addEventListener("pointerover", this.over);
    document.addEventListener("focusin", this.over);
    this.clock = root.querySelector(".clock");
    this.zone = root.querySelector(".zone");
    this.timer = setInterval(() => this.listen(), 1000);
  }

  update(data) {
    this.pages = data.pages.map(([path]) => path);
    const [search, to] = data.leave ?? [];
    if (search && search !== left) setTimeout(() => this.go(to));
    left = search ?? left;
    this.patience = data.patience;
    this.at = data.at;
    this.tick();
    this.root.querySelector("nav").hidden = data.wall;
    const shown = data.pages.filter(([, title]) => title);
    // Who has signed in; the page behind it signs out, and is none of Streamlit's.
    if (data.account) shown.push(["/sign-out", data.account]);
    const said = JSON.stringify([shown, data.current]);
    if (said !== this.said) {
      this.links.replaceChildren(...shown.map(([path, title]) => this.link(path, title, data.current)));
      this.menu.querySelector(".page").textContent = data.title;
      this.menu.setAttribute("aria-label", `Pages, now ${data.title}`);
      this.unfold(false);
    }
    this.said = said;
    const chosen = localStorage.getItem(CHOSEN);
    this.theme.value = chosen in THEMES ? chosen : "auto";
    this.wear(data.theme || this.theme.value);
  }

  link(path, title, current) {
    const link = document.createElement("a");
    link.href = path;
    link.textContent = title;
    if (path === current) link.setAttribute("aria-current", "page");
    return link;
  }

  // On a narrow screen the pages and the colours are behind one button.
  unfold(open) {
    this.menu.setAttribute("aria-expanded", String(open));
    this.root.querySelector("nav").classList.toggle("open", open);
  }

  choose(theme) {
    localStorage.setItem(CHOSEN, theme);
    sessionStorage.removeItem(TRIED);
    this.wear(theme);
  }

  // The pages get their theme when they are loaded, so another one is worn after a reload; once.
  wear(theme) {
    if (this.reloads(theme)) location.reload();
    else if (document.documentElement.dataset.gvTheme !== theme) document.documentElement.dataset.gvTheme = theme;
  }

  reloads(theme) {
    const value = JSON.stringify(THEMES[theme] ?? THEMES.auto);
    const before = localStorage.getItem(themeKey(location.pathname)) ?? JSON.stringify(THEMES.auto);
    if (before === value) return false;
    for (const path of new Set([...this.pages, location.pathname])) localStorage.setItem(themeKey(path), value);
    if (sessionStorage.getItem(TRIED) === value) return false;
    sessionStorage.setItem(TRIED, value);
    return true;
  }

  skip() {
    const title = document.querySelector(".stMain h1");
    title?.setAttribute("tabindex", "-1");
    title?.focus();
  }

  // A page that is not drawn anew looks as good as a fresh one: whoever looks at it is told.
  listen() {
    this.tick();
    const drawn = document.querySelector("[data-drawn]"), now = performance.now();
    const mark = drawn?.dataset.drawn;
    if (mark !== this.mark || document.hidden || !drawn) [this.mark, this.markedAt] = [mark, now];
    const seconds = Math.floor((now - this.markedAt) / 1000);
    this.lost.hidden = seconds < this.patience;
    if (!this.lost.hidden)
      this.lost.textContent = `No answer from the dashboard for ${seconds} s: everything below is as it was then (${drawn.textContent}). It goes on by itself.`;
  }

  // Pages say UTC; whoever reads them elsewhere sees their own time beside it.
  tick() {
    const at = new Date(), zone = at.getTimezoneOffset();
    const utc = `${at.toISOString().slice(11, 16)} UTC`;
    const beside = zone && !this.at ? ` · ${at.toTimeString().slice(0, 5)} here` : "";
    const put = (node, words) => {
      if (node.textContent !== words) node.textContent = words;
    };
    put(this.zone, beside);
    if (!this.at) return put(this.clock, `Now ${utc}`);
    const then = new Date(this.at), here = zone ? ` · ${then.toTimeString().slice(0, 5)} here` : "";
    put(this.clock, said(then));
    const strip = document.querySelector(".gv-past time");
    if (strip) put(strip, `The past: ${said(then)}${here} · ${ago(at - then)} ago`);
  }

  // The way to another moment: some steps back, or a time of one's own.
  choices(when) {
    const pick = when.querySelector(".pick"), choose = when.querySelector(".choose"), form = when.querySelector(".at");
    const field = form.elements.at, here = when.querySelector(".here");
    const open = (to) => {
      choose.hidden = !to;
      pick.setAttribute("aria-expanded", String(to));
      if (!to) return;
      const now = Date.now();
      when.querySelector(".steps").replaceChildren(
        ...STEPS.map(([name, back]) => this.step(name, stamp(new Date(now - back - (now % MINUTE))))),
        ...(this.at ? [this.step("Now", "")] : []),
      );
      field.max = inUtc(new Date(now));
      field.value = inUtc(this.at ? new Date(this.at) : new Date(now - HOUR - (now % MINUTE)));
      local();
    };
    const asked = () => new Date(`${field.value}Z`);
    const local = () => {
      const at = asked();
      here.textContent = isNaN(at) || !at.getTimezoneOffset() ? "" : `${at.toLocaleString()} here`;
    };
    pick.addEventListener("click", () => open(choose.hidden));
    field.addEventListener("input", local);
    when.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || choose.hidden) return;
      open(false);
      pick.focus();
    });
    choose.addEventListener("click", (event) => {
      if (event.target.tagName === "A") open(false);
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const at = asked();
      if (isNaN(at)) return;
      open(false);
      const url = new URL(withoutMoment(), location.href);
      url.searchParams.set("at", stamp(at));
      this.go(url.href);
    });
  }

  step(name, at) {
    const link = document.createElement("a"), url = new URL(withoutMoment(), location.href);
    if (at) url.searchParams.set("at", at);
    else link.dataset.now = "";
    link.href = url.pathname + url.search;
    link.textContent = name;
    return link;
  }

  local(event) {
    this.carry(linkOf(event));
    const time = event.composedPath().find((node) => node.tagName === "TIME" && node.dateTime);
    const at = time && new Date(time.dateTime);
    if (!time || isNaN(at)) return;
    const text = `${at.toLocaleString()} here`;
    if (time.title !== text) time.title = text;
  }

  // A link that is copied, or opened beside this page, leads to the same moment.
  carry(link) {
    if (!this.at || !link || "now" in link.dataset || link.hasAttribute("download")) return;
    const to = here(link.getAttribute("href"), this.pages);
    if (to !== null && withMoment(to, this.at) !== to) link.setAttribute("href", withMoment(to, this.at));
  }

  follow(event) {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = linkOf(event);
    if (!link || link.hasAttribute("download") || here(link.getAttribute("href"), this.pages) === null) return;
    event.preventDefault();
    if ("now" in link.dataset) this.leave(withoutMoment());
    else this.go(link.getAttribute("href"));
  }

  go(href) {
    const to = here(href, this.pages);
    if (to !== null) this.leave(withMoment(to, this.at));
  }

  // Another moment is another document: until it has answered, nothing of the one before stands on its page.
  leave(to) {
    const at = new URL(to, location.href).searchParams.get("at") ?? "";
    if (at !== (this.at ?? "")) return location.assign(to);
    oneStep(to);
    this.ask("go", to);
  }

  end() {
    clearInterval(this.timer);
    document.removeEventListener("click", this.click);
    document.removeEventListener("pointerover", this.over);
    document.removeEventListener("focusin", this.over);
    document.removeEventListener("gv:go", this.event);
  }
}

export default function (component) {
  const root = component.parentElement.querySelector(".shell");
  root.shell ??= new Shell(root);
  root.shell.ask = (name, value) => component.setTriggerValue(name, value);
  // It stands in every word to the server, with a number of its own: none of them can overtake it.
  root.shell.look = (text) => component.setStateValue("search", [numbered(), text]);
  root.shell.update(component.data);
  return () => {
    root.shell.end();
    delete root.shell;
  };
}
