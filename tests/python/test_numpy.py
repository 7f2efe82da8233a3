"""What numpy adds: arrays over nrl's memory. Skipped where numpy is absent."""
import unittest

import nrl
from common import Case, main

try:
    import numpy
except ImportError:
    numpy = None


@unittest.skipIf(numpy is None, "no numpy")
class Arrays(Case):
    def test_logits_and_log_probs_are_arrays(self):
        with nrl.open(self.config()) as run:
            ids = run.tokenizer.encode("What is two plus two?")
            logits, logps = run.logits(ids), run.logps(numpy.array(ids))
        self.assertEqual((logits.dtype, logits.shape, logps.dtype), (numpy.float32, (len(ids), 512), numpy.float32))
        shifted = logits - logits.max(axis=1, keepdims=True)
        want = shifted - numpy.log(numpy.exp(shifted).sum(axis=1, keepdims=True))
        numpy.testing.assert_allclose(logps[1:], want[numpy.arange(len(ids) - 1), ids[1:]], atol=1e-4)

    def test_a_loss_in_numpy_sees_views_and_trains_as_the_plugin(self):
        seen = []

        @nrl.loss
        def numeric(b):
            logps, weights = b.logps.numpy(), b.target_weights
            self.assertFalse(logps.flags.writeable or logps.flags.owndata or weights.flags.owndata)
            self.assertEqual(len(b.cu_seqlens), b.n_segments + 1)
            self.assertEqual(b.cu_seqlens[-1], b.n_tokens)
            seen.append(float((b.logps * b.weights).sum().item() - (logps * weights).sum()))
            return b.custom(-(logps * weights), logps=-weights)

        def losses(algorithm, out):
            with nrl.open(self.config(out, algorithm=algorithm)) as run:
                return [e.loss for e in run.steps()]
        numpy.testing.assert_allclose(losses(numeric, "mine"), losses("sft", "theirs"), atol=1e-5)
        self.assertLess(max(map(abs, seen)), 1e-3)
        self.assertLess(nrl.gradcheck(numeric), 0.005)

    def test_memory_of_a_result_is_its_own(self):
        with nrl.open(self.config()) as run:
            ids = run.tokenizer.encode("Hello")
            first = run.logps(ids)
            kept = first.copy()
            run.train()
            self.assertFalse(numpy.array_equal(run.logps(ids), kept))
        numpy.testing.assert_array_equal(first, kept)

    def test_weights_of_a_checkpoint(self):
        with nrl.open(self.config()) as run:
            run.train()
            with nrl.Checkpoint(run.out) as checkpoint:
                weights = checkpoint.read("model.embed_tokens.weight")
        self.assertEqual((weights.dtype, weights.shape), (numpy.float32, (512, 64)))
        self.assertTrue(numpy.isfinite(weights).all())


if __name__ == "__main__":
    main()
