// "Needs attention": incidents as a list of buttons that open in place.
// Every text is set as textContent: titles and names come from strangers.

function element(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}

function head(item) {
  const line = element("span", "line");
  if (item.over) line.append(element("span", "severity over", "over"));
  line.append(element("span", `severity ${item.severity}`, item.severity));
  if (item.simulated) line.append(element("span", "simulated", "simulated"));
  line.append(element("strong", "", item.title), element("span", "where", item.label));
  const parts = [line, element("span", "sub", item.impact)];
  if (item.over) parts.splice(1, 0, element("span", "ended", item.over));
  return parts;
}

function pairs(rows) {
  const list = element("dl");
  for (const [name, ...values] of rows) {
    list.append(element("dt", "", name));
    for (const value of values) list.append(element("dd", "", value));
  }
  return list;
}

function body(item, open) {
  const box = element("div", "body");
  box.append(pairs(item.details));
  if (item.gpu) {
    const link = element("button", "gpu", `Show ${item.label} on the map`);
    link.onclick = () => open("gpu", item.gpu);
    box.append(link);
  }
  return box;
}

function row(item, opened, open) {
  const entry = element("li", item.over ? "over" : item.severity);
  entry.dataset.incident = item.id;
  const button = element("button", "head");
  button.setAttribute("aria-expanded", String(opened));
  button.append(...head(item));
  button.onclick = () => open("incident", opened ? "" : item.id);
  const told = element("div", "told");
  for (const text of item.told) told.append(element("div", "", text));
  entry.append(button, element("div", "action", item.action), told);
  if (opened) entry.append(body(item, open));
  return entry;
}

export default function (component) {
  const root = component.parentElement.querySelector("ol");
  const { items, opened } = component.data;
  const open = (kind, value) => component.setTriggerValue(kind, value);
  const kept = new Map([...root.children].map((entry) => [entry.dataset.incident, entry]));
  const focused = root.getRootNode().activeElement?.closest?.("li")?.dataset.incident;
  root.replaceChildren(...items.map((item) => {
    const text = JSON.stringify([item, opened === item.id]);
    const old = kept.get(item.id);
    // An entry that says the same as before stays as it is, with its focus and selected text.
    if (old?.said === text) return old;
    const fresh = row(item, opened === item.id, open);
    fresh.said = text;
    return fresh;
  }));
  if (focused !== undefined && root.getRootNode().activeElement === null)
    [...root.children].find((e) => e.dataset.incident === focused)?.querySelector(".head").focus();
}
