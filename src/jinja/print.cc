#include "jinja/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "jinja/runtime.h"
#include "jinja/text.h"

namespace penstock::jinja {
namespace {

class Repr {
 public:
  explicit Repr(Runtime& rt) : rt_(rt) {}
  std::string out;

  void value(const Value& v) {
    rt_.step();
    if (++depth_ > kMaxDepth)
      fail("RecursionError",
           "maximum recursion depth exceeded while getting the repr of an object");
    switch (v.kind) {
      case Kind::kString: text(v); break;
      case Kind::kList: items(v.items(), "[", "]"); break;
      case Kind::kTuple: items(v.items(), "(", v.items().size() == 1 ? ",)" : ")"); break;
      case Kind::kDict: pairs(as<Dict>(v).items); break;
      case Kind::kNamespace:
        rt_.append(out, "<Namespace ");
        pairs(as<Dict>(v).items);
        rt_.append(out, ">");
        break;
      case Kind::kRange: range(as<Range>(v)); break;
      case Kind::kDictView: view(as<DictView>(v)); break;
      default: rt_.append(out, plain_number(v));
    }
    --depth_;
  }

 private:
  void text(const Value& v) {
    rt_.step(v.text().size() / 8);
    const std::string quoted = quote(v.text());
    rt_.append(out, as<String>(v).markup ? fmt::format("Markup({})", quoted) : quoted);
  }

  void items(const std::vector<Value>& values, const char* open, const char* close) {
    rt_.append(out, open);
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) rt_.append(out, ", ");
      value(values[i]);
    }
    rt_.append(out, close);
  }

  void pairs(const Pairs& items) {
    rt_.append(out, "{");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) rt_.append(out, ", ");
      value(items[i].first);
      rt_.append(out, ": ");
      value(items[i].second);
    }
    rt_.append(out, "}");
  }

  void range(const Range& r) {
    rt_.append(out, r.step == 1 ? fmt::format("range({}, {})", r.start, r.stop)
                                : fmt::format("range({}, {}, {})", r.start, r.stop, r.step));
  }

  void view(const DictView& v) {
    const char* name = v.what == DictView::What::kKeys     ? "dict_keys(["
                       : v.what == DictView::What::kValues ? "dict_values(["
                                                           : "dict_items([";
    rt_.append(out, name);
    bool first = true;
    for (const auto& [key, item] : v.dict->items) {
      if (!first) rt_.append(out, ", ");
      first = false;
      if (v.what == DictView::What::kItems) {
        items({key, item}, "(", ")");
      } else {
        value(v.what == DictView::What::kKeys ? key : item);
      }
    }
    rt_.append(out, "])");
  }

  Runtime& rt_;
  int depth_ = 0;
};

class JsonWriter {
 public:
  JsonWriter(Runtime& rt, const JsonStyle& style) : rt_(rt), style_(style) {}
  std::string out;

  void value(const Value& v) {
    rt_.step();
    switch (v.kind) {
      case Kind::kNone: rt_.append(out, "null"); break;
      case Kind::kBool: rt_.append(out, v.boolean ? "true" : "false"); break;
      case Kind::kInt: rt_.append(out, fmt::format("{}", v.integer)); break;
      case Kind::kFloat: rt_.append(out, number(v.real)); break;
      case Kind::kString: text(v.text()); break;
      case Kind::kList:
      case Kind::kTuple: array(v.items()); break;
      case Kind::kDict: object(as<Dict>(v).items); break;
      default:
        fail("TypeError", fmt::format("Object of type {} is not JSON serializable", type_name(v)));
    }
  }

 private:
  static std::string number(double f) {
    if (std::isnan(f)) return "NaN";
    if (std::isinf(f)) return f > 0 ? "Infinity" : "-Infinity";
    return repr_double(f);
  }

  static std::string key_text(const Value& key) {
    switch (key.kind) {
      case Kind::kString: return key.text();
      case Kind::kNone: return "null";
      case Kind::kBool: return key.boolean ? "true" : "false";
      case Kind::kInt: return fmt::format("{}", key.integer);
      case Kind::kFloat: return number(key.real);
      default:
        fail("TypeError",
             fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    }
  }

  void text(std::string_view s) {
    rt_.step(s.size() / 16);
    rt_.check_size(out.size() + s.size() + 2);
    out += '"';
    for (size_t i = 0; i < s.size();) {
      const size_t start = i;
      const char32_t c = decode(s, i);
      switch (c) {
        case '"': out += "\\\""; break;
        case '\\': out += "\\\\"; break;
        case '\n': out += "\\n"; break;
        case '\r': out += "\\r"; break;
        case '\t': out += "\\t"; break;
        case '\b': out += "\\b"; break;
        case '\f': out += "\\f"; break;
        default:
          if (c >= 0x20 && (c < 0x7f || !style_.ensure_ascii)) {
            out.append(s.substr(start, i - start));
          } else if (c < 0x10000) {
            out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
          } else {
            const uint32_t high = 0xd800 + ((static_cast<uint32_t>(c) - 0x10000) >> 10);
            const uint32_t low = 0xdc00 + ((static_cast<uint32_t>(c) - 0x10000) & 0x3ff);
            out += fmt::format("\\u{:04x}\\u{:04x}", high, low);
          }
      }
    }
    out += '"';
    rt_.check_size(out.size());
  }

  void newline() {
    if (!style_.indent) return;
    rt_.check_size(out.size() + 1 + style_.indent->size() * static_cast<size_t>(depth_));
    out += '\n';
    for (int i = 0; i < depth_; ++i) out += *style_.indent;
  }

  void array(const std::vector<Value>& items) {
    if (items.empty()) return rt_.append(out, "[]");
    rt_.append(out, "[");
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) rt_.append(out, style_.item_separator);
      newline();
      value(items[i]);
    }
    --depth_;
    newline();
    rt_.append(out, "]");
  }

  void object(const Pairs& items) {
    if (items.empty()) return rt_.append(out, "{}");
    std::vector<const std::pair<Value, Value>*> order;
    for (const auto& item : items) order.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(order.begin(), order.end(),
                       [&](const auto* a, const auto* b) { return less(rt_, a->first, b->first); });
    }
    rt_.append(out, "{");
    ++depth_;
    bool first = true;
    for (const auto* item : order) {
      if (!first) rt_.append(out, style_.item_separator);
      first = false;
      newline();
      text(key_text(item->first));
      rt_.append(out, style_.key_separator);
      value(item->second);
    }
    --depth_;
    newline();
    rt_.append(out, "}");
  }

  Runtime& rt_;
  const JsonStyle& style_;
  int depth_ = 0;
};

}  // namespace

std::string quote(std::string_view text) {
  const bool use_double =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char mark = use_double ? '"' : '\'';
  std::string out(1, mark);
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = decode(text, i);
    const auto code = static_cast<uint32_t>(c);
    if (c == static_cast<char32_t>(mark) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out.append(text.substr(start, i - start));
    } else {
      out += code < 0x100     ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    }
  }
  return out + mark;
}

std::string repr_double(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer, static_cast<size_t>(end - buffer));
  const size_t e = shortest.find('e');
  int exponent = 0;
  const size_t digits_of_exponent = shortest[e + 1] == '+' ? e + 2 : e + 1;
  std::from_chars(shortest.data() + digits_of_exponent, end, exponent);
  std::string digits;
  for (const char c : shortest.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const std::string sign = shortest[0] == '-' ? "-" : "";
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    const std::string fraction = n > 1 ? "." + digits.substr(1) : "";
    return fmt::format("{}{}{}e{}{:02}", sign, digits[0], fraction, exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (n <= exponent + 1)
    return sign + digits + std::string(static_cast<size_t>(exponent + 1 - n), '0') + ".0";
  return sign + digits.substr(0, static_cast<size_t>(exponent + 1)) + "." +
         digits.substr(static_cast<size_t>(exponent + 1));
}

std::string plain_number(const Value& value) {
  switch (value.kind) {
    case Kind::kNone: return "None";
    case Kind::kBool: return value.boolean ? "True" : "False";
    case Kind::kInt: return fmt::format("{}", value.integer);
    case Kind::kFloat: return repr_double(value.real);
    case Kind::kUndefined: return "Undefined";
    case Kind::kFunction: return fmt::format("<function {}>", as<Function>(value).name);
    default: return fmt::format("<{} object>", type_name(value));
  }
}

std::string to_text(Runtime& rt, const Value& value) {
  if (value.is(Kind::kString)) return value.text();
  if (value.is(Kind::kUndefined) || value.is(Kind::kMissing)) return "";
  return to_repr(rt, value);
}

std::string to_repr(Runtime& rt, const Value& value) {
  Repr repr(rt);
  repr.value(value);
  return std::move(repr.out);
}

std::string to_json(Runtime& rt, const Value& value, const JsonStyle& style) {
  JsonWriter writer(rt, style);
  writer.value(value);
  return std::move(writer.out);
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace penstock::jinja
