// Where something stands in a JSON document, kept as steps: a place takes as much memory as its
// last step, however deep it is.
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace penstock::grammar {

// A value: copies share their steps.
class JsonPointer {
 public:
  JsonPointer() = default;  // the document itself
  JsonPointer at(std::string_view key) const;
  JsonPointer at(size_t index) const { return at(std::to_string(index)); }
  // As a URI fragment, "#/properties/a~1b". Its middle is left out where it has more than kMaxText
  // bytes.
  std::string text() const;
  bool operator==(const JsonPointer&) const = default;  // whether they are copies of one

  static constexpr size_t kMaxText = 4096;

 private:
  struct Step {
    std::shared_ptr<const Step> before;
    std::string key;
  };
  explicit JsonPointer(std::shared_ptr<const Step> last) : last_(std::move(last)) {}
  std::shared_ptr<const Step> last_;
};

// One more step of a JSON pointer in a URI fragment.
std::string append_pointer(std::string_view where, std::string_view token);

}  // namespace penstock::grammar
