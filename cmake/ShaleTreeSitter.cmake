# tree-sitter with its grammars, built once outside the checkout by tools/build_tree_sitter.
if(NOT EXISTS "${SHALE_TREE_SITTER_DIR}/lib/libtree-sitter.a")
  message(FATAL_ERROR "SHALE_TREE_SITTER_DIR ('${SHALE_TREE_SITTER_DIR}') is not a build of tree-sitter: "
    "run ./shale, or tools/build_tree_sitter FOLDER and configure with -DSHALE_TREE_SITTER_DIR=FOLDER")
endif()
add_library(tree_sitter STATIC IMPORTED)
set_target_properties(tree_sitter PROPERTIES IMPORTED_LOCATION ${SHALE_TREE_SITTER_DIR}/lib/libtree-sitter.a
  INTERFACE_INCLUDE_DIRECTORIES ${SHALE_TREE_SITTER_DIR}/include)
