"""Builds the Cython kernels where a C compiler is at hand; everything else is in pyproject.toml.

A plain ``Extension`` with a ``.pyx`` source keeps ``optional=True``: without a compiler the install
succeeds and the package runs on Numba.
"""

import contextlib
import os
import subprocess
import sys
import tempfile

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# No flag here changes the floating-point mode of the process (-ffast-math at link time would), and
# none ties the build to this CPU: kernels/_simd.h dispatches at run time.
UNIX_FLAGS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd"]
OPENMP_PROGRAM = "#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n"


def has_openmp(compiler):
    """Whether this compiler builds and links an OpenMP program."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "probe.c")
        with open(source, "w") as file:
            file.write(OPENMP_PROGRAM)
        command = [*compiler.compiler_so, "-fopenmp", source, "-o", os.path.join(folder, "probe")]
        command = [word for word in command if word != "-c"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


class BuildKernels(build_ext):
    """build_ext with the flags that this compiler understands."""

    def build_extensions(self):
        if self.compiler.compiler_type == "unix":
            openmp = []
            # no compiler at all: the build below fails, and optional=True lets the install go on
            with contextlib.suppress(OSError):
                openmp = ["-fopenmp"] if has_openmp(self.compiler) else []
            for extension in self.extensions:
                extension.extra_compile_args = UNIX_FLAGS + openmp
                extension.extra_link_args = openmp
        elif sys.platform == "win32":
            for extension in self.extensions:
                extension.extra_compile_args = ["/O2", "/openmp"]
        super().build_extensions()


setup(
    ext_modules=[
        Extension(
            "tgpfast.kernels._cython",
            ["tgpfast/kernels/_cython.pyx"],
            depends=["tgpfast/kernels/_simd.h"],
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildKernels},
)
