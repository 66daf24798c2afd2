#include "base/locale_free.h"

#include <clocale>
#include <cstdlib>

#if defined(__APPLE__)
#include <xlocale.h>
#endif

#include "base/check.h"

namespace penstock {
namespace {

locale_t c_locale() {
  static const locale_t locale = newlocale(LC_ALL_MASK, "C", nullptr);
  PENSTOCK_CHECK(locale != nullptr);
  return locale;
}

}  // namespace

double locale_free_strtod(const char* text, char** end) { return strtod_l(text, end, c_locale()); }

size_t locale_free_strftime(char* out, size_t size, const char* format, const std::tm* time) {
  return strftime_l(out, size, format, time, c_locale());
}

}  // namespace penstock
