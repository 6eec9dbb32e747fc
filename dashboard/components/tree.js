// A part of a page that is patched in place. A node is a text, or [tag, attributes, ...nodes].
// Texts come from outside: they become text nodes, and only known tags and attributes are created.

const TAGS = new Set(("a b button code dd details div dl dt em form h1 h2 h3 h4 header input label li nav ol p section small"
  + " span strong summary table tbody td th thead time tr ul").split(" "));
const DRAWN = new Set("svg line rect text".split(" "));
const SVG = "http://www.w3.org/2000/svg";
const ATTRIBUTES = new Set(("action class colspan data-name datetime height href maxlength name placeholder role scope tabindex title type"
  + " value viewBox width x x1 x2 y y1 y2").split(" "));

// Sections of minor importance are folded on a phone; turned sideways it counts as a wide screen.
const NARROW = matchMedia("(max-width: 700px)");

// Keeps a number on one line with its unit.
const UNIT = /(?<=\d) (?=(?:%|×|[kMG]?W|h|min|s|d|°C)(?![\w\/]))/g;
const unbroken = (text) => text.replace(UNIT, "\u00a0");

function allowed(name, value) {
  // Parse the address as the browser does, since a backslash or a tab can also lead to another site.
  if (name === "href" || name === "action") return URL.parse(value, location.href)?.origin === location.origin;
  return ATTRIBUTES.has(name) || name.startsWith("aria-");
}

function make([tag], parent) {
  // A link within an SVG drawing is an SVG element.
  if (DRAWN.has(tag) || (tag === "a" && parent.namespaceURI === SVG)) return document.createElementNS(SVG, tag);
  return document.createElement(TAGS.has(tag) ? tag : "span");
}

function fits(old, node) {
  if (typeof node === "string") return old.nodeType === Node.TEXT_NODE;
  return old.localName === node[0] && old.gvKey === node[1].key;
}

// Focuses what was just opened, unless somebody is typing.
function arrive(element) {
  const typing = document.activeElement?.matches("input, textarea, select");
  if (!typing) requestAnimationFrame(() => element.focus({ preventScroll: true }));
}

function adorn(element, { key, open, arrives, ...attributes }, fresh) {
  element.gvKey = key;
  if (fresh && arrives) arrive(element);
  // Later the reader decides what is unfolded.
  if (fresh && open) element.open = open !== "wide" || !NARROW.matches;
  for (const { name } of [...element.attributes])
    if (!(name in attributes) && name !== "open") element.removeAttribute(name);
  for (const [name, value] of Object.entries(attributes)) {
    if (!allowed(name, value) || element.getAttribute(name) === value) continue;
    element.setAttribute(name, value);
    if (name === "value") element.value = value;
  }
}

function patch(parent, nodes) {
  const keyed = new Map();
  for (const old of parent.childNodes) if (old.gvKey !== undefined) keyed.set(old.gvKey, old);
  const wanted = new Set(nodes.map((node) => (typeof node === "string" ? undefined : node[1].key)));
  let next = parent.firstChild;
  const drop = () => {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  };
  for (const node of nodes) {
    // Remove old elements first, since moving an element makes it lose the focus.
    while (next && next.gvKey !== undefined && !wanted.has(next.gvKey)) drop();
    const key = typeof node === "string" ? undefined : node[1].key;
    let child = key === undefined ? next : keyed.get(key);
    const reused = child && fits(child, node);
    if (!reused) child = typeof node === "string" ? document.createTextNode("") : make(node, parent);
    if (child !== next) parent.insertBefore(child, next);
    else next = next.nextSibling;
    if (typeof node === "string") {
      if (child.gvText !== node) child.data = unbroken((child.gvText = node));
    } else {
      adorn(child, node[1], !reused);
      patch(child, node.slice(2));
    }
  }
  while (next) drop();
}

function asked(form) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (String(value).trim()) query.set(name, String(value).trim());
  return `${form.getAttribute("action")}?${query}`;
}

export default function (component) {
  const root = component.parentElement.querySelector(".tree");
  patch(root, component.data.nodes);
  const turned = () => root.querySelectorAll("details.fold").forEach((it) => (it.open = !NARROW.matches));
  NARROW.addEventListener("change", turned);
  root.onsubmit = (event) => {
    event.preventDefault();
    document.dispatchEvent(new CustomEvent("gv:go", { detail: asked(event.target) }));
  };
  return () => NARROW.removeEventListener("change", turned);
}
