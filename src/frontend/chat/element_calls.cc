// Arguments that are elements of their names, one inside of the other where values are lists or
// objects.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text_hash.h"
#include "frontend/chat/exact_json.h"
#include "frontend/chat/marked_parser.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;
using Step = CallStream::Step;

constexpr size_t kMostElements = 64;  // inside each other; deeper ones are text
constexpr size_t kMostElementName = 256;
// Holds the text of an element beside the elements in it.
constexpr const char* kMixedText = "$text";

struct ElementChild {
  std::string name;
  Json value;
};

// An element whose end has not come.
struct OpenElement {
  std::string name;
  std::optional<ParameterType> type;  // nullopt: not known
  // All up to its end is one string.
  bool is_text = false;
  std::string text = {};
  std::vector<ElementChild> children = {};
};

// Returns the type of an element inside of one of type `outer`.
std::optional<ParameterType> type_inside(const std::optional<ParameterType>& outer,
                                         const std::string& name) {
  using namespace json_types;
  if (!outer || outer->inner == nullptr) return std::nullopt;
  const InnerTypes& inner = *outer->inner;
  if (const auto member = inner.members.find(name); member != inner.members.end())
    return member->second;
  const bool in_list = (outer->types & kArray) != 0 && inner.items;
  return in_list ? inner.items : inner.others;
}

// Members of one name become a list.
Json element_object(std::vector<ElementChild> children) {
  Json::object_t object;
  object.reserve(children.size());
  ViewMap<size_t> places;
  std::vector<int> counts;
  for (ElementChild& child : children) {
    const auto [place, is_new] = places.try_emplace(child.name, object.size());
    if (is_new) {
      object.emplace_back(child.name, std::move(child.value));
      counts.push_back(1);
      continue;
    }
    Json& known = (object.begin() + static_cast<ptrdiff_t>(place->second))->second;
    if (++counts[place->second] == 2) {
      Json::array_t list;
      list.push_back(std::move(known));
      known = std::move(list);
    }
    known.push_back(std::move(child.value));
  }
  return object;
}

Json element_list(std::vector<ElementChild> children) {
  Json::array_t list;
  list.reserve(children.size());
  for (ElementChild& child : children) list.push_back(std::move(child.value));
  return list;
}

// Returns the value of an element without elements in it.
Json element_leaf(std::string_view text, const std::optional<ParameterType>& type) {
  using namespace json_types;
  if (!type) return parameter_value(text, kAny);
  if ((type->types & kString) == 0 && is_space_only(text)) {
    if ((type->types & kArray) != 0) return Json::array();
    if ((type->types & kObject) != 0) return Json::object();
    if ((type->types & kNull) != 0) return nullptr;
  }
  return parameter_value(text, type->types);
}

// Value of an element by its type. Where a list and an object are allowed, elements that are all named
// as items are a list.
Json element_value(OpenElement element) {
  using namespace json_types;
  std::vector<ElementChild>& children = element.children;
  if (children.empty()) return element_leaf(element.text, element.type);
  if (!is_space_only(element.text)) children.push_back({kMixedText, std::move(element.text)});
  const JsonTypes types = element.type ? element.type->types : kAny;
  const bool list = (types & kArray) != 0, object = (types & kObject) != 0;
  const bool items = std::ranges::all_of(
      children, [](const ElementChild& child) { return child.name == kItemElement; });
  return list == object
             ? (items ? element_list(std::move(children)) : element_object(std::move(children)))
         : list ? element_list(std::move(children))
                : element_object(std::move(children));
}

// Strings that stand beside no other value are emitted as they come, other values when they end.
class ElementStream final : public ArgumentStream {
 public:
  ElementStream(const CallFormat& format, const CallWriting& writing,
                const ParameterTypes::mapped_type* types)
      : format_(format),
        marks_(writing.parameters),
        opens_{marks_.open},
        call_end_(writing.call_end),
        types_(types) {}

  Step read(std::string& text, std::string& arguments) override {
    const std::string& open = marks_.open;
    for (;;) {
      const size_t hit = text.find(open);
      const size_t n = std::min(hit, text.size() - held_back(text, opens_));
      take(std::string_view(text).substr(0, n), arguments);
      text.erase(0, n);
      if (hit == std::string::npos) return Step::kMore;
      const size_t longest = open.size() + 1 + kMostElementName + marks_.name_end.size();
      const size_t end =
          std::string_view(text).substr(0, longest).find(marks_.name_end, open.size());
      if (end == std::string::npos && text.size() < longest) return Step::kMore;
      const auto name = end == std::string::npos
                            ? std::string_view()
                            : std::string_view(text).substr(open.size(), end - open.size());
      if (const auto over = tag(name, text, arguments)) return *over;
    }
  }

 private:
  // Reads what stands at the beginning of the text; no name: it is no tag. nullopt: goes on.
  std::optional<Step> tag(std::string_view name, std::string& text, std::string& arguments) {
    const size_t behind = marks_.open.size() + name.size() + marks_.name_end.size();
    const bool closes = name.starts_with('/');
    if (closes && close_element(name.substr(1), arguments)) {
      text.erase(0, behind);
      return std::nullopt;
    }
    const auto begins = [&](const std::string& mark) { return text.starts_with(mark); };
    if (begins(call_end_)) return finish(text, call_end_.size(), arguments);
    const bool in_text = !open_.empty() && open_.back().is_text;
    if (std::ranges::any_of(format_.close, begins) ||
        (!in_text && std::ranges::any_of(format_.open, begins)))
      return finish(text, 0, arguments);
    const bool is_name = !name.empty() && !closes && name.find_first_of("<\n") == name.npos;
    if (is_name && !in_text && open_.size() < kMostElements) {
      open_element(std::string(name), arguments);
      text.erase(0, behind);
    } else {
      take(marks_.open, arguments);
      text.erase(0, marks_.open.size());
    }
    return std::nullopt;
  }

  Step finish(std::string& text, size_t end, std::string& arguments) {
    while (!open_.empty()) close_last(arguments);
    text.erase(0, end);
    arguments += any_ ? "}" : "{}";
    return Step::kDone;
  }

  void open_element(std::string name, std::string& arguments) {
    using namespace json_types;
    std::optional<ParameterType> type;
    if (!open_.empty()) {
      type = type_inside(open_.back().type, name);
    } else if (types_ != nullptr) {
      if (const auto known = types_->find(name); known != types_->end()) type = known->second;
    }
    open_.push_back({std::move(name), std::move(type)});
    if (open_.back().type && open_.back().type->types == kString) become_text(arguments);
  }

  void become_text(std::string& arguments) {
    OpenElement& element = open_.back();
    element.is_text = true;
    if (open_.size() > 1) return;
    begin_member(element.name, arguments);
    arguments += '"';
    give(std::exchange(element.text, {}), arguments);
  }

  // Takes text that is no tag. Between parameters it is left out.
  void take(std::string_view piece, std::string& arguments) {
    using namespace json_types;
    if (open_.empty() || piece.empty()) return;
    OpenElement& element = open_.back();
    if (element.is_text && open_.size() == 1) return give(piece, arguments);
    element.text += piece;
    if (element.is_text || !element.type || !element.children.empty()) return;
    const JsonTypes types = element.type->types;
    if ((types & kString) != 0 && (types & (kArray | kObject)) == 0 &&
        is_parameter_text(element.text, types))
      become_text(arguments);
  }

  static void give(std::string_view piece, std::string& arguments) {
    for (const char c : piece) append_escaped(c, arguments);
  }

  // Ends the innermost open element of this name, and with it those inside of it. False: there is
  // none.
  bool close_element(std::string_view name, std::string& arguments) {
    const auto last = std::find_if(open_.rbegin(), open_.rend(), [&](const OpenElement& element) {
      return element.name == name;
    });
    if (last == open_.rend()) return false;
    for (auto n = last - open_.rbegin() + 1; n > 0; --n) close_last(arguments);
    return true;
  }

  void close_last(std::string& arguments) {
    OpenElement element = std::move(open_.back());
    open_.pop_back();
    if (element.is_text && open_.empty()) {
      arguments += '"';
      return;
    }
    std::string name = element.name;
    Json value =
        element.is_text ? Json(std::move(element.text)) : element_value(std::move(element));
    if (!open_.empty()) {
      open_.back().children.push_back({std::move(name), std::move(value)});
      return;
    }
    begin_member(name, arguments);
    arguments += dump_exact(value);
  }

  void begin_member(const std::string& name, std::string& arguments) {
    arguments += std::exchange(any_, true) ? ',' : '{';
    arguments += Json(name).dump(-1, ' ', false, Json::error_handler_t::replace) + ":";
  }

  const CallFormat& format_;
  const ParameterMarks& marks_;
  const std::vector<std::string> opens_;  // the mark before a name
  const std::string& call_end_;
  const ParameterTypes::mapped_type* types_;
  std::vector<OpenElement> open_;
  bool any_ = false;  // a parameter was emitted
};

}  // namespace

std::unique_ptr<ArgumentStream> element_arguments(const CallFormat& format,
                                                  const CallWriting& writing,
                                                  const ParameterTypes::mapped_type* types) {
  return std::make_unique<ElementStream>(format, writing, types);
}

}  // namespace penstock
