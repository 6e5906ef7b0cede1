{# Conan 2 profile: clang for size, with the plugin tuned.so beside this file. Packages are built again when the plugin
   changes, as its name is part of their ids. #}
{% set words = ["-Oz", "-ffunction-sections", "-fdata-sections",
                "-fpass-plugin=" ~ os.path.realpath(os.path.join(profile_dir, "tuned.so"))] %}
{# The level of CMake's MinSizeRel would come after these words. #}
{% set level = {"value": "-DNDEBUG", "cache": True, "type": "STRING", "docstring": "no level"} %}
[settings]
os=Linux
arch=x86_64
build_type=MinSizeRel
compiler=clang
compiler.version=22
compiler.libcxx=libstdc++11
compiler.cppstd=17

[conf]
tools.build:compiler_executables={"c": "clang-22", "cpp": "clang++-22"}
tools.build:cflags={{ words }}
tools.build:cxxflags={{ words }}
tools.info.package_id:confs=["tools.build:cflags", "tools.build:cxxflags"]
tools.cmake.cmaketoolchain:extra_variables={{ {"CMAKE_C_FLAGS_MINSIZEREL": level, "CMAKE_CXX_FLAGS_MINSIZEREL": level} }}
