// Functions of C as the locale "C" has them, whatever the process's locale is: in a Python program
// that calls locale.setlocale(locale.LC_ALL, "de_DE"), std::strtod("0.5") is 0.
#pragma once
#include <cstddef>
#include <ctime>

namespace penstock {

// std::strtod: leading space is passed over, *end (unless null) is where the number ends.
double locale_free_strtod(const char* text, char** end);

// std::strftime, with English names of days and months.
size_t locale_free_strftime(char* out, size_t size, const char* format, const std::tm* time);

}  // namespace penstock
