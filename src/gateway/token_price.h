#pragma once

namespace penstock {

// In any currency, for a million tokens.
struct TokenPrice {
  double input = 0, output = 0;
  double cached_input = -1;  // of input tokens whose keys and values were there already; below 0: as input
};

}  // namespace penstock
