"""The structs and constants of python/nrl/_lib.py against what a C compiler makes of <nrl/...>."""
import ctypes
import os
import subprocess

from common import Case, main, source
from nrl import _lib

PREFIXES = ("OK", "ERR_", "EVENT_", "DTYPE_", "UNARY_", "BINARY_", "REDUCE_", "BETTER_", "ENCODE_", "KIND_", "NODE_", "ABI", "BUILD", "MAX_",
            "TAPE_MAX_")


def constants():
    return {name: value for name, value in vars(_lib).items()
            if isinstance(value, int) and name.isupper() and name.startswith(PREFIXES)}


class Layout(Case):
    def test_structs_and_constants_are_those_of_the_headers(self):
        lines, want = [], []
        for struct in _lib.STRUCTS:
            name = struct.__name__
            lines.append(f'printf("%zu\\n", sizeof({name}));')
            want.append((name, ctypes.sizeof(struct)))
            for field, *_ in struct._fields_:
                lines.append(f'printf("%zu\\n", offsetof({name}, {field}));')
                want.append((f"offset of {name}.{field}", getattr(struct, field).offset))
                lines.append(f'printf("%zu\\n", sizeof((({name} *)0)->{field}));')
                want.append((f"size of {name}.{field}", getattr(struct, field).size))
        for name, value in constants().items():
            lines.append(f'printf("%lld\\n", (long long)NRL_{name});')
            want.append((f"NRL_{name}", value))
        self.assertGreater(len(want), 300)
        program = self.path("layout.c")
        with open(program, "w") as f:
            f.write("#include <nrl/nrl.h>\n#include <nrl/checkpoint.h>\n#include <nrl/harness.h>\n#include <nrl/inference.h>\n"
                    "#include <stddef.h>\n#include <stdio.h>\nint main(void)\n{\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
        subprocess.run([os.environ["CC"], "-I", os.path.join(source, "core/include"), "-I",
                        os.path.join(source, "lib/inference/include"), "-I", os.path.join(source, "lib/testing/include"), "-I", os.path.join(source, "lib/operations/include"), program, "-o", self.path("layout")], check=True)
        got = subprocess.run([self.path("layout")], check=True, capture_output=True, text=True).stdout.split()
        for (what, mine), theirs in zip(want, got):
            self.assertEqual(mine, int(theirs), what)
        self.assertEqual(len(want), len(got))

    def test_the_package_has_the_version_of_the_library(self):
        with open(os.path.join(source, "python/pyproject.toml")) as f:
            self.assertIn(f'version = "{_lib.__version__}"', f.read())


if __name__ == "__main__":
    main()
