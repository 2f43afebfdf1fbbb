#include "core/user_folder.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

namespace shale {

std::filesystem::path user_folder(const char* variable, const char* fallback) {
  if (const char* base = std::getenv(variable); base && *base) return std::filesystem::path(base) / "shale";
  const char* home = std::getenv("HOME");
  if (!home || !*home) {
    const passwd* user = getpwuid(getuid());
    home = user ? user->pw_dir : "/";
  }
  return std::filesystem::path(home) / fallback / "shale";
}

}  // namespace shale
