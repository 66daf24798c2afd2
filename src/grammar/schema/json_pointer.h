// A position in a JSON document as a linked list of steps. A pointer's memory is that of its last
// step, however deep it is: prefixes are shared.
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace penstock::grammar {

// Immutable. Copies share their steps.
class JsonPointer {
 public:
  JsonPointer() = default;  // points to the document itself
  JsonPointer at(std::string_view key) const;
  JsonPointer at(size_t index) const { return at(std::to_string(index)); }
  // Returns a URI fragment, "#/properties/a~1b". A text longer than kMaxText bytes is cut in the
  // middle.
  std::string text() const;
  // compares identity: true for copies of one pointer
  bool operator==(const JsonPointer&) const = default;

  static constexpr size_t kMaxText = 4096;

 private:
  struct Step {
    std::shared_ptr<const Step> before;
    std::string key;
  };
  explicit JsonPointer(std::shared_ptr<const Step> last) : last_(std::move(last)) {}
  std::shared_ptr<const Step> last_;
};

// Appends a step to a JSON pointer in a URI fragment.
std::string append_pointer(std::string_view where, std::string_view token);

}  // namespace penstock::grammar
