"""examples/python, and the module as it is installed."""
import os
import subprocess
import sys

from common import Case, configs, main, source


class Example(Case):
    def test_the_example_trains_with_an_installed_module(self):
        prefix = self.path("prefix")
        subprocess.run([os.environ["CMAKE"], "--install", os.environ["NRL_TEST_BUILD"], "--prefix", prefix, "--component", "runtime"],
                       check=True, capture_output=True)
        env = {k: v for k, v in os.environ.items() if k not in ("NRL_LIBRARY", "NRL_PLUGIN_PATH", "LD_LIBRARY_PATH")}
        env["PYTHONPATH"] = os.path.join(prefix, "lib/python3/dist-packages")
        done = subprocess.run([sys.executable, os.path.join(source, "examples/python/finetune.py"), configs(""), self.path("out")],
                              check=True, capture_output=True, text=True, env=env)
        lines = done.stdout.splitlines()
        self.assertEqual(len([line for line in lines if line.startswith("step ")]), 3)
        self.assertTrue(lines[3].startswith("What is two plus two?"))


if __name__ == "__main__":
    main()
