// The documentation of this version: its pages are Markdown files of the program, shown as they are. The fragment of the
// address is the page and the heading: #guide/run.md#how-do-i-install-it.
import { $, element } from "./dom.js";
import { render_markdown } from "./markdown.js";

const kMostFound = 40;
const texts = new Map();  // page -> promise of its text

function text_of(page) {
  if (!texts.has(page)) {
    texts.set(page, fetch(`docs/${page}`).then((reply) => {
      if (!reply.ok) throw new Error(`${page}: ${reply.status} ${reply.statusText}`);
      return reply.text();
    }));
    texts.get(page).catch(() => texts.delete(page));
  }
  return texts.get(page).then((text) => text.replace(/<!--[^]*?-->\n?/g, ""));
}

// The file that a link on a page names, in the folder of the documentation; null: outside of it.
function resolve(page, target) {
  const parts = page.split("/").slice(0, -1);
  for (const part of target.split("/")) {
    if (part === "..") {
      if (parts.length === 0) return null;
      parts.pop();
    } else if (part !== "." && part !== "") {
      parts.push(part);
    }
  }
  return parts.join("/");
}

// As GitHub names headings.
export function slug(text) {
  return text.trim().toLowerCase().replace(/[^\p{L}\p{N}\s_-]/gu, "").replace(/\s/g, "-");
}

function link(page, target) {
  if (/^https?:/.test(target)) return element("a", { href: target, target: "_blank", rel: "noopener noreferrer" });
  const [file, heading] = target.split("#");
  const to = file === "" ? page : resolve(page, file);
  if (to === null || !to.endsWith(".md") || to.startsWith("adr/")) return element("span", { title: `${target}: in the sources` });
  return element("a", { href: `#${to}${heading ? `#${heading}` : ""}` });
}

function picture(page, target, alt) {
  const to = resolve(page, target);
  return to !== null && to.endsWith(".svg") ? element("img", { src: `docs/${to}`, alt }) : element("em", {}, alt);
}

// [page, heading or undefined] of the address.
function wanted() {
  const fragment = location.hash.slice(1) || "index.md";
  try {
    return decodeURIComponent(fragment).split("#");
  } catch {
    return fragment.split("#");  // not encoded as it should be
  }
}

async function show() {
  const [page, heading] = wanted();
  const article = $("page");
  let source = "", failure = null;
  try {
    source = await text_of(page);
  } catch (error) {
    failure = error;
  }
  if (wanted()[0] !== page) return;  // another page was asked for meanwhile
  if (failure !== null) {
    article.replaceChildren(element("p", { class: "notice" }, failure.message));
    return;
  }
  article.replaceChildren();
  article.blockKeys = undefined;
  const emit = (start, end, parent) => parent.append(source.slice(start, end).replace(/\\([|<>*_`[\]])/g, "$1"));
  render_markdown(article, source, emit, { link: (target) => link(page, target), picture: (target, alt) => picture(page, target, alt) });
  const seen = new Map();
  for (const node of article.querySelectorAll("h3, h4, h5")) {
    const name = slug(node.textContent), before = seen.get(name) ?? 0;
    node.id = before ? `${name}-${before}` : name;
    seen.set(name, before + 1);
  }
  article.dataset.page = page;
  document.title = `${article.querySelector("h3")?.textContent ?? page} · Penstock`;
  const at = heading && document.getElementById(heading);
  if (at) at.scrollIntoView();
  else scrollTo(0, 0);
  article.focus({ preventScroll: true });
}

// All pages that the contents name.
async function pages() {
  const contents = await text_of("index.md");
  const named = [...contents.matchAll(/\]\(([^\s()#]+\.md)/g)].map((match) => resolve("index.md", match[1]));
  return ["index.md", ...new Set(named.filter((page) => page !== null && !page.startsWith("adr/")))];
}

// Paragraphs with all of the words, below the last heading before them.
async function search() {
  const found = $("found"), typed = $("words").value;
  const words = typed.toLowerCase().split(/\s+/).filter((word) => word !== "");
  const hidden = words.join("").length < 2;
  found.hidden = hidden;
  $("page").hidden = !hidden;
  if (hidden) return;
  const results = [];
  for (const page of await pages()) {
    if (results.length >= kMostFound) break;
    let heading = page, source;
    try {
      source = await text_of(page);
    } catch {
      continue;
    }
    for (const part of source.split(/\n\s*\n/)) {
      const title = /^#+\s+(.*)/.exec(part);
      if (title) heading = title[1];
      const text = `${heading} ${part}`.toLowerCase();
      if (words.every((word) => text.includes(word))) results.push({ page, heading, part });
      if (results.length >= kMostFound) break;
    }
  }
  if ($("words").value !== typed) return;  // something else was typed meanwhile
  const place = ({ page, heading }) => `#${page}${heading === page ? "" : `#${slug(heading.replace(/`/g, ""))}`}`;
  found.replaceChildren(results.length === 0 ? element("p", {}, `Nothing has “${typed}”.`) : element("ul", {}, ...results.map((result) =>
    element("li", {}, element("a", { href: place(result), onclick: close_search }, `${result.heading}`), ` ${result.page}`,
      element("small", {}, result.part.replace(/\s+/g, " ").slice(0, 220))))));
}

function close_search() {
  $("words").value = "";
  $("found").hidden = true;
  $("page").hidden = false;
}

addEventListener("hashchange", () => {
  close_search();
  show();
});
$("words").addEventListener("input", search);
show();
