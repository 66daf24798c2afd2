#include "grammar/schema/formats.h"

#include <fmt/format.h>

#include <limits>
#include <vector>

namespace penstock::grammar {
namespace {

// RFC 3339, without the year 0000 and leap seconds, which many parsers refuse.
const std::string kDate =
    "(?!0000)(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|["
    "12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:["
    "02468][048]|[13579][26])00)-02-29)";
const std::string kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5]"
    "[0-9])";

std::string duration() {
  const std::string time = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
  const std::string date = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";
  return "P(?:[0-9]+W|" + date + "(?:" + time + ")?|" + time + ")";
}

const std::string kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const std::string kIpv4 = kByte + "(?:\\." + kByte + "){3}";

// RFC 4291, as IPv6address of RFC 3986.
std::string ipv6() {
  const std::string h = "[0-9a-fA-F]{1,4}", ls32 = "(?:" + h + ":" + h + "|" + kIpv4 + ")";
  std::string out = "(?:" + h + ":){6}" + ls32 + "|::(?:" + h + ":){5}" + ls32;
  for (int before = 0; before <= 6; ++before) {
    const std::string head =
        before == 0 ? "(?:" + h + ")?" : fmt::format("(?:(?:{0}:){{0,{1}}}{0})?", h, before);
    const int after = 4 - before;
    const std::string tail = after > 0     ? fmt::format("(?:{}:){{{}}}", h, after) + ls32
                             : after == 0  ? ls32
                             : after == -1 ? h
                                           : "";
    out += "|" + head + "::" + tail;
  }
  return "(?:" + out + ")";
}

// RFC 1123, without labels with "--" in the third place, which internationalized names use.
std::string hostname() {
  const std::string a = "[0-9a-zA-Z]", x = "[0-9a-zA-Z-]";
  const std::string label = a + "(?:" + a + "|" + x + a + "|" + x + x + a + "|" + x + "(?:" + a +
                            x + "|-" + a + ")" + x + "{0,58}" + a + ")?";
  return label + "(?:\\." + label + ")*";
}

// RFC 5321's Mailbox.
std::string email(const std::string& beyond_ascii) {
  const std::string atom = "[0-9a-zA-Z!#$%&'*+/=?^_`{|}~" + beyond_ascii + "-]+";
  const std::string quoted = "\"(?:[ !#-\\[\\]-~" + beyond_ascii + "]|\\\\[ -~])*\"";
  const std::string letter = "[0-9a-zA-Z" + beyond_ascii + "]";
  const std::string label = letter + "(?:[0-9a-zA-Z" + beyond_ascii + "-]*" + letter + ")?";
  const std::string literal = "\\[(?:" + kIpv4 + "|IPv6:" + ipv6() + ")\\]";
  return fmt::format("(?:{0}(?:\\.{0})*|{1})@(?:{2}(?:\\.{2})*|{3})", atom, quoted, label, literal);
}

// RFC 3986 and RFC 3987. beyond_ascii: ucschar of the latter, and iprivate in queries.
struct UriRules {
  explicit UriRules(const std::string& beyond_ascii, const std::string& in_query) {
    const std::string unreserved = "0-9a-zA-Z._~" + beyond_ascii, sub = "!$&'()*+,;=";
    const std::string percent = "%[0-9a-fA-F]{2}";
    const auto chars = [&](const std::string& set) { return "(?:[" + set + "-]|" + percent + ")"; };
    const std::string pchar = chars(unreserved + sub + ":@");
    const std::string literal =
        "\\[(?:" + ipv6() + "|[vV][0-9a-fA-F]+\\.[0-9a-zA-Z._~!$&'()*+,;=:-]+)\\]";
    const std::string host = "(?:" + literal + "|" + chars(unreserved + sub) + "*)";
    const std::string authority =
        "(?:" + chars(unreserved + sub + ":") + "*@)?" + host + "(?::[0-9]*)?";
    const std::string rooted = "(?:/" + pchar + "*)*",
                      absolute = "/(?:" + pchar + "+" + rooted + ")?";
    const std::string tail = "(?:\\?" + chars(unreserved + sub + ":@/?" + in_query) + "*)?(?:#" +
                             chars(unreserved + sub + ":@/?") + "*)?";
    full = "[a-zA-Z][0-9a-zA-Z+.-]*:(?://" + authority + rooted + "|" + absolute + "|" + pchar +
           "+" + rooted + "|)" + tail;
    relative = "(?://" + authority + rooted + "|" + absolute + "|" + chars(unreserved + sub + "@") +
               "+" + rooted + "|)" + tail;
  }
  std::string full, relative;
};
const char* kUcsChars =
    "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}\\u{"
    "30000}-\\u{3FFFD}\\u{40000}-\\u{4FFFD}\\u{50000}-\\u{5FFFD}\\u{60000}-\\u{6FFFD}\\u{70000}-"
    "\\u{7FFFD}\\u{80000}-\\u{8FFFD}\\u{90000}-\\u{9FFFD}\\u{A0000}-\\u{AFFFD}\\u{B0000}-\\u{BFFFD}"
    "\\u{C0000}-\\u{CFFFD}\\u{D0000}-\\u{DFFFD}\\u{E1000}-\\u{EFFFD}";

// RFC 6570.
std::string uri_template() {
  const std::string literal =
      "(?:[!#$&(-;=?-\\[\\]_a-z~" + std::string(kUcsChars) + "]|%[0-9a-fA-F]{2})";
  const std::string varchar = "(?:[0-9a-zA-Z_]|%[0-9a-fA-F]{2})";
  const std::string name = varchar + "(?:\\.?" + varchar + ")*";
  const std::string variable = name + "(?::[1-9][0-9]{0,3}|\\*)?";
  return "(?:" + literal + "|\\{[+#./;?&]?" + variable + "(?:," + variable + ")*\\})*";
}

const std::string kJsonPointer = "(?:/(?:[^~/]|~[01])*)*";

// Regular expressions with the same meaning in ECMAScript and other dialects; groups nest at most
// three deep.
std::string regular_expression() {
  const std::string escape =
      "\\\\(?:[dDwWsSbBtnrfv]|[\\^$.*+?()\\[\\]{}|/\\\\-]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})";
  const std::string in_class =
      "(?:a-z|A-Z|0-9|\\\\(?:[dDwWsStnrfv]|[\\^$.*+?()\\[\\]{}|/\\\\-])|[^\\\\\\[\\]^&~|-])";
  const std::string plain =
      "(?:[^\\\\^$.*+?()\\[\\]{}|]|\\.|" + escape + "|\\[\\^?" + in_class + "+-?\\])";
  const std::string count =
      "(?:(?:[*+?]|\\{(?:[0-9]{1,3},?|0,[0-9]{1,3}|1,[1-9][0-9]{0,2})\\})\\?"
      "?)?";
  std::string atom = plain;
  for (int depth = 0; depth <= 3; ++depth) {
    const std::string sequence = "(?:" + atom + count + "|[$^])*";
    const std::string whole = sequence + "(?:\\|" + sequence + ")*";
    if (depth == 3) return whole;
    atom = "(?:" + plain + "|\\((?:\\?[:=!])?" + whole + "\\))";
  }
  return {};
}

std::vector<Format> make_formats() {
  const UriRules uri("", ""), iri(kUcsChars, "\\uE000-\\uF8FF");
  constexpr int64_t kInt32 = std::numeric_limits<int32_t>::max(),
                    kInt64 = std::numeric_limits<int64_t>::max();
  return {
      {.name = "date", .pattern = kDate, .narrowed = true},
      {.name = "time", .pattern = kTime, .narrowed = true},
      {.name = "date-time", .pattern = kDate + "[Tt]" + kTime, .narrowed = true},
      {.name = "duration", .pattern = duration()},
      {.name = "email", .pattern = email("")},
      {.name = "idn-email",
       .pattern = email("\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF"),
       .narrowed = true},
      {.name = "hostname", .pattern = hostname(), .length = {1, 253}, .narrowed = true},
      {.name = "ipv4", .pattern = kIpv4},
      {.name = "ipv6", .pattern = ipv6()},
      {.name = "uuid", .pattern = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
      {.name = "uri", .pattern = uri.full},
      {.name = "uri-reference", .pattern = "(?:" + uri.full + "|" + uri.relative + ")"},
      {.name = "iri", .pattern = iri.full},
      {.name = "iri-reference", .pattern = "(?:" + iri.full + "|" + iri.relative + ")"},
      {.name = "uri-template", .pattern = uri_template(), .narrowed = true},
      {.name = "json-pointer", .pattern = kJsonPointer},
      {.name = "relative-json-pointer", .pattern = "(?:0|[1-9][0-9]*)(?:#|" + kJsonPointer + ")"},
      {.name = "regex",
       .pattern = regular_expression(),
       .narrowed = true,
       .note = "groups of regular expressions nest three deep at most"},
      {.name = "int32", .low = -kInt32 - 1, .high = kInt32},
      {.name = "int64", .low = -kInt64 - 1, .high = kInt64},
  };
}

}  // namespace

const Format* find_format(std::string_view name) {
  static const std::vector<Format> formats = make_formats();
  for (const Format& format : formats) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

}  // namespace penstock::grammar
