"""Real projects to tune: where their sources are, how they are built, and which of their own tests are run."""

from dataclasses import dataclass, field
from typing import Literal

from mlgokit.corpus.sources.projects import Archive

System = Literal["CMake, Ninja", "CMake, Make", "Meson", "autotools", "Make"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedProject:
    """One project, built by its own build system.

    In ``options`` and ``tests`` the marks ``{source}`` and ``{build}`` stand for those folders, ``{cc}`` for clang,
    ``{linking}`` for the flags of links, and the word ``{make}`` for make with the compilers and flags of the build.

    Attributes:
        name: of the project.
        language: of its library.
        system: what it is built with; with ``Make`` in a copy of the sources.
        archive: where the sources come from.
        root: the project's folder in the archive.
        options: words for the configuration, or for make.
        flags: what old code needs of a new compiler.
        targets: what is built for the tuning; everything if there are none.
        include: which sources of the build's compilation database are tuned, a regular expression for their paths.
        exclude: which of these are not.
        image: the program or shared library that the project ships, in the build folder; a glob.
        tests: commands, in the build folder, unless ``tests_folder`` says where.
        tests_folder: where the tests run.
        counted: a regular expression whose groups, added up over the output of the tests, say how many there were.
        shown: what the tests are, for readers.
        assertions: whether the tests rest on ``assert``, so that the build has no ``NDEBUG``.
        seconds: deadline of a build and of each command of the tests.
    """

    name: str
    language: Literal["c++", "c"]
    system: System
    archive: Archive
    root: str
    options: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    include: str
    exclude: str | None = None
    image: str
    tests: tuple[tuple[str, ...], ...]
    tests_folder: str = "{build}"
    counted: str = ""
    shown: str
    assertions: bool = False
    seconds: float = field(default=900.0)


def debian(package: str, version: str, suffix: str, sha256: str) -> Archive:
    """The upstream archive of a Debian source package."""
    initial = package[:4] if package.startswith("lib") else package[0]
    file = f"pool/main/{initial}/{package}/{package}_{version}.orig.tar.{suffix}"
    return Archive(registry="debian", package=package, version=version, file=file, sha256=sha256)


CTEST = ("ctest", "--output-on-failure")
CTEST_COUNT = r"tests passed, \d+ tests failed out of (\d+)"
MESON_TEST = ("meson", "test", "--no-rebuild", "--print-errorlogs")
MESON_COUNT = r"Ok: +(\d+)"

CPP_PROJECTS = (
    TunedProject(
        name="double-conversion",
        language="c++",
        system="CMake, Ninja",
        archive=debian(
            "double-conversion", "3.2.1", "gz", "e40d236343cad807e83d192265f139481c51fc83a1c49e406ac6ce0a0ba7cd35"
        ),
        root="double-conversion-3.2.1",
        options=("-DBUILD_TESTING=ON", "-DBUILD_SHARED_LIBS=ON"),
        include=r"/double-conversion/[^/]*\.cc$",
        image="libdouble-conversion.so.*.*",
        tests=(CTEST,),
        counted=CTEST_COUNT,
        shown="ctest (cctest)",
        assertions=True,
    ),
    TunedProject(
        name="jsoncpp",
        language="c++",
        system="Meson",
        archive=debian("libjsoncpp", "1.9.5", "gz", "f409856e5920c18d0c2fb85276e24ee607d2a09b5e7d5f0a371368903c275da2"),
        root="jsoncpp-1.9.5",
        include=r"/src/lib_json/",
        image="libjsoncpp.so.*",
        tests=(MESON_TEST,),
        counted=MESON_COUNT,
        shown="meson test (jsoncpp_test, runjsontests.py)",
        assertions=True,
    ),
    TunedProject(
        name="tinyxml2",
        language="c++",
        system="Meson",
        archive=debian(
            "tinyxml2", "9.0.0+dfsg", "xz", "96510f47a5db537f70dff3e83dd71fd2180cbba4aa76c589a549467e7f34bc9b"
        ),
        root="tinyxml2-9.0.0",
        options=("-Dtests=true",),
        include=r"/tinyxml2\.cpp$",
        image="libtinyxml2.so.*",
        tests=(MESON_TEST,),
        counted=MESON_COUNT,
        shown="meson test (xmltest)",
    ),
    TunedProject(
        name="pugixml",
        language="c++",
        system="CMake, Make",
        archive=debian("pugixml", "1.13", "gz", "5c5ad5d7caeb791420408042a7d88c2c6180781bf218feca259fd9d840a888e1"),
        root="pugixml-1.13",
        options=("-DPUGIXML_BUILD_TESTS=ON", "-DBUILD_SHARED_LIBS=ON"),
        include=r"/src/pugixml\.cpp$",
        image="libpugixml.so.*",
        tests=(("./pugixml-check",),),
        tests_folder="{source}",
        counted=r"Success: (\d+) tests passed",
        shown="pugixml-check",
    ),
    TunedProject(
        name="muparser",
        language="c++",
        system="CMake, Make",
        archive=debian("muparser", "2.3.3", "gz", "91d26d8274ae9cd9c776ee58250aeddc6b574f369eafd03b25045b858a2b8177"),
        root="muparser-2.3.3-1",
        options=("-DENABLE_OPENMP=OFF",),
        include=r"/src/.*\.cpp$",
        image="libmuparser.so.*.*",
        tests=(CTEST,),
        counted=CTEST_COUNT,
        shown="ctest (t_ParserTest)",
    ),
    TunedProject(
        name="ninja",
        language="c++",
        system="CMake, Ninja",
        archive=debian(
            "ninja-build", "1.11.1", "gz", "31747ae633213f1eda3842686f83c2aa1412e0f5691d1c14dbbcc67fe7400cea"
        ),
        root="ninja-1.11.1",
        options=("-DBUILD_TESTING=ON",),
        include=r"/src/.*\.cc$",
        exclude=r"test|_perftest|bench|hash_collision",
        image="ninja",
        tests=(("./ninja_test",),),
        counted=r"\[(\d+)/\d+\] [^\r\n]*\r?\n?passed|passed",
        shown="ninja_test",
    ),
    TunedProject(
        name="gperf",
        language="c++",
        system="autotools",
        archive=debian("gperf", "3.1", "gz", "1f88819b78187350e7e6ca24b5e15cbf4083659773508d3f018b9b525e9d1cb8"),
        root="gperf-3.1",
        flags=("-Wno-register",),
        include=r"/(src|lib)/.*\.(cc|c)$",
        image="src/gperf",
        tests=(("{make}", "check"),),
        shown="make check",
    ),
    TunedProject(
        name="lzip",
        language="c++",
        system="autotools",
        archive=debian("lzip", "1.23", "xz", "d269d8e204579cb7047d6187bce741acb484a27e24cf24f20cf017c48574147c"),
        root="lzip-1.23",
        include=r"/[^/]*\.cc$",
        image="lzip",
        tests=(("{make}", "check"),),
        shown="make check",
    ),
    TunedProject(
        name="cppunit",
        language="c++",
        system="autotools",
        archive=debian("cppunit", "1.15.1", "gz", "89c5c6665337f56fd2db36bc3805a5619709d51fb136e51937072f63fcc717a7"),
        root="cppunit-1.15.1",
        options=("--disable-static", "--disable-doxygen", "--disable-werror"),
        include=r"/src/cppunit/.*\.cpp$",
        image="src/cppunit/.libs/libcppunit-1.15.so.1.*.*",
        tests=(("{make}", "check"),),
        counted=r"# PASS: +(\d+)",
        shown="make check",
    ),
)

# The makefile's own rules for these programs compile the amalgamation anew with other options.
_SQLITE_PROGRAM = ("{cc}", "-Oz", "-I.", "-L.libs", "-Wl,-rpath,{build}/.libs", "-o")
_FUZZCHECK = (
    "-I{source}/test", "-I{source}/ext/recover", "-DSQLITE_OMIT_LOAD_EXTENSION", "-DSQLITE_OSS_FUZZ",
    *(f"{{source}}/{name}.c" for name in (
        "test/fuzzcheck", "test/ossfuzz", "test/fuzzinvariants", "test/vt02", "ext/recover/dbdata",
        "ext/recover/sqlite3recover",
    )),
)  # fmt: skip

C_PROJECTS = (
    TunedProject(
        name="sqlite",
        language="c",
        system="autotools",
        archive=debian("sqlite3", "3.40.1", "xz", "aaa776260ab4dc976db34aa7891819484c8676b5b2783123ebc6301e2ca5d655"),
        root="sqlite3-3.40.1",
        options=("--disable-static", "--disable-readline"),
        targets=("libsqlite3.la",),
        include=r"/sqlite3\.c$",
        image=".libs/libsqlite3.so.0.*.*",
        tests=(
            (*_SQLITE_PROGRAM, "speedtest1", "{source}/test/speedtest1.c", "-lsqlite3"),
            ("./speedtest1", "--verify", "--size", "5"),
            (*_SQLITE_PROGRAM, "fuzzcheck", *_FUZZCHECK, "-lsqlite3", "-lm"),
            ("./fuzzcheck", *(f"{{source}}/test/fuzzdata{number}.db" for number in range(1, 9))),
        ),
        counted=r"0 errors out of (\d+) tests",
        shown="speedtest1 --verify and fuzzcheck on fuzzdata1 to 8, linked with the library",
        seconds=1800.0,
    ),
    TunedProject(
        name="expat",
        language="c",
        system="CMake, Ninja",
        archive=debian("expat", "2.5.0", "gz", "ab00ee05c7067fd10a35c5d2a4922ebba746ddd50ff83b79c828da17bbdf1757"),
        root="libexpat-R_2_5_0/expat",
        options=("-DEXPAT_BUILD_TESTS=ON", "-DEXPAT_BUILD_EXAMPLES=OFF", "-DEXPAT_BUILD_DOCS=OFF"),
        include=r"/lib/.*\.c$",
        image="libexpat.so.*.*",
        tests=(CTEST,),
        counted=CTEST_COUNT,
        shown="ctest (runtests, runtestspp)",
        assertions=True,
    ),
    TunedProject(
        name="cmark",
        language="c",
        system="CMake, Make",
        archive=debian("cmark", "0.30.2", "gz", "6c7d2bcaea1433d977d8fed0b55b71c9d045a7cdf616e3cd2dce9007da753db3"),
        root="cmark-0.30.2",
        options=("-DCMARK_SHARED=OFF",),
        include=r"/src/.*\.c$",
        image="src/cmark",
        tests=(CTEST,),
        counted=CTEST_COUNT,
        shown="ctest (api_test, the specification's examples)",
    ),
    TunedProject(
        name="jansson",
        language="c",
        system="CMake, Ninja",
        archive=debian("jansson", "2.14", "gz", "c739578bf6b764aa0752db9a2fdadcfe921c78f1228c7ec0bb47fa804c55d17b"),
        root="jansson-2.14",
        options=(
            "-DJANSSON_BUILD_SHARED_LIBS=ON",
            "-DJANSSON_BUILD_DOCS=OFF",
            "-DJANSSON_EXAMPLES=OFF",
            # Its CMakeLists.txt overwrites the flags of links.
            "-DCMAKE_C_STANDARD_LIBRARIES={linking}",
        ),
        include=r"/src/.*\.c$",
        image="lib/libjansson.so.*.*",
        tests=(CTEST,),
        counted=CTEST_COUNT,
        shown="ctest (api, suites)",
    ),
    TunedProject(
        name="pcre2",
        language="c",
        system="autotools",
        archive=debian("pcre2", "10.42", "gz", "c33b418e3b936ee3153de2c61cc638e7e4fe3156022a5c77d0711bcbb9d64f1f"),
        root="pcre2-10.42",
        options=("--disable-static",),
        include=r"/src/pcre2_.*\.c$",
        image=".libs/libpcre2-8.so.0.*.*",
        tests=(("{make}", "check"),),
        counted=r"# PASS: +(\d+)",
        shown="make check (RunTest, RunGrepTest)",
    ),
)

PROJECTS = {project.name: project for project in (*CPP_PROJECTS, *C_PROJECTS)}

UNSEEN_PROJECTS = (
    TunedProject(
        name="gflags",
        language="c++",
        system="CMake, Ninja",
        archive=debian("gflags", "2.2.2", "gz", "34af2f15cf7367513b352bdcd2493ab14ce43692d2dcd9dfc499492966c64dcf"),
        root="gflags-2.2.2",
        options=("-DBUILD_TESTING=ON", "-DBUILD_SHARED_LIBS=ON"),
        include=r"/src/gflags[^/]*\.cc$",
        image="lib/libgflags.so.*.*",
        tests=(CTEST,),
        counted=CTEST_COUNT,
        shown="ctest (gflags_unittest)",
    ),
    TunedProject(
        name="glog",
        language="c++",
        system="CMake, Make",
        archive=debian(
            "google-glog", "0.6.0", "gz", "8a83bf982f37bb70825df71a9709fa90ea9f4447fb3c099e1d720a439d88bad6"
        ),
        root="glog-0.6.0",
        options=("-DWITH_GTEST=OFF", "-DWITH_GFLAGS=OFF", "-DWITH_UNWIND=OFF"),
        include=r"/src/[^/]*\.cc$",
        exclude=r"test|mock",
        image="libglog.so.*.*.*",
        tests=((*CTEST, "--exclude-regex", "^logging|^symbolize"),),
        counted=CTEST_COUNT,
        shown="ctest, without three that fail in the plain build, too",
        assertions=True,
    ),
    TunedProject(
        name="ddrescue",
        language="c++",
        system="autotools",
        archive=debian("gddrescue", "1.27", "xz", "dd8af32d9be5afd7a9b9c34014e44358c3bfb193a612a2cb6547499bb1f76698"),
        root="gddrescue-1.27",
        include=r"/[^/]*\.cc$",
        image="ddrescue",
        tests=(("{make}", "check"),),
        shown="make check",
    ),
    TunedProject(
        name="libsamplerate",
        language="c",
        system="CMake, Ninja",
        archive=debian(
            "libsamplerate", "0.2.2", "gz", "16e881487f184250deb4fcb60432d7556ab12cb58caea71ef23960aec6c0405a"
        ),
        root="libsamplerate-0.2.2",
        options=("-DBUILD_SHARED_LIBS=ON", "-DLIBSAMPLERATE_EXAMPLES=OFF"),
        include=r"/src/[^/]*\.c$",
        image="src/libsamplerate.so.*.*.*",
        tests=(CTEST,),
        counted=CTEST_COUNT,
        shown="ctest",
    ),
    TunedProject(
        name="mawk",
        language="c",
        system="autotools",
        archive=debian(
            "mawk", "1.3.4.20200120", "gz", "7fd4cd1e1fae9290fe089171181bbc6291dfd9bca939ca804f0ddb851c8b8237"
        ),
        root="mawk-1.3.4-20200120",
        include=r"/[^/]*\.c$",
        # A tool of the build, which is compiled and linked at once.
        exclude=r"/makescan\.c$",
        image="mawk",
        tests=(("{make}", "check"),),
        shown="make check",
    ),
    TunedProject(
        name="libxml2",
        language="c",
        system="autotools",
        archive=debian(
            "libxml2", "2.9.14+dfsg", "xz", "4fe913dec8b1ab89d13b489b419a8203176ea39e931eaa0d25b17eafb9c279e9"
        ),
        root="libxml2-2.9.14",
        options=("--without-python", "--without-lzma", "--without-zlib"),
        include=r"/libxml2-2\.9\.14/[^/]*\.c$",
        image=".libs/libxml2.so.*.*.*",
        tests=(("{make}", "testapi", "testchar", "testdict"), ("./testapi",), ("./testchar",), ("./testdict",)),
        counted=r"(\d+) tests, 0 errors",
        shown="testapi, testchar, testdict; the package has no data for the others",
    ),
)
"""Projects that nobody here had compiled before they were tuned by default settings, once."""
ALL_PROJECTS = PROJECTS | {project.name: project for project in UNSEEN_PROJECTS}
"""By name, all that can be tuned; a benchmark tunes :data:`PROJECTS` if none are named."""
