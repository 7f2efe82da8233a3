# What an outsider needs: the program, libnrl.so.0, the headers, the plugins, a CMake package.
