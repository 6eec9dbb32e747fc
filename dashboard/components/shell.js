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

// Streamlit makes two steps of a change of page, of its path and of its query, and the one between them is
// a page with another's query. Until we are there, every step after the first goes on from that one.
const PATIENCE_MS = 5000;

function oneStep(to) {
  const wanted = new URL(to, location.href), sorted = (url) => {
    const query = new URLSearchParams(url.search);
    query.sort();
    return `${url.pathname}?${query}`;
  };
  // Of a GPU that is asked for by its index the server makes its UUID.
  const indexed = /^\d+$/.test(wanted.searchParams.get("gpu") ?? "");
  const plain = (url) => (indexed ? sorted(url).replace(/([?&]gpu=)[^&]*/, "$1") : sorted(url));
  let steps = 0;
  delete history.pushState;
  const step = (...entry) => {
    if (steps++) history.replaceState(...entry);
    else History.prototype.pushState.apply(history, entry);
    if (plain(location) === plain(wanted)) over();
  };
  const over = () => {
    if (history.pushState === step) delete history.pushState;
  };
  if (sorted(location) === sorted(wanted)) return;
  history.pushState = step;
  setTimeout(over, PATIENCE_MS);
}

class Shell {
  constructor(root) {
    this.root = root;
    this.links = root.querySelector(".links");
    this.form = root.querySelector("form");
    this.theme = root.querySelector("select");
    this.lost = root.querySelector(".lost");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask("search", this.form.elements.text.value.trim());
    });
    this.theme.addEventListener("change", () => this.choose(this.theme.value));
    root.querySelector(".skip").addEventListener("click", () => this.skip());
    this.click = (event) => this.follow(event);
    this.event = (event) => this.go(event.detail);
    document.addEventListener("click", this.click);
    document.addEventListener("gv:go", this.event);
    this.over = (event) => this.local(event);
    document.addEventListener("pointerover", this.over);
    this.clock = root.querySelector(".clock");
    this.timer = setInterval(() => this.listen(), 1000);
  }

  update(data) {
    this.pages = data.pages.map(([path]) => path);
    if (data.leave && data.leave !== this.left) setTimeout(() => this.go(data.leave));
    this.left = data.leave;
    this.patience = data.patience;
    this.root.querySelector("nav").hidden = data.wall;
    const shown = data.pages.filter(([, title]) => title);
    // Who has signed in; the page behind it signs out, and is none of Streamlit's.
    if (data.account) shown.push(["/sign-out", data.account]);
    const said = JSON.stringify([shown, data.current]);
    if (said !== this.said) this.links.replaceChildren(...shown.map(([path, title]) => this.link(path, title, data.current)));
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

  choose(theme) {
    localStorage.setItem(CHOSEN, theme);
    sessionStorage.removeItem(TRIED);
    this.wear(theme);
  }

  // The pages get their theme when they are loaded, so another one is worn after a reload; once.
  wear(theme) {
    const value = JSON.stringify(THEMES[theme] ?? THEMES.auto);
    const before = localStorage.getItem(themeKey(location.pathname)) ?? JSON.stringify(THEMES.auto);
    if (before === value) return;
    for (const path of new Set([...this.pages, location.pathname])) localStorage.setItem(themeKey(path), value);
    if (sessionStorage.getItem(TRIED) === value) return;
    sessionStorage.setItem(TRIED, value);
    location.reload();
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
    const said = zone ? `${utc} · ${at.toTimeString().slice(0, 5)} here` : utc;
    if (this.clock.textContent !== said) this.clock.textContent = said;
  }

  local(event) {
    const time = event.composedPath().find((node) => node.tagName === "TIME" && node.dateTime);
    const at = time && new Date(time.dateTime);
    if (!time || isNaN(at)) return;
    const said = `${at.toLocaleString()} here`;
    if (time.title !== said) time.title = said;
  }

  follow(event) {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.composedPath().find((node) => node.tagName === "A" && node.href);
    if (!link || link.hasAttribute("download") || here(link.href, this.pages) === null) return;
    event.preventDefault();
    this.go(link.href);
  }

  go(href) {
    const to = here(href, this.pages);
    if (to === null) return;
    oneStep(to);
    this.ask("go", to);
  }

  end() {
    clearInterval(this.timer);
    document.removeEventListener("click", this.click);
    document.removeEventListener("pointerover", this.over);
    document.removeEventListener("gv:go", this.event);
  }
}

export default function (component) {
  const root = component.parentElement.querySelector(".shell");
  root.shell ??= new Shell(root);
  root.shell.ask = (name, value) => component.setTriggerValue(name, value);
  root.shell.update(component.data);
  return () => {
    root.shell.end();
    delete root.shell;
  };
}
