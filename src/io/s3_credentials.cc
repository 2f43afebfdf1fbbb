#include "io/s3_credentials.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "core/parsing.h"

namespace shale {
namespace {

using Section = std::map<std::string, std::string, std::less<>>;

// What one section of an INI file holds; nothing where the file or the section is not there. Indented lines belong to
// the line above them, of which none is of use here.
Section read_section(const std::filesystem::path& file, std::string_view wanted) {
  Section values;
  std::ifstream in(file);
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    const std::string text(trimmed(line));
    if (text.empty() || text[0] == '#' || text[0] == ';' || line[0] == ' ' || line[0] == '\t') continue;
    if (text.front() == '[' && text.back() == ']') {
      inside = trimmed(std::string_view(text).substr(1, text.size() - 2)) == wanted;
    } else if (const std::size_t equals = text.find('='); inside && equals != std::string::npos) {
      values[std::string(trimmed(std::string_view(text).substr(0, equals)))] =
          trimmed(std::string_view(text).substr(equals + 1));
    }
  }
  return values;
}

std::string value_of(const Section& section, std::string_view name) {
  const auto at = section.find(name);
  return at == section.end() ? std::string() : at->second;
}

struct Files {
  std::filesystem::path credentials, config;
};

Files files_of(const Environment& environment) {
  const std::filesystem::path home = std::filesystem::path(environment("HOME").value_or("/")) / ".aws";
  const auto or_else = [&](const char* name, const char* file) {
    const auto named = environment(name);
    return named ? std::filesystem::path(*named) : home / file;
  };
  return {or_else("AWS_SHARED_CREDENTIALS_FILE", "credentials"), or_else("AWS_CONFIG_FILE", "config")};
}

}  // namespace

std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return value;
}

Result<S3Setup> find_s3_setup(std::string_view wanted, const Environment& environment) {
  const auto profile = wanted.empty() ? environment("AWS_PROFILE").value_or("default") : std::string(wanted);
  const Files files = files_of(environment);
  const Section config = read_section(files.config, profile == "default" ? profile : "profile " + profile);
  S3Setup setup;
  const auto first_of = [&](std::initializer_list<const char*> names, std::string_view of_profile) {
    for (const char* name : names) {
      if (auto value = environment(name)) return *value;
    }
    return value_of(config, of_profile);
  };
  setup.region = first_of({"AWS_REGION", "AWS_DEFAULT_REGION"}, "region");
  setup.endpoint = first_of({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, "endpoint_url");

  const auto access = environment("AWS_ACCESS_KEY_ID"), secret = environment("AWS_SECRET_ACCESS_KEY");
  if (wanted.empty() && (access || secret)) {
    if (!access || !secret) {
      return fail(ErrorCode::kInvalidArgument, "{} is set and {} is not: set both, or neither for ~/.aws/credentials",
                  access ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                  access ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
    }
    setup.credentials = {*access, *secret, environment("AWS_SESSION_TOKEN").value_or("")};
    setup.found = "the environment";
    return setup;
  }
  const Section credentials = read_section(files.credentials, profile);
  for (const auto& [section, file] : {std::pair(&credentials, &files.credentials), std::pair(&config, &files.config)}) {
    setup.credentials = {value_of(*section, "aws_access_key_id"), value_of(*section, "aws_secret_access_key"),
                         value_of(*section, "aws_session_token")};
    setup.found = fmt::format("profile '{}' of {}", profile, file->string());
    if (!setup.credentials.access_key.empty() && !setup.credentials.secret_key.empty()) return setup;
  }
  return fail(ErrorCode::kInvalidArgument,
              "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write aws_access_key_id "
              "and aws_secret_access_key below [{}] in {}",
              profile, files.credentials.string());
}

}  // namespace shale
