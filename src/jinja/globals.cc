// Global functions of chat templates.
#include <fmt/format.h>

#include <ctime>

#include "base/locale_free.h"
#include "jinja/eval.h"
#include "jinja/ops.h"
#include "jinja/print.h"

namespace penstock::jinja {
namespace {

Value range(Runtime& rt, const Args& args) {
  args.no_keywords("range");
  const size_t n = args.positional.size();
  if (n < 1 || n > 3) fail("TypeError", fmt::format("range expected 1 to 3 arguments, got {}", n));
  int64_t parts[3] = {0, 0, 1};
  for (size_t i = 0; i < n; ++i) {
    const Value& value = args.positional[i];
    if (!value.is_integral()) {
      fail("TypeError",
           fmt::format("'{}' object cannot be interpreted as an integer", type_name(value)));
    }
    parts[n == 1 ? 1 : i] = value.as_int();
  }
  if (parts[2] == 0) fail("ValueError", "range() arg 3 must not be zero");
  const Value out = rt.range(parts[0], parts[1], parts[2]);
  if (as<Range>(out).length() > kMaxRange) {
    fail("OverflowError",
         fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).",
                     kMaxRange));
  }
  return out;
}

Pairs dict_items(Runtime& rt, const Args& args, const char* name) {
  if (args.positional.size() > 1) {
    fail("TypeError",
         fmt::format("{} expected at most 1 argument, got {}", name, args.positional.size()));
  }
  Dict unique(nullptr, {}, 0);
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.is(Kind::kUndefined)) fail_undefined(source);
    if (source.is(Kind::kDict)) {
      unique.items = as<Dict>(source).items;
    } else {
      for (const Value& item : to_vector(rt, source)) {
        const auto pair = to_vector(rt, item);
        if (pair.size() != 2)
          fail("ValueError", "dictionary update sequence element has a length other than 2");
        unique.set(rt, pair[0], pair[1]);
      }
    }
  }
  for (const auto& [key, value] : args.keyword) unique.set(rt, rt.string(key), value);
  return std::move(unique.items);
}

Value dict(Runtime& rt, const Args& args) { return rt.dict(dict_items(rt, args, "dict")); }
Value name_space(Runtime& rt, const Args& args) {
  return rt.name_space(dict_items(rt, args, "namespace"));
}

Value cycler(Runtime& rt, const Args& args) {
  args.no_keywords("cycler");
  if (args.positional.empty()) fail("RuntimeError", "at least one item has to be provided");
  return from_object(Kind::kCycler,
                     rt.make<Cycler>(args.positional, max_depth(args.positional) + 1));
}

Value joiner(Runtime& rt, const Args& args) {
  const auto a = args.bind("joiner", {"sep"}, 0);
  const Value separator = a[0].is(Kind::kMissing) ? rt.string(", ") : a[0];
  return rt.function(
      "joiner",
      [separator, used = std::make_shared<bool>(false)](Runtime& r, const Args& none) {
        none.bind("joiner", {}, 0);
        return std::exchange(*used, true) ? separator : r.string("");
      },
      separator.depth() + 1);
}

Value raise_exception(Runtime& rt, const Args& args) {
  throw Failure{ErrorCode::kInvalidArgument, "",
                to_text(rt, args.bind("raise_exception", {"message"}, 1)[0]), 0};
}

Value strftime_now(Runtime& rt, const Args& args) {
  constexpr size_t kMaxOutput = 4096;
  const Value format = args.bind("strftime_now", {"format"}, 1)[0];
  if (!format.is(Kind::kString)) {
    fail("TypeError", fmt::format("strftime() argument 1 must be str, not {}", type_name(format)));
  }
  std::string pattern;  // without directives for time zones, which the clock lacks
  // C's strftime ends at a zero byte, and so does Python's
  const std::string text = format.text().c_str();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%' || i + 1 == text.size()) {
      pattern += text[i];
      continue;
    }
    const char directive = text[++i];
    if (directive == 'f') pattern += "000000";
    if (directive == 'f' || directive == 'z' || directive == 'Z') continue;
    pattern += '%';
    pattern += directive;
  }
  if (pattern.empty()) return rt.string("");
  pattern += '.';  // distinguishes an empty result from a failure
  std::string out(kMaxOutput, '\0');
  const size_t n = locale_free_strftime(out.data(), out.size(), pattern.c_str(), &rt.now);
  if (n == 0) fail_limit(fmt::format("strftime_now makes more than {} bytes", kMaxOutput));
  out.resize(n - 1);
  return rt.string(std::move(out));
}

Value lipsum(Runtime&, const Args&) {
  throw Failure{ErrorCode::kUnsupported, "",
                "lipsum() is not supported: renderings are reproducible", 0};
}

struct Row {
  const char* name;
  Value (*function)(Runtime&, const Args&);
};
constexpr Row kGlobals[] = {{"range", range},
                            {"dict", dict},
                            {"namespace", name_space},
                            {"cycler", cycler},
                            {"joiner", joiner},
                            {"lipsum", lipsum},
                            {"raise_exception", raise_exception},
                            {"strftime_now", strftime_now}};

}  // namespace

Value global_function(Runtime& rt, const std::string& name) {
  for (const Row& row : kGlobals) {
    if (name == row.name) return rt.function(name, row.function);
  }
  return Value();
}

}  // namespace penstock::jinja
