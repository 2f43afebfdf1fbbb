// Where weights lie that are read from end to end for every token: memory in huge pages, which are faster to read
// through than small ones.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

namespace shale {

class WeightMemory {
 public:
  // Bytes at a multiple of 64 that stay where they are while this lives, also when it is moved. Throws std::bad_alloc.
  std::byte* allocate(std::size_t bytes);

 private:
  struct Free {
    void operator()(std::byte* pointer) const { std::free(pointer); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> chunks_;
  std::size_t used_ = 0, chunk_bytes_ = 0;  // of the last chunk
};

}  // namespace shale
