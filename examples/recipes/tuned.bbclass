# Yocto: clang for size, with a plugin, for a recipe that inherits this class. Name the plugin in local.conf:
#   TUNED_PLUGIN = "/path/of/the/project/tuned-1a2b3c4d5e6f.plugin"
# Its content is part of the task's hash. Tried with BitBake; a build of Yocto was not.
TOOLCHAIN = "clang"
TUNED_FLAGS = "-Oz -ffunction-sections -fdata-sections -fpass-plugin=${TUNED_PLUGIN}"
CFLAGS:append = " ${TUNED_FLAGS}"
CXXFLAGS:append = " ${TUNED_FLAGS}"
do_compile[file-checksums] += "${TUNED_PLUGIN}:True"
