#include "base/system_certificates.h"

#include <system_error>

namespace penstock {

std::string system_certificates(const std::filesystem::path& root) {
  constexpr const char* kPlaces[] = {
      "etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch, Gentoo
      "etc/pki/tls/certs/ca-bundle.crt",                   // Fedora, RHEL, Amazon Linux
      "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // RHEL without the link above
      "etc/ssl/ca-bundle.pem",                             // openSUSE
      "etc/ssl/cert.pem",                                  // Alpine, the BSDs, macOS
  };
  std::error_code ignored;
  for (const char* place : kPlaces) {
    const std::filesystem::path path = root / place;
    if (std::filesystem::is_regular_file(path, ignored)) return path.string();
  }
  return "";
}

}  // namespace penstock
