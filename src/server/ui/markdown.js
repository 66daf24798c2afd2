// Markdown as chat models write it, into elements. Works on offsets into the source, so that every run of text can still
// be told which tokens it came from; nothing of the source is ever taken as HTML.
import { copy_text, element, icon_button } from "./dom.js";

const kListItem = /^(\s*)([-*+]|\d{1,9}[.)])\s+/;
const kFence = /^\s{0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const kTableRule = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

// [{start, end, text}] without the line ends.
function split_lines(source) {
  const lines = [];
  for (let start = 0; start <= source.length;) {
    let end = source.indexOf("\n", start);
    if (end < 0) end = source.length;
    lines.push({ start, end, text: source.slice(start, end) });
    start = end + 1;
  }
  return lines;
}

function starts_block(lines, i) {
  const text = lines[i].text;
  return kFence.test(text) || /^#{1,6}\s/.test(text) || /^\s*>/.test(text) || kListItem.test(text) || is_table(lines, i) ||
    /^\s*([-*_])(\s*\1){2,}\s*$/.test(text);
}

function is_table(lines, i) {
  return lines[i].text.includes("|") && i + 1 < lines.length && lines[i + 1].text.includes("|") && kTableRule.test(lines[i + 1].text);
}

// [{type, lines, …}]: the blocks of the source in order.
function parse_blocks(source) {
  const lines = split_lines(source), blocks = [];
  for (let i = 0; i < lines.length;) {
    const first = i, text = lines[i].text;
    const fence = kFence.exec(text);
    if (text.trim() === "") {
      ++i;
    } else if (fence) {
      const closing = new RegExp(`^\\s{0,3}${fence[1][0]}{${fence[1].length},}\\s*$`);
      do ++i; while (i < lines.length && !closing.test(lines[i].text));
      blocks.push({ type: "code", language: fence[2], lines: lines.slice(first + 1, i) });
      ++i;
    } else if (/^#{1,6}\s/.test(text)) {
      blocks.push({ type: "heading", level: text.match(/^#+/)[0].length, lines: [lines[i++]] });
    } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(text)) {
      blocks.push({ type: "rule", lines: [lines[i++]] });
    } else if (/^\s*>/.test(text)) {
      while (i < lines.length && /^\s*>/.test(lines[i].text)) ++i;
      blocks.push({ type: "quote", lines: lines.slice(first, i) });
    } else if (kListItem.test(text)) {
      while (i < lines.length && (kListItem.test(lines[i].text) || /^\s+\S/.test(lines[i].text) ||
             (lines[i].text.trim() === "" && i + 1 < lines.length && (kListItem.test(lines[i + 1].text) || /^\s{2,}\S/.test(lines[i + 1].text))))) ++i;
      blocks.push({ type: "list", lines: lines.slice(first, i) });
    } else if (is_table(lines, i)) {
      while (i < lines.length && lines[i].text.includes("|")) ++i;
      blocks.push({ type: "table", lines: lines.slice(first, i) });
    } else {
      do ++i; while (i < lines.length && lines[i].text.trim() !== "" && !starts_block(lines, i));
      blocks.push({ type: "paragraph", lines: lines.slice(first, i) });
    }
  }
  for (const block of blocks) {
    block.start = block.lines[0]?.start ?? 0;
    block.end = block.lines.at(-1)?.end ?? block.start;
    block.key = `${block.type}:${block.language ?? ""}:${block.start}:${block.end}`;
  }
  return blocks;
}

// Code spans, strong, strike-through and emphasis; then links, and bare addresses.
const kSpans = /(`+)(?!`)([^]*?[^`])\1(?!`)|(\*\*|__|~~)(?=\S)([^]*?\S)\3|(\*|_)(?=[^\s*_])([^]*?[^\s*_])\5(?![\w*])/.source;
const kWebLink = /\[([^[\]]+)\]\((https?:\/\/[^\s()]+)\)/.source, kPageLink = /!?\[([^[\]]+)\]\(([^\s()]+)\)/.source;
const kAddress = /https?:\/\/[^\s<>()"'`]*[\w/]/.source;
const kInlineOfChats = new RegExp(`${kSpans}|${kWebLink}|${kAddress}`, "g");
const kInlineOfPages = new RegExp(`${kSpans}|${kPageLink}|${kAddress}`, "g");

class Renderer {
  constructor(source, emit, makes) {
    this.source = source;
    this.emit = emit;    // (start, end, parent)
    this.makes = makes;  // {link(target), picture(target, alt)}: elements; null: links of the web only
  }

  block(block) {
    const { lines } = block;
    switch (block.type) {
      case "code": return this.code(block);
      case "heading": return this.heading(block);
      case "rule": return element("hr");
      case "list": return this.list(lines);
      case "table": return this.table(lines);
      case "quote": {
        const quote = element("blockquote");
        lines.forEach((line, i) => {
          if (i > 0) quote.append("\n");
          this.inline(line.start + line.text.match(/^\s*>\s?/)[0].length, line.end, quote);
        });
        return quote;
      }
      default: {
        const paragraph = element("p");
        this.inline(block.start, block.end, paragraph);
        return paragraph;
      }
    }
  }

  heading({ level, lines: [line] }) {
    const node = element(`h${Math.min(level + 2, 5)}`);
    this.inline(line.start + line.text.match(/^#+\s+/)[0].length, line.end, node);
    return node;
  }

  code({ language, start, end, lines }) {
    const code = element("code");
    if (lines.length > 0) this.emit(start, end, code);
    const source = lines.length > 0 ? this.source.slice(start, end) : "";
    const copy = icon_button("copy", "Copy code", () => copy_text(source, copy));
    return element("div", { class: "code" }, element("header", {}, element("span", {}, language || "text"), copy),
      element("pre", { tabindex: "0" }, code));
  }

  // Lists nest by indentation; further lines of an item belong to it.
  list(lines) {
    const root = element("div"), stack = [{ indent: -1, node: root, item: root }];
    for (const line of lines) {
      const match = kListItem.exec(line.text);
      if (!match) {
        const skipped = line.text.length - line.text.trimStart().length;
        stack.at(-1).item.append(" ");
        this.inline(line.start + skipped, line.end, stack.at(-1).item);
        continue;
      }
      const indent = match[1].length, ordered = /\d/.test(match[2]);
      while (stack.length > 1 && indent < stack.at(-1).indent) stack.pop();
      if (indent > stack.at(-1).indent) {
        const node = element(ordered ? "ol" : "ul", ordered ? { start: parseInt(match[2], 10) } : {});
        stack.at(-1).item.append(node);
        stack.push({ indent, node });
      }
      const item = element("li");
      stack.at(-1).node.append(item);
      stack.at(-1).item = item;
      this.inline(line.start + match[0].length, line.end, item);
    }
    return root.childElementCount === 1 ? root.firstChild : root;
  }

  table(lines) {
    const row = (line, tag) => {
      const node = element("tr");
      const cells = [];
      let from = line.text.length - line.text.trimStart().replace(/^\|/, "").length;
      const until = line.text.trimEnd().replace(/\|$/, "").length;
      for (let i = from; i <= until; ++i) {
        if (i < until && (line.text[i] !== "|" || line.text[i - 1] === "\\")) continue;
        cells.push([from, i]);
        from = i + 1;
      }
      for (const [a, b] of cells) {
        const text = line.text.slice(a, b), cell = element(tag);
        const start = a + text.length - text.trimStart().length;
        this.inline(line.start + start, line.start + Math.max(start, a + text.trimEnd().length), cell);
        node.append(cell);
      }
      return node;
    };
    return element("table", {}, element("thead", {}, row(lines[0], "th")),
      element("tbody", {}, ...lines.slice(2).map((line) => row(line, "td"))));
  }

  // Code spans, strong, emphasis, strike-through and links in source[start, end).
  inline(start, end, parent) {
    const text = this.source.slice(start, end);
    const pattern = new RegExp(this.makes ? kInlineOfPages : kInlineOfChats);
    let at = 0;
    for (let match; (match = pattern.exec(text)) !== null;) {
      const here = match.index;
      if (match[5] === "_" && here > 0 && /\w/.test(text[here - 1])) continue;  // snake_case is not emphasis
      this.emit(start + at, start + here, parent);
      at = here + match[0].length;
      if (match[1]) {
        const node = element("code");
        this.emit(start + here + match[1].length, start + at - match[1].length, node);
        parent.append(node);
      } else if (match[3] || match[5]) {
        const mark = match[3] ?? match[5];
        const node = element(mark === "~~" ? "s" : mark.length === 2 ? "strong" : "em");
        this.inline(start + here + mark.length, start + at - mark.length, node);
        parent.append(node);
      } else if (match[0][0] === "!") {
        parent.append(this.makes.picture(match[8], match[7]));
      } else {
        const target = match[8] ?? match[0];
        const node = this.makes?.link(target) ?? element("a", { href: target, target: "_blank", rel: "noopener noreferrer nofollow" });
        if (match[7] && this.makes) this.inline(start + here + 1, start + here + 1 + match[7].length, node);
        else if (match[7]) this.emit(start + here + 1, start + here + 1 + match[7].length, node);
        else this.emit(start + here, start + at, node);
        parent.append(node);
      }
    }
    this.emit(start + at, start + text.length, parent);
  }
}

// Brings `parent` up to date with the source; blocks that did not change keep their elements, which makes streaming cheap.
export function render_markdown(parent, source, emit, makes = null) {
  const before = parent.blockKeys ?? [], blocks = parse_blocks(source);
  let same = 0;
  while (same < blocks.length - 1 && same < before.length - 1 && before[same] === blocks[same].key) ++same;
  while (parent.childNodes.length > same) parent.lastChild.remove();
  const renderer = new Renderer(source, emit, makes);
  for (const block of blocks.slice(same)) parent.append(renderer.block(block));
  parent.blockKeys = blocks.map((block) => block.key);
}
