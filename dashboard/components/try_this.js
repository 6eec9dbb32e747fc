// A line of links for people who look at a demo; once closed, it stays hidden in this browser.

const CLOSED = "gpuvigil-try-this-closed";

export default function (component) {
  const line = component.parentElement.querySelector(".try");
  line.hidden = localStorage.getItem(CLOSED) !== null;
  const said = JSON.stringify(component.data.links);
  if (line.dataset.said !== said) {
    line.dataset.said = said;
    // Names come from outside, so texts are set as text.
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
