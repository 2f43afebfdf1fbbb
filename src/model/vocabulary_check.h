#pragma once

#include "core/error.h"
#include "model/weights/gguf_file.h"

namespace shale {

// Whether libllama can read the file's vocabulary without tripping over it: it asserts what a hostile file may break.
// kUnsupported: no vocabulary, or of a kind other than byte-pair ("gpt2"), SentencePiece ("llama") and WordPiece
// ("bert"); byte-pair over words that end at white space, SentencePiece without a token for every byte. kCorrupt: lists
// of unequal lengths or wrong types, tokens that are not unique, tokens for bytes in WordPiece, special tokens outside
// the vocabulary.
Status check_vocabulary(const GgufFile& file);

}  // namespace shale
