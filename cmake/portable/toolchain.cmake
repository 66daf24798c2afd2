# Toolchain: Linux programs, libraries and Python modules that need nothing of a system but glibc 2.28 or later. Libraries are linked as
# archives; build/portable is made by scripts/portable_libraries (docs/adr/0021). For builds whose layers come from another one
# (PENSTOCK_PREBUILT): what is compiled here is compiled against this system's headers, only the link is of the older glibc.
get_filename_component(portable ${CMAKE_CURRENT_LIST_DIR}/../../build/portable ABSOLUTE)
list(PREPEND CMAKE_PREFIX_PATH ${portable}/prefix)
set(ENV{PKG_CONFIG_PATH} ${portable}/prefix/lib/pkgconfig)
set(CMAKE_PROJECT_penstock_INCLUDE ${CMAKE_CURRENT_LIST_DIR}/archives.cmake)
file(STRINGS ${portable}/multiarch triple)
set(old_glibc "--sysroot=${portable}/sysroot -B${portable}/sysroot/usr/lib/${triple} -L${portable}/sysroot/usr/lib/${triple} -L${portable}/sysroot/lib/${triple}")
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "${old_glibc} -static-libstdc++ -static-libgcc -Wl,--gc-sections -Wl,-Map=${kind}.map ${portable}/glibc.o")
endforeach()
# The maps are for tools/make_sbom.py. The module has the standard library and what it takes of others for itself; src/python/library.map
# says what the library exports.
string(APPEND CMAKE_MODULE_LINKER_FLAGS_INIT " -Wl,--exclude-libs,ALL")
string(APPEND CMAKE_SHARED_LINKER_FLAGS_INIT " -Wl,-z,defs")
# Behind everything else: what archives need of each other and what later versions of glibc have in libc itself.
set(CMAKE_CXX_STANDARD_LIBRARIES_INIT "-L${portable}/prefix/lib -lmpg123 -lmp3lame -l:libvorbisenc.a -l:libvorbis.a -l:libFLAC.a -l:libopus.a -l:libogg.a -l:libz.a -lpthread -ldl -lrt -lm")
