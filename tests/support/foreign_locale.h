// A locale of another country for the length of a test.
#pragma once
#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace penstock::test {

// Compiles a locale (glibc's localedef) with the 8-bit characters of ISO 8859-9 and makes it the
// process's, as locale.setlocale() in a Python program does: in "de_DE" 0.5 is written 0,5 and 0xE9
// is a letter, in "tr_TR" tolower('I') is no ASCII character.
class ForeignLocale {
 public:
  explicit ForeignLocale(const std::string& name) {
    folder_ =
        std::filesystem::temp_directory_path() / ("penstock_locale_" + std::to_string(getpid()));
    const std::string path = (folder_ / name).string();
    std::filesystem::create_directories(folder_);
    const std::string command =
        "localedef -c -i " + name + " -f ISO-8859-9 " + path + " >/dev/null 2>&1";
    (void)!std::system(command.c_str());
    setenv("LOCPATH", folder_.c_str(), 1);
    is_set_ = std::setlocale(LC_ALL, name.c_str()) != nullptr;
    unsetenv("LOCPATH");
  }
  ForeignLocale(const ForeignLocale&) = delete;
  ForeignLocale& operator=(const ForeignLocale&) = delete;
  ~ForeignLocale() {
    std::setlocale(LC_ALL, "C");
    std::filesystem::remove_all(folder_);
  }

  // Returns false where the system has no sources of locales (Debian's package "locales").
  bool is_set() const { return is_set_; }

 private:
  std::filesystem::path folder_;
  bool is_set_ = false;
};

}  // namespace penstock::test
