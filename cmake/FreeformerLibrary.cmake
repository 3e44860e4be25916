# One library per folder of src/. A folder's headers are found as "folder/header.h" through a link
# in the build tree that only its users get, so an include against the arrows does not compile.

# Warnings, optimisation and sanitizers of all our targets.
add_library(freeformer_options INTERFACE)
target_compile_options(freeformer_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wcast-qual -Wmissing-declarations
  # GCC 12 warns of its own std::string when it is inlined (bugs 105329, 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>
  $<$<BOOL:${FREEFORMER_WERROR}>:-Werror>)
if(FREEFORMER_SANITIZE)
  target_compile_options(freeformer_options INTERFACE
    -fsanitize=${FREEFORMER_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  target_link_options(freeformer_options INTERFACE -fsanitize=${FREEFORMER_SANITIZE})
endif()

# Where `folder` can be included from.
function(freeformer_include_root folder result)
  set(root ${CMAKE_BINARY_DIR}/include/${folder})
  file(MAKE_DIRECTORY ${root})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/src/${folder} ${root}/${folder} SYMBOLIC)
  set(${result} ${root} PARENT_SCOPE)
endfunction()

# freeformer_library(name SOURCES … LINKS … [PRIVATE_LINKS …] [FOLDER …] [MODULE]
#                    [PRECOMPILED_HEADER … | REUSES_PRECOMPILED_HEADER target])
function(freeformer_library name)
  cmake_parse_arguments(ARG "MODULE" "FOLDER;PRECOMPILED_HEADER;REUSES_PRECOMPILED_HEADER"
                        "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  if(NOT ARG_FOLDER)
    set(ARG_FOLDER ${name})
  endif()
  list(TRANSFORM ARG_SOURCES PREPEND src/${ARG_FOLDER}/)
  if(ARG_MODULE)
    add_library(${name} MODULE ${ARG_SOURCES})
  else()
    add_library(${name} ${ARG_SOURCES})
  endif()
  freeformer_include_root(${ARG_FOLDER} include_root)
  target_include_directories(${name} PUBLIC ${include_root})
  target_link_libraries(${name} PUBLIC ${ARG_LINKS}
                        PRIVATE $<BUILD_INTERFACE:freeformer_options> ${ARG_PRIVATE_LINKS})
  set_target_properties(${name} PROPERTIES OUTPUT_NAME freeformer_${name}
                        INSTALL_RPATH "$ORIGIN"
                        DEFINE_SYMBOL "")  # a define per library would spoil a shared header
  if(ARG_PRECOMPILED_HEADER)
    target_precompile_headers(${name} PRIVATE src/${ARG_FOLDER}/${ARG_PRECOMPILED_HEADER})
  endif()
  if(ARG_REUSES_PRECOMPILED_HEADER)
    target_precompile_headers(${name} REUSE_FROM ${ARG_REUSES_PRECOMPILED_HEADER})
  endif()
  set_property(GLOBAL APPEND PROPERTY FREEFORMER_LIBRARIES ${name})
endfunction()

# A folder of headers alone.
function(freeformer_interface name)
  cmake_parse_arguments(ARG "" "" "LINKS" ${ARGN})
  add_library(${name} INTERFACE)
  freeformer_include_root(${name} include_root)
  target_include_directories(${name} INTERFACE ${include_root})
  target_link_libraries(${name} INTERFACE ${ARG_LINKS})
endfunction()
