#pragma once

namespace penstock {

// The price of a million tokens in any currency.
struct TokenPrice {
  double input = 0, output = 0;
  // price of input tokens found in the prefix cache; < 0: the same as input
  double cached_input = -1;
};

}  // namespace penstock
