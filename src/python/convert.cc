#include "python/convert.h"

#include <nanobind/stl/string.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

namespace penstock {
namespace {

constexpr int kDeepest = 100;

PyObject* engine_error = nullptr;

std::atomic<int> n_without_gil = 0;
std::atomic<bool> interpreter_ends = false;

PyObject* exception_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kContextOverflow:
    case ErrorCode::kCorruptFile:
    case ErrorCode::kUnsupported: return PyExc_ValueError;
    case ErrorCode::kNotFound: return PyExc_FileNotFoundError;
    case ErrorCode::kResourceExhausted: return PyExc_MemoryError;
    case ErrorCode::kIo: return PyExc_OSError;
    case ErrorCode::kDeadlineExceeded: return PyExc_TimeoutError;
    case ErrorCode::kCancelled:
    case ErrorCode::kInternal: break;
  }
  return engine_error != nullptr ? engine_error : PyExc_RuntimeError;
}

std::string name_of_type(nb::handle object) {
  return nb::cast<std::string>(
      nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()))).attr("__name__"));
}

[[noreturn]] void type_error(const std::string& where, const char* expected, nb::handle got) {
  throw nb::type_error(
      fmt::format("{}: expected {}, got {}", where, expected, name_of_type(got)).c_str());
}

// Clears the error that is expected of what was called; throws any other one.
void clear_error(PyObject* expected) {
  if (!PyErr_ExceptionMatches(expected)) throw nb::python_error();
  PyErr_Clear();
}

// UTF-8 of a string.
std::string text_of(nb::handle object, const std::string& where) {
  Py_ssize_t size = 0;
  if (const char* text = PyUnicode_AsUTF8AndSize(object.ptr(), &size))
    return {text, static_cast<size_t>(size)};
  clear_error(PyExc_UnicodeEncodeError);
  throw nb::value_error(fmt::format("{}: the string has a lone surrogate", where).c_str());
}

// The integer that a value is by __index__, which arrays of several values have and refuse.
nb::object index_of(nb::handle object, const std::string& where) {
  nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  if (index.is_valid()) return index;
  clear_error(PyExc_TypeError);
  type_error(where, "an integer", object);
}

nlohmann::ordered_json integer_of(nb::handle object, const std::string& where) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (overflow == 0) return value;
  const unsigned long long large = PyLong_AsUnsignedLongLong(object.ptr());
  if (PyErr_Occurred() == nullptr) return large;
  PyErr_Clear();
  throw nb::value_error(fmt::format("{}: the integer has more than 64 bits", where).c_str());
}

struct NestedValue {
  int depth = 0;
  bool bytes = false;  // bytes objects are allowed
  NestedValue inner() const { return {depth + 1, bytes}; }
};

nlohmann::ordered_json nested_json(nb::handle object, const std::string& where, NestedValue how);

nlohmann::ordered_json json_of_dict(const nb::dict& dict, const std::string& where,
                                    NestedValue how) {
  auto result = nlohmann::ordered_json::object();
  for (const auto& [key, value] : dict) {
    const bool text = nb::isinstance<nb::str>(key);
    if (!text && !PyLong_Check(key.ptr())) type_error(where, "strings as keys", key);
    std::string name = text_of(text ? nb::borrow(key) : nb::object(nb::str(key)), where);
    nlohmann::ordered_json member = nested_json(value, where + "." + name, how.inner());
    result[std::move(name)] = std::move(member);
  }
  return result;
}

nlohmann::ordered_json nested_json(nb::handle object, const std::string& where, NestedValue how) {
  if (how.depth > kDeepest)
    throw nb::value_error(fmt::format("{}: nested too deeply", where.substr(0, 60)).c_str());
  if (object.is_none()) return nullptr;
  if (PyBool_Check(object.ptr())) return object.ptr() == Py_True;
  if (PyLong_Check(object.ptr())) return integer_of(object, where);
  if (PyFloat_Check(object.ptr())) return PyFloat_AsDouble(object.ptr());
  if (nb::isinstance<nb::str>(object)) return text_of(object, where);
  if (nb::isinstance<nb::dict>(object))
    return json_of_dict(nb::borrow<nb::dict>(object), where, how);
  if (how.bytes && nb::isinstance<nb::bytes>(object)) {
    const auto* data = static_cast<const uint8_t*>(nb::borrow<nb::bytes>(object).data());
    return nlohmann::ordered_json::binary({data, data + PyBytes_Size(object.ptr())});
  }
  if (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object)) {
    auto list = nlohmann::ordered_json::array();
    for (const nb::handle item : object) list.push_back(nested_json(item, where, how.inner()));
    return list;
  }
  if (PyIndex_Check(object.ptr())) return integer_of(index_of(object, where), where);
  if (PyNumber_Check(object.ptr())) {
    const nb::object number = nb::steal(PyNumber_Float(object.ptr()));
    if (number.is_valid()) return PyFloat_AsDouble(number.ptr());
    PyErr_Clear();
  }
  type_error(where, "None, a boolean, a number, a string, a list or a dictionary", object);
}

template <class T>
T integer_in(nb::handle value, const std::string& where) {
  if (PyBool_Check(value.ptr()) || !PyIndex_Check(value.ptr()))
    type_error(where, "an integer", value);
  const nb::object index = index_of(value, where);
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  const auto least = static_cast<long long>(std::numeric_limits<T>::min());
  const auto most = static_cast<long long>(std::min<unsigned long long>(
      std::numeric_limits<T>::max(), std::numeric_limits<long long>::max()));
  if (overflow != 0 || number < least || number > most)
    throw nb::value_error(fmt::format("{}: expected an integer from {} to {}, got {}", where, least,
                                      most, nb::repr(value).c_str())
                              .c_str());
  return static_cast<T>(number);
}

void read_field(nb::handle value, const std::string& name, bool& out) {
  if (!PyBool_Check(value.ptr())) type_error(name, "a boolean", value);
  out = value.ptr() == Py_True;
}
void read_field(nb::handle value, const std::string& name, std::string& out) {
  if (!nb::isinstance<nb::str>(value)) type_error(name, "a string", value);
  out = text_of(value, name);
}
void read_field(nb::handle value, const std::string& name, double& out) {
  if (!PyFloat_Check(value.ptr()) && !PyLong_Check(value.ptr()))
    type_error(name, "a number", value);
  out = PyFloat_AsDouble(value.ptr());
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
}
template <class T>
void read_field(nb::handle value, const std::string& name, T& out) {
  out = integer_in<T>(value, name);
}

}  // namespace

void set_engine_error(nb::handle type) { engine_error = type.ptr(); }

WithoutGil::WithoutGil() {
  if (interpreter_ends) raise({ErrorCode::kInternal, "the interpreter is ending"});
  n_without_gil.fetch_add(1);
  state_ = PyEval_SaveThread();
}

WithoutGil::WithoutGil(std::nothrow_t) : state_(nullptr) {
  if (interpreter_ends) return;
  n_without_gil.fetch_add(1);
  state_ = PyEval_SaveThread();
}

WithoutGil::~WithoutGil() {
  if (state_ == nullptr) return;
  PyEval_RestoreThread(state_);
  n_without_gil.fetch_sub(1);
}

void end_of_interpreter(double seconds) {
  interpreter_ends = true;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  const nb::gil_scoped_release release;
  while (n_without_gil > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void raise(const Error& error) {
  PyErr_SetString(exception_of(error.code), error.message.c_str());
  throw nb::python_error();
}

nlohmann::ordered_json json_of(nb::handle object, const std::string& where, bool bytes) {
  return nested_json(object, where, {0, bytes});
}

nb::object object_of(const nlohmann::ordered_json& value) {
  using Kind = nlohmann::ordered_json::value_t;
  switch (value.type()) {
    case Kind::boolean: return nb::bool_(value.get<bool>());
    case Kind::number_integer: return nb::int_(value.get<int64_t>());
    case Kind::number_unsigned: return nb::int_(value.get<uint64_t>());
    case Kind::number_float: return nb::float_(value.get<double>());
    case Kind::string: return nb::cast(value.get<std::string>());
    case Kind::array: {
      nb::list list;
      for (const auto& item : value) list.append(object_of(item));
      return list;
    }
    case Kind::object: {
      nb::dict dict;
      for (const auto& [key, item] : value.items()) dict[key.c_str()] = object_of(item);
      return dict;
    }
    default: return nb::none();
  }
}

EngineConfig config_of(const nb::dict& fields) {
  EngineConfig config;
  nb::set left;
  for (const auto& [key, value] : fields) left.add(key);
  EngineConfig::visit(config, [&](const char* name, auto& field, const char*) {
    if (!fields.contains(name)) return;
    left.discard(nb::str(name));
    read_field(fields[name], name, field);
  });
  for (const nb::handle key : left)
    throw nb::type_error(
        fmt::format("{}: there is no such setting", nb::repr(key).c_str()).c_str());
  return config;
}

nb::dict dict_of(const EngineConfig& config) {
  nb::dict fields;
  EngineConfig::visit(config, [&](const char* name, const auto& field, const char*) {
    fields[name] = nb::cast(field);
  });
  return fields;
}

std::vector<TokenId> ids_of(nb::handle object) {
  std::vector<TokenId> ids;
  for (const nb::handle item : object) {
    if (PyBool_Check(item.ptr()) || !PyIndex_Check(item.ptr()))
      type_error("prompt_token_ids", "integers", item);
    ids.push_back(integer_in<TokenId>(item, "prompt_token_ids"));
  }
  return ids;
}

nb::list list_of(std::span<const TokenId> ids) {
  nb::list list;
  for (const TokenId id : ids) list.append(nb::int_(id));
  return list;
}

Prompt prompt_of(nb::handle object) {
  if (nb::isinstance<nb::str>(object)) return text_of(object, "prompt");
  return ids_of(object);
}

nb::list list_of(std::span<const TokenLogprob> row) {
  nb::list list;
  for (const TokenLogprob& each : row)
    list.append(nb::make_tuple(each.token, each.logprob, each.rank));
  return list;
}

}  // namespace penstock
