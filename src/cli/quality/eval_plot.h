// A picture of what quantization costs and brings.
#pragma once
#include <string>
#include <vector>

namespace penstock {

struct PlotPoint {
  std::string name;
  double size = 0;      // MiB
  double decode = 0;    // tokens/s, 0 = not measured
  double increase = 0;  // of perplexity, percent
};

// An SVG with two panels: size against quality and, where it was measured, speed against quality.
std::string plot_svg(const std::vector<PlotPoint>& points);

}  // namespace penstock
