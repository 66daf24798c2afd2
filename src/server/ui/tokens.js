// The tokens of a reply with their probabilities, and the tooltip that shows them.
import { $, element } from "./dom.js";

const kEncoder = new TextEncoder();

// The bytes of a token as the API writes it: text, or "bytes:\xe2\x82" for part of a character.
function token_bytes(entry) {
  if (Array.isArray(entry.bytes)) return Uint8Array.from(entry.bytes);
  if (!/^bytes:(\\x[0-9a-f]{2})+$/.test(entry.token)) return kEncoder.encode(entry.token);
  return Uint8Array.from(entry.token.slice(6).split("\\x").slice(1), (hex) => parseInt(hex, 16));
}

// {token, logprob, bytes, top: [[text, logprob], …]} from a chunk of either API, most likely first.
export function read_logprobs(logprobs) {
  if (!logprobs) return [];
  if (logprobs.content) {
    return logprobs.content.map((one) => ({
      token: one.token, logprob: one.logprob, bytes: one.bytes,
      top: (one.top_logprobs ?? []).map((other) => [other.token, other.logprob]),
    }));
  }
  return (logprobs.tokens ?? []).map((token, i) => ({
    token, logprob: logprobs.token_logprobs[i],
    top: Object.entries(logprobs.top_logprobs?.[i] ?? {}).sort((a, b) => b[1] - a[1]),
  }));
}

// Four decimals are more than is shown, and half the size in the browser's storage.
const rounded = (logprob) => Math.round(logprob * 1e4) / 1e4;

// Gathers tokens into pieces of whole characters: {t: text, k: [[token, logprob, top], …]}; nearly always one token each.
export class PieceBuilder {
  constructor(pieces) {
    this.pieces = pieces;
    this.decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    this.waiting = [];
  }
  add(entry) {
    this.waiting.push([entry.token, rounded(entry.logprob), entry.top.map(([text, logprob]) => [text, rounded(logprob)])]);
    const text = this.decoder.decode(token_bytes(entry), { stream: true });
    if (text === "") return;
    this.pieces.push({ t: text, k: this.waiting });
    this.waiting = [];
  }
}

// Where the pieces lie in the text. The two can differ: tokenizers drop a leading space, texts are cut at stop strings, and
// markers such as the end of a chain of thought are tokens without text. A piece that does not match is passed over; after
// many of them the rest of the text stays without tokens.
const kMostMisses = 8;

export class PieceMap {
  constructor(text, pieces) {
    this.text = text;
    this.spans = [];
    let at = 0, misses = 0;
    for (const piece of pieces) {
      if (at >= text.length || misses > kMostMisses) break;
      let own = piece.t;
      if (at === 0 && !text.startsWith(own)) own = own.trimStart();
      if (own === "" || !text.startsWith(own.slice(0, text.length - at), at)) {
        ++misses;
        continue;
      }
      misses = 0;
      this.spans.push({ start: at, end: Math.min(at + own.length, text.length), piece });
      at += own.length;
    }
  }
  // Appends text [start, end) to parent, one span per token.
  emit(start, end, parent) {
    let low = 0, high = this.spans.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.spans[middle].end <= start) low = middle + 1;
      else high = middle;
    }
    let at = start;
    for (let i = low; i < this.spans.length && at < end; ++i) {
      const span = this.spans[i];
      const stop = Math.min(span.end, end);
      parent.append(token_span(this.text.slice(at, stop), span.piece));
      at = stop;
    }
    if (at < end) parent.append(this.text.slice(at, end));
  }
}

const kPieces = new WeakMap();  // token element -> piece

function token_span(text, piece) {
  const p = Math.exp(piece.k.reduce((sum, one) => sum + one[1], 0));
  const level = p < 0.05 ? 0 : p < 0.2 ? 1 : p < 0.5 ? 2 : p < 0.8 ? 3 : 4;
  const span = element("span", { class: `tok p${level}`, tabindex: "-1" }, text);
  kPieces.set(span, piece);
  return span;
}

const percent = (logprob) => {
  const p = 100 * Math.exp(logprob);
  return p >= 99.95 ? "100 %" : p >= 0.095 ? `${p.toFixed(1)} %` : p >= 0.001 ? `${p.toPrecision(1)} %` : "< 0.001 %";
};
const visible = (text) => text.replace(/ /g, "␣").replace(/\n/g, "⏎").replace(/\t/g, "⇥");

function tooltip_content(piece) {
  const rows = [];
  for (const [token, logprob, top] of piece.k) {
    rows.push(element("div", { class: "chosen" }, element("span", {}, element("code", {}, visible(token))), element("span", {}, percent(logprob))));
    const others = top.slice(0, 6).map(([text, value]) => {
      const share = element("span", { class: "share" });
      share.style.width = `${Math.max(1, 100 * Math.exp(value))}%`;
      return element("li", { class: text === token ? "taken" : "" }, share, element("code", {}, visible(text)), element("span", {}, percent(value)));
    });
    if (others.length > 0) rows.push(element("ol", {}, ...others));
    if (logprob < Math.log(0.05)) rows.push(element("p", { class: "surprise" }, "A surprise: less likely than one in twenty."));
  }
  return rows;
}

function show(span) {
  const tooltip = $("tooltip");
  document.querySelector(".tok.shown")?.classList.remove("shown");
  span.classList.add("shown");
  tooltip.replaceChildren(...tooltip_content(kPieces.get(span)));
  tooltip.hidden = false;
  span.setAttribute("aria-describedby", "tooltip");
  // A token can begin at the end of a line with its space: its word is where it is shown.
  const box = [...span.getClientRects()].sort((a, b) => b.width - a.width)[0] ?? span.getBoundingClientRect();
  const own = tooltip.getBoundingClientRect();
  const left = Math.max(8, Math.min(innerWidth - own.width - 8, box.left + box.width / 2 - own.width / 2));
  const above = box.top - own.height - 8;
  tooltip.style.left = `${left}px`;
  tooltip.style.top = `${above >= 60 ? above : Math.min(box.bottom + 8, innerHeight - own.height - 8)}px`;
}

export function hide_tooltip() {
  $("tooltip").hidden = true;
  const span = document.querySelector(".tok.shown");
  span?.classList.remove("shown");
  span?.removeAttribute("aria-describedby");
}

// Hover, touch and arrow keys over the tokens inside `root`.
export function watch_tokens(root) {
  const token_of = (target) => target.closest?.(".tok") ?? null;
  root.addEventListener("pointerover", (event) => {
    const span = token_of(event.target);
    if (span) show(span);
    else hide_tooltip();
  });
  // A finger that is lifted leaves too; what it tapped stays shown until the next tap.
  root.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && hide_tooltip());
  document.addEventListener("pointerdown", (event) => token_of(event.target) || hide_tooltip());
  root.addEventListener("scroll", hide_tooltip, { passive: true });
  root.addEventListener("focusin", (event) => {
    const span = token_of(event.target);
    if (span) show(span);
  });
  root.addEventListener("focusout", hide_tooltip);
  root.addEventListener("keydown", (event) => {
    const span = token_of(event.target);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!span || (!step && event.key !== "Escape")) return;
    event.preventDefault();
    event.stopPropagation();
    if (step) {
      const all = [...span.closest("[data-tokens]").querySelectorAll(".tok")];
      all[all.indexOf(span) + step]?.focus();
    } else {
      hide_tooltip();
      (span.closest("[data-message]").querySelector("[data-inspect]") ?? root.querySelector("[data-inspect]"))?.focus();
    }
  });
}
