# vcpkg triplet: all ports by tuned.cmake, and so with the plugin tuned.so, both beside this file. vcpkg builds a port
# again when the plugin changes, as it is hashed with the triplet. Its toolchain was tried with CMake, vcpkg was not.
set(VCPKG_TARGET_ARCHITECTURE x64)
set(VCPKG_CRT_LINKAGE dynamic)
set(VCPKG_LIBRARY_LINKAGE static)
set(VCPKG_CMAKE_SYSTEM_NAME Linux)
set(VCPKG_BUILD_TYPE release)
set(VCPKG_CHAINLOAD_TOOLCHAIN_FILE ${CMAKE_CURRENT_LIST_DIR}/tuned.cmake)
get_filename_component(plugin ${CMAKE_CURRENT_LIST_DIR}/tuned.so REALPATH)
set(VCPKG_HASH_ADDITIONAL_FILES ${plugin})
# Ports are built as Release, whose level would come after that of tuned.cmake.
set(VCPKG_CMAKE_CONFIGURE_OPTIONS -DCMAKE_C_FLAGS_RELEASE=-DNDEBUG -DCMAKE_CXX_FLAGS_RELEASE=-DNDEBUG)
