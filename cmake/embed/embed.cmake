# penstock_embed(TARGET FOLDER FUNCTION HEADER [PATTERN…]): compiles the files of FOLDER that match a pattern (*) into TARGET.
#
# The generated source defines `std::span<const EmbeddedFile> FUNCTION()`, which HEADER declares; names are those below FOLDER. It
# is made again when a file changes or is added. The same file is the script that the build runs (cmake -P).
set(PENSTOCK_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

function(penstock_embed target folder function header)
  set(patterns ${ARGN})
  if(NOT patterns)
    set(patterns *)
  endif()
  cmake_path(ABSOLUTE_PATH folder NORMALIZE OUTPUT_VARIABLE root)
  list(TRANSFORM patterns PREPEND ${root}/)
  file(GLOB files CONFIGURE_DEPENDS ${patterns})
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${function}.cc)
  string(REPLACE ";" "|" joined "${files}")
  add_custom_command(OUTPUT ${output} VERBATIM
    COMMAND ${CMAKE_COMMAND} -DFILES=${joined} -DROOT=${root} -DOUTPUT=${output} -DFUNCTION=${function} -DHEADER=${header}
      -P ${PENSTOCK_EMBED_SCRIPT}
    DEPENDS ${files} ${PENSTOCK_EMBED_SCRIPT} COMMENT "Embedding ${folder}")
  target_sources(${target} PRIVATE ${output})
  set_source_files_properties(${output} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()

string(REPLACE "|" ";" FILES "${FILES}")
set(arrays "")
set(rows "")
set(i 0)
foreach(path ${FILES})
  cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${ROOT} OUTPUT_VARIABLE name)
  file(READ ${path} hex HEX)
  file(SHA256 ${path} hash)
  string(SUBSTRING ${hash} 0 16 tag)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "constexpr unsigned char kFile${i}[] = {${bytes}0};\n")  # the 0 keeps empty files legal
  string(APPEND rows "    {\"${name}\", \"${tag}\", {reinterpret_cast<const char*>(kFile${i}), sizeof(kFile${i}) - 1}},\n")
  math(EXPR i "${i} + 1")
endforeach()
file(WRITE ${OUTPUT} "// Generated from the files that it holds.
#include \"${HEADER}\"

namespace penstock {
namespace {
${arrays}}  // namespace

std::span<const EmbeddedFile> ${FUNCTION}() {
  static const EmbeddedFile files[] = {
${rows}  };
  return files;
}

}  // namespace penstock
")
