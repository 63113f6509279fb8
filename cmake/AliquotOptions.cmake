# How everything is compiled. Two targets carry it:
#   aliquot_warnings  the include root and the warnings, for anything of ours
#   aliquot_options   the same and the preset's sanitizers, for what runs as our own process
# What is loaded into foreign processes (enforce/, standin/) links only aliquot_warnings.

set(ALIQUOT_SANITIZE "" CACHE STRING "comma-separated list for -fsanitize=, or empty")
option(ALIQUOT_HARDEN "build with the compiler's and linker's hardening" OFF)
option(ALIQUOT_UNIT_TESTS "build the unit tests beside the code" ON)
option(ALIQUOT_REPO_CHECKS "register the checks of the source tree (layers, format)" ON)
option(ALIQUOT_FUZZ "build the fuzzers; needs clang" OFF)

# Most of what a compiler does is reading headers and generating templates: eight sources of a target at a time
# (CMAKE_UNITY_BUILD) take half as long. The presets release and fuzz do so, and tools/run-tests where it builds dev from
# nothing. A change to one source takes longer then, and no two of a target may name things alike, not even in
# anonymous namespaces.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_SKIP_RPATH ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

include(CheckPIESupported)
check_pie_supported(LANGUAGES C CXX)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# -Wnull-dereference: GCC 12 sees null pointers that are never there as soon as it sees enough sources at once.
add_library(aliquot_warnings INTERFACE)
target_include_directories(aliquot_warnings INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(aliquot_warnings INTERFACE
  -Werror -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wcast-align -Wcast-qual
  -Wformat=2 -Wundef -Wvla $<$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>:-Wnull-dereference>
  $<$<COMPILE_LANGUAGE:CXX>:-Wold-style-cast;-Wnon-virtual-dtor;-Woverloaded-virtual;-Wextra-semi>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wduplicated-cond;-Wlogical-op;-Wsuggest-override>
  # A class of a header that is finished in one source, with types of that source alone, is right; among eight GCC cannot tell.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>:-Wno-subobject-linkage>)

add_library(aliquot_options INTERFACE)
target_link_libraries(aliquot_options INTERFACE aliquot_warnings)
if(ALIQUOT_SANITIZE)
  # The checks of every pointer take a quarter of the build's time, and the address sanitizer sees the same mistakes.
  target_compile_options(aliquot_options INTERFACE
    -fsanitize=${ALIQUOT_SANITIZE} -fno-sanitize=vptr,null,alignment,object-size
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(aliquot_options INTERFACE -fsanitize=${ALIQUOT_SANITIZE})
endif()

if(ALIQUOT_HARDEN)
  # -U first: some distributions' compilers define a lower level by themselves.
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -D_GLIBCXX_ASSERTIONS
    -fstack-protector-strong -fstack-clash-protection)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64")
    add_compile_options(-fcf-protection)
  endif()
  add_link_options(-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(tl-expected REQUIRED)
if(BUILD_TESTING AND ALIQUOT_UNIT_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
endif()
