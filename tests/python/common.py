"""What the tests of the Python module share: a folder that is removed, and a small config."""
import os
import shutil
import sys
import tempfile
import unittest

source = os.environ["NRL_TEST_SOURCE"]


def configs(name):
    return os.path.join(source, "configs", name)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="nrl-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def config(self, out="run", **keys):
        """Three steps of a new model of two layers."""
        return {"model": {"config": configs("models/tiny.json"), "tokenizer": configs("models/tiny-tokenizer")},
                "data": {"train": configs("data/chat.jsonl"), "template": "chatml", "max_length": 128},
                "train": {"steps": 3, "global_batch": 8}, "optimizer": {"lr": 3e-3}, "out": self.path(out), **keys}


def main():
    result = unittest.main(exit=False, verbosity=2).result
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    if result.testsRun == len(result.skipped) and result.wasSuccessful():
        sys.exit(77)
    sys.exit(not result.wasSuccessful())
