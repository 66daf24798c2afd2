#include "base/locale_free.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <string>

#include "base/ascii.h"
#include "support/foreign_locale.h"

namespace penstock {
namespace {

TEST(LocaleFree, NumbersHaveAPointInGerman) {
  const test::ForeignLocale german("de_DE");
  ASSERT_TRUE(german.is_set()) << "install Debian's package locales";
  ASSERT_EQ(std::strtod("0.5", nullptr), 0);  // the locale acts
  char* end = nullptr;
  const std::string text = " 0.5;";
  EXPECT_EQ(locale_free_strtod(text.c_str(), &end), 0.5);
  EXPECT_EQ(*end, ';');
  EXPECT_EQ(locale_free_strtod("0,5", &end), 0);
  EXPECT_EQ(*end, ',');
}

TEST(LocaleFree, DaysAndMonthsAreEnglishInGerman) {
  const test::ForeignLocale german("de_DE");
  ASSERT_TRUE(german.is_set()) << "install Debian's package locales";
  std::tm time{};
  time.tm_year = 126;
  time.tm_mon = 11;
  time.tm_mday = 1;
  time.tm_wday = 2;
  char text[64] = "";
  const size_t n = locale_free_strftime(text, sizeof text, "%A %d %B %Y", &time);
  EXPECT_EQ(std::string(text, n), "Tuesday 01 December 2026");
}

TEST(LocaleFree, LettersAreAsciiInTurkish) {
  const test::ForeignLocale turkish("tr_TR");
  ASSERT_TRUE(turkish.is_set()) << "install Debian's package locales";
  ASSERT_NE(std::tolower('I'), 'i');  // the locale acts
  ASSERT_TRUE(std::isalpha(0xE9));
  EXPECT_EQ(ascii_lower("TITLE"), "title");
  EXPECT_EQ(ascii_upper('i'), 'I');
  for (int c = 0; c < 256; ++c) {
    const char byte = static_cast<char>(c);
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool digit = c >= '0' && c <= '9';
    EXPECT_EQ(is_ascii_letter(byte), letter) << c;
    EXPECT_EQ(is_ascii_digit(byte), digit) << c;
    EXPECT_EQ(is_ascii_alnum(byte), letter || digit) << c;
    EXPECT_EQ(is_ascii_hex_digit(byte), c < 128 && std::isxdigit(c) != 0) << c;
    EXPECT_EQ(is_ascii_space(byte), c == ' ' || (c >= 9 && c <= 13)) << c;
  }
}

}  // namespace
}  // namespace penstock
