#include "server/api/json_reader.h"

#include <algorithm>
#include <boost/json/src.hpp>  // compiles the library here
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/locale_free.h"
#include "base/ordered_json.h"
#include "base/work.h"

namespace penstock {
namespace {

using json = nlohmann::ordered_json;
using boost::json::string_view;
using boost::system::error_code;

// Upper bounds of the memory of values: the element in its container and owned memory. While a list
// grows or the library destroys it, up to three copies of its elements exist.
constexpr size_t kValueBytes = 3 * sizeof(json),
                 kMemberBytes = 2 * sizeof(json::object_t::value_type), kContainerBytes = 64,
                 kStringBytes = 48, kInlineText = 15;

// Builds the value from parser events. An open container is the last element of its parent, which
// does not grow meanwhile, so that pointers to open containers stay valid.
class ValueBuilder {
 public:
  // Required by the parser; the budget bounds all sizes.
  static constexpr size_t max_object_size = SIZE_MAX, max_array_size = SIZE_MAX,
                          max_key_size = SIZE_MAX, max_string_size = SIZE_MAX;

  explicit ValueBuilder(size_t budget) : left_(budget) {}

  json take() { return std::move(root_); }
  // The builder's reason for aborting; empty: the parser's error applies.
  const std::string& refusal() const { return refusal_; }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code& error) { return open(json::object(), error); }
  bool on_array_begin(error_code& error) { return open(json::array(), error); }
  bool on_array_end(size_t, error_code&) {
    open_.pop_back();
    return true;
  }
  bool on_object_end(size_t, error_code&) {
    drop_repeated_members(*open_.back());
    open_.pop_back();
    return true;
  }
  bool on_key_part(string_view text, size_t, error_code&) { return hold(text); }
  bool on_key(string_view text, size_t, error_code&) {
    key_ = whole(text);
    return true;
  }
  bool on_string_part(string_view text, size_t, error_code&) { return hold(text); }
  bool on_string(string_view text, size_t, error_code& error) {
    std::string value = whole(text);
    const size_t bytes = kStringBytes + (value.size() > kInlineText ? value.size() : 0);
    return put(std::move(value), bytes, error);
  }
  bool on_number_part(string_view text, error_code&) { return hold(text); }
  bool on_int64(int64_t value, string_view, error_code& error) { return put_number(value, error); }
  bool on_uint64(uint64_t value, string_view, error_code& error) {
    return put_number(value, error);
  }
  bool on_double(double, string_view text, error_code& error) {
    const std::string digits = whole(text);
    const double value = locale_free_strtod(digits.c_str(), nullptr);
    if (!std::isfinite(value)) {
      return refuse("the number " + digits.substr(0, 40) + " is out of range", error);
    }
    return put_number(value, error);
  }
  bool on_bool(bool value, error_code& error) { return put(value, 0, error); }
  bool on_null(error_code& error) { return put(nullptr, 0, error); }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }

 private:
  bool hold(string_view text) {
    held_.append(text.data(), text.size());
    return true;
  }
  std::string whole(string_view last) {
    if (held_.empty()) return {last.data(), last.size()};
    held_.append(last.data(), last.size());
    return std::exchange(held_, {});
  }
  bool refuse(std::string why, error_code& error) {
    refusal_ = std::move(why);
    error = make_error_code(boost::system::errc::not_enough_memory);
    return false;
  }

  template <class Number>
  bool put_number(Number value, error_code& error) {
    held_.clear();
    return put(value, 0, error);
  }
  bool put(json value, size_t owned, error_code& error) {
    give_way();
    const bool in_object = !open_.empty() && open_.back()->is_object();
    const size_t bytes = owned + (in_object ? kMemberBytes + key_.size() : kValueBytes);
    if (bytes > left_) return refuse("too many values", error);
    left_ -= bytes;
    last_ = &place(in_object, std::move(value));
    return true;
  }
  json& place(bool in_object, json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (!in_object) {
      auto& list = open_.back()->get_ref<json::array_t&>();
      return list.emplace_back(std::move(value));
    }
    return add_member(*open_.back(), std::move(key_), std::move(value));
  }
  bool open(json value, error_code& error) {
    if (!put(std::move(value), kContainerBytes, error)) return false;
    open_.push_back(last_);
    return true;
  }

  size_t left_;  // bytes
  json root_;
  json* last_ = nullptr;
  std::vector<json*> open_;
  // held_: the first part of a string or number that arrives in parts
  std::string key_, held_;
  std::string refusal_;
};

// Whether `text` ends with an unpaired high surrogate.
bool ends_with_half_a_pair(std::string_view text) {
  if (text.size() < 6) return false;
  const std::string_view end = text.substr(text.size() - 6);
  const bool named = end.starts_with("\\ud") || end.starts_with("\\uD");
  return named && std::string_view("89abAB").find(end[3]) != std::string_view::npos;
}

const char* what_is_wrong(error_code error, std::string_view read) {
  using Kind = boost::json::error;
  if (error == Kind::incomplete) return "it ends too early";
  if (error == Kind::extra_data) return "something follows its end";
  if (error == Kind::illegal_leading_surrogate || error == Kind::illegal_trailing_surrogate ||
      ends_with_half_a_pair(read))
    return "a lone surrogate: \\ud800 to \\udfff come in pairs";
  if (error == Kind::expected_hex_digit) return "\\u is not followed by four hexadecimal digits";
  if (error == Kind::exponent_overflow) return "an exponent is out of range";
  return "a character that is not expected there";
}

// Returns a short excerpt around an offset for a message.
std::string excerpt(std::string_view text, size_t at) {
  constexpr size_t kLength = 16;
  size_t begin = at - std::min(at, kLength), end = std::min(text.size(), at + kLength);
  const auto inside = [&](size_t i) {
    return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80;
  };
  while (begin < at && inside(begin)) ++begin;
  while (end > at && inside(end)) --end;
  return std::string(text.substr(begin, end - begin));
}

}  // namespace

Result<json> read_json(std::string_view text, size_t allowance) {
  boost::json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  boost::json::basic_parser<ValueBuilder> parser(options, allowance + 2 * text.size());
  error_code error;
  const size_t at = parser.write_some(false, text.data(), text.size(), error);
  if (!error && at < text.size()) error = boost::json::error::extra_data;
  if (!error) return parser.handler().take();
  if (error == boost::json::error::too_deep) {
    return errorf(ErrorCode::kInvalidArgument, "body: nested more than {} levels deep",
                  kMaxJsonDepth);
  }
  const std::string& refusal = parser.handler().refusal();
  if (!refusal.empty())
    return errorf(ErrorCode::kInvalidArgument, "body: {} (at byte {})", refusal, at);
  if (text.empty())
    return errorf(ErrorCode::kInvalidArgument, "body: expected a JSON object, got nothing");
  return errorf(ErrorCode::kInvalidArgument, "body: not valid JSON at byte {}: {}, near {}", at,
                what_is_wrong(error, text.substr(0, at)),
                json(excerpt(text, at)).dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace penstock
