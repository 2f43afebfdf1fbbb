// Reads a request of HTTP/1.1 or 1.0 from bytes as they come (RFC 9112).
//
// It is strict wherever two readers of the same bytes could disagree on where a request ends, which is how requests are
// smuggled past a proxy: line ends other than CRLF, folded lines, blanks around a field's name, two lengths or both
// kinds of them, transfer codings other than `chunked`, lengths that are no plain number. All of these are errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "http/http_message.h"

namespace shale {

// One request. Pure; any bytes are a request within the limits or a failure, at a cost linear in their number. How they
// are cut into pieces makes no difference.
class HttpParser {
 public:
  // `limits` must outlive the parser.
  explicit HttpParser(const HttpLimits& limits) : limits_(limits) {}

  enum class Stage { kHead, kBody, kWhole, kFailed };

  // Takes what belongs to this request from the front of `bytes` and returns how many it took. Stops wherever the stage
  // changes, so that a head can be looked at before its body is read; call it again, with nothing where there is
  // nothing more. From kWhole and kFailed on it takes nothing.
  std::size_t feed(std::string_view bytes);

  Stage stage() const { return stage_; }
  bool begun() const { return stage_ != Stage::kHead || !line_.empty() || head_bytes_ > 0; }
  // The request, from kBody on without, from kWhole on with its body.
  const HttpRequest& request() const { return request_; }
  HttpRequest& request() { return request_; }
  bool has_body() const { return chunked_ || body_left_ > 0 || !request_.body.empty(); }
  const HttpFailure& failure() const { return failure_; }

 private:
  // What of a chunked body is next.
  enum class Part { kSize, kData, kDataEnd, kTrailer };

  bool fail(int status, std::string message);
  bool read_line(std::string_view& bytes);
  bool head_line();
  bool request_line();
  bool target(std::string_view text);
  bool field_line();
  bool begin_body();
  void read_plain(std::string_view& bytes);
  void read_chunked(std::string_view& bytes);
  bool chunk_size();
  void take_data(std::string_view& bytes);

  const HttpLimits& limits_;
  Stage stage_ = Stage::kHead;
  HttpRequest request_;
  HttpFailure failure_;
  std::string line_;            // what has come of the line that is being read
  std::size_t head_bytes_ = 0;  // of head, or of trailers
  std::uint32_t head_lines_ = 0;
  std::string authority_;  // of an absolute target
  bool chunked_ = false;
  Part part_ = Part::kSize;
  std::uint64_t body_left_ = 0;    // of the body or, of a chunked one, the chunk
  std::size_t framing_bytes_ = 0;  // of a chunked body beside its data
};

}  // namespace shale
