#include "io/s3_xml.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "core/parsing.h"

namespace shale {
namespace {

constexpr std::size_t kElementDepthMax = 16;

void append_utf8(std::string& text, std::uint32_t code) {
  const auto byte = [&text](std::uint32_t value) { text += static_cast<char>(value); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | code >> 6);
    byte(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  } else {
    byte(0xf0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3f));
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  }
}

// "amp", "#38" or "#x26": between & and ;
bool append_reference(std::string& text, std::string_view name) {
  constexpr std::pair<std::string_view, char> kNamed[] = {
      {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
  for (const auto& [known, character] : kNamed) {
    if (name == known) return text += character, true;
  }
  if (!name.starts_with('#')) return false;
  const bool hexadecimal = name.starts_with("#x");
  name.remove_prefix(hexadecimal ? 2 : 1);
  const auto code = parse_integer<std::uint32_t>(name, hexadecimal ? 16 : 10);
  if (!code || *code == 0 || *code > 0x10ffff) return false;
  append_utf8(text, *code);
  return true;
}

class XmlScanner {
 public:
  // Where an element ends: its path from the root, "ListBucketResult/Contents/Key", and its character data.
  using Visit = std::function<void(std::string_view path, const std::string& text)>;

  explicit XmlScanner(std::string_view text) : rest_(text) {}

  bool scan(const Visit& visit) {
    while (!rest_.empty()) {
      if (!(rest_.starts_with('<') ? markup(visit) : character_data())) return false;
    }
    return ends_.empty() && seen_root_;
  }

 private:
  bool skip_behind(std::string_view mark) {
    const std::size_t at = rest_.find(mark);
    if (at == std::string_view::npos) return false;
    rest_.remove_prefix(at + mark.size());
    return true;
  }

  bool character_data() {
    std::string_view data = rest_.substr(0, rest_.find('<'));
    rest_.remove_prefix(data.size());
    while (!data.empty()) {
      const std::size_t reference = data.find('&');
      text_ += data.substr(0, reference);
      if (reference == std::string_view::npos) break;
      const std::size_t end = data.find(';', reference);
      if (end == std::string_view::npos || !append_reference(text_, data.substr(reference + 1, end - reference - 1))) {
        return false;
      }
      data.remove_prefix(end + 1);
    }
    return true;
  }

  bool markup(const Visit& visit) {
    if (rest_.starts_with("<?")) return skip_behind("?>");
    if (rest_.starts_with("<!--")) return skip_behind("-->");
    if (rest_.starts_with("<!")) return false;  // no entities of the server's own
    const std::size_t end = rest_.find('>');
    if (end == std::string_view::npos) return false;
    std::string_view tag = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    if (tag.starts_with('/')) return close(tag.substr(1), visit);
    const bool empty = tag.ends_with('/');
    if (empty) tag.remove_suffix(1);
    const std::string_view name = tag.substr(0, tag.find_first_of(" \t\r\n"));
    if (name.empty() || ends_.size() == kElementDepthMax || (ends_.empty() && seen_root_)) return false;
    seen_root_ = true;
    ends_.push_back(path_.size());
    if (!path_.empty()) path_ += '/';
    path_ += name;
    text_.clear();
    return !empty || close(name, visit);
  }

  bool close(std::string_view name, const Visit& visit) {
    name = name.substr(0, name.find_first_of(" \t\r\n"));
    if (ends_.empty() || std::string_view(path_).substr(ends_.back() + (ends_.back() > 0)) != name) return false;
    visit(path_, text_);
    path_.resize(ends_.back());
    ends_.pop_back();
    text_.clear();
    return true;
  }

  std::string_view rest_;
  std::string path_;
  std::string text_;
  std::vector<std::size_t> ends_;  // of the path that each open element is in
  bool seen_root_ = false;
};

}  // namespace

Result<S3Listing> parse_s3_listing(std::string_view xml) {
  S3Listing listing;
  S3Listing::Object object;
  bool is_list = false, more = false, sound = true;
  const bool whole = XmlScanner(xml).scan([&](std::string_view path, const std::string& text) {
    if (path == "ListBucketResult") is_list = true;
    if (path == "ListBucketResult/IsTruncated") more = text == "true";
    if (path == "ListBucketResult/NextContinuationToken") listing.next = text;
    if (path == "ListBucketResult/Contents/Key") object.key = text;
    if (path == "ListBucketResult/Contents/Size") {
      const auto bytes = parse_integer<std::uint64_t>(text);
      sound &= bytes.has_value();
      object.bytes = bytes.value_or(0);
    }
    if (path == "ListBucketResult/Contents") {
      sound &= !object.key.empty();
      listing.objects.push_back(std::exchange(object, {}));
    }
  });
  if (!whole || !is_list || !sound) return fail(ErrorCode::kCorrupt, "what the server answered is no list of objects");
  if (!more) listing.next.clear();
  if (more && listing.next.empty()) {
    return fail(ErrorCode::kCorrupt, "the server says that its list of objects goes on, and not where");
  }
  return listing;
}

S3Complaint parse_s3_complaint(std::string_view xml) {
  S3Complaint complaint;
  const bool whole = XmlScanner(xml).scan([&](std::string_view path, const std::string& text) {
    if (path == "Error/Code") complaint.code = text;
    if (path == "Error/Message") complaint.message = text;
    if (path == "Error/Region") complaint.region = text;
  });
  return whole ? complaint : S3Complaint{};
}

}  // namespace shale
