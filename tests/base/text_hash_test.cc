#include "base/text_hash.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "support/colliding_texts.h"

namespace penstock {
namespace {

TEST(TextHash, NobodyMakesTextsCollide) {
  const std::vector<std::string> texts = colliding_texts(2'000);
  std::map<uint64_t, int> n_with;
  for (const std::string& text : texts) ++n_with[text_hash(text)];
  EXPECT_EQ(n_with.size(), texts.size());
#ifdef __GLIBCXX__
  EXPECT_EQ(std::hash<std::string>()(texts.front()), std::hash<std::string>()(texts.back()));
#endif
}

TEST(TextHash, EqualTextsHaveEqualHashes) {
  std::string text;
  std::map<uint64_t, size_t> lengths;
  for (size_t n = 0; n < 300; ++n, text += 'a') {
    EXPECT_EQ(text_hash(text), text_hash(std::string(n, 'a')));
    EXPECT_TRUE(lengths.emplace(text_hash(text), n).second) << n;
  }
  EXPECT_NE(text_hash(std::string_view("a\0", 2)), text_hash("a"));
  EXPECT_EQ(number_hash(1, 2), number_hash(1, 2));
  EXPECT_NE(number_hash(1, 2), number_hash(2, 1));
}

}  // namespace
}  // namespace penstock
