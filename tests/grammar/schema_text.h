// Pieces of the texts of schemas.
#pragma once
#include <string>

namespace penstock::grammar {

// Items 0 to n - 1 with commas between.
template <class Item>
std::string list_of(int n, const Item& item) {
  std::string text;
  for (int i = 0; i < n; ++i) text += (i > 0 ? "," : "") + item(i);
  return text;
}

}  // namespace penstock::grammar
