// Bytes from a connection: a request within the limits or a failure, however they are cut; and a request says the same
// when it is written down plainly and read again.
#include <algorithm>
#include <string>

#include "http/http_access.h"
#include "http/http_parser.h"
#include "input.h"

namespace {

using namespace shale;
using Stage = HttpParser::Stage;

constexpr HttpLimits kLimits = {.head_bytes = 400, .head_lines = 8, .body_bytes = 200};

struct Read {
  Stage stage;
  HttpRequest request;
  int status;
  std::size_t taken;
};

Read read(std::string_view bytes, std::size_t piece) {
  HttpParser parser(kLimits);
  std::size_t taken = 0, given = 0;
  for (;;) {
    const Stage before = parser.stage();
    const std::size_t count = parser.feed(bytes.substr(taken, given - taken));
    check(count <= given - taken);
    taken += count;
    if (parser.stage() == Stage::kWhole || parser.stage() == Stage::kFailed) break;
    if (parser.stage() != before || taken < given) continue;
    if (given == bytes.size()) break;
    given = std::min(given + piece, bytes.size());
  }
  return {parser.stage(), parser.request(), parser.failure().status, taken};
}

bool plain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) >= ' ' || c == '\t'; });
}

void check_request(const HttpRequest& request) {
  check(!request.method.empty() && (request.path.starts_with('/') || request.path == "*"));
  check(request.path.find('\0') == std::string::npos);
  check(request.fields.size() <= kLimits.head_lines && request.body.size() <= kLimits.body_bytes);
  for (const auto& [name, value] : request.fields) {
    check(!name.empty() && name.find_first_of(" \t:ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string::npos);
    check(plain(value) && !value.starts_with(' ') && !value.ends_with(' '));
  }
  const std::vector<std::string> names = {"allowed.example"};
  if (const auto failure = refuse_foreign(request, names)) check(failure->status == 403 && !failure->message.empty());
}

std::string written(const HttpRequest& request) {
  std::string text = request.method + " /";
  for (const char c : request.path.substr(1)) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += '%';
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  text += request.version_1_1 ? " HTTP/1.1\r\n" : " HTTP/1.0\r\n";
  for (const auto& [name, value] : request.fields) {
    if (name != "content-length" && name != "transfer-encoding") text += name + ": " + value + "\r\n";
  }
  return text + "Content-Length: " + std::to_string(request.body.size()) + "\r\n\r\n" + request.body;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Read whole = read(bytes, size + 1), cut = read(bytes, 1 + size % 7);
  check(whole.stage == cut.stage && whole.status == cut.status);
  if (whole.stage == Stage::kFailed) check(whole.status >= 400 && whole.status < 600);
  if (whole.stage != Stage::kWhole) return 0;
  check(whole.taken == cut.taken && whole.request.body == cut.request.body);
  check_request(whole.request);
  const std::string again = written(whole.request);
  if (again.size() > kLimits.head_bytes || whole.request.path == "*") return 0;
  const Read same = read(again + "GET", 3);
  if (same.stage == Stage::kFailed) check(same.status == 431);
  if (same.stage == Stage::kFailed) return 0;
  check(same.stage == Stage::kWhole && same.taken == again.size());
  check(same.request.path == whole.request.path && same.request.body == whole.request.body);
  return 0;
}
