#include "server/http/url.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

struct Parsed {
  std::string path;
  std::map<std::string, std::string> query;
};
Parsed parse(std::string_view target) {
  Parsed parsed;
  parse_target(target, parsed.path, parsed.query);
  return parsed;
}
using Query = std::map<std::string, std::string>;

TEST(Url, PathAndQuery) {
  EXPECT_EQ(parse("/v1/models").path, "/v1/models");
  EXPECT_EQ(parse("/v1/models/a%2Fb%20c").path, "/v1/models/a/b c");
  EXPECT_EQ(parse("/x?a=1&b=two+words&c&=d&a=3%26").query,
            (Query{{"a", "3&"}, {"b", "two words"}, {"c", ""}, {"", "d"}}));
  EXPECT_EQ(parse("/a+b").path, "/a+b");
  EXPECT_EQ(parse("/x?").query, Query());
  EXPECT_EQ(parse("/x?&&&").query, Query());
}

TEST(Url, BadEscapesAreKept) {
  EXPECT_EQ(parse("/%").path, "/%");
  EXPECT_EQ(parse("/%4").path, "/%4");
  EXPECT_EQ(parse("/%zz%41").path, "/%zzA");
  EXPECT_EQ(parse("/%00x").path, std::string("/\0x", 3));
}

TEST(Url, AbsoluteTargetsAndFragments) {
  EXPECT_EQ(parse("http://host:80/v1/models?x=1").path, "/v1/models");
  EXPECT_EQ(parse("http://host:80/v1/models?x=1").query, (Query{{"x", "1"}}));
  EXPECT_EQ(parse("http://host").path, "/");
  EXPECT_EQ(parse("http://host?x").path, "/");
  EXPECT_EQ(parse("/x#y?z").path, "/x");
  EXPECT_EQ(parse("/go?to=http://host/x").path, "/go");
  EXPECT_EQ(parse("*").path, "*");
  EXPECT_EQ(parse("").path, "/");
}

}  // namespace
}  // namespace penstock
