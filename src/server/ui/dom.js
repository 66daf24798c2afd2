// Small helpers for building elements. Text always enters as text nodes, never as HTML.

export const $ = (id) => document.getElementById(id);

// element("p", {class: "x", onclick: f, "aria-label": "…"}, child, "text", …)
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const kSvg = "http://www.w3.org/2000/svg";
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(kSvg, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export function icon(name) {
  return svg("svg", { class: "icon", "aria-hidden": "true" }, svg("use", { href: `#i-${name}` }));
}

export function icon_button(name, label, onclick) {
  return element("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick }, icon(name));
}

export function set_icon(button, name) {
  button.querySelector("use").setAttribute("href", `#i-${name}`);
}

// Says something to screen readers without showing it.
export function announce(text) {
  const region = $("announce");
  region.textContent = "";
  requestAnimationFrame(() => (region.textContent = text));
}

export async function copy_text(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // The clipboard API needs a secure context; a selection works on plain http too.
    const area = element("textarea", { class: "hidden" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  announce("Copied");
  set_icon(button, "check");
  setTimeout(() => set_icon(button, "copy"), 1400);
}
