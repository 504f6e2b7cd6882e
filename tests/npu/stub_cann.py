"""A virtual environment in which the real torch_npu imports on a machine without CANN.

torch_npu links against Huawei's CANN libraries. Every symbol that it leaves to them is given a stub here, which reports
an error: there is one device, which can be selected and does nothing. So the operator registrations, schemas, fake
kernels and Python sources are the real ones, and nothing can run on a device.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

VERSION: Final = "2.13.0"
_SOURCES: Final = ("_C*.so", "lib/libtorch_npu.so", "lib/libtensorpipe.so", "lib/libnpu_profiler.so")
_ERROR: Final = 500000  # ACL_ERROR_INTERNAL_ERROR
_LIBRARY: Final = "libascendcl.so"
_BODIES: Final = {
    "aclrtGetDeviceCount": "int {name}(unsigned *count) {{ *count = 1; return 0; }}",
    # torch selects the device of a tensor that it indexes, a fake one too.
    "aclrtGetDevice": "int {name}(int *device) {{ *device = 0; return 0; }}",
    "aclrtSetDevice": "int {name}(int device) {{ return 0; }}",
    "aclGetRecentErrMsg": 'const char *{name}(void) {{ return "stub CANN: no device"; }}',
    "aclrtGetSocName": 'const char *{name}(void) {{ return "Ascend910B1"; }}',
}
_NOT_CANN: Final = re.compile(r"_?Py|_ZTH|__tls|__gmon|_ITM|__cxa")


class MissingToolError(Exception):
    """Something that the environment is made with is not here; the message says what."""


def make(folder: Path) -> tuple[Path, dict[str, str]]:
    """The Python of an environment in ``folder``, made on first use, and the variables to start it with.

    It shares this environment's packages, torch among them, and adds torch_npu.

    Raises:
        MissingToolError: there is no C compiler, or the wheel cannot be had.
        RuntimeError: torch_npu does not import all the same.
    """
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or shutil.which("nm") is None:
        raise MissingToolError("the stub CANN libraries need a C compiler and nm (Debian, Ubuntu: apt install gcc)")
    python = folder / "bin" / "python"
    libraries = folder / "stub-cann"
    stamp, recipe = libraries / "complete", Path(__file__).read_text()
    if not stamp.exists() or stamp.read_text() != recipe:
        venv.create(folder, with_pip=True, clear=True)
        site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
        shared = [path for path in sys.path if path.endswith("site-packages")]
        (site / "shared.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in shared))
        _install(python)
        libraries.mkdir()
        _build(compiler, site / "torch_npu", libraries, python)
        stamp.write_text(recipe)
    return python, environment(libraries)


def environment(libraries: Path) -> dict[str, str]:
    """Without autoload off, ``import torch`` alone would load torch_npu, and fail where there is no CANN."""
    return {**os.environ, "LD_LIBRARY_PATH": str(libraries), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def _install(python: Path) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    run = subprocess.run([*command, f"torch_npu=={VERSION}"], capture_output=True, text=True, check=False)
    if run.returncode:
        raise MissingToolError(f"pip found no torch_npu=={VERSION} for this machine: {run.stderr.strip()[-300:]}")


def _build(compiler: str, package: Path, folder: Path, python: Path) -> None:
    names = sorted(_unresolved(package))
    lines = [
        _BODIES[name].format(name=name) if name in _BODIES else f"long {name}(void) {{ return {_ERROR}; }}"
        for name in names
    ]
    _compile(compiler, folder / _LIBRARY, "\n".join(lines))
    probe = [str(python), "-c", "import torch, torch_npu"]
    for _ in range(20):  # each try names one more library that is not there
        run = subprocess.run(probe, env=environment(folder), capture_output=True, text=True, check=False)
        if run.returncode == 0:
            return
        missing = re.findall(r"(lib\w+\.so)[^:]*: cannot open shared object", run.stderr)
        if not missing:
            break
        for library in missing:
            _compile(compiler, folder / library, "")
    raise RuntimeError(f"torch_npu does not import with stub libraries: {run.stderr.strip()[-500:]}")


def _compile(compiler: str, target: Path, source: str) -> None:
    command = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{target.name}", "-x", "c", "-", "-o", str(target)]
    subprocess.run(command, input=source, text=True, check=True)


def _unresolved(package: Path) -> set[str]:
    """Symbols that neither torch_npu nor torch nor the C and C++ runtimes define."""
    import torch

    own = [path for pattern in _SOURCES for path in package.glob(pattern)]
    around = [*(Path(torch.__file__).parent / "lib").glob("*.so*"), *_runtimes(own)]
    defined = {name for path in (*own, *around) for name in _symbols(path, "--defined-only")}
    wanted = {name for path in own for name in _symbols(path, "--undefined-only")}
    return {name for name in wanted - defined if not _NOT_CANN.match(name)}


def _runtimes(libraries: list[Path]) -> Iterator[Path]:
    text = subprocess.run(["ldd", *libraries], capture_output=True, text=True, check=False).stdout
    for found in set(re.findall(r"=> (/\S+/lib(?:c|m|stdc\+\+|gcc_s|pthread|dl|rt)\.so\S*)", text)):
        yield Path(found)


def _symbols(path: Path, which: str) -> Iterator[str]:
    """Strong symbols, without their versions."""
    lines = subprocess.run(["nm", "-D", which, path], capture_output=True, text=True, check=False).stdout.splitlines()
    for line in lines:
        *_, kind, name = line.split()
        if which == "--defined-only" or kind == "U":
            yield name.partition("@")[0]
