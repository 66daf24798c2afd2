// The plot of the costs and gains of quantization.
#pragma once
#include <string>
#include <vector>

namespace penstock {

struct PlotPoint {
  std::string name;
  double size = 0;      // MiB
  double decode = 0;    // tokens/s, 0 = not measured
  double increase = 0;  // increase of perplexity in percent
};

// Returns an SVG with two panels: size against quality and, if measured, speed against quality.
std::string plot_svg(const std::vector<PlotPoint>& points);

}  // namespace penstock
