// The plot of bench --serve: four panels over one time axis, as SVG.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cli/bench_serve.h"

namespace penstock {
namespace {

constexpr double kWidth = 860, kPanel = 120, kLeft = 70, kRight = 20, kTop = 40, kGap = 34;

struct Curve {
  const char* name;
  const char* color;
  std::function<double(const LoadSample&)> value;
};
struct Panel {
  const char* title;
  std::vector<Curve> curves;
  double fixed_top = 0;  // 0: the largest value
};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string draw(const Panel& panel, const std::vector<LoadSample>& samples, double y, double end) {
  double top = panel.fixed_top;
  for (const Curve& curve : panel.curves) {
    for (const LoadSample& sample : samples)
      top = panel.fixed_top > 0 ? top : std::max(top, curve.value(sample));
  }
  if (top <= 0) top = 1;
  const double width = kWidth - kLeft - kRight;
  std::string out = fmt::format(
      "<rect x='{}' y='{}' width='{}' height='{}' fill='none' stroke='#bbb'/><text x='{}' y='{}'>{}</text>",
      kLeft, y, width, kPanel, kLeft, y - 6, panel.title);
  out += fmt::format(
      "<text x='{}' y='{}' text-anchor='end'>{:.4g}</text><text x='{}' y='{}' text-anchor='end'>0</text>",
      kLeft - 6, y + 10, top, kLeft - 6, y + kPanel);
  double label = kLeft + width;
  for (const Curve& curve : panel.curves) {
    std::string points;
    for (const LoadSample& sample : samples) {
      const double value = std::clamp(curve.value(sample) / top, 0.0, 1.0);
      points += fmt::format("{:.1f},{:.1f} ", kLeft + width * sample.time / end, y + kPanel * (1 - value));
    }
    out += fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='1.4'/>", points,
                       curve.color);
    out += fmt::format("<text x='{}' y='{}' text-anchor='end' fill='{}'>{}</text>", label, y - 6, curve.color,
                       curve.name);
    label -= 150;
  }
  return out + "\n";
}

}  // namespace

std::string plot_svg(const std::vector<LoadSample>& samples, const std::string& title) {
  const std::vector<Panel> panels = {
      {"sequences",
       {{"running", "#0a62a9", [](const LoadSample& s) { return s.running; }},
        {"waiting", "#c05a00", [](const LoadSample& s) { return s.waiting; }}}},
      {"output tokens/s", {{"", "#0a62a9", [](const LoadSample& s) { return s.tokens_per_second; }}}},
      {"KV cache",
       {{"in use", "#0a62a9", [](const LoadSample& s) { return s.cache_usage; }},
        {"unfilled share", "#888888", [](const LoadSample& s) { return s.waste; }}},
       1},
      {"prompt tokens found in the prefix cache",
       {{"", "#2b7d2b", [](const LoadSample& s) { return s.hit_share; }}},
       1},
  };
  const double end = samples.empty() ? 1 : std::max(samples.back().time, 1e-9);
  const double height = kTop + static_cast<double>(panels.size()) * (kPanel + kGap) + 20;
  std::string out = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0}' height='{1}' viewBox='0 0 {0} {1}' "
      "font-family='sans-serif' "
      "font-size='12'>\n<rect width='{0}' height='{1}' fill='white'/><text x='{2}' y='16' "
      "font-size='14'>{3}</text>\n",
      kWidth, height, kLeft, escaped(title));
  double y = kTop;
  for (const Panel& panel : panels) {
    out += draw(panel, samples, y, end);
    y += kPanel + kGap;
  }
  out += fmt::format("<text x='{}' y='{}' text-anchor='end'>{:.1f} s</text></svg>\n", kWidth - kRight, y - 8,
                     end);
  return out;
}

}  // namespace penstock
