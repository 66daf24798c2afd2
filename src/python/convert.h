// Conversion between Python objects and types of the engine. REQUIRES: the GIL.
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

// Raises the Python exception for an error: ValueError (arguments, corrupt or unsupported files),
// FileNotFoundError, MemoryError, OSError, TimeoutError, EngineError.
[[noreturn]] void raise(const Error& error);
void set_engine_error(nb::handle type);

// Releases the GIL for the object's lifetime. The interpreter waits for threads without the GIL
// before it ends (end_of_interpreter()), after which no thread is admitted: a thread that
// re-acquired the GIL later would be terminated inside C++.
class WithoutGil {
 public:
  // raises EngineError when the interpreter is ending
  WithoutGil();
  explicit WithoutGil(std::nothrow_t);  // keeps the GIL if the interpreter is ending
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};
// Refuses new sections without the GIL, and waits at most `seconds` for the current ones.
void end_of_interpreter(double seconds);

// Returns the value or raises its exception. Release the GIL inside `make`, not around this call.
template <class T>
T value_of(Result<T> result) {
  if (!result) raise(result.error());
  return std::move(*result);
}
inline void check(const Status& status) {
  if (!status) raise(status.error());
}

// Converts None, booleans, numbers (also numpy's), strings, lists, tuples, and dictionaries with
// string or integer keys; with `bytes`, bytes objects, as binary values. TypeError: another type, or
// nesting deeper than 100; `where` names the value.
nlohmann::ordered_json json_of(nb::handle object, const std::string& where, bool bytes = false);
nb::object object_of(const nlohmann::ordered_json& value);

// Converts fields named as in EngineConfig::visit(). TypeError: unknown names or types.
EngineConfig config_of(const nb::dict& fields);
nb::dict dict_of(const EngineConfig& config);

// Ids from a list, tuple or anything that is iterable. TypeError, ValueError.
std::vector<TokenId> ids_of(nb::handle object);
nb::list list_of(std::span<const TokenId> ids);

// Converts a text or ids.
Prompt prompt_of(nb::handle object);

// Returns [(token id, logprob, rank), ...], the token first.
nb::list list_of(std::span<const TokenLogprob> row);

}  // namespace penstock
