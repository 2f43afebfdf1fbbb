// GGUF metadata: any bytes are an error or a model whose hyperparameters, tensors and vocabulary passed every check.
#include "input.h"
#include "model/architectures/architecture.h"
#include "model/vocabulary_check.h"
#include "model/weights/gguf_file.h"
#include "model/weights/weights.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace shale;
  Input input(data, size);
  const auto file = GgufFile::parse(input.bytes());
  if (!file) return 0;
  for (const GgufTensor& tensor : (*file)->tensors()) {
    check(tensor.data.data() + tensor.data.size() <= input.bytes().data() + size);
  }
  if (check_vocabulary(**file)) (void)(*file)->text("tokenizer.chat_template");
  if (const auto hyper = read_hyperparameters(**file)) (void)FileTensors::find(**file, *hyper);
  return 0;
}
