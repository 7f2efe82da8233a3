"""Models, tokenizers, checkpoints from Python, without numpy's help."""
import math

import nrl
from common import Case, configs, main, source


class Inference(Case):
    def trained(self):
        with nrl.open(self.config()) as run:
            run.train()
            ids = [run.tokenizer.encode(text) for text in ("Hello world", "What is two plus two?")]
            return run.out, ids, [list(row) for row in run.logps(ids)], run.sample("Hello", max_tokens=8)

    def test_a_checkpoint_an_export_and_an_import_are_the_run(self):
        out, ids, logps, text = self.trained()
        nrl.export_model(out, self.path("model"))
        nrl.import_model(self.path("model"), self.path("imported"))
        for path in (out, self.path("model"), self.path("imported")):
            with nrl.Model(path) as model:
                for row, of_run in zip(model.logps(ids), logps):  # products add in another order than those of training
                    for value, expected in zip(row, of_run):
                        self.assertAlmostEqual(value, expected, delta=1e-5)
                for alone, packed in zip(model.logps(ids[0]), logps[0]):
                    self.assertAlmostEqual(alone, packed, delta=1e-4)
                self.assertEqual(model.sample("Hello", max_tokens=8), text)
        self.assertRaises(nrl.ConfigError, nrl.export_model, out, self.path("model"))  # both are there
        self.assertRaises(nrl.ConfigError, nrl.import_model, self.path("model"), self.path("imported"))
        with self.assertRaises(nrl.ConfigError):
            nrl.export_model(out, self.path("other"), dtype="f8")

    def test_logits_predict_the_next_token(self):
        _, ids, _, _ = out = self.trained()
        with nrl.Model(out[0]) as model:
            logits, logps = model.logits(ids[1]), model.logps(ids[1])
            self.assertEqual(tuple(logits.shape), (len(ids[1]), model.vocab_size))
            self.assertEqual(logps[0], 0)
            for t, token in enumerate(ids[1][1:]):
                row = [logits[t, v] for v in range(model.vocab_size)]
                self.assertAlmostEqual(row[token] - math.log(sum(map(math.exp, row))), logps[t + 1], delta=1e-4)
            several = model.logits(ids)
            self.assertAlmostEqual(several[1][0, 5], logits[0, 5], delta=1e-4)
            self.assertEqual(tuple(several[0].shape), (len(ids[0]), model.vocab_size))

    def test_tokens_add_up_to_the_text(self):
        out, *_ = self.trained()
        pieces = ["", ""]

        def hear(prompt, token, text):
            self.assertIsInstance(token, int)
            pieces[prompt] += text
        with nrl.Model(out) as model:
            texts = model.sample(["Hello", "Why?"], max_tokens=16, temperature=1.0, seed=3, on_token=hear)
            self.assertEqual(texts, pieces)
            self.assertEqual(model.sample(["Hello", "Why?"], max_tokens=16, temperature=1.0, seed=3), texts)
            self.assertIsInstance(model.sample("Hello", chat=True, max_tokens=4), str)

            both = model.sample(["Hello", "Why?"], max_tokens=6, n=2, logprobs=3)
            self.assertEqual([text.prompt_index for text in both], [0, 0, 1, 1])
            self.assertEqual(both[0].ids, both[1].ids)
            self.assertEqual(both[0].logprobs, both[1].logprobs)
            self.assertEqual(len(both[0].top[0]), 3)
            self.assertEqual(max(both[0].top[0].values()), both[0].logprobs[0])
            self.assertEqual(both[2].finish, "length")

            greedy = model.sample("Hello", max_tokens=8)
            self.assertEqual(model.sample("Hello", max_tokens=8, temperature=3.0, top_k=1), greedy)
            self.assertEqual(model.sample("Hello", max_tokens=8, temperature=3.0, min_p=1.0), greedy)
            self.assertEqual(model.sample("Hello", max_tokens=8, stop=greedy[2:4]), greedy[:greedy.index(greedy[2:4])])
            talk = [{"role": "user", "content": "Hello"}]
            answer = model.sample("Hello", chat=True, max_tokens=4)
            self.assertEqual(model.sample(talk, max_tokens=4), answer)
            self.assertEqual(model.sample([talk, talk], max_tokens=4), [answer, answer])
            self.assertRaises(nrl.DataError, model.sample, [{"role": "usr", "content": "a"}], max_tokens=4)

            def stop(prompt, token, text):
                raise StopIteration("enough")
            self.assertRaises(StopIteration, model.sample, "Hello", on_token=stop)
            self.assertIsInstance(model.sample("Hello", max_tokens=2), str)  # and goes on

    def test_a_tokenizer(self):
        with nrl.Tokenizer(configs("models/tiny-tokenizer")) as tokenizer:
            for text in ("Hello wörld", "", "two\nlines\0and NUL"):
                self.assertEqual(tokenizer.decode(tokenizer.encode(text)), text)
            self.assertEqual(tokenizer.vocab_size, 417)
            self.assertRaises(nrl.DataError, tokenizer.decode, [417])
            self.assertRaises(TypeError, tokenizer.decode, "text")
        self.assertRaises(ValueError, tokenizer.encode, "a")
        with nrl.Model(source + "/tests/data/models/llama") as model:
            self.assertIsNone(model.tokenizer)
            with self.assertRaises(nrl.ConfigError) as caught:
                model.sample("a")
            self.assertIn("no tokenizer was found beside the model", str(caught.exception))
            self.assertEqual(model.config["model_type"], "llama")
            with self.assertRaises(nrl.ConfigError) as caught:
                model.logps([1, 96])
            self.assertIn("token 2 of sequence 1 is 96, expected 0 to 95", str(caught.exception))

    def test_a_checkpoint(self):
        out, *_ = self.trained()
        with nrl.Checkpoint(out) as checkpoint:
            self.assertEqual(checkpoint.step, 3)
            self.assertEqual(checkpoint.tree("progress")["step"], 3)
            self.assertIsNone(checkpoint.tree("nothing"))
            names = {(name, slot) for name, slot, _, _ in checkpoint.tensors()}
            self.assertIn(("model.embed_tokens.weight", "weight"), names)
            weights = checkpoint.read("model.embed_tokens.weight")
            self.assertEqual(tuple(weights.shape), (512, 64))
            self.assertTrue(math.isfinite(weights[511, 63]))
            self.assertRaises(KeyError, checkpoint.read, "nothing")
        self.assertRaises(nrl.ConfigError, nrl.Checkpoint, self.path("nowhere"))


if __name__ == "__main__":
    main()
