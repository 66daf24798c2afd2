#include "base/system_certificates.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace penstock {
namespace {

namespace fs = std::filesystem;

TEST(SystemCertificates, AreWhereTheDistributionHasThem) {
  const fs::path root = fs::path(testing::TempDir()) / "system_certificates";
  fs::remove_all(root);
  EXPECT_EQ(system_certificates(root), "");
  const auto write = [&](const fs::path& place) {
    fs::create_directories((root / place).parent_path());
    std::ofstream(root / place) << "certificates";
    return (root / place).string();
  };
  const std::string fedora = write("etc/pki/tls/certs/ca-bundle.crt");
  EXPECT_EQ(system_certificates(root), fedora);
  fs::create_directories(root / "etc/ssl/certs/ca-certificates.crt");  // no file
  EXPECT_EQ(system_certificates(root), fedora);
  fs::remove_all(root / "etc/ssl");
  const std::string debian = write("etc/ssl/certs/ca-certificates.crt");
  EXPECT_EQ(system_certificates(root), debian);
  fs::remove_all(root);
}

}  // namespace
}  // namespace penstock
