// Between Python's objects and what the layers below take. With the GIL only.
#pragma once
#include <nanobind/nanobind.h>

#include <new>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "penstock/engine_config.h"
#include "penstock/llm.h"

namespace penstock {

namespace nb = nanobind;

// Raises the exception that stands for the error: ValueError (arguments, files that are corrupt or
// not supported), FileNotFoundError, MemoryError, OSError, TimeoutError, EngineError.
[[noreturn]] void raise(const Error& error);
void set_engine_error(nb::handle type);

// Without the GIL for as long as this lives. The interpreter waits for those who are without it
// before it ends (end_of_interpreter), and no one is let in from then on: a thread that came back
// after the end would be torn down within C++.
class WithoutGil {
 public:
  // raises EngineError when the interpreter is ending
  WithoutGil();
  explicit WithoutGil(std::nothrow_t);  // keeps the GIL then
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};
// Lets nobody in any more, and waits at most so long for those who are.
void end_of_interpreter(double seconds);

// The value, or its exception. Release the GIL inside `make`, not around this.
template <class T>
T value_of(Result<T> result) {
  if (!result) raise(result.error());
  return std::move(*result);
}
inline void check(const Status& status) {
  if (!status) raise(status.error());
}

// None, booleans, numbers (also numpy's), strings, lists, tuples and dictionaries with strings or
// integers as keys. TypeError for others, and for what is nested deeper than 100 times; `where`
// names it.
nlohmann::ordered_json json_of(nb::handle object, const std::string& where);
nb::object object_of(const nlohmann::ordered_json& value);

// Fields by their names, those of EngineConfig::visit(). TypeError for other names and types.
EngineConfig config_of(const nb::dict& fields);
nb::dict dict_of(const EngineConfig& config);

// Ids from a list, tuple or anything that is iterable. TypeError, ValueError.
std::vector<TokenId> ids_of(nb::handle object);
nb::list list_of(std::span<const TokenId> ids);

// A text, or ids.
Prompt prompt_of(nb::handle object);

// [(token id, logprob, rank), ...], the token first.
nb::list list_of(std::span<const TokenLogprob> row);

}  // namespace penstock
