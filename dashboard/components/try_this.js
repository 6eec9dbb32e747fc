// One line of links for whoever looks at a demo; who closes it sees it no more in this browser.

const CLOSED = "gpuvigil-try-this-closed";

export default function (component) {
  const line = component.parentElement.querySelector(".try");
  line.hidden = localStorage.getItem(CLOSED) !== null;
  const said = JSON.stringify(component.data.links);
  if (line.dataset.said !== said) {
    line.dataset.said = said;
    // Names come from strangers: texts are set as texts.
    line.querySelector("ul").replaceChildren(
      ...component.data.links.map(([text, href]) => {
        const link = document.createElement("a"), entry = document.createElement("li");
        link.textContent = text;
        link.href = href;
        entry.append(link);
        return entry;
      }),
    );
  }
  line.querySelector("button").onclick = () => {
    localStorage.setItem(CLOSED, "1");
    line.hidden = true;
  };
}
