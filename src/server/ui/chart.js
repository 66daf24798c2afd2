// A line chart of the last minutes, as SVG.
import { element, svg } from "./dom.js";

const kHeight = 168, kLeft = 46, kBottom = 22, kTop = 8, kRight = 4;
const kColors = ["series-a", "series-b", "series-c", "series-d"];

// The next of 1, 2, 2.5, 5 times a power of ten.
function round_up(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

export function format_number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${(value / 1e6).toPrecision(3)} M`;
  if (size >= 1e4) return `${(value / 1e3).toPrecision(3)} k`;
  if (size >= 100 || Number.isInteger(value)) return `${Math.round(value)}`;
  return value.toPrecision(size >= 10 ? 3 : 2);
}

export class Chart {
  // series: [{label, value(point)}]; the y axis starts at 0 and ends at `most`, or where the values need it.
  constructor({ title, unit, series, most }) {
    Object.assign(this, { title, unit, series, most });
    this.svg = svg("svg", { role: "img" });
    this.values = series.map((one, i) => element("span", { class: kColors[i] }));
    this.figure = element("figure", { class: "chart" },
      element("figcaption", {}, title, element("span", { class: "unit" }, unit), element("span", { class: "legend" }, ...this.values)), this.svg);
    this.pointer = null;
    this.svg.addEventListener("pointermove", (event) => {
      this.pointer = event.clientX - this.svg.getBoundingClientRect().left;
      this.draw();
    });
    this.svg.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.draw();
    });
  }

  // points: [{time, …}], oldest first; seconds: how much of the past is shown.
  update(points, seconds) {
    this.points = points;
    this.seconds = seconds;
    this.draw();
  }

  draw() {
    const { points = [], seconds } = this;
    const width = this.svg.clientWidth || 400;
    const now = points.at(-1)?.time ?? 0;
    const shown = points.filter((point) => point.time >= now - seconds - 2);
    const highest = Math.max(0, ...shown.flatMap((point) => this.series.map((one) => one.value(point) ?? 0)));
    const top = this.most ?? round_up(highest * 1.08);
    this.x = (time) => kLeft + (width - kLeft - kRight) * (1 - (now - time) / seconds);
    this.y = (value) => kTop + (kHeight - kTop - kBottom) * (1 - Math.min(value, top) / top);
    const parts = [...this.axes(width, top, seconds)];
    this.series.forEach((one, i) => parts.push(...this.curve(shown, one, i)));
    const at = this.pointed(shown);
    if (at) parts.push(svg("line", { class: "cross", x1: this.x(at.time), x2: this.x(at.time), y1: kTop, y2: kHeight - kBottom }));
    const empty = !shown.some((point) => this.series.some((one) => (one.value(point) ?? null) !== null));
    if (empty) parts.push(text_at((width + kLeft) / 2, (this.y(top) + this.y(top / 2)) / 2 + 4, "no data yet", "empty"));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${kHeight}`);
    this.svg.replaceChildren(...parts);
    this.label(at ?? points.at(-1), at ? now - at.time : 0);
  }

  *axes(width, top, seconds) {
    for (const share of [0, 0.5, 1]) {
      const y = this.y(top * share);
      yield svg("line", { class: "grid", x1: kLeft, x2: width - kRight, y1: y, y2: y });
      yield text_at(kLeft - 8, y + 4, format_number(top * share), "", "end");
    }
    const unit = seconds > 120 ? [60, "min"] : [1, "s"];
    for (const share of [0, 0.5, 1]) {
      const value = seconds * (1 - share) / unit[0];
      const x = kLeft + (width - kLeft - kRight) * share;
      yield text_at(x, kHeight - 5, share === 1 ? "now" : `−${value} ${unit[1]}`, "", ["start", "middle", "end"][share * 2]);
    }
  }

  // A gap where there is no value, a dot where one stands alone (h0, with round ends). The first series is filled.
  *curve(points, series, i) {
    let path = "", area = "", from = null, last = null;
    const close = () => {
      if (from !== null && i === 0) area += `L${last} ${this.y(0)}L${from} ${this.y(0)}Z`;
      from = null;
    };
    for (const point of points) {
      const value = series.value(point);
      if (value === null || value === undefined) {
        close();
        continue;
      }
      const x = this.x(point.time).toFixed(1), step = `${from === null ? "M" : "L"}${x} ${this.y(value).toFixed(1)}`;
      path += from === null ? `${step}h0` : step;
      area += step;
      from ??= x;
      last = x;
    }
    close();
    const clip = { "data-series": series.label };
    if (i === 0 && area !== "") yield svg("path", { class: `area ${kColors[i]}`, d: area, ...clip });
    if (path !== "") yield svg("path", { class: `curve ${kColors[i]}`, d: path, ...clip });
  }

  pointed(points) {
    if (this.pointer === null || points.length === 0) return null;
    const distance = (point) => Math.abs(this.x(point.time) - this.pointer);
    return points.reduce((best, point) => (distance(point) < distance(best) ? point : best));
  }

  // The figures beside the title follow the pointer; without it they are the newest.
  label(point, age) {
    const figures = this.series.map((one) => `${one.label} ${format_number(point ? one.value(point) : null)}`);
    this.values.forEach((node, i) => (node.textContent = figures[i]));
    this.svg.setAttribute("aria-label", `${this.title}, ${this.unit}: ${figures.join(", ")}${age > 0 ? `, ${Math.round(age)} seconds ago` : ""}`);
  }
}

function text_at(x, y, text, name, anchor = "middle") {
  return svg("text", { x, y, class: name, "text-anchor": anchor }, text);
}
