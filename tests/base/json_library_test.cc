#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/json_text.h"

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

template <class Json>
void expect_exceptions() {
  const Json object = Json::object({{"a", 1}});
  EXPECT_THAT([&] { (void)object["b"]; },
              ThrowsMessage<std::logic_error>(HasSubstr("does not hold at")));
  EXPECT_THAT([&] { (void)*object.end(); },
              ThrowsMessage<std::logic_error>(HasSubstr("does not hold at")));
  EXPECT_EQ(object["a"], 1);
}

TEST(JsonLibrary, FailingAssertionIsAnException) {
  expect_exceptions<nlohmann::json>();
  expect_exceptions<nlohmann::ordered_json>();
}

// A mistake of this program is not told as one of the text.
TEST(JsonLibrary, FailingAssertionIsNoParseError) {
  const nlohmann::json object = {{"a", 1}};
  const auto ask = [&] {
    try {
      (void)object["b"];
    } catch (const nlohmann::json::exception&) {
      return true;
    }
    return false;
  };
  EXPECT_THROW(ask(), std::logic_error);
}

}  // namespace
}  // namespace penstock
