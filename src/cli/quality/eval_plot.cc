#include "cli/quality/eval_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/console/svg.h"

namespace penstock {
namespace {

constexpr double kPanelWidth = 460, kPanelHeight = 340, kPanelLeft = 64, kPanelBottom = 48,
                 kPanelTop = 34, kPanelRight = 90;

// Returns the distance of ticks: 1, 2 or 5 times a power of ten, about a fifth of the range.
double tick_step(double range) {
  const double raw = std::max(range, 1e-9) / 5, power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

struct Axis {
  double low = 0, high = 1, step = 1;
  static Axis of(const std::vector<double>& values) {
    Axis axis;
    axis.low = std::min(0.0, *std::ranges::min_element(values));
    axis.high = std::max(*std::ranges::max_element(values), axis.low + 1e-6);
    axis.step = tick_step(axis.high - axis.low);
    axis.high = std::ceil(axis.high / axis.step) * axis.step;
    axis.low = std::floor(axis.low / axis.step) * axis.step;
    return axis;
  }
  double at(double value, double from, double to) const {
    return from + (value - low) / (high - low) * (to - from);
  }
};

std::string panel(double left, const char* title, const char* label,
                  const std::vector<PlotPoint>& points, double (*x_of)(const PlotPoint&)) {
  std::vector<double> xs, ys;
  for (const PlotPoint& point : points) xs.push_back(x_of(point)), ys.push_back(point.increase);
  const Axis x = Axis::of(xs), y = Axis::of(ys);
  const double x0 = left + kPanelLeft, x1 = left + kPanelWidth - kPanelRight,
               y0 = kPanelHeight - kPanelBottom, y1 = kPanelTop;
  std::string out = fmt::format("<text x='{}' y='20' font-weight='bold'>{}</text>\n", x0, title);
  out += fmt::format("<path d='M{0} {1}V{2}H{3}' fill='none' stroke='#333'/>\n", x0, y1, y0, x1);
  for (double v = x.low; v <= x.high + x.step / 2; v += x.step) {
    const double at = x.at(v, x0, x1);
    out += fmt::format(
        "<path d='M{0:.1f} {1}v4' stroke='#333'/><text x='{0:.1f}' y='{2}' "
        "text-anchor='middle'>{3:g}</text>\n",
        at, y0, y0 + 17, v);
  }
  for (double v = y.low; v <= y.high + y.step / 2; v += y.step) {
    const double at = y.at(v, y0, y1);
    out += fmt::format(
        "<path d='M{0} {1:.1f}H{2}' stroke='#ddd'/><text x='{3}' y='{4:.1f}' "
        "text-anchor='end'>{5:g}</text>\n",
        x0, at, x1, x0 - 6, at + 4, std::fabs(v) < y.step / 1e6 ? 0.0 : v);
  }
  out += fmt::format("<text x='{}' y='{}' text-anchor='middle'>{}</text>\n", (x0 + x1) / 2,
                     kPanelHeight - 10, label);
  out += fmt::format(
      "<text transform='translate({},{}) rotate(-90)' text-anchor='middle'>perplexity increase, "
      "%</text>\n",
      left + 16, (y0 + y1) / 2);
  for (size_t i = 0; i < points.size(); ++i) {
    const double px = x.at(xs[i], x0, x1), py = y.at(ys[i], y0, y1);
    out += fmt::format(
        "<circle cx='{0:.1f}' cy='{1:.1f}' r='4' fill='#1f6f8b'/><text x='{2:.1f}' "
        "y='{3:.1f}'>{4}</text>\n",
        px, py, px + 7, py - 5, svg_text(points[i].name));
  }
  return out;
}

}  // namespace

std::string plot_svg(const std::vector<PlotPoint>& points) {
  if (points.empty()) return "<svg xmlns='http://www.w3.org/2000/svg'/>\n";
  const bool speed = std::ranges::any_of(points, [](const PlotPoint& p) { return p.decode > 0; });
  std::string out = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0}' height='{1}' viewBox='0 0 {0} {1}' "
      "font-family='sans-serif' font-size='11'>\n<rect width='100%' height='100%' fill='white'/>\n",
      speed ? 2 * kPanelWidth : kPanelWidth, kPanelHeight);
  out +=
      panel(0, "Size and quality", "size, MiB", points, [](const PlotPoint& p) { return p.size; });
  if (speed) {
    out += panel(kPanelWidth, "Speed and quality", "decode, tokens/s", points,
                 [](const PlotPoint& p) { return p.decode; });
  }
  return out + "</svg>\n";
}

}  // namespace penstock
