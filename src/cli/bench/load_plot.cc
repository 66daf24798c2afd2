// The SVG plot of bench --serve: panels with a common time axis, then the quantiles of the
// latencies.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cli/bench/bench_serve.h"
#include "cli/console/svg.h"

namespace penstock {
namespace {

constexpr double kWidth = 860, kPanel = 120, kLeft = 70, kRight = 20, kTop = 40, kGap = 34,
                 kQuantiles = 100;

struct Curve {
  const char* name;
  const char* color;
  std::function<double(const LoadSample&)> value;
};
struct Panel {
  const char* title;
  std::vector<Curve> curves;
  double fixed_top = 0;  // largest value of the y axis; 0: that of the data
};

std::string draw(const Panel& panel, const std::vector<LoadSample>& samples, double y, double end) {
  double top = panel.fixed_top;
  for (const Curve& curve : panel.curves) {
    for (const LoadSample& sample : samples)
      top = panel.fixed_top > 0 ? top : std::max(top, curve.value(sample));
  }
  if (top <= 0) top = 1;
  const double width = kWidth - kLeft - kRight;
  std::string out = fmt::format(
      "<rect x='{}' y='{}' width='{}' height='{}' fill='none' stroke='#bbb'/><text x='{}' "
      "y='{}'>{}</text>",
      kLeft, y, width, kPanel, kLeft, y - 6, panel.title);
  out += fmt::format(
      "<text x='{}' y='{}' text-anchor='end'>{:.4g}</text><text x='{}' y='{}' "
      "text-anchor='end'>0</text>",
      kLeft - 6, y + 10, top, kLeft - 6, y + kPanel);
  double label = kLeft + width;
  for (const Curve& curve : panel.curves) {
    std::string points;
    for (const LoadSample& sample : samples) {
      const double value = std::clamp(curve.value(sample) / top, 0.0, 1.0);
      points += fmt::format("{:.1f},{:.1f} ", kLeft + width * sample.time / end,
                            y + kPanel * (1 - value));
    }
    out += fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='1.4'/>", points,
                       curve.color);
    out += fmt::format("<text x='{}' y='{}' text-anchor='end' fill='{}'>{}</text>", label, y - 6,
                       curve.color, curve.name);
    label -= 150;
  }
  return out + "\n";
}

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='{}'>{}</text>", x, y, anchor, text);
}

// Draws nested bars for p50, p90 and p99, one row per latency, each with its own scale.
std::string draw_quantiles(const ServeReport& report, double y) {
  const std::pair<const char*, const Spread*> rows[] = {{"first token", &report.first_token},
                                                        {"between tokens", &report.inter_token},
                                                        {"whole request", &report.total}};
  constexpr double kRow = 26, kBar = 14, kName = 110, kNumbers = 260;
  const double left = kLeft + kName, width = kWidth - kRight - kNumbers - left;
  std::string out = text_at(kLeft, y - 6, "start", "latency: p50, p90, p99");
  for (const auto& [name, spread] : rows) {
    out += text_at(left - 8, y + kBar - 2, "end", name);
    const std::pair<double, const char*> bars[] = {
        {spread->p99, "#c9dcec"}, {spread->p90, "#7fb0d6"}, {spread->p50, "#0a62a9"}};
    for (const auto& [value, color] : bars) {
      const double share = spread->p99 > 0 ? std::min(value / spread->p99, 1.0) : 0;
      out += fmt::format("<rect x='{}' y='{}' width='{:.1f}' height='{}' fill='{}'/>", left, y,
                         width * share, kBar, color);
    }
    out += text_at(left + width + 10, y + kBar - 2, "start",
                   fmt::format("{:.1f}, {:.1f}, {:.1f} ms", spread->p50 * 1e3, spread->p90 * 1e3,
                               spread->p99 * 1e3));
    y += kRow;
  }
  return out + "\n";
}

}  // namespace

std::string plot_svg(const ServeReport& report, const std::string& title) {
  const std::vector<LoadSample>& samples = report.samples;
  const std::vector<Panel> panels = {
      {"sequences",
       {{"running", "#0a62a9", [](const LoadSample& s) { return s.running; }},
        {"waiting", "#c05a00", [](const LoadSample& s) { return s.waiting; }}}},
      {"output tokens/s",
       {{"", "#0a62a9", [](const LoadSample& s) { return s.tokens_per_second; }}}},
      {"KV cache",
       {{"in use", "#0a62a9", [](const LoadSample& s) { return s.cache_usage; }},
        {"unfilled share", "#888888", [](const LoadSample& s) { return s.waste; }}},
       1},
      {"prompt tokens found in the prefix cache",
       {{"", "#2b7d2b", [](const LoadSample& s) { return s.hit_share; }}},
       1},
  };
  const double end = samples.empty() ? 1 : std::max(samples.back().time, 1e-9);
  const double height =
      kTop + static_cast<double>(panels.size()) * (kPanel + kGap) + 20 + kQuantiles;
  std::string out = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0}' height='{1}' viewBox='0 0 {0} {1}' "
      "font-family='sans-serif' font-size='12'>\n<rect width='{0}' height='{1}' "
      "fill='white'/><text x='{2}' y='16' font-size='14'>{3}</text>\n",
      kWidth, height, kLeft, svg_text(title));
  double y = kTop;
  for (const Panel& panel : panels) {
    out += draw(panel, samples, y, end);
    y += kPanel + kGap;
  }
  out += fmt::format("<text x='{}' y='{}' text-anchor='end'>{:.1f} s</text>\n", kWidth - kRight,
                     y - 8, end);
  return out + draw_quantiles(report, y + 20) + "</svg>\n";
}

}  // namespace penstock
