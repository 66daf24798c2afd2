#include "grammar/syntax/structural_tag.h"

#include <fmt/format.h>

#include <algorithm>

#include "grammar/regex/parser.h"
#include "grammar/schema/references.h"
#include "grammar/syntax/notation.h"
#include "grammar/syntax/raw_string.h"
#include "text/unicode/unicode.h"

namespace penstock::grammar {
namespace {

using Texts = std::vector<std::string>;

class TagReader {
 public:
  using Node = Compiled<uint32_t>;

  TagReader(Rules& rules, const GoalOfSchema& goal_of, const Vocabulary* vocabulary, Budget& budget)
      : rules_(rules),
        goal_of_(goal_of),
        vocabulary_(vocabulary),
        budget_(budget),
        max_depth_(static_cast<int>(budget.limits().max_depth)) {}

  Node document(const JsonValue& value) {
    if (value.find("structures") != nullptr) return old_form(value);
    const JsonValue* tag = &value;
    std::string where = "#";
    if (const JsonValue* inner = value.find("format"); inner != nullptr) {
      tag = inner;
      where += "/format";
    }
    return format(*tag, where, {}, 0);
  }

 private:
  using Handler = Node (TagReader::*)(const JsonValue& value, const std::string& where,
                                      const Texts& ends, int depth);
  struct FormatType {
    std::string_view name;
    Handler read;
    std::vector<std::string_view> members;  // allowed members besides "type"
  };
  static const std::vector<FormatType>& types() {
    using R = TagReader;
    static const std::vector<FormatType> list{
        {"const_string", &R::const_string, {"value"}},
        {"json_schema", &R::json_schema, {"json_schema", "style", "best_effort"}},
        {"raw_string", &R::raw_string, {"schema", "excludes", "unlike", "best_effort"}},
        {"grammar", &R::grammar, {"grammar", "in_string"}},
        {"regex", &R::regex, {"pattern", "excludes"}},
        {"any_text", &R::any_text, {"excludes"}},
        {"sequence", &R::sequence, {"elements"}},
        {"or", &R::either, {"elements"}},
        {"optional", &R::optional, {"content"}},
        {"plus", &R::plus, {"content", "separator", "max"}},
        {"star", &R::star, {"content"}},
        {"repeat", &R::repeat, {"content", "min", "max"}},
        {"tag", &R::tag, {"begin", "content", "end"}},
        {"triggered_tags",
         &R::triggered_tags,
         {"triggers", "tags", "at_least_one", "stop_after_first", "excludes"}},
        {"tags_with_separator",
         &R::tags_with_separator,
         {"tags", "separator", "at_least_one", "stop_after_first"}},
        {"token", &R::token, {"token"}},
    };
    return list;
  }

  static tl::unexpected<Refusal> invalid(const std::string& where, std::string message) {
    return refuse(RefusalKind::kInvalid, where, std::move(message));
  }

  // ends: texts that end the enclosing tag, if the format is its last part.
  Node format(const JsonValue& value, const std::string& where, const Texts& ends, int depth) {
    if (depth > max_depth_)
      return refuse(RefusalKind::kTooLarge, where,
                    fmt::format("nested deeper than {}", max_depth_));
    const JsonValue* type = value.find("type");
    const bool untyped_tag = type == nullptr && value.find("begin") != nullptr;
    if (!untyped_tag && (type == nullptr || !type->is_string()))
      return invalid(where, "expected an object with a \"type\"");
    const std::string_view name =
        untyped_tag ? std::string_view("tag") : std::string_view(type->string);
    const auto known = std::find_if(types().begin(), types().end(),
                                    [&](const FormatType& t) { return t.name == name; });
    if (known == types().end())
      return refuse(RefusalKind::kUnsupported, where,
                    fmt::format("the format \"{}\" is not supported", name));
    for (const JsonMember& member : value.members) {
      if (member.key == "type" || member.key == "where" ||
          std::find(known->members.begin(), known->members.end(), member.key) !=
              known->members.end())
        continue;
      return refuse(RefusalKind::kUnsupported, append_pointer(where, member.key),
                    fmt::format("\"{}\" has no \"{}\" here", name, member.key));
    }
    const JsonValue* place = value.find("where");
    return (this->*known->read)(
        value, place != nullptr && place->is_string() ? place->string : where, ends, depth + 1);
  }

  Compiled<std::string> string_of(const JsonValue& value, const char* key,
                                  const std::string& where) {
    const JsonValue* member = value.find(key);
    if (member == nullptr || !member->is_string() || !unicode::is_valid(member->string))
      return invalid(append_pointer(where, key), "expected a string");
    return member->string;
  }
  // Reads a string or a list of strings; absent: empty.
  Compiled<Texts> texts_of(const JsonValue& value, const char* key, const std::string& where) {
    const JsonValue* member = value.find(key);
    if (member == nullptr) return Texts{};
    if (member->is_string()) return Texts{member->string};
    Texts texts;
    for (const JsonMember& m : member->members) {
      if (!m.value.is_string() || !unicode::is_valid(m.value.string))
        return invalid(append_pointer(where, key), "expected a list of strings");
      texts.push_back(m.value.string);
    }
    if (!member->is_array())
      return invalid(append_pointer(where, key), "expected a list of strings");
    return texts;
  }
  Compiled<bool> flag_of(const JsonValue& value, const char* key, const std::string& where) {
    const JsonValue* member = value.find(key);
    if (member == nullptr) return false;
    if (!member->is_bool()) return invalid(append_pointer(where, key), "expected true or false");
    return member->kind == JsonValue::Kind::kTrue;
  }

  ExprPool& pool() { return rules_.pool(); }
  ExprId literal(std::string_view text) { return pool().literal(characters_of(text)); }

  // Returns a fixed text, in which names of special tokens become these tokens.
  uint32_t fixed(std::string_view written) {
    std::vector<uint32_t> parts;
    while (!written.empty()) {
      const auto special =
          vocabulary_ == nullptr ? std::nullopt : vocabulary_->find_special(written);
      const size_t plain = special ? special->position : written.size();
      if (plain > 0) parts.push_back(rules_.text(literal(written.substr(0, plain))));
      if (special) parts.push_back(rules_.token(special->token));
      written.remove_prefix(special ? plain + special->length : plain);
    }
    return parts.empty() ? rules_.text(ExprPool::kEmpty) : rules_.sequence(std::move(parts));
  }

  // Returns the texts that contain none of `others`, and in which none of them would begin before
  // the end.
  ExprId text_without(const Texts& others) {
    std::vector<ExprId> all;
    for (const std::string& other : others) {
      if (other.empty()) continue;
      const auto ends_in = [&](std::string_view part) {
        return pool().concat(ExprPool::kEverything, literal(part));
      };
      all.push_back(pool().negate(pool().concat(ends_in(other), ExprPool::kEverything)));
      for (size_t period = 1; period < other.size(); ++period) {
        const bool repeats = std::string_view(other).substr(period) ==
                             std::string_view(other).substr(0, other.size() - period);
        if (repeats)
          all.push_back(pool().negate(ends_in(std::string_view(other).substr(0, period))));
      }
    }
    return pool().all_of(std::move(all));
  }

  Node const_string(const JsonValue& value, const std::string& where, const Texts&, int) {
    auto text = string_of(value, "value", where);
    if (!text) return tl::unexpected(std::move(text).error());
    return fixed(*text);
  }

  Node json_schema(const JsonValue& value, const std::string& where, const Texts&, int) {
    const JsonValue* style = value.find("style");
    const bool python = style != nullptr && style->string == "python";
    if (style != nullptr && style->string != "json" && !python)
      return refuse(RefusalKind::kUnsupported, where + "/style",
                    "expected the style \"json\" or \"python\"");
    const JsonValue* schema = value.find("json_schema");
    if (schema == nullptr) return invalid(where, "expected \"json_schema\"");
    const auto best_effort = flag_of(value, "best_effort", where);
    if (!best_effort) return tl::unexpected(best_effort.error());
    auto node =
        goal(*schema, value.find("where") != nullptr ? where : where + "/json_schema", python);
    if (node || !*best_effort || node.error().kind == RefusalKind::kTooLarge) return node;
    return goal(any_value(schema->find("properties") != nullptr), where, python);
  }

  static JsonValue any_value(bool object) {
    JsonValue schema{.kind = JsonValue::Kind::kObject};
    if (object)
      schema.members.push_back({"type", {.kind = JsonValue::Kind::kString, .string = "object"}});
    return schema;
  }

  Node goal(const JsonValue& schema, const std::string& where, bool python = false) {
    auto goal = goal_of_(schema, python);
    if (goal) return rules_.goal(*goal);
    Refusal refusal = std::move(goal).error();
    const std::string inside = refusal.where.empty() ? "" : refusal.where.substr(1);
    refusal.where = where + inside;
    return tl::unexpected(std::move(refusal));
  }

  // Reads a string of a schema without quotation marks; with best_effort, its pattern and format
  // may be dropped.
  Node raw_string(const JsonValue& value, const std::string& where, const Texts&, int) {
    auto excludes = texts_of(value, "excludes", where), unlike = texts_of(value, "unlike", where);
    if (!excludes) return tl::unexpected(std::move(excludes).error());
    if (!unlike) return tl::unexpected(std::move(unlike).error());
    const JsonValue* schema = value.find("schema");
    const JsonValue none{.kind = JsonValue::Kind::kObject};
    if (schema == nullptr || !schema->is_object()) schema = &none;
    std::vector<ExprId> also{text_without(*excludes)};
    for (const std::string& pattern : *unlike) {
      auto expr = parse_regex(pool(), pattern, RegexScope::kWhole, max_depth_);
      if (!expr) return invalid(where + "/unlike", expr.error().message);
      also.push_back(pool().negate(*expr));
    }
    const auto best_effort = flag_of(value, "best_effort", where);
    auto node = add_raw_string(*schema, also, rules_, max_depth_);
    if (!node && best_effort && *best_effort) return rules_.text(pool().all_of(std::move(also)));
    if (!node) {
      Refusal refusal = std::move(node).error();
      refusal.where = where + "/" + refusal.where;
      return tl::unexpected(std::move(refusal));
    }
    return node;
  }

  Node grammar(const JsonValue& value, const std::string& where, const Texts&, int) {
    auto text = string_of(value, "grammar", where);
    if (!text) return tl::unexpected(std::move(text).error());
    const auto in_string = flag_of(value, "in_string", where);
    if (!in_string) return tl::unexpected(in_string.error());
    const auto first = static_cast<uint32_t>(rules_.rules().size());
    Node root = parse_rules(*text, rules_, goal_of_, vocabulary_, budget_);
    if (root) root = *in_string ? rules_.in_string(first, *root) : Node(rules_.rule(*root));
    if (root) return root;
    Refusal refusal = std::move(root).error();
    if (!refusal.where.empty()) refusal.message += " (" + refusal.where + ")";
    refusal.where = where + "/grammar";
    return tl::unexpected(std::move(refusal));
  }

  Node regex(const JsonValue& value, const std::string& where, const Texts&, int) {
    auto pattern = string_of(value, "pattern", where);
    if (!pattern) return tl::unexpected(std::move(pattern).error());
    auto excludes = texts_of(value, "excludes", where);
    if (!excludes) return tl::unexpected(std::move(excludes).error());
    auto expr = parse_regex(pool(), *pattern, RegexScope::kWhole, max_depth_);
    if (expr) return rules_.text(pool().all_of({*expr, text_without(*excludes)}));
    Refusal refusal = std::move(expr).error();
    refusal.where = where + "/pattern";
    return tl::unexpected(std::move(refusal));
  }

  Node any_text(const JsonValue& value, const std::string& where, const Texts& ends, int) {
    auto excludes = texts_of(value, "excludes", where);
    if (!excludes) return tl::unexpected(std::move(excludes).error());
    excludes->insert(excludes->end(), ends.begin(), ends.end());
    return rules_.text(text_without(*excludes));
  }

  Compiled<std::vector<uint32_t>> elements(const JsonValue& value, const std::string& where,
                                           const Texts& ends, bool all_last, int depth) {
    const JsonValue* list = value.find("elements");
    if (list == nullptr || !list->is_array() || list->members.empty())
      return invalid(where + "/elements", "expected a list of formats");
    std::vector<uint32_t> nodes;
    for (size_t i = 0; i < list->members.size(); ++i) {
      const bool last = all_last || i + 1 == list->members.size();
      auto node = format(list->members[i].value, fmt::format("{}/elements/{}", where, i),
                         last ? ends : Texts{}, depth);
      if (!node) return tl::unexpected(std::move(node).error());
      nodes.push_back(*node);
    }
    return nodes;
  }

  Node sequence(const JsonValue& value, const std::string& where, const Texts& ends, int depth) {
    auto nodes = elements(value, where, ends, false, depth);
    if (!nodes) return tl::unexpected(std::move(nodes).error());
    return rules_.sequence(*std::move(nodes));
  }
  Node either(const JsonValue& value, const std::string& where, const Texts& ends, int depth) {
    auto nodes = elements(value, where, ends, true, depth);
    if (!nodes) return tl::unexpected(std::move(nodes).error());
    return rules_.choice(*std::move(nodes));
  }

  Node content(const JsonValue& value, const std::string& where, const Texts& ends, int depth) {
    const JsonValue* inner = value.find("content");
    if (inner == nullptr) return invalid(where, "expected \"content\"");
    return format(*inner, where + "/content", ends, depth);
  }
  Node times(const JsonValue& value, const std::string& where, int depth, uint32_t min,
             uint32_t max) {
    auto node = content(value, where, {}, depth);
    if (!node) return node;
    return rules_.repeat(*node, min, max);
  }
  Node optional(const JsonValue& value, const std::string& where, const Texts&, int depth) {
    return times(value, where, depth, 0, 1);
  }
  Node plus(const JsonValue& value, const std::string& where, const Texts&, int depth) {
    const JsonValue* max = value.find("max");
    const auto most = max != nullptr && max->is_number() ? max->number.to_int() : std::nullopt;
    if (max != nullptr && (!most || *most < 1 || *most > kMostTimes))
      return invalid(where + "/max", "expected a whole number");
    const uint32_t times = most ? static_cast<uint32_t>(*most) : kNone;
    auto node = content(value, where, {}, depth);
    if (!node) return node;
    if (value.find("separator") == nullptr) return rules_.repeat(*node, 1, times);
    auto separator = string_of(value, "separator", where);
    if (!separator) return tl::unexpected(std::move(separator).error());
    const uint32_t one = rules_.rule(rules_.anonymous(*node));
    const uint32_t more = rules_.sequence({fixed(*separator), one});
    return rules_.sequence({one, rules_.repeat(more, 0, times == kNone ? kNone : times - 1)});
  }
  Node star(const JsonValue& value, const std::string& where, const Texts&, int depth) {
    return times(value, where, depth, 0, kNone);
  }

  Node repeat(const JsonValue& value, const std::string& where, const Texts&, int depth) {
    const auto count = [&](const char* key, int64_t otherwise) -> Compiled<int64_t> {
      const JsonValue* member = value.find(key);
      if (member == nullptr) return otherwise;
      const auto n = member->is_number() ? member->number.to_int() : std::nullopt;
      if (!n || *n < -1 || *n > kMostTimes)
        return invalid(append_pointer(where, key), "expected a whole number");
      return *n;
    };
    const auto min = count("min", 0), max = count("max", -1);
    if (!min) return tl::unexpected(min.error());
    if (!max) return tl::unexpected(max.error());
    if (*min < 0 || (*max >= 0 && *max < *min))
      return invalid(where, "the repetition's least is more than its most");
    return times(value, where, depth, static_cast<uint32_t>(*min),
                 *max < 0 ? kNone : static_cast<uint32_t>(*max));
  }

  struct Tag {
    std::string begin;
    uint32_t node;
  };
  Compiled<Tag> read_tag(const JsonValue& value, const std::string& where, int depth) {
    if (depth > max_depth_)
      return refuse(RefusalKind::kTooLarge, where,
                    fmt::format("nested deeper than {}", max_depth_));
    auto begin = string_of(value, "begin", where);
    if (!begin) return tl::unexpected(std::move(begin).error());
    auto ends = texts_of(value, "end", where);
    if (!ends) return tl::unexpected(std::move(ends).error());
    if (ends->empty()) return invalid(where + "/end", "expected a string, or a list of them");
    const JsonValue* schema = value.find("schema");
    auto inner = schema != nullptr ? goal(*schema, where + "/schema")
                                   : content(value, where, *ends, depth + 1);
    if (!inner) return tl::unexpected(std::move(inner).error());
    std::vector<uint32_t> texts;
    for (const std::string& end : *ends) texts.push_back(fixed(end));
    const uint32_t end = rules_.choice(std::move(texts));
    return Tag{*begin, rules_.sequence({fixed(*begin), *inner, end})};
  }

  Node tag(const JsonValue& value, const std::string& where, const Texts&, int depth) {
    auto tag = read_tag(value, where, depth);
    if (!tag) return tl::unexpected(std::move(tag).error());
    return tag->node;
  }

  Compiled<std::vector<Tag>> read_tags(const JsonValue& value, const char* key,
                                       const std::string& where, int depth) {
    const JsonValue* list = value.find(key);
    if (list == nullptr || !list->is_array() || list->members.empty())
      return invalid(append_pointer(where, key), "expected a list of tags");
    std::vector<Tag> tags;
    for (size_t i = 0; i < list->members.size(); ++i) {
      auto tag = read_tag(list->members[i].value, fmt::format("{}/{}/{}", where, key, i), depth);
      if (!tag) return tl::unexpected(std::move(tag).error());
      tags.push_back(*std::move(tag));
    }
    return tags;
  }

  uint32_t any_of(const std::vector<Tag>& tags) {
    std::vector<uint32_t> nodes;
    for (const Tag& tag : tags) nodes.push_back(tag.node);
    return rules_.choice(std::move(nodes));
  }

  Node triggered_tags(const JsonValue& value, const std::string& where, const Texts& ends,
                      int depth) {
    return triggered(value, "tags", where, ends, depth);
  }

  Node old_form(const JsonValue& value) { return triggered(value, "structures", "#", {}, 0); }

  // Repeats free text followed by a tag that begins with a trigger.
  Node triggered(const JsonValue& value, const char* key, const std::string& where,
                 const Texts& ends, int depth) {
    auto tags = read_tags(value, key, where, depth);
    if (!tags) return tl::unexpected(std::move(tags).error());
    auto triggers = texts_of(value, "triggers", where);
    if (!triggers) return tl::unexpected(std::move(triggers).error());
    const bool no_trigger =
        triggers->empty() || std::find(triggers->begin(), triggers->end(), "") != triggers->end();
    if (no_trigger)
      return invalid(where + "/triggers", "expected a list of texts with which tags begin");
    for (const Tag& tag : *tags) {
      const auto begins = [&](const std::string& trigger) {
        return tag.begin.starts_with(trigger);
      };
      if (std::none_of(triggers->begin(), triggers->end(), begins))
        return invalid(where + "/triggers", fmt::format("no trigger begins \"{}\"", tag.begin));
    }
    auto excludes = texts_of(value, "excludes", where);
    const auto at_least_one = flag_of(value, "at_least_one", where),
               stop = flag_of(value, "stop_after_first", where);
    if (!excludes) return tl::unexpected(std::move(excludes).error());
    if (!at_least_one) return tl::unexpected(at_least_one.error());
    if (!stop) return tl::unexpected(stop.error());
    Texts apart = *triggers;
    apart.insert(apart.end(), excludes->begin(), excludes->end());
    const uint32_t before = rules_.text(text_without(apart));
    apart.insert(apart.end(), ends.begin(), ends.end());
    const uint32_t free = rules_.text(text_without(apart)), tag = any_of(*tags);
    if (*stop) {
      const uint32_t first = rules_.sequence({before, tag});
      return *at_least_one ? tag : rules_.choice({first, free});
    }
    const uint32_t more = rules_.repeat(rules_.sequence({before, tag}), 0, kNone);
    return *at_least_one ? rules_.sequence({tag, more, free}) : rules_.sequence({more, free});
  }

  Node tags_with_separator(const JsonValue& value, const std::string& where, const Texts&,
                           int depth) {
    auto tags = read_tags(value, "tags", where, depth);
    if (!tags) return tl::unexpected(std::move(tags).error());
    auto separator = string_of(value, "separator", where);
    if (!separator) return tl::unexpected(std::move(separator).error());
    const auto at_least_one = flag_of(value, "at_least_one", where),
               stop = flag_of(value, "stop_after_first", where);
    if (!at_least_one) return tl::unexpected(at_least_one.error());
    if (!stop) return tl::unexpected(stop.error());
    uint32_t node = any_of(*tags);
    if (!*stop)
      node = rules_.sequence(
          {node, rules_.repeat(rules_.sequence({fixed(*separator), node}), 0, kNone)});
    return *at_least_one ? node : rules_.repeat(node, 0, 1);
  }

  Node token(const JsonValue& value, const std::string& where, const Texts&, int) {
    const JsonValue* which = value.find("token");
    std::optional<int64_t> id;
    if (which != nullptr && which->is_number()) id = which->number.to_int();
    if (which != nullptr && which->is_string() && vocabulary_ != nullptr)
      id = vocabulary_->special(which->string);
    if (!id || *id < 0 || (vocabulary_ != nullptr && *id >= vocabulary_->size()))
      return invalid(where + "/token", "no special token of this model");
    return rules_.token(static_cast<TokenId>(*id));
  }

  static constexpr int64_t kMostTimes = 1 << 30;

  Rules& rules_;
  const GoalOfSchema& goal_of_;
  const Vocabulary* vocabulary_;
  Budget& budget_;
  int max_depth_;
};

}  // namespace

Compiled<uint32_t> parse_structural_tag(const JsonValue& document, Rules& rules,
                                        const GoalOfSchema& goal_of, const Vocabulary* vocabulary,
                                        Budget& budget) {
  auto node = TagReader(rules, goal_of, vocabulary, budget).document(document);
  if (!node) return node;
  return rules.anonymous(*node);
}

}  // namespace penstock::grammar
